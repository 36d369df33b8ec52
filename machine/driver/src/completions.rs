//! Completion words: one for each command under way, written once when it is done (VMMC §4.5), so that a process spins on a
//! word in its own cache and makes no call.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use mapwire_nic::CommandError;

use crate::sync::{AtomicU32, Mutex, MutexGuard};

/// Commands with a completion word that a process may have under way.
pub const WORDS: usize = if cfg!(all(test, loom)) {
    2
} else if cfg!(miri) {
    16
} else {
    1024
};

const FREE: u32 = 0;
const PENDING: u32 = 1;
const DONE: u32 = 2;
const FAILED: u32 = 3;

/// How a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandFailure {
    /// Why.
    pub error: CommandError,
    /// Bytes of a send that may have been stored at most; `u64::MAX`: all of them.
    pub sent_bytes: u64,
}

/// The words of one process.
#[derive(Debug)]
pub struct CompletionWords {
    words: Vec<AtomicU32>,
    /// Where to look for a free one first.
    hint: AtomicU32,
    /// Why commands failed, by word. A reason is written while its word is pending and read when that has failed, so that nobody
    /// waits for these locks; and nothing is allocated, since a command may fail in the page-fault handler.
    failures: Vec<Mutex<Option<CommandFailure>>>,
}

impl Default for CompletionWords {
    fn default() -> Self {
        Self::new()
    }
}

impl CompletionWords {
    /// All free.
    #[must_use]
    pub fn new() -> Self {
        Self {
            words: (0..WORDS).map(|_| AtomicU32::new(FREE)).collect(),
            hint: AtomicU32::new(0),
            failures: (0..WORDS).map(|_| Mutex::new(None)).collect(),
        }
    }

    /// Takes a word; `None` when all are taken.
    #[inline]
    pub fn take(&self) -> Option<u32> {
        let start = self.hint.load(Ordering::Relaxed) as usize;
        for step in 0..WORDS {
            let index = (start + step) % WORDS;
            let word = &self.words[index];
            if word.load(Ordering::Relaxed) == FREE
                && word.compare_exchange(FREE, PENDING, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                self.hint.store((index + 1) as u32, Ordering::Relaxed);
                return Some(index as u32);
            }
        }
        None
    }

    /// The command is done. A number that names no word under way is passed over.
    #[inline]
    pub fn complete(&self, index: u32) {
        if let Some(word) = self.words.get(index as usize) {
            let _ = word.compare_exchange(PENDING, DONE, Ordering::Release, Ordering::Relaxed);
        }
    }

    pub fn fail(&self, index: u32, failure: CommandFailure) {
        if let Some(word) = self.words.get(index as usize)
            && word.load(Ordering::Relaxed) == PENDING
        {
            *self.failure(index) = Some(failure);
            let _ = word.compare_exchange(PENDING, FAILED, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Whether the command is over; the word stays taken.
    #[inline]
    #[must_use]
    pub fn is_over(&self, index: u32) -> bool {
        self.words.get(index as usize).is_none_or(|word| word.load(Ordering::Acquire) != PENDING)
    }

    /// If the command is over, gives its word back and says how it ended.
    #[inline]
    pub fn finish(&self, index: u32) -> Option<Result<(), CommandFailure>> {
        let word = self.words.get(index as usize)?;
        match word.load(Ordering::Acquire) {
            DONE => {
                word.store(FREE, Ordering::Release);
                Some(Ok(()))
            }
            FAILED => {
                let failure = self.failure(index).take();
                word.store(FREE, Ordering::Release);
                // `fail` stores the reason before the word says so.
                failure.map(Err)
            }
            _ => None,
        }
    }

    fn failure(&self, index: u32) -> MutexGuard<'_, Option<CommandFailure>> {
        self.failures[index as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back the word of a command that was never submitted.
    pub fn cancel(&self, index: u32) {
        if let Some(word) = self.words.get(index as usize) {
            word.store(FREE, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapwire_wire::NodeId;

    #[test]
    fn a_word_is_taken_until_its_command_is_finished() {
        let words = CompletionWords::new();
        let taken: Vec<u32> = core::iter::from_fn(|| words.take()).collect();
        assert_eq!(taken.len(), WORDS);
        assert_eq!(words.finish(taken[5]), None);
        words.complete(taken[5]);
        assert!(words.is_over(taken[5]));
        assert_eq!(words.take(), None);
        assert_eq!(words.finish(taken[5]), Some(Ok(())));
        assert_eq!(words.take(), Some(taken[5]));
    }

    #[test]
    fn a_failed_command_says_why_once() {
        let words = CompletionWords::new();
        let word = words.take().unwrap();
        let failure = CommandFailure { error: CommandError::PeerGone(NodeId(3)), sent_bytes: 40 };
        words.fail(word, failure);
        assert_eq!(words.finish(word), Some(Err(failure)));
        assert_eq!(words.finish(word), None);
    }

    #[test]
    fn a_word_that_no_command_has_cannot_be_completed() {
        let words = CompletionWords::new();
        words.complete(7);
        words.complete(u32::MAX);
        assert_eq!(words.finish(7), None);
    }
}
