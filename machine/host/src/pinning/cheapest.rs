//! The cheapest way to pin that works here: io_uring while its table has room, mlock beyond it and where io_uring is refused.

use mapwire_translation::page::PAGE_NUMBER_END;
use mapwire_translation::{Frame, Page, PageRange};

use super::{DEFAULT_SLOTS, MlockPinner, PinError, Pinner, UringPinner, check_frames};
use crate::limits;

/// Pins with io_uring as many pages as its table holds, and others with `mlock`. Frames of io_uring lie above all page numbers, which are
/// the frames of `mlock`.
///
/// If locked memory is limited it uses `mlock` alone: the kernel counts registered buffers of all of a user's processes together, so a
/// rank could find the limit reached without having pinned anything.
#[derive(Debug)]
pub struct CheapestPinner {
    uring: Option<UringPinner>,
    mlock: MlockPinner,
}

impl CheapestPinner {
    /// Makes a pinner, after finding out what the computer allows.
    pub fn new() -> Self {
        let unlimited = limits::may_lock_without_limit() || limits::locked_memory().0.is_none();
        Self { uring: unlimited.then(|| UringPinner::new(DEFAULT_SLOTS).ok()).flatten(), mlock: MlockPinner::new() }
    }

    /// The frame as io_uring's pinner knows it; `None` for a frame of `mlock`.
    fn registered(frame: Frame) -> Option<Frame> {
        match frame {
            Frame::GARBAGE => None,
            Frame(number) => number.checked_sub(PAGE_NUMBER_END).map(Frame),
        }
    }
}

impl Default for CheapestPinner {
    fn default() -> Self {
        Self::new()
    }
}

impl Pinner for CheapestPinner {
    fn pin(&mut self, pages: PageRange, frames: &mut [Frame]) -> Result<(), PinError> {
        if let Some(uring) = &mut self.uring
            && uring.pinned_pages() + pages.count <= u64::from(DEFAULT_SLOTS)
        {
            uring.pin(pages, frames)?;
            for frame in frames {
                frame.0 += PAGE_NUMBER_END;
            }
            return Ok(());
        }
        self.mlock.pin(pages, frames)
    }

    fn unpin(&mut self, pages: PageRange, frames: &[Frame]) -> Result<(), PinError> {
        check_frames(pages, frames.len())?;
        // Checked as a whole before anything changes.
        for (page, &frame) in pages.iter().zip(frames) {
            let address = self.address_of(frame).map(|address| address.addr() as u64);
            if address != Some(page.address()) {
                return Err(PinError::NotPinned { page, frame });
            }
        }
        // Runs of one kind, in pieces of 64: this allocates nothing.
        let mut at = 0;
        while at < frames.len() {
            let is_registered = Self::registered(frames[at]).is_some();
            let same = |frame: &&Frame| Self::registered(**frame).is_some() == is_registered;
            let count = frames[at..].iter().take(64).take_while(same).count();
            let part = PageRange { first: Page(pages.first.0 + at as u64), count: count as u64 };
            let frames = &frames[at..at + count];
            match &mut self.uring {
                Some(uring) if is_registered => {
                    let mut own = [Frame::GARBAGE; 64];
                    for (own, frame) in own.iter_mut().zip(frames) {
                        *own = Self::registered(*frame).unwrap_or(Frame::GARBAGE);
                    }
                    uring.unpin(part, &own[..count])?;
                }
                _ => self.mlock.unpin(part, frames)?,
            }
            at += count;
        }
        Ok(())
    }

    #[inline]
    fn address_of(&self, frame: Frame) -> Option<*mut u8> {
        match Self::registered(frame) {
            Some(registered) => self.uring.as_ref()?.address_of(registered),
            None => self.mlock.address_of(frame),
        }
    }

    fn limit_pages(&self) -> Option<u64> {
        self.mlock.limit_pages()
    }

    fn pinned_pages(&self) -> u64 {
        let registered = self.uring.as_ref().map_or(0, UringPinner::pinned_pages);
        registered + self.mlock.pinned_pages()
    }

    fn name(&self) -> &'static str {
        match &self.uring {
            Some(uring) => uring.name(),
            None => self.mlock.name(),
        }
    }
}
