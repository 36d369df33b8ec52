//! Words that a process keeps from its children: a forked child finds them 0, whatever they held, and however it was forked: by the C
//! library or by a bare system call. Children that share all memory (`vfork`, `posix_spawn`) share these words too.

use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use std::sync::Arc;

use rustix::mm::Advice;

use crate::mapping::Mapping;
use crate::memory::error::MemoryError;
use crate::page::round_to_pages;

/// Bytes between two words: threads that write one do not slow down readers of another.
const STRIDE: usize = 64;

/// A word that is 0 at first, and again in each forked child.
#[derive(Clone, Debug)]
pub struct OwnWord {
    /// Lies in `_memory`.
    word: NonNull<AtomicU32>,
    _memory: Arc<Mapping>,
}

// SAFETY: it is a shared reference to an atomic word, and a share of the memory that holds it.
unsafe impl Send for OwnWord {}
// SAFETY: as above.
unsafe impl Sync for OwnWord {}

impl OwnWord {
    /// Makes `count` words.
    ///
    /// # Errors
    /// No memory or address space left.
    pub fn several(count: usize) -> Result<Vec<Self>, MemoryError> {
        let bytes = count.max(1).saturating_mul(STRIDE);
        let bytes = round_to_pages(bytes).ok_or(MemoryError::TooLong { bytes })?;
        let memory = Arc::new(wiped(bytes)?);
        let word = |index| Self { word: NonNull::from(memory.word32(index * STRIDE)), _memory: Arc::clone(&memory) };
        Ok((0..count).map(word).collect())
    }
}

/// `N` words that are 0 at first, and again in each forked child, one behind the other. They are never freed.
///
/// # Errors
/// No memory or address space left.
pub fn unfreed<const N: usize>() -> Result<&'static [AtomicU32; N], MemoryError> {
    let bytes = round_to_pages(N.max(1) * 4).ok_or(MemoryError::TooLong { bytes: N })?;
    let memory = wiped(bytes)?;
    let words = NonNull::from(memory.word32(0)).cast::<[AtomicU32; N]>();
    core::mem::forget(memory);
    // SAFETY: the mapping holds so many words, starts on a page, and is never unmapped; all access to it is atomic.
    Ok(unsafe { words.as_ref() })
}

/// Memory that forked children find zeroed.
fn wiped(bytes: usize) -> Result<Mapping, MemoryError> {
    let memory = Mapping::anonymous(bytes).map_err(|errno| MemoryError::of_call("mmap", bytes, errno))?;
    memory
        .advise(0, bytes, Advice::LinuxWipeOnFork)
        .map_err(|errno| MemoryError::of_call("madvise(MADV_WIPEONFORK)", bytes, errno))?;
    Ok(memory)
}

impl Deref for OwnWord {
    type Target = AtomicU32;

    #[inline(always)]
    fn deref(&self) -> &AtomicU32 {
        // SAFETY: `word32` gave it for `_memory`, which is mapped while this lives; all access to it is atomic.
        unsafe { self.word.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_child_finds_its_parents_words_empty_and_the_parent_keeps_them() {
        let several = OwnWord::several(100).unwrap();
        let unfreed = unfreed::<100>().unwrap();
        let words: Vec<&AtomicU32> = several.iter().map(|word| &**word).chain(unfreed).collect();
        for (index, word) in words.iter().enumerate() {
            word.store(1 + index as u32, Ordering::Relaxed);
        }
        // SAFETY: the child loads words of this memory and ends. A bare system call runs no handler of the C library.
        let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if pid == 0 {
            let are_empty = words.iter().all(|word| word.load(Ordering::Relaxed) == 0);
            // SAFETY: ends the child.
            unsafe { libc::_exit(if are_empty { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child of this test.
        unsafe { libc::waitpid(pid as libc::pid_t, &raw mut status, 0) };
        assert_eq!(status, 0);
        let values = words.iter().map(|word| word.load(Ordering::Relaxed));
        assert!(values.eq(1..=200));
    }
}
