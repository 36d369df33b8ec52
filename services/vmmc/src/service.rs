//! The interface of a service: a protocol between processes that runs above the network interface.
//!
//! A service owns its state and sees nothing else: the node gives it messages, the time and news of peers that are gone, and carries out
//! the [`Action`]s that it asks for. It is registered at a process under a handler id; messages with this id go to the service that the
//! receiving process has registered there. The same service runs on a computer and in virtual time.

use core::any::Any;
use core::fmt::Debug;

use mapwire_wire::{Endpoint, NodeId};

/// A range of the memory that a service shares between processes: the same bytes in each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// View whose pages get the region's rights.
    pub view: u16,
    /// Offset of the first byte in the memory.
    pub offset: u64,
    /// Length in bytes; at least 1.
    pub bytes: u64,
}

/// Access of the program to a [`Region`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    None,
    /// Load.
    Read,
    /// Load and store.
    Write,
}

/// A request of a service to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Send a message to the service of the same handler id at another process.
    Send {
        /// Receiver.
        to: Endpoint,
        /// Message, at most as long as a packet of the transport carries.
        message: &'a [u8],
    },
    /// Store this process's bytes of the region into the receiver's memory, then send the message: the bytes are in place when it is
    /// handled.
    Store {
        /// Receiver.
        to: Endpoint,
        /// Bytes of this process to store.
        region: Region,
        /// Offset of the first byte in the receiver's memory.
        at: u64,
        /// Message that follows the bytes.
        message: &'a [u8],
    },
    /// Set the program's access to all whole pages that overlap the region, in its view.
    Protect {
        /// Region whose pages are meant.
        region: Region,
        /// Access from now on.
        access: Access,
    },
}

/// A peer broke the protocol. The service keeps what it needs to report that to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// A protocol between processes.
///
/// * `handle_*` take input. After each, and after each call of the program, the node drains [`poll_action`](Self::poll_action).
/// * Actions are carried out strictly in order.
/// * `now_ns` is the time of this node, in nanoseconds of a monotonic clock.
pub trait Service: Any + Debug + Send {
    /// Handles a message of a peer. Its contents were written by another process and must be checked.
    ///
    /// # Errors
    /// [`Broken`]: the peer counts as gone from then on.
    fn handle_message(&mut self, now_ns: u64, from: Endpoint, message: &[u8]) -> Result<(), Broken>;

    /// A node is gone, and all its processes with it. Called once for each.
    fn handle_peer_gone(&mut self, now_ns: u64, node: NodeId);

    /// A message that the service sent was lost: the receiver is gone, or thousands of packets wait for it.
    fn handle_lost(&mut self, to: Endpoint);

    /// Handles the time that [`poll_at`](Self::poll_at) returned.
    fn handle_time(&mut self, now_ns: u64);

    /// Whether [`poll_action`](Self::poll_action) may return something, or a call of the program has made [`poll_at`](Self::poll_at)
    /// earlier. Called after each call and each message, to save the node the polls.
    fn has_actions(&self) -> bool {
        true
    }

    /// The next action.
    fn poll_action(&mut self) -> Option<Action<'_>>;

    /// A process that must be met before the next action: polled when [`poll_action`](Self::poll_action) returns nothing; each is returned
    /// once. The meaning of meeting, and its report, are between the service and its machine.
    fn poll_meeting(&mut self) -> Option<Endpoint> {
        None
    }

    /// Time of the next [`handle_time`](Self::handle_time).
    fn poll_at(&self) -> Option<u64>;

    /// Whether `handle_message` needs the time for this message. If not, any past time will do, and the node need not read the clock.
    fn needs_time(&self, _message: &[u8]) -> bool {
        true
    }

    /// Whether a host thread must call `handle_message` for this message, instead of the thread that takes packets. The message, and those
    /// behind it, wait for that thread.
    fn runs_on_host(&self, _message: &[u8]) -> bool {
        false
    }

    /// Whether the service never allocates or frees, so that it may run in a page-fault handler. Messages for other services then wait for
    /// a thread outside the handler.
    fn allocates_nothing(&self) -> bool {
        false
    }
}
