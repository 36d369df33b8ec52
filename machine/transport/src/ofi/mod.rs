//! Packets through libfabric, on whatever a cluster has: InfiniBand, RoCE, EFA, Slingshot, or plain TCP and UDP.
//!
//! [`Ofi`] is a lossless [`Transport`](crate::transport::Transport) over one reliable endpoint (FI_EP_RDM) that keeps the order of messages (FI_ORDER_SAS). The
//! library is loaded when it is first asked for, so mapwire builds and starts without it; [`providers`] says what it offers.
//!
//! # Packets
//! A message is a frame (`frame.rs`), a header and a payload, copied into a buffer of the endpoint, since a sender may reuse its
//! memory at once. A receiver reads a payload where it came in.
//! Each end has a window for each peer: as many packets of it may be under way, and for each there is a buffer. A peer learns of the window and
//! of releases by the frames that go the other way, or by frames of their own, so nothing is sent to a peer that has not yet connected.
//! Completions may change places; packets are shown by their number.
//!
//! # Ends
//! A peer that leaves says farewell and how many packets it has sent. A peer that dies is noticed here by a send that fails, or that the
//! provider refuses for 20 s; an end that only receives learns of it from the broker, and calls [`disconnect`](crate::transport::Transport::disconnect). Then, or
//! after a farewell, what is still on its way is received until the count is reached, or nothing has come for 100 ms. A packet that is 5 s
//! later than those behind it was lost with a connection, and the peer counts as corrupt.
//!
//! # Trust
//! A message counts as a peer's if it begins with that peer's stamp, 64 random bits that its name tells. Only the job's ranks know
//! names. Messages are not encrypted, and ranks of a job are not kept from posing as each other.
//!
//! # Signals and threads
//! libfabric allocates and takes locks, so an [`Ofi`] must not be polled in a signal handler. Debian's build also loads libinfinipath,
//! which takes SIGSEGV and the like for itself (to print a backtrace and write a `.btr` file): their former handlers are restored at once.
//!
//! # Providers, as seen with libfabric 1.17
//!
//! | provider | what to know |
//! |---|---|
//! | `tcp` | is `tcp;ofi_rxm` up to 1.17. A refused store or fetch closes the connection, and packets under way can be lost with it |
//! | `udp;ofi_rxd` | says nothing of a refused store or fetch, which then fails after [`OfiConfig::patience`] |
//! | `shm` | installs handlers for SIGSEGV, SIGBUS, SIGTERM and SIGINT of its own, so it cannot stand beside the shared memory's page faults. Says nothing of a refused operation. A process that is killed leaves a file in /dev/shm, and the next one of its number could not open an endpoint: [`remove_leftovers`]. Crashes when it sends to a closed endpoint of its own process |

mod error;
mod frame;
mod name;
mod operations;
mod packets;
mod peer;
mod providers;
mod rank;
pub mod rma;
#[allow(unsafe_code)]
mod sys;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use mapwire_wire::{Header, MAX_PAYLOAD_BYTES, NodeId};

pub use error::OfiError;
pub use providers::{Provider, providers, usual_provider, version};
pub use sys::OfiPinner;

use frame::{FRAME_BYTES, Frame};
use name::Name;
use operations::Operations;
use peer::Peer;
use rma::{Direction, LocalPiece, Registrar, RemoteMemory, RmaDone, RmaError};
use sys::{BufferId, Endpoint, Event, InfoList, Library, Needs, Wanted};

use crate::local::random;
use crate::peers::Peers;
use crate::transport::SendError;

/// Bytes of a buffer, and so of the longest message. ofi_rxm asks the receiver before it sends more.
const SLOT_BYTES: usize = 16 << 10;
/// Bytes of a frame and a packet's header.
const HEAD_BYTES: usize = FRAME_BYTES + size_of::<Header>();
/// Bytes of the longest payload.
const MAX_PAYLOAD: usize = SLOT_BYTES - HEAD_BYTES;
const _: () = assert!(MAX_PAYLOAD < MAX_PAYLOAD_BYTES);
/// Packets of each peer that may wait here.
const WINDOW: u16 = 32;
/// Buffers of each peer reserved for frames without a packet.
const WORD_SLOTS: usize = 2;
/// Longest time for farewells when an endpoint is closed.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How an endpoint is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfiConfig {
    /// The provider, as [`Provider::name`], or a part of it: `tcp` is `tcp;ofi_rxm` where libfabric has no other.
    pub provider: String,
    /// The numeric address of the interface to use. `None`: loopback for `tcp` and `udp`, the provider's choice for others.
    pub source: Option<String>,
    /// This node's number, which it tells peers that have not connected yet.
    pub node: NodeId,
    /// Threads may sleep on [`Ofi::fd`]. Some providers are slower then.
    pub wants_fd: bool,
    /// How long a store or fetch may take until it counts as failed while the provider says nothing of it: it may use the memory
    /// still. `None`: it never does.
    pub patience: Option<Duration>,
}

impl OfiConfig {
    /// A provider, not reachable from other hosts where that can be chosen.
    #[must_use]
    pub fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            source: None,
            node: NodeId(0),
            wants_fd: false,
            patience: Some(Duration::from_secs(5)),
        }
    }
}

/// See [the module](self).
#[derive(Debug)]
pub struct Ofi {
    endpoint: Endpoint,
    name: Vec<u8>,
    provider: String,
    /// Stamp and number of this end.
    own: (u64, NodeId),
    peers: Peers<Peer>,
    /// A packet was shown and not released: those behind it must not keep others from being seen.
    is_held: bool,
    by_stamp: HashMap<u64, NodeId>,
    /// First frames of peers that are not connected yet, by stamp.
    early: HashMap<u64, Frame>,
    /// Nodes that those claim to be, until [`poll_stranger`](Self::poll_stranger) reports them.
    strangers: Vec<NodeId>,
    /// The peer to which each buffer for sending belongs.
    owners: Vec<Option<NodeId>>,
    /// Buffers for sending whose peer is gone.
    spare: Vec<BufferId>,
    /// Buffers to be given to the endpoint.
    idle: Vec<BufferId>,
    events: Vec<Event>,
    sending: usize,
    operations: Operations,
    /// The provider stores to and fetches from memory of peers, and reports the end of each operation, so that the memory can be given back.
    reaches_memory: bool,
    /// The page-fault handler uses the fabric.
    is_confined: bool,
    /// Its packets come before those of rings, the next time that both have some.
    is_first: bool,
}

impl Ofi {
    /// Opens an endpoint of a provider, with [`OfiConfig::new`].
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open(provider: &str) -> Result<Self, OfiError> {
        Self::open_with(&OfiConfig::new(provider))
    }

    /// Opens an endpoint.
    ///
    /// # Errors
    /// libfabric is not installed, has no such provider, or fails; see [`OfiError`].
    pub fn open_with(config: &OfiConfig) -> Result<Self, OfiError> {
        let chunk_slots = 2 * usize::from(WINDOW) + 2 * WORD_SLOTS;
        let (endpoint, provider) = open_endpoint(config, SLOT_BYTES, chunk_slots)?;
        let stamp = random().map_err(|(call, errno)| OfiError::Call {
            call,
            code: errno.raw_os_error(),
            text: errno.to_string(),
        })?;
        let name = Name { provider: provider.clone(), stamp: u64::from_le_bytes(stamp), address: endpoint.address()? };
        Ok(Self {
            reaches_memory: endpoint.info().has_rma() && !["udp", "shm"].contains(&core_of(&provider)),
            endpoint,
            name: name.to_bytes(),
            provider,
            own: (name.stamp, config.node),
            peers: Peers::default(),
            is_held: false,
            by_stamp: HashMap::new(),
            early: HashMap::new(),
            strangers: Vec::new(),
            owners: Vec::new(),
            spare: Vec::new(),
            idle: Vec::new(),
            events: Vec::with_capacity(64),
            sending: 0,
            operations: Operations::new(config.patience),
            is_confined: false,
            is_first: false,
        })
    }

    /// What a peer needs to connect to this endpoint. Whoever has it can send packets in this endpoint's name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    #[must_use]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Whether registered memory is reached by hardware, by the frames that it had as it was registered.
    #[must_use]
    pub fn has_hardware(&self) -> bool {
        !["tcp", "udp", "net", "sockets", "shm"].contains(&core_of(&self.provider))
    }

    /// Whether memory of peers can be stored to and fetched from now: not in the page-fault handler.
    #[must_use]
    pub(crate) fn may_reach_memory(&self) -> bool {
        self.reaches_memory && !self.is_confined
    }

    /// Begins or ends the time in which the page-fault handler uses the fabric. The library allocates and takes locks, so it is not called
    /// then: peers seem to have no room, and to have sent nothing.
    pub(crate) fn set_confined(&mut self, on: bool) {
        self.is_confined = on;
    }

    #[inline]
    pub(crate) fn is_confined(&self) -> bool {
        self.is_confined
    }

    /// Connects to a peer by its name, in place of an earlier connection. Packets can be sent once the peer has connected too; until
    /// then its queue is full.
    ///
    /// # Errors
    /// [`OfiError::BadName`], or there is no memory for buffers.
    pub fn connect(&mut self, id: NodeId, name: &[u8]) -> Result<(), OfiError> {
        let name = Name::from_bytes(name)?;
        if name.provider != self.provider {
            return Err(OfiError::BadName("the peer uses another provider; all ranks must use the same"));
        }
        if self.by_stamp.get(&name.stamp).is_some_and(|&other| other != id) {
            return Err(OfiError::BadName("another peer has this stamp"));
        }
        let address =
            self.endpoint.insert(&name.address).ok_or(OfiError::BadName("the provider refuses its address"))?;
        self.forget(id);
        let mut peer = Box::new(Peer::new(address, name.stamp, WINDOW));
        let each = usize::from(WINDOW) + WORD_SLOTS;
        if self.spare.len() < each {
            let grown = self.endpoint.grow()?;
            self.owners.resize(grown.end, None);
            let (sends, receives) = (grown.start..grown.start + each, grown.start + each..grown.end);
            self.spare.extend(sends);
            self.idle.extend(receives);
        }
        peer.free = self.spare.split_off(self.spare.len() - each);
        for &slot in &peer.free {
            self.owners[slot] = Some(id);
        }
        if let Some(frame) = self.early.remove(&name.stamp)
            && let Err(corrupt) = peer.handle_frame(&frame, 0, 0)
        {
            peer.corrupt = Some(corrupt);
        }
        self.peers.connect(id, peer);
        self.by_stamp.insert(name.stamp, id);
        self.progress();
        Ok(())
    }

    #[cold]
    fn forget(&mut self, id: NodeId) {
        let Some(peer) = self.peers.forget(id) else {
            return;
        };
        self.operations.handle_gone(id);
        self.by_stamp.remove(&peer.stamp);
        self.idle.extend(peer.kept());
        for slot in peer.free {
            self.owners[slot] = None;
            self.spare.push(slot);
        }
    }

    /// Whether packets can be sent to a peer: it has connected too.
    pub fn is_ready(&mut self, peer: NodeId) -> bool {
        self.progress();
        self.peers.get(peer).is_some_and(Peer::is_ready)
    }

    /// Has the peer say at once when it has released the next packet: [`drained`](crate::transport::Transport::drained) is going to be asked.
    pub fn ask_with_next(&mut self, peer: NodeId) {
        if let Ok(peer) = self.open_peer(peer) {
            peer.ask_with_next();
        }
    }

    /// Pieces of local memory in one store or fetch at most.
    #[must_use]
    pub fn max_pieces(&self) -> usize {
        self.endpoint.max_pieces()
    }

    /// Registers memory of this process.
    #[must_use]
    pub fn registrar(&self) -> Registrar {
        self.endpoint.registrar()
    }

    /// Begins to store `pieces`, in order, to a peer's memory from `offset` on, or to fetch into them from there. They must not
    /// change, and stay registered, until [`poll_done`](Self::poll_done) returns `token`.
    ///
    /// # Errors
    /// Nothing was begun; see [`RmaError`].
    pub fn transfer(
        &mut self,
        direction: Direction,
        to: NodeId,
        remote: (&RemoteMemory, u64),
        pieces: &[LocalPiece<'_>],
        token: u64,
    ) -> Result<(), RmaError> {
        for attempt in 0..2 {
            if attempt > 0 {
                self.progress();
            }
            let address = match self.open_peer(to) {
                Ok(peer) => peer.address,
                Err(SendError::NotConnected(_)) => return Err(RmaError::NotConnected(to)),
                Err(_) => return Err(RmaError::PeerGone(to)),
            };
            let begun = self.operations.begin(&mut self.endpoint, direction, (to, address), remote, pieces, token);
            if begun != Err(RmaError::WouldBlock) {
                return begun;
            }
        }
        Err(RmaError::WouldBlock)
    }

    /// The next store or fetch that is over, in any order.
    pub fn poll_done(&mut self) -> Option<RmaDone> {
        if let Some(done) = self.operations.poll_done(&self.endpoint) {
            return Some(done);
        }
        self.progress();
        self.operations.poll_done(&self.endpoint)
    }

    /// The next node that has spoken to this end without being connected to it, by its own claim. The broker may know its name.
    pub fn poll_stranger(&mut self) -> Option<NodeId> {
        self.strangers.pop()
    }

    #[must_use]
    pub fn has_strangers(&self) -> bool {
        !self.strangers.is_empty()
    }

    /// Descriptor that a thread may sleep on, if the provider has one: readable when something comes, if
    /// [`has_input`](crate::transport::Transport::has_input) was false right before.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.endpoint.fd()
    }

    /// Peers with a connection, in no particular order.
    #[must_use]
    pub fn peers(&self) -> &[NodeId] {
        self.peers.connected()
    }
}

/// The provider that a name of a layered one begins with.
pub(crate) fn core_of(provider: &str) -> &str {
    provider.split(';').next().unwrap_or_default()
}

/// Removes what provider `shm` leaves of a process that was killed: the memory of its endpoints. No process of this number may live that
/// has one.
pub fn remove_leftovers(process: u32) {
    for endpoint in 0..4 {
        let _ = std::fs::remove_file(format!("/dev/shm/{process}:0:{endpoint}"));
    }
}

/// Opens an endpoint of the provider that fits best, whose name it gives too: with stores and fetches if any fits. Its buffers have
/// `slot_bytes` and come in chunks of `chunk_slots`.
fn open_endpoint(config: &OfiConfig, slot_bytes: usize, chunk_slots: usize) -> Result<(Endpoint, String), OfiError> {
    let library = Library::load()?;
    let is_local = ["tcp", "udp", "net", "sockets"].contains(&core_of(&config.provider));
    let loopback = is_local.then_some("127.0.0.1");
    let mut wanted =
        Wanted { provider: Some(&config.provider), source: config.source.as_deref().or(loopback), needs: None };
    let mut found = None;
    for needs in Needs::ALL {
        wanted.needs = Some(needs);
        let list = InfoList::ask(library, wanted)?;
        if list.iter().next().is_some() {
            found = Some(list);
            break;
        }
    }
    let Some(info) = found.as_ref().and_then(|list| list.iter().next()) else {
        return Err(OfiError::NoProvider {
            provider: config.provider.clone(),
            source_address: wanted.source.map(str::to_owned),
            found: providers()?.into_iter().map(|each| each.name).collect(),
        });
    };
    let provider = info.provider();
    if info.max_message_bytes() < slot_bytes {
        return Err(OfiError::ShortMessages {
            provider,
            max_bytes: info.max_message_bytes(),
            needed_bytes: slot_bytes,
        });
    }
    let endpoint = Endpoint::open(info, slot_bytes, chunk_slots, config.wants_fd)?;
    Ok((endpoint, provider))
}

impl Drop for Ofi {
    /// Says farewell. Takes up to half a second where peers take nothing.
    fn drop(&mut self) {
        self.is_confined = false;
        // Some may have said farewell before.
        self.progress();
        self.peers.for_each(Peer::leave);
        self.progress();
        let start = Instant::now();
        while self.is_sending() && start.elapsed() < LAST_WORDS {
            self.progress();
        }
    }
}
