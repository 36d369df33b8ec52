//! Pages that are pinned and given back, as they are to be charged.

use mapwire_translation::{Frame, PageRange, PinPages, Process};

use crate::cluster::{Memory, PinRefused};
use crate::hardware::{Cost, Profile, Ps};

/// Pins in a computer's memory, and notes the calls.
pub(super) struct Pins<'a> {
    pub(super) memory: &'a mut Memory,
    pub(super) calls: Calls,
}

/// Calls of a pinner: pages of each call that pinned some, and pages that were given back.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pinned: Vec<u64>,
    unpinned: u64,
}

impl<'a> Pins<'a> {
    pub(super) fn of(memory: &'a mut Memory) -> Self {
        Self {
            memory,
            calls: Calls::default(),
        }
    }
}

impl PinPages for Pins<'_> {
    type Error = PinRefused;

    fn pin(
        &mut self,
        process: Process,
        run: PageRange,
        frames: &mut [Frame],
    ) -> Result<(), PinRefused> {
        self.calls.pinned.push(run.count);
        self.memory.pin(process, run, frames)
    }

    fn unpin(
        &mut self,
        process: Process,
        run: PageRange,
        frames: &[Frame],
    ) -> Result<(), PinRefused> {
        self.calls.unpinned += run.count;
        self.memory.unpin(process, run, frames)
    }
}

impl Calls {
    /// Adds a call that pins so many pages.
    pub(super) fn note(&mut self, pages: u64) {
        self.pinned.push(pages);
    }

    /// What they take a program, which calls the system for each.
    pub(super) fn of_program(&self, profile: &Profile) -> Ps {
        let pins: Ps = self.pinned.iter().map(|&pages| profile.pin(pages)).sum();
        pins + self.unpinned * profile.of(Cost::HostUnpin1)
    }

    /// What they take a handler, which is in the system already.
    pub(super) fn of_handler(&self, profile: &Profile) -> Ps {
        let pages: u64 = self.pinned.iter().sum();
        pages * profile.of(Cost::HostPinServing)
            + self.unpinned * profile.of(Cost::HostUnpinServing)
    }
}
