//! What a trace has to say of pinning besides the lookups: which transfers hold pages that are looked up later, and which memory
//! turned out not to be there.

use mapwire_translation::{AbsentRuns, PageRange};
use mapwire_wire::TraceOp;

/// Noted since the lookups of the NIC were taken out last.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Before the lookups: holds, and what was found out of memory.
    before: Vec<(TraceOp, PageRange)>,
    /// After them: what was let go of.
    after: Vec<PageRange>,
    /// Runs that could not be pinned as a whole.
    absent: AbsentRuns,
}

impl Notes {
    /// Pages were checked and pinned for a transfer.
    pub(crate) fn held(&mut self, range: PageRange) {
        self.is_there(range);
        self.before.push((TraceOp::Hold, range));
    }

    /// All of the range is there, as whoever replays concludes from a record that is written anyway: of a transfer, a hold or an
    /// export.
    #[inline]
    pub(crate) fn is_there(&mut self, range: PageRange) {
        if !self.absent.is_empty() {
            self.absent.found(range);
        }
    }

    /// The transfer is over.
    pub(crate) fn released(&mut self, range: PageRange) {
        self.after.push(range);
    }

    /// The operating system was asked to pin a run.
    #[inline]
    pub(crate) fn pinning(&mut self, run: PageRange, pinned: bool) {
        if !pinned || !self.absent.is_empty() {
            self.found_out(run, pinned);
        }
    }

    #[cold]
    fn found_out(&mut self, run: PageRange, pinned: bool) {
        let (news, op) = match pinned {
            true => (self.absent.found(run), TraceOp::Present),
            false => (self.absent.insert(run), TraceOp::Absent),
        };
        if news {
            self.before.push((op, run));
        }
    }

    /// Takes out what goes before the lookups, oldest first.
    pub(crate) fn take_before(&mut self) -> impl Iterator<Item = (TraceOp, PageRange)> {
        self.before.drain(..)
    }

    /// Takes out what goes after the lookups.
    pub(crate) fn take_after(&mut self) -> impl Iterator<Item = PageRange> {
        self.after.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapwire_translation::Page;

    fn run(first: u64, count: u64) -> PageRange {
        PageRange {
            first: Page(first),
            count,
        }
    }

    #[test]
    fn memory_that_is_not_there_is_noted_once_and_again_when_it_is() {
        let mut notes = Notes::default();
        notes.pinning(run(10, 4), true);
        for _ in 0..3 {
            notes.pinning(run(10, 32), false);
        }
        notes.pinning(run(10, 31), true);
        notes.pinning(run(9, 33), true);
        notes.pinning(run(9, 33), true);
        notes.pinning(run(60, 2), false);
        notes.is_there(run(60, 3));
        notes.pinning(run(60, 2), false);
        let noted: Vec<_> = notes.take_before().collect();
        let expected = [
            (TraceOp::Absent, run(10, 32)),
            (TraceOp::Present, run(9, 33)),
            (TraceOp::Absent, run(60, 2)),
            (TraceOp::Absent, run(60, 2)),
        ];
        assert_eq!(noted, expected);
    }
}
