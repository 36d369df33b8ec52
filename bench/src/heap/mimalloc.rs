//! Calls of mimalloc, which serves one process: what the heap of shared memory is measured beside.

use core::sync::atomic::{AtomicU64, Ordering};

use libmimalloc_sys as mi;

use crate::BenchError;

/// A block of mimalloc's, as a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block(u64);

impl Block {
    #[inline(always)]
    pub(super) fn allocate(bytes: usize) -> Self {
        // SAFETY: any size will do.
        Self(unsafe { mi::mi_malloc(bytes) } as u64)
    }

    /// Zeroed.
    #[inline(always)]
    pub(super) fn zeroed(bytes: usize) -> Self {
        // SAFETY: any size will do.
        Self(unsafe { mi::mi_zalloc(bytes) } as u64)
    }

    #[inline(always)]
    pub(super) fn free(self) {
        // SAFETY: this module made it, and each caller frees what it has once; mimalloc takes null too.
        unsafe { mi::mi_free(self.0 as *mut _) };
    }

    /// Stores to its first word.
    ///
    /// # Errors
    /// There was no memory for it.
    #[inline(always)]
    pub(super) fn touch(self) -> Result<(), BenchError> {
        if self.0 == 0 {
            return Err("mimalloc has no memory".into());
        }
        // SAFETY: the block has 8 bytes at least, is aligned to them, and is not freed yet.
        unsafe { AtomicU64::from_ptr(self.0 as *mut u64) }.store(1, Ordering::Relaxed);
        Ok(())
    }

    /// For another thread.
    pub(super) fn number(self) -> u64 {
        self.0
    }

    /// Of another thread, which has it no more.
    pub(super) fn of(number: u64) -> Self {
        Self(number)
    }
}
