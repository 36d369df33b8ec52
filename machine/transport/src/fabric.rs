//! What a process is given besides packets: its place in the job, news of its peers, bells, and memory that neighbours pass.
//!
//! A [`Fabric`] is a [`Transport`] with all of that. That of a job is [`crate::job::JobFabric`]. What a way to a peer can do its
//! [`Abilities`](crate::transport::Abilities) say: where it cannot pass memory, imports go by packets.

use core::fmt::Debug;
use core::time::Duration;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use mapwire_wire::NodeId;

use crate::bells::{Sleeper, Slept, Wake};
use crate::board::{Board, Figures, RankState};
use crate::net::{CardError, Net};
use crate::ofi::Ofi;
use crate::rendezvous::RendezvousError;
use crate::shm::channel::ChannelError;
use crate::transport::Transport;

/// How threads of this process sleep and are woken, and how it wakes those of its peers. Shared by all threads; nothing of it allocates
/// or takes a lock.
pub trait Doorbells: Debug + Send + Sync {
    /// Counts the calling thread as one that polls: peers then skip the wake-up.
    fn enter_polling(&self);

    /// Called by a thread that polls, when something has come: fetches the mark of those that poll, which peers have read, while the thread
    /// looks at that. To [leave](Self::leave_polling) soon after then does not wait for it.
    fn keep_polling(&self);

    /// Takes the calling thread off that count. Whether this contained a full fence, so that [`hint`](Self::hint) will do for what was
    /// published before.
    fn leave_polling(&self) -> bool;

    /// Whether a thread of this process polls, as it seems now.
    fn is_polling(&self) -> bool;

    /// Tells `peer` that something was published for it, behind a full fence.
    fn ring(&self, peer: NodeId);

    /// As [`ring`](Self::ring) without its fence.
    fn hint(&self, peer: NodeId);

    /// Wakes a thread of `peer` that sleeps while it waits, where that has paid so far: something will be published for it at once, and
    /// [`ring`](Self::ring) follows then.
    fn rouse(&self, peer: NodeId);

    /// Wakes sleepers of `peer`, which may be this process, whether or not somebody polls there.
    fn wake(&self, peer: NodeId, who: Wake);

    /// How often the service thread of this process was rung or woken so far, in some unit (wraps).
    fn service_rings(&self) -> u32;

    /// Sleeps until `recheck` says that there is something to do, or `timeout` has passed (`None`: no limit). See
    /// [`crate::board::Board::sleep`].
    fn sleep(
        &self,
        sleeper: Sleeper,
        recheck: impl FnMut(bool) -> bool,
        timeout: Option<Duration>,
        nap: impl FnMut() -> Duration,
    ) -> Slept;

    /// State of `peer`, as the broker last reported it.
    fn state(&self, peer: NodeId) -> RankState;

    /// Shows how often this process has opened the shared memory.
    fn show_openings(&self, count: u32);

    /// How often `peer` has; `None` where it does not show it to this process.
    fn openings(&self, peer: NodeId) -> Option<u32>;

    /// The board of the job; `None` where there is none.
    fn board(&self) -> Option<&Arc<Board>> {
        None
    }

    /// Publishes figures of this process on the board.
    fn publish(&self, figures: &Figures);
}

/// Something that happened in the job.
#[derive(Debug)]
pub enum News {
    /// Packets can be sent to the peer.
    Connected(NodeId),
    /// Datagrams can be sent to the peer, of so many bytes at most. More than once, when paths to it change.
    Reached(NodeId, usize),
    /// The peer's card cannot be used.
    BadCard(NodeId, CardError),
    /// The channel to the peer cannot be used.
    Unusable(NodeId, ChannelError),
    /// The peer has passed a descriptor under a tag; `None` when this process had no free one. What it names is unchecked.
    Passed {
        from: NodeId,
        /// The name that `from` gave it.
        tag: u64,
        fd: Option<OwnedFd>,
    },
    /// There was no free descriptor for the connection to the peer.
    NoDescriptor(NodeId),
    /// A descriptor that this process passed did not arrive.
    PassLost {
        /// Its receiver.
        to: NodeId,
        tag: u64,
    },
    /// A descriptor that this process passed found no room on its way. Now there is: it is to be passed again.
    PassAgain { to: NodeId, tag: u64 },
    /// The peer is gone, and so is what it had sent.
    Gone(NodeId),
    /// The peer has left or died; what it sent before may still be received.
    Lost(NodeId),
}

/// How sleeping threads learn of packets that no bell is rung for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrung {
    /// A descriptor is watched.
    Watched,
    /// They look again soon.
    Blind,
}

/// A transport, and what a process of a job has besides.
pub trait Fabric: Transport + Debug + Send + 'static {
    type Bells: Doorbells + 'static;

    fn me(&self) -> NodeId;

    /// Processes in the job: at least 1.
    fn size(&self) -> usize;

    /// The user of every process of the job.
    fn uid(&self) -> u32;

    fn bells(&self) -> &Arc<Self::Bells>;

    /// The sockets by which peers are reached that lose packets, where there are any.
    #[inline]
    fn datagrams(&mut self) -> Option<&mut Net> {
        None
    }

    /// The endpoint that reaches memory of peers, where there is one, and outside the page-fault handler.
    #[inline]
    fn library(&mut self) -> Option<&mut Ofi> {
        None
    }

    /// The provider of libfabric that peers are reached by, where any are.
    fn provider(&self) -> Option<&str> {
        None
    }

    /// How sleeping threads learn of packets from peers that do not ring; `None`: all peers ring.
    fn unrung(&self) -> Option<Unrung> {
        None
    }

    /// Takes in packets of peers that do not ring, even while a packet of another peer waits.
    fn look(&mut self) {}

    /// Begins or ends the time in which the page-fault handler uses the fabric: nothing may allocate or take a lock then.
    fn set_confined(&mut self, _on: bool) {}

    /// All that has come by datagrams is about to be taken: [`has_input`](Transport::has_input) is about what comes from here on.
    fn begin_look(&self) {}

    /// Whether [`poll_news`](Self::poll_news) has something. No system call.
    fn has_news(&self) -> bool;

    /// Whether a packet may wait: cheaper than [`has_input`](Transport::has_input), and without the ends of peers.
    #[inline]
    fn has_packet(&mut self) -> bool {
        self.has_input()
    }

    /// Checks whether the broker has ended silently, which then is news. A system call.
    fn look_for_end(&mut self) {}

    /// The next thing that happened in the job.
    fn poll_news(&mut self) -> Option<News>;

    /// Asks for a connection to a peer, once.
    ///
    /// # Errors
    /// The broker is gone, or the kernel refuses.
    fn request_connection(&mut self, to: NodeId) -> Result<(), RendezvousError>;

    /// Passes a descriptor to a peer.
    ///
    /// # Errors
    /// The broker is gone, or the kernel refuses, or nothing can be
    /// [passed](crate::transport::Abilities::passes_memory) to this peer.
    fn pass(&mut self, to: NodeId, tag: u64, fd: BorrowedFd<'_>) -> Result<(), RendezvousError>;

    /// Leaves the job in good order: peers learn that this process left, rather than died.
    ///
    /// # Errors
    /// The broker is gone; the job is left all the same.
    fn leave(&mut self) -> Result<(), RendezvousError>;

    /// Peers with a connection, this process included, in no particular order.
    fn peers(&self) -> &[NodeId];

    /// Peers that packets have gone to, or come from, by any way.
    fn acquaintances(&mut self) -> Vec<NodeId> {
        self.peers().to_vec()
    }

    /// Packets of one peer that may wait to be received, at most.
    fn most_waiting(&self) -> usize;

    /// Whether another packet of `from` waits. When none does, `from` is told of all releases.
    fn has_next(&mut self, from: NodeId) -> bool;

    /// Gives back the memory of connections that are over. [`Transport::poll_receive`] does not, since it may be called where no memory
    /// may be freed.
    fn bury(&mut self);
}
