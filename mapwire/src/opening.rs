//! Which openings of the shared memory still stand: what a slice asks before it touches memory.
//!
//! A slice is a plain value that may be kept for longer than the memory. It could hold the memory instead, but then a slice
//! that lies about somewhere would keep a closed memory mapped, and its addresses from being used again. So it carries the
//! number of its opening, and each access compares that with a word that is always there: one load of a cache line that never
//! changes, and a branch that is never taken.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use mapwire_host::own_words::OwnWord;
use mapwire_host::processes::Forked;

use crate::shared::error::SharedError;

/// At most as many stand at a time: each has a range that is watched for faults, of which a process has no more.
const MOST: usize = 16;

/// Odd while an opening stands, then one more; 0 where none ever stood, and in a forked child that does not have the memory.
static NUMBERS: OnceLock<Vec<OwnWord>> = OnceLock::new();

/// The same for memory that forked children have too.
static CHILDRENS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];

/// The last number that was given, which a forked child knows too.
static LAST: AtomicU32 = AtomicU32::new(0);

/// One opening of the shared memory, from [`begin`](Self::begin) to [`end`](Self::end).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    word: &'static AtomicU32,
    number: u32,
}

impl Opening {
    /// Begins one; `None` when 16 stand, or there is no memory for their words.
    pub(crate) fn begin() -> Option<Open> {
        if NUMBERS.get().is_none() {
            // Another thread may be faster.
            let _ = NUMBERS.set(OwnWord::several(MOST).ok()?);
        }
        Self::next(NUMBERS.get()?.iter().map(|word| &**word)).map(Open)
    }

    /// As [`begin`](Self::begin), of memory that forked children have: it stands in them too.
    pub(crate) fn begin_for_children() -> Option<Open> {
        Self::next(CHILDRENS.iter()).map(Open)
    }

    fn next(mut words: impl Iterator<Item = &'static AtomicU32>) -> Option<Self> {
        words.find_map(|word| {
            let free = word.load(Ordering::Relaxed);
            if !free.is_multiple_of(2) {
                return None;
            }
            let number = LAST.fetch_add(2, Ordering::Relaxed) | 1;
            let taken = word.compare_exchange(free, number, Ordering::Relaxed, Ordering::Relaxed);
            taken.is_ok().then_some(Self { word, number })
        })
    }

    #[cold]
    pub(crate) fn why_not(self) -> SharedError {
        match self.word.load(Ordering::Relaxed) {
            0 => Forked.into(),
            _ => SharedError::NotOpen,
        }
    }

    /// Whether it stands. A thread that learned of the end in an orderly way sees it here.
    #[inline(always)]
    pub(crate) fn stands(self) -> bool {
        self.word.load(Ordering::Relaxed) == self.number
    }
}

/// An opening that ends when this is dropped, if not before.
#[derive(Debug)]
pub(crate) struct Open(Opening);

impl Open {
    pub(crate) fn opening(&self) -> Opening {
        self.0
    }

    /// Ends it, for all copies.
    pub(crate) fn end(&self) {
        let Opening { word, number } = self.0;
        let next = number.wrapping_add(1);
        let _ = word.compare_exchange(number, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_stands_until_it_ends_and_never_again() {
        let first = Opening::begin().unwrap();
        let copy = first.opening();
        assert!(copy.stands());
        first.end();
        assert!(!copy.stands());
        let second = Opening::begin().unwrap();
        assert!(second.opening().stands() && !copy.stands());
        // Late, and so without effect.
        drop(first);
        assert!(second.opening().stands());
    }

    #[test]
    fn openings_at_the_same_time_end_each_for_itself() {
        let (first, second) = (Opening::begin().unwrap(), Opening::begin().unwrap());
        let (one, other) = (first.opening(), second.opening());
        drop(first);
        assert!(!one.stands() && other.stands());
        drop(second);
        assert!(!other.stands());
    }
}
