//! Writes down what threads ask of the shared memory, and how long they compute in between, while a trace is taken.

use core::sync::atomic::{AtomicU64, Ordering};

use mapwire_dsm::Outcome;
use mapwire_host::waiting::{now_ns, thread_time_ns};
use mapwire_transport::fabric::Fabric;
use mapwire_wire::TraceOp;

use super::Engine;
use crate::driver::Driver;
use crate::threads::MAX_THREADS;

/// A call of the shared memory, as a trace has it: see [`TraceOp`] for what `address` and `bytes` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedCall {
    /// Which call.
    pub op: TraceOp,
    /// An address of the memory, or a number.
    pub address: u64,
    /// Bytes, or a number.
    pub bytes: u64,
}

impl SharedCall {
    /// A call about the thing with this number, such as a lock.
    #[must_use]
    pub const fn of(op: TraceOp, number: u64) -> Self {
        Self { op, address: number, bytes: 0 }
    }
}

/// The processor time that each thread had used when its last call was over.
#[derive(Debug)]
pub(super) struct ProcessorTimes([AtomicU64; MAX_THREADS]);

impl ProcessorTimes {
    pub(super) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; MAX_THREADS])
    }

    /// What the calling thread, which has this number, has used since.
    fn since_last_ns(&self, thread: u16) -> u64 {
        let last_ns = self.0[usize::from(thread)].load(Ordering::Relaxed);
        let used_ns = thread_time_ns();
        // A thread that has the number of one that is gone begins anew.
        used_ns.checked_sub(last_ns).unwrap_or(used_ns)
    }

    fn end(&self, thread: u16) {
        self.0[usize::from(thread)].store(thread_time_ns(), Ordering::Relaxed);
    }
}

/// A call that is under way in a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    thread: u16,
    began_ns: u64,
    computed_ns: u64,
}

impl Noted {
    /// Notes how long the thread has computed up to the call.
    pub(super) fn note_computing<F: Fabric>(&self, driver: &mut Driver<F>) {
        driver.note_computing(self.thread, self.began_ns, self.computed_ns);
    }
}

impl<F: Fabric> Engine<F> {
    /// A call of the calling thread begins; `None` unless a trace is taken. A call within another has no computing of its own.
    #[inline]
    pub(super) fn begin_noting(&self, thread: u16, is_within: bool) -> Option<Noted> {
        let times = self.processor_times.as_ref()?;
        Some(Noted {
            thread,
            began_ns: now_ns(),
            computed_ns: match is_within {
                true => 0,
                false => times.since_last_ns(thread),
            },
        })
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
