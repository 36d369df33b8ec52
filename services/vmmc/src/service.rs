//! The interface of a service: a protocol between processes that runs above the network interface.
//!
//! A service owns its state and sees nothing else: the node gives it messages, the time and news of peers that are gone, and carries out
//! the [`Action`]s that it asks for. It is registered at a process under a handler id; messages with this id go to the service that the
//! receiving process has registered there. The same service runs on a computer and in virtual time.

use core::any::Any;
use core::fmt::Debug;
use core::ops::Add;

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
        /// Message that follows the bytes; if empty, none does, and what the service asks for next follows them.
        message: &'a [u8],
    },
    /// Store those bytes of the region that differ from a copy of it into their places in the receiver's memory, and no others; then send
    /// the message. The comparison is made at once. The bytes may be read until the receiver has answered the message: the service lets
    /// nobody change them.
    StoreChanges {
        /// Receiver.
        to: Endpoint,
        /// Bytes of this process to store; a page.
        region: Region,
        /// Offset of the copy in this process's memory, among the service's [spare pages](Service::spare_bytes).
        copy: u64,
        /// Message that follows the bytes.
        message: &'a [u8],
    },
    /// Read the region from another process's memory, without help of its service, to this offset in this process's memory; then call
    /// [`Service::handle_fetched`] with the region's.
    Fetch {
        /// Process whose memory is read.
        from: Endpoint,
        region: Region,
        /// Offset of the first byte here.
        to: u64,
    },
    /// Copy or merge bytes of this process's memory.
    Change(Change),
    /// Set the program's access to all whole pages that overlap the region, in its view.
    Protect {
        /// Region whose pages are meant.
        region: Region,
        /// Access from now on.
        access: Access,
    },
}

/// A change of the process's own memory. Offsets are in the service's memory, of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Copy a page.
    Copy {
        /// Offset of the source.
        from: u64,
        /// Offset of the copy.
        to: u64,
    },
    /// For each byte of the page: if it is as in the copy, take it from the page that was fetched; and in any case take the copy's from
    /// there.
    Merge {
        /// Offset of the page.
        page: u64,
        /// Offset of its copy from before it was changed here.
        copy: u64,
        /// Offset of the same page as another process has it.
        fetched: u64,
    },
}

/// What services count that share memory between processes, since they were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Read and write faults that needed the protocol.
    pub read_faults: u64,
    pub write_faults: u64,
    /// Copies given up so that another process could write.
    pub invalidations: u64,
    /// Regions stored into other processes, and their bytes.
    pub regions_sent: u64,
    pub bytes_sent: u64,
    /// Locks obtained by waiting for another process.
    pub remote_locks: u64,
    /// Barriers passed.
    pub barriers: u64,
}

impl Add for Figures {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            read_faults: self.read_faults + other.read_faults,
            write_faults: self.write_faults + other.write_faults,
            invalidations: self.invalidations + other.invalidations,
            regions_sent: self.regions_sent + other.regions_sent,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            remote_locks: self.remote_locks + other.remote_locks,
            barriers: self.barriers + other.barriers,
        }
    }
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

    /// The bytes of an [`Action::Fetch`] of the region at this offset are there. If they never come, the service is told that what it
    /// sent to that process is lost.
    fn handle_fetched(&mut self, _offset: u64) {}

    /// The parts of the page at this offset that were found to differ from its copy as an [`Action::StoreChanges`] was carried out: offset in
    /// the page and length. Called before the next action.
    fn handle_changes(&mut self, _offset: u64, _parts: &[(u64, u64)]) {}

    /// Bytes behind those that all processes share, which only this process uses.
    fn spare_bytes(&self) -> u64 {
        0
    }

    /// Handles the time that [`poll_at`](Self::poll_at) returned.
    fn handle_time(&mut self, now_ns: u64);

    /// Whether [`poll_action`](Self::poll_action) may return something, or a call of the program has made [`poll_at`](Self::poll_at)
    /// earlier. Called after each call and each message, to save the node the polls.
    fn has_actions(&self) -> bool {
        true
    }

    /// The next action.
    fn poll_action(&mut self) -> Option<Action<'_>>;

    /// A process whose memory must be imported before the next action: polled when [`poll_action`](Self::poll_action) returns nothing; each
    /// is returned once. [`handle_met`](Self::handle_met) reports it, but only where the service's memory was registered with a name under
    /// which each rank exports it, as the shared memory is. Other services meet all ranks as they are registered.
    fn poll_meeting(&mut self) -> Option<Endpoint> {
        None
    }

    /// The memory of a process is imported, or it is known why that cannot be.
    fn handle_met(&mut self, _of: Endpoint) {}

    /// A process imports the service's memory, and so sends messages of this registration from here on. Called where
    /// [`handle_met`](Self::handle_met) is.
    fn hear(&mut self, _from: Endpoint) {}

    /// Offset and length of the bytes of the service's memory that the sender of a message has stored before it, for traces.
    fn stored_before(&self, _message: &[u8]) -> Option<(u64, u64)> {
        None
    }

    /// Whether it keeps others waiting for some microseconds: a thread that spins until then beats one that sleeps.
    fn is_holding(&self) -> bool {
        false
    }

    /// What it has counted, for the figures that ranks publish.
    fn figures(&self) -> Figures {
        Figures::default()
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
