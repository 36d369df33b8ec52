//! What a service of a node is: a protocol between processes that runs above the network interface.
//!
//! A service owns its state and sees nothing else: the node gives it messages, the time and word of peers that are gone, and carries
//! out the [`Action`]s that it asks for. It is registered at a process under a handler id; messages that carry this id go to the
//! service that the receiving process has registered there. The same service runs on a computer and in virtual time.
#![no_std]
#![forbid(unsafe_code)]

use core::any::Any;
use core::fmt::Debug;

use mapwire_wire::{Endpoint, NodeId};

/// Part of the memory that a service shares between processes: the same bytes in each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The view whose pages have the region's rights.
    pub view: u16,
    /// First byte, counted from the start of the memory.
    pub offset: u64,
    /// Bytes; at least 1.
    pub bytes: u64,
}

/// What the program may do with a [`Region`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    None,
    /// Load.
    Read,
    /// Load and store.
    Write,
}

/// What a service asks its node for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Send a message to the service of the same handler id at another process.
    Send {
        /// The receiver.
        to: Endpoint,
        /// The message: as long as a packet of the transport carries, at most.
        message: &'a [u8],
    },
    /// Store this process's bytes of the region into the receiver's memory, then send the message: the bytes are there when it is
    /// handled.
    Store {
        /// The receiver.
        to: Endpoint,
        /// Which bytes of this process.
        region: Region,
        /// Where the first of them goes, counted in bytes from the start of the receiver's memory.
        at: u64,
        /// What follows them.
        message: &'a [u8],
    },
    /// Give the program this access to the whole pages that the region lies on, in its view.
    Protect {
        /// Which pages.
        region: Region,
        /// What the program may do from now on.
        access: Access,
    },
}

/// A peer sent what no peer that keeps to the protocol sends. The service keeps what it needs to say so to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// A protocol between processes.
///
/// * `handle_*` take what came. After each, and after each call of the program, the node drains [`poll_action`](Self::poll_action).
/// * Actions are carried out strictly in their order.
/// * `now_ns` is the time of this node, in nanoseconds of a clock that never goes back.
pub trait Service: Any + Debug + Send {
    /// Takes a message of a peer. Whatever it says was written by another process and must be checked.
    ///
    /// # Errors
    /// [`Broken`]: the peer counts as gone from then on.
    fn handle_message(&mut self, now_ns: u64, from: Endpoint, message: &[u8]) -> Result<(), Broken>;

    /// A node is gone, and all its processes with it. It is told once.
    fn handle_peer_gone(&mut self, now_ns: u64, node: NodeId);

    /// A message that the service asked to be sent was lost: the receiver is gone, or thousands of packets wait for it.
    fn handle_lost(&mut self, to: Endpoint);

    /// The time that [`poll_at`](Self::poll_at) gave has come.
    fn handle_time(&mut self, now_ns: u64);

    /// Whether [`poll_action`](Self::poll_action) may give something, or [`poll_at`](Self::poll_at) has become earlier in a call of the
    /// program: asked after each call and each message, to spare the node a look.
    fn has_actions(&self) -> bool {
        true
    }

    /// The next thing to do.
    fn poll_action(&mut self) -> Option<Action<'_>>;

    /// A process that must be met before the next action: asked for when [`poll_action`](Self::poll_action) gives nothing, and once for
    /// each. What meeting means, and how the service learns of it, is between the service and its machine.
    fn poll_meeting(&mut self) -> Option<Endpoint> {
        None
    }

    /// When [`handle_time`](Self::handle_time) has something to do.
    fn poll_at(&self) -> Option<u64>;

    /// Whether `handle_message` needs the time for this message. If not, any time that is past will do, and the node spares itself
    /// a look at the clock.
    fn needs_time(&self, _message: &[u8]) -> bool {
        true
    }

    /// Whether `handle_message` is to be called for this message by a thread of the host, rather than where packets are taken. It waits
    /// until that thread comes, and so does what comes for the service behind it.
    fn runs_on_host(&self, _message: &[u8]) -> bool {
        false
    }

    /// Whether the service allocates and frees nothing on its way, so that it may run in a page-fault handler. What comes for others
    /// then waits for a thread that may.
    fn allocates_nothing(&self) -> bool {
        false
    }
}
