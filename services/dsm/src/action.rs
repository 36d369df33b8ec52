//! Requests of the protocol to its driver.

use crate::{Access, Address, Error, Message, Minipage, Protection, Rank, Thread};

/// Something the driver must do, before it looks at the next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Send `message` to rank `to`, never this rank itself.
    Send { to: Rank, message: Message },
    /// Copy the bytes of all minipages that `message` [is about](Message::views) from this rank's segment to the same offsets in `to`'s, and
    /// no others, then send the message: the bytes are in place when it is handled.
    ///
    /// They may travel as a store of the network interface, through an import of `to`'s segment, on the link that then takes the message,
    /// since links keep the order; or be stored into `to`'s mapped segment at once, where the transport offers that. They may be copied in
    /// pieces or as a whole, at any time from this action until the message is handled: until then nobody at `to` may access them there,
    /// and nobody may write them here. If they cannot be copied, the message must not be sent.
    SendMinipage {
        to: Rank,
        /// The first minipage; others are as long, and adjacent to it or to each other.
        minipage: Minipage,
        /// Message that follows the bytes.
        message: Message,
    },
    /// Copy the page into the twin of that number. The application may load from the page, and not store to it.
    Twin { page: u32, twin: u32 },
    /// Compare the page with its twin, store each byte that differs to its place in `to`'s segment, then send `message`: the bytes are in
    /// place when it is handled.
    ///
    /// Bytes that do not differ must not be stored: they may be another rank's. The comparison is made at once, and the twin is then
    /// free; the page's bytes may be read until `to` has answered the [`Message::Fence`] that follows. Until then the application does
    /// not store to them.
    SendDiff {
        to: Rank,
        page: u32,
        twin: u32,
        /// Message that follows the bytes.
        message: Message,
    },
    /// Read so many pages from `from`'s segment, without that rank's help, to the same pages here, or one into the free twin `into`; then
    /// call [`handle_fetched`](crate::Dsm::handle_fetched). The application has no access to the pages meanwhile.
    Fetch { from: Rank, page: u32, pages: u32, into: Option<u32> },
    /// For each byte of the page: if it is as in `twin`, take it from `fetched`; and in any case take `twin`'s from `fetched`. The twin
    /// `fetched` is then free. The application has no access to the page.
    Merge { page: u32, twin: u32, fetched: u32 },
    /// Set the application's access to all pages of the minipage, in the minipage's own view.
    Protect {
        minipage: Minipage,
        /// Access from now on.
        protection: Protection,
    },
    /// Resume the thread: its operation has finished or failed.
    Resume {
        thread: Thread,
        /// Result of the thread's operation.
        outcome: Outcome,
    },
}

/// Result of a thread's operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The access that faulted may be retried.
    Served(Access),
    /// The lock is held.
    Locked,
    /// All participants have reached the barrier.
    Passed,
    /// The value that the root gave to [`broadcast`](crate::Dsm::broadcast), or of a [call of an object](crate::Dsm::call_object).
    Value(u64),
    /// A call of an object that waits no longer has found that it cannot be granted.
    NotNow,
    /// The new memory, all zero. Under [`Protocol::Minipages`](crate::Protocol::Minipages) it is writable here without a fault.
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
    /// An [`Action::Resume`] for the thread follows, perhaps among the actions already queued.
    Pending,
}
