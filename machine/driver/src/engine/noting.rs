//! What threads call of services, and how long they compute in between, while a trace is taken.

use core::sync::atomic::{AtomicU64, Ordering};

use mapwire_host::waiting::{now_ns, thread_time_ns};
use mapwire_wire::TraceOp;

use crate::threads::MAX_THREADS;

/// A call as a trace has it: see [`TraceOp`] for what `address` and `bytes` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedCall {
    /// Which call.
    pub op: TraceOp,
    /// An address of the memory, or a number.
    pub address: u64,
    /// Bytes, or a number.
    pub bytes: u64,
}

impl TracedCall {
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

    /// A call of the calling thread, which has this number, begins. One within another has no computing of its own.
    pub(super) fn begin(&self, thread: u16, is_within: bool) -> Noted {
        let computed_ns = if is_within { 0 } else { self.since_last_ns(thread) };
        Noted { thread, began_ns: now_ns(), computed_ns }
    }

    /// What the calling thread, which has this number, has used since.
    fn since_last_ns(&self, thread: u16) -> u64 {
        let last_ns = self.0[usize::from(thread)].load(Ordering::Relaxed);
        let used_ns = thread_time_ns();
        // A thread that has the number of one that is gone begins anew.
        used_ns.checked_sub(last_ns).unwrap_or(used_ns)
    }

    pub(super) fn end(&self, thread: u16) {
        self.0[usize::from(thread)].store(thread_time_ns(), Ordering::Relaxed);
    }
}

/// A call that is under way in a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    pub thread: u16,
    /// On the monotonic clock.
    pub began_ns: u64,
    /// How long its thread has computed before.
    pub computed_ns: u64,
}
