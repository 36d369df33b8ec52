//! Writes down what threads ask of the shared memory, and how long they compute in between, while a trace is taken.

use mapwire_dsm::Outcome;
use mapwire_transport::fabric::Fabric;
use mapwire_wire::TraceOp;

use super::Engine;
use super::calls::{Noted, SharedCall};
use crate::driver::Driver;

impl<F: Fabric> Engine<F> {
    /// A call of the calling thread begins; `None` unless a trace is taken. A call within another has no computing of its own.
    #[inline]
    pub(super) fn begin_noting(&self, thread: u16, is_within: bool) -> Option<Noted> {
        Some(self.processor_times.as_ref()?.begin(thread, is_within))
    }

    /// The call is over: its computing ends here, and the next begins.
    #[cold]
    pub(super) fn end_noting(&self, noted: Noted, call: SharedCall, outcome: Option<Outcome>) {
        let mut driver = self.lock();
        if let Some(port) = driver.shared() {
            let SharedCall { op, mut address, mut bytes } = call;
            match (op, outcome) {
                (TraceOp::Allocate, Some(Outcome::Allocated(at))) => {
                    let view = port.views().layout().view_range(usize::from(at.view));
                    address = view.start as u64 + at.offset_bytes;
                }
                (TraceOp::ReadFault | TraceOp::WriteFault, _) => {
                    if let Some((view, page)) = port.locate(address as usize)
                        && let Some(memory) = driver.shared_memory()
                        && let Some((minipage, _)) = memory.dsm().minipage_at(view, page)
                    {
                        bytes = minipage.length_bytes;
                    }
                }
                _ => {}
            }
            // Without room nothing is allocated.
            if op != TraceOp::Allocate || matches!(outcome, Some(Outcome::Allocated(_))) {
                driver.note_call(noted.thread, op, (address, bytes));
            }
        }
        drop(driver);
        self.leave_noting(noted);
    }

    /// As [`end_noting`](Self::end_noting), of a call that gave nothing to be noted.
    #[cold]
    pub(super) fn leave_noting(&self, noted: Noted) {
        if let Some(times) = &self.processor_times {
            times.end(noted.thread);
        }
    }

    /// Notes that the shared memory is there from now on, with `participants` threads of this process in its barriers.
    #[cold]
    pub(super) fn note_open_shared(driver: &mut Driver<F>, thread: u16, participants: u16) {
        let Some(layout) = driver.shared().map(|port| *port.views().layout()) else {
            return;
        };
        let first = layout.views_range().start as u64;
        driver.note_call(thread, TraceOp::OpenShared, (first, layout.bytes as u64));
        driver.note_call(thread, TraceOp::ShapeShared, (layout.views as u64, participants.into()));
    }
}
