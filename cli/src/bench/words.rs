//! Raw memory for baselines: what a program without mapwire would do with two mappings of one memory.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mapwire::{Buffer, Import};

use super::BenchError;

/// Memory that this process has mapped for as long as the bench keeps what it came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    start: *mut u8,
    bytes: usize,
}

impl Words {
    /// Memory that the caller keeps mapped.
    pub(crate) fn new(start: *mut u8, bytes: usize) -> Self {
        Self { start, bytes }
    }

    pub(crate) fn of_buffer(buffer: &Buffer) -> Self {
        Self::new(buffer.as_ptr(), buffer.len())
    }

    /// The mapping of an import on the direct path.
    pub(crate) fn of_import(import: &Import) -> Result<Self, BenchError> {
        let start = import
            .as_ptr()
            .ok_or("the import is not on the direct path")?;
        Ok(Self::new(start, usize::try_from(import.len())?))
    }

    #[inline(always)]
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(
            offset.is_multiple_of(8) && offset + 8 <= self.bytes,
            "word outside the bench's memory"
        );
        // SAFETY: within the mapping and aligned, as just checked (mappings start on pages); whoever made this value keeps
        // the mapping while it is used, and all processes access such words atomically.
        unsafe { &*self.start.add(offset).cast::<AtomicU64>() }
    }

    /// A word to sleep on.
    #[inline(always)]
    pub(crate) fn futex(&self, offset: usize) -> &AtomicU32 {
        assert!(
            offset.is_multiple_of(4) && offset + 4 <= self.bytes,
            "word outside the bench's memory"
        );
        // SAFETY: as in `word`.
        unsafe { &*self.start.add(offset).cast::<AtomicU32>() }
    }

    /// An acquiring load.
    #[inline(always)]
    pub(crate) fn load(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// A releasing store.
    #[inline(always)]
    pub(crate) fn store(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }

    /// The first bytes as a slice, for memory that nobody changes.
    pub(crate) fn bytes<'a>(self, length: usize) -> &'a [u8] {
        assert!(length <= self.bytes, "range outside the bench's memory");
        // SAFETY: within the mapping, as just checked; a bench's source is filled once, before it is used.
        unsafe { core::slice::from_raw_parts(self.start, length) }
    }

    /// The plain put: memcpy.
    #[inline(always)]
    pub(crate) fn put(&self, offset: usize, from: &[u8]) {
        assert!(
            offset <= self.bytes && from.len() <= self.bytes - offset,
            "range outside the bench's memory"
        );
        // SAFETY: the range is within the mapping, as just checked, and `from` is private memory.
        unsafe {
            core::ptr::copy_nonoverlapping(from.as_ptr(), self.start.add(offset), from.len())
        };
    }

    /// The plain get: memcpy.
    #[inline(always)]
    pub(crate) fn get(&self, offset: usize, to: &mut [u8]) {
        assert!(
            offset <= self.bytes && to.len() <= self.bytes - offset,
            "range outside the bench's memory"
        );
        // SAFETY: as in `put`; what a peer stores meanwhile may come in part, which a bench does not mind.
        unsafe {
            core::ptr::copy_nonoverlapping(self.start.add(offset), to.as_mut_ptr(), to.len())
        };
    }
}
