//! What each application thread of this rank waits for.

use crate::address::Key;
use crate::{Access, Address, Barrier, Lock, Thread};

/// No thread, in links and holders.
pub(crate) const NO_THREAD: Thread = Thread::MAX;

/// One application thread.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) waits: Wait,
    /// The thread that queues after this one for the same lock.
    pub(crate) next: Thread,
}

impl Slot {
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.waits, Wait::Nothing)
    }
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It runs.
    #[default]
    Nothing,
    /// Access to the minipage `key`, after a fault on `page`.
    Fault { key: Key, page: u32, access: Access },
    /// Its turn in the rank's queue for the lock.
    Lock(Lock),
    /// Everybody's arrival.
    Barrier(Barrier),
    /// Pages for an allocation.
    Pages { bytes: u64 },
    /// That many acknowledgements of its new minipage.
    Registration { left: u16, address: Address },
}

/// A request on its way. Threads of the rank that want the same minipage meanwhile wait for it too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) access: Access,
    /// How many ranks have dropped their copy. They may be faster than the grant.
    pub(crate) acked: u16,
    pub(crate) grant: Option<Grant>,
}

/// A right that waits for acknowledgements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    /// How many ranks must drop their copy.
    pub(crate) acks: u16,
    pub(crate) data: bool,
    /// Whether the manager, another rank, waits for the end.
    pub(crate) done: bool,
}
