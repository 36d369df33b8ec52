//! When waits are over.

use core::cell::Cell;
use core::time::Duration;

use mapwire_host::waiting::now_ns;

/// How long a thread sleeps while packets wait for room at a peer, which does not ring when there is room again, or commands until
/// a peer has read their memory.
pub(super) const BLOCKED_NAP: Duration = Duration::from_micros(50);

pub(super) fn as_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// When a wait is over. Its time begins when it is first asked: a wait that is short reads no clock.
pub(super) struct Deadline {
    timeout: Option<Duration>,
    at_ns: Cell<Option<u64>>,
}

impl Deadline {
    pub(super) const fn after(timeout: Option<Duration>) -> Self {
        Self { timeout, at_ns: Cell::new(None) }
    }

    /// On the monotonic clock; `None`: never.
    pub(super) fn at_ns(&self) -> Option<u64> {
        let timeout = self.timeout?;
        if self.at_ns.get().is_none() {
            self.at_ns.set(Some(now_ns().saturating_add(as_ns(timeout))));
        }
        self.at_ns.get()
    }

    pub(super) fn is_over(&self) -> bool {
        self.at_ns().is_some_and(|at_ns| now_ns() >= at_ns)
    }
}
