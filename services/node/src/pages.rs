//! The pinned pages of a process, and which of them transfers under way use (UTLB §3: demand-driven pinning, user-level lookup).

use alloc::vec;
use alloc::vec::Vec;

use mapwire_nic::Nic;
use mapwire_translation::{
    Frame, HostRequest, HostSide, Page, PageRange, PinPages, PinRules, Process as Owner, TranslationDesign,
};
use mapwire_wire::{ProcessId, TraceOp};

use crate::error::HostErrorOf;
use crate::tracing::{Absences, Event, Trace};

#[derive(Debug)]
pub(crate) struct Pages {
    process: ProcessId,
    host: HostSide,
    /// Transfers whose pages are held, by completion word.
    held: Vec<Option<PageRange>>,
    absences: Absences,
}

/// The pinner; what it is asked and cannot do is noted while there is a trace.
struct Noting<'a, P> {
    pinner: &'a mut P,
    process: ProcessId,
    absences: &'a mut Absences,
    trace: &'a mut Trace,
}

impl<P: PinPages> PinPages for Noting<'_, P> {
    type Error = P::Error;

    #[inline]
    fn pin(&mut self, owner: Owner, run: PageRange, frames: &mut [Frame]) -> Result<(), P::Error> {
        let outcome = self.pinner.pin(owner, run, frames);
        if self.trace.is_on()
            && let Some(op) = self.absences.pinning(run, outcome.is_ok())
        {
            self.trace.push(Event::Pages { process: self.process, op, range: run });
        }
        outcome
    }

    #[inline]
    fn unpin(&mut self, owner: Owner, run: PageRange, frames: &[Frame]) -> Result<(), P::Error> {
        self.pinner.unpin(owner, run, frames)
    }
}

impl Pages {
    /// No page pinned, and no transfer under way; `words` completion words may be.
    pub(crate) fn new(process: ProcessId, rules: PinRules, words: usize, design: &impl TranslationDesign) -> Self {
        Self {
            process,
            host: HostSide::new(Owner(process.0), rules, design),
            held: vec![None; words],
            absences: Absences::default(),
        }
    }

    /// Makes the pages usable by the NIC, and marks them as in use by the command with completion word `word`.
    #[inline]
    pub(crate) fn hold<D: TranslationDesign, P: PinPages>(
        &mut self,
        nic: &mut Nic<D>,
        pinner: &mut P,
        trace: &mut Trace,
        word: u32,
        range: PageRange,
    ) -> Result<(), HostErrorOf<P>> {
        trace.note_lookups(nic);
        let mut pinner = Noting { pinner, process: self.process, absences: &mut self.absences, trace };
        self.host.prepare(nic, &mut pinner, range)?;
        self.host.hold(range)?;
        if trace.is_on() {
            self.absences.is_there(range);
            trace.push(self.event(TraceOp::Hold, range));
        }
        if let Some(held) = self.held.get_mut(word as usize) {
            *held = Some(range);
        }
        Ok(())
    }

    /// The command with completion word `word` is over. Its pages stay pinned: the next transfer finds them so.
    #[inline]
    pub(crate) fn release<D: TranslationDesign>(&mut self, nic: &mut Nic<D>, trace: &mut Trace, word: u32) {
        if let Some(range) = self.held.get_mut(word as usize).and_then(Option::take) {
            // Every release follows a hold of the same range, so this cannot fail; if it did, pages would stay held.
            let released = self.host.release(range);
            debug_assert!(released.is_ok(), "{released:?}");
            if trace.is_on() {
                trace.note_lookups(nic);
                trace.push(self.event(TraceOp::Release, range));
            }
        }
    }

    /// One more transfer uses pages that are held.
    pub(crate) fn hold_again(&mut self, range: PageRange) {
        let held = self.host.hold(range);
        debug_assert!(held.is_ok(), "{held:?}");
    }

    /// A transfer that held the pages under no word of the program's is over.
    pub(crate) fn release_range(&mut self, range: PageRange) {
        let released = self.host.release(range);
        debug_assert!(released.is_ok(), "{released:?}");
    }

    /// As [`hold`](Self::hold), for memory that is exported.
    pub(crate) fn hold_export<D: TranslationDesign, P: PinPages>(
        &mut self,
        nic: &mut Nic<D>,
        pinner: &mut P,
        trace: &mut Trace,
        range: PageRange,
    ) -> Result<(), HostErrorOf<P>> {
        trace.note_lookups(nic);
        let mut pinner = Noting { pinner, process: self.process, absences: &mut self.absences, trace };
        self.host.prepare_receive(nic, &mut pinner, range)?;
        self.host.hold_receive(range)?;
        if trace.is_on() {
            self.absences.is_there(range);
        }
        Ok(())
    }

    pub(crate) fn release_export(&mut self, range: PageRange) {
        let released = self.host.release_receive(range);
        debug_assert!(released.is_ok(), "{released:?}");
    }

    /// Does what the NIC asks for. Pages of other processes that had to leave the NIC for it go to `others`.
    pub(crate) fn serve<D: TranslationDesign, P: PinPages>(
        &mut self,
        nic: &mut Nic<D>,
        pinner: &mut P,
        trace: &mut Trace,
        request: HostRequest,
        others: &mut Vec<(Owner, Page)>,
    ) -> Result<(), HostErrorOf<P>> {
        trace.note_lookups(nic);
        let mut pinner = Noting { pinner, process: self.process, absences: &mut self.absences, trace };
        self.host.serve(nic, &mut pinner, request, others)
    }

    /// What is pinned, and by which rules.
    #[inline]
    pub(crate) fn host(&self) -> &HostSide {
        &self.host
    }

    #[inline]
    pub(crate) fn host_mut(&mut self) -> &mut HostSide {
        &mut self.host
    }

    /// Notes that pages are exported, or no longer.
    pub(crate) fn note<D: TranslationDesign>(
        &self,
        nic: &mut Nic<D>,
        trace: &mut Trace,
        op: TraceOp,
        range: PageRange,
    ) {
        trace.note_lookups(nic);
        trace.push(self.event(op, range));
    }

    fn event(&self, op: TraceOp, range: PageRange) -> Event {
        Event::Pages { process: self.process, op, range }
    }
}
