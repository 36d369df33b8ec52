//! Pages that are pinned and given back, as they are to be charged.

use mapwire_translation::{Frame, PageRange, PinPages, Process};

use crate::hardware::memory::{Memory, PinRefused};
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
        Self { memory, calls: Calls::default() }
    }
}

impl PinPages for Pins<'_> {
    type Error = PinRefused;

    fn pin(&mut self, process: Process, run: PageRange, frames: &mut [Frame]) -> Result<(), PinRefused> {
        self.calls.pinned.push(run.count);
        self.memory.pin(process, run, frames)
    }

    fn unpin(&mut self, process: Process, run: PageRange, frames: &[Frame]) -> Result<(), PinRefused> {
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
        let pins = self.pinned.iter().map(|&pages| serving(profile, pages));
        pins.sum::<Ps>() + self.unpinned * profile.of(Cost::HostUnpinServing)
    }
}

/// What a handler takes to pin so many pages at once. Further pages add what they add to a program's call (UTLB Table 1: 2.8 us each,
/// where the first takes 27), or as much as the first where the profile does not state calls of several pages.
fn serving(profile: &Profile, pages: u64) -> Ps {
    let Some(further) = pages.checked_sub(1) else { return 0 };
    let first_ps = profile.of(Cost::HostPinServing);
    let further_ps = match profile.pin(pages).saturating_sub(profile.pin(1)) {
        0 => further * first_ps,
        further_ps => further_ps,
    };
    first_ps + further_ps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::utlb;

    #[test]
    fn pages_that_a_handler_pins_at_once_cost_what_table_1_says_of_a_call_without_the_call() {
        let profile = utlb::machine();
        let took_us = [0, 1, 2, 32].map(|pages| serving(&profile, pages) / 1_000_000);
        // Table 1: 27, 30 and 115 us, of which the handler saves 10.
        assert_eq!(took_us, [0, 17, 20, 105]);
    }
}
