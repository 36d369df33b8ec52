//! What the protocol asks of its driver.

use crate::{Access, Address, Error, Message, Minipage, Protection, Rank, Thread};

/// Something the driver must do, before it looks at the next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Send `message` to rank `to`, never this rank itself.
    Send {
        /// The receiver.
        to: Rank,
        /// What to send.
        message: Message,
    },
    /// Bring the minipage's bytes from this rank's segment to the same place in `to`'s, then send `message`: the bytes are there
    /// when it is handled.
    ///
    /// They may travel as a store of the network interface, through an import of `to`'s segment, on the link that then takes the
    /// message, since links keep the order; or be stored into `to`'s mapped segment at once, where the transport offers that. In
    /// pieces or as a whole, at any time from this action until the message is handled: until then nobody at `to` may access
    /// them there, and nobody may write them here. If they cannot be brought, the message must not be sent.
    SendMinipage {
        /// The receiver.
        to: Rank,
        /// The bytes.
        minipage: Minipage,
        /// What to send after them.
        message: Message,
    },
    /// Give the application this protection on all pages of the minipage, in the minipage's own view.
    Protect {
        /// Whose pages.
        minipage: Minipage,
        /// What the application may do from now on.
        protection: Protection,
    },
    /// Let the thread go on: what it waited for has happened, or has failed.
    Resume {
        /// Which thread.
        thread: Thread,
        /// With what result.
        outcome: Outcome,
    },
}

/// How an operation of a thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The access that faulted may be tried again.
    Served(Access),
    /// The lock is held.
    Locked,
    /// Everybody reached the barrier.
    Passed,
    /// The value that the root gave to [`broadcast`](crate::Dsm::broadcast).
    Value(u64),
    /// The new memory, all zero, writable here.
    Allocated(Address),
    /// The operation failed; a fault with [`Error::NotShared`] is a wild access.
    Failed(Error),
}

/// Whether an operation is over when the call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// It is over and succeeded; no [`Action::Resume`] follows. Other actions may still wait to be polled.
    Done,
    /// An [`Action::Resume`] for the thread follows, perhaps among the actions that wait already.
    Pending,
}
