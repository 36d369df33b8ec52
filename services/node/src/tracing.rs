//! What a node communicates, in order, for a trace of it.

use alloc::collections::VecDeque;

use mapwire_nic::{Nic, Traced};
use mapwire_translation::{AbsentRuns, PageRange, TranslationDesign};
use mapwire_wire::{ProcessId, TraceOp};

/// Something that a trace has to say. Lookups tell of transfers; the others tell what a replay could not conclude from them:
/// what `op` did to pages of `process`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are described above, once for all")]
pub enum Event {
    /// The NIC has looked up pages of a transfer.
    Lookup(Traced),
    /// Pages of a process are held for a transfer ([`TraceOp::Hold`]) or no longer ([`TraceOp::Release`]), exported or no longer, or
    /// were found out of memory or there again.
    Pages { process: ProcessId, op: TraceOp, range: PageRange },
}

/// The events that nobody has taken yet, while a trace is made.
#[derive(Debug, Default)]
pub(crate) struct Trace(Option<VecDeque<Event>>);

impl Trace {
    /// Begins or ends to keep events of a NIC.
    pub(crate) fn set<D: TranslationDesign>(&mut self, nic: &mut Nic<D>, on: bool) {
        nic.set_tracing(on);
        self.0 = on.then(VecDeque::new);
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Notes an event, behind the lookups that were made so far.
    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        if let Some(waiting) = &mut self.0 {
            waiting.push_back(event);
        }
    }

    /// Puts the lookups so far before what is noted next.
    #[inline]
    pub(crate) fn note_lookups<D: TranslationDesign>(&mut self, nic: &mut Nic<D>) {
        if let Some(waiting) = &mut self.0 {
            while let Some(traced) = nic.poll_traced() {
                waiting.push_back(Event::Lookup(traced));
            }
        }
    }

    pub(crate) fn pop<D: TranslationDesign>(&mut self, nic: &mut Nic<D>) -> Option<Event> {
        match self.0.as_mut()?.pop_front() {
            None => nic.poll_traced().map(Event::Lookup),
            event => event,
        }
    }
}

/// What a process's pinner was found to lack: runs that could not be pinned as a whole.
#[derive(Debug, Default)]
pub(crate) struct Absences {
    runs: AbsentRuns,
}

impl Absences {
    /// All of the range is there, as whoever replays concludes from an event that there is anyway: of a transfer, a hold or an
    /// export.
    #[inline]
    pub(crate) fn is_there(&mut self, range: PageRange) {
        if !self.runs.is_empty() {
            self.runs.found(range);
        }
    }

    /// The pinner was asked for a run. What that says of its memory, if it is new.
    #[inline]
    pub(crate) fn pinning(&mut self, run: PageRange, pinned: bool) -> Option<TraceOp> {
        if pinned && self.runs.is_empty() {
            return None;
        }
        let (is_new, op) = match pinned {
            true => (self.runs.found(run), TraceOp::Present),
            false => (self.runs.insert(run), TraceOp::Absent),
        };
        is_new.then_some(op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use mapwire_translation::Page;

    #[test]
    fn memory_that_is_not_there_is_noted_once_and_again_when_it_is() {
        let run = |first, count| PageRange { first: Page(first), count };
        let mut absences = Absences::default();
        let mut noted = Vec::new();
        let mut pin = |absences: &mut Absences, run, pinned| {
            noted.extend(absences.pinning(run, pinned).map(|op| (op, run)));
        };
        pin(&mut absences, run(10, 4), true);
        for _ in 0..3 {
            pin(&mut absences, run(10, 32), false);
        }
        pin(&mut absences, run(10, 31), true);
        pin(&mut absences, run(9, 33), true);
        pin(&mut absences, run(9, 33), true);
        pin(&mut absences, run(60, 2), false);
        absences.is_there(run(60, 3));
        pin(&mut absences, run(60, 2), false);
        let expected = [
            (TraceOp::Absent, run(10, 32)),
            (TraceOp::Present, run(9, 33)),
            (TraceOp::Absent, run(60, 2)),
            (TraceOp::Absent, run(60, 2)),
        ];
        assert_eq!(noted, expected);
    }
}
