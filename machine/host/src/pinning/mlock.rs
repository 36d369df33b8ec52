//! Pins by locking pages in memory.

use mapwire_translation::{Frame, PAGE_SHIFT, PageRange};

use super::{PinError, Pinner, check_frames, explain, sys};
use crate::limits::Limit;

/// Pins with `mlock`. A frame is the page's number, so any number in the address space is a valid frame: this pinner cannot detect a
/// forged one.
///
/// Dropping it leaves pages locked that were not unpinned.
#[derive(Debug)]
pub struct MlockPinner {
    pinned_pages: u64,
    limit: Limit,
}

impl MlockPinner {
    /// Makes a pinner, which reads the limit now.
    pub fn new() -> Self {
        let limit = if crate::limits::may_lock_without_limit() { Limit(None) } else { crate::limits::locked_memory() };
        Self { pinned_pages: 0, limit }
    }
}

impl Default for MlockPinner {
    fn default() -> Self {
        Self::new()
    }
}

impl Pinner for MlockPinner {
    fn pin(&mut self, pages: PageRange, frames: &mut [Frame]) -> Result<(), PinError> {
        check_frames(pages, frames.len())?;
        if let Err(errno) = sys::lock(pages) {
            // The pages before the one that failed may be locked. None was pinned before.
            let _ = sys::unlock(pages);
            return Err(explain("mlock", pages, self.pinned_pages, errno));
        }
        self.pinned_pages += pages.count;
        for (frame, page) in frames.iter_mut().zip(pages) {
            *frame = Frame(page.0);
        }
        Ok(())
    }

    fn unpin(&mut self, pages: PageRange, frames: &[Frame]) -> Result<(), PinError> {
        check_frames(pages, frames.len())?;
        if let Some((page, frame)) = pages.iter().zip(frames).find(|(page, frame)| page.0 != frame.0) {
            return Err(PinError::NotPinned { page, frame: *frame });
        }
        match sys::unlock(pages) {
            // Unmapped meanwhile, and so no longer locked.
            Ok(()) | Err(rustix::io::Errno::NOMEM) => {
                self.pinned_pages = self.pinned_pages.saturating_sub(pages.count);
                Ok(())
            }
            Err(errno) => Err(explain("munlock", pages, self.pinned_pages, errno)),
        }
    }

    fn address_of(&self, frame: Frame) -> Option<*mut u8> {
        let in_space = frame.0 < mapwire_translation::page::PAGE_NUMBER_END;
        in_space.then(|| core::ptr::with_exposed_provenance_mut((frame.0 << PAGE_SHIFT) as usize))
    }

    fn limit_pages(&self) -> Option<u64> {
        self.limit.0.map(|bytes| bytes >> PAGE_SHIFT)
    }

    fn pinned_pages(&self) -> u64 {
        self.pinned_pages
    }

    fn name(&self) -> &'static str {
        "mlock"
    }
}
