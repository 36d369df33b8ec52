//! Packets through libfabric, on whatever a cluster has: InfiniBand, RoCE, EFA, Slingshot, or plain TCP and UDP.
//!
//! [`Ofi`] is a lossless [`Transport`] over one reliable endpoint (FI_EP_RDM) that keeps the order of messages (FI_ORDER_SAS). The
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
//! provider refuses for 20 s; an end that only receives learns of it from whoever keeps the job, and calls [`Transport::disconnect`]. Then, or
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

mod engine;
mod error;
mod frame;
mod name;
mod operations;
mod peer;
mod providers;
pub mod rma;
#[allow(unsafe_code)]
mod sys;

#[cfg(test)]
mod rma_tests;
#[cfg(test)]
mod tests;

use core::cell::RefCell;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use mapwire_wire::{Header, MAX_PAYLOAD_BYTES, NodeId};
use rustix::rand::{GetRandomFlags, getrandom};

pub use error::OfiError;
pub use providers::{Provider, providers, usual_provider, version};
pub use sys::OfiPinner;

use engine::{Engine, HEAD_BYTES, WORD_SLOTS};
use name::Name;
use rma::{Direction, LocalPiece, Registrar, RemoteMemory, RmaDone, RmaError};
use sys::{Endpoint, InfoList, Library, Needs, Wanted};

use crate::payload::Payload;
use crate::transport::{Packet, ReceiveError, SendError, Transport};

/// Bytes of a buffer, and so of the longest message. ofi_rxm asks the receiver before it sends more.
const SLOT_BYTES: usize = 16 << 10;
/// Bytes of the longest payload.
const MAX_PAYLOAD: usize = SLOT_BYTES - HEAD_BYTES;
const _: () = assert!(MAX_PAYLOAD < MAX_PAYLOAD_BYTES);
/// How long the last words of an endpoint may take.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How an endpoint is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfiConfig {
    /// The provider, as [`Provider::name`], or a part of it: `tcp` is `tcp;ofi_rxm` where libfabric has no other.
    pub provider: String,
    /// The numeric address of the interface to use. `None`: loopback for `tcp` and `udp`, the provider's choice for others.
    pub source: Option<String>,
    /// Packets of each peer that may wait here, 1 to [`MAX_WINDOW`].
    pub window: u16,
    /// This node's number, which it tells peers that have not connected yet.
    pub node: NodeId,
    /// Threads may sleep on [`Ofi::fd`]. Some providers are slower then.
    pub wants_fd: bool,
    /// How long a store or fetch may take until it counts as failed while the provider says nothing of it: it may use the memory
    /// still. `None`: it never does.
    pub patience: Option<Duration>,
}

/// The largest [`OfiConfig::window`].
pub const MAX_WINDOW: u16 = 1024;

impl OfiConfig {
    /// A provider with the usual window, not reachable from other hosts where that can be chosen.
    #[must_use]
    pub fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            source: None,
            window: 32,
            node: NodeId(0),
            wants_fd: false,
            patience: Some(Duration::from_secs(5)),
        }
    }
}

/// See [the module](self).
#[derive(Debug)]
pub struct Ofi {
    engine: RefCell<Engine>,
    name: Vec<u8>,
    provider: String,
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
        let window = config.window.clamp(1, MAX_WINDOW);
        let chunk_slots = 2 * usize::from(window) + 2 * WORD_SLOTS;
        let (endpoint, provider) = open_endpoint(config, SLOT_BYTES, chunk_slots)?;
        let library = Library::load()?;
        let mut stamp = [0; 8];
        getrandom(&mut stamp[..], GetRandomFlags::empty())
            .map_err(|errno| OfiError::call(library, "getrandom", errno.raw_os_error()))?;
        let name = Name { provider: provider.clone(), stamp: u64::from_le_bytes(stamp), address: endpoint.address()? };
        Ok(Self {
            name: name.to_bytes(),
            engine: RefCell::new(Engine::new(endpoint, (name.stamp, config.node), window, config.patience)),
            provider,
        })
    }

    /// What a peer needs to connect to this endpoint. Whoever has it can send packets in this endpoint's name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The provider's full name.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Whether the provider has stores and fetches.
    #[must_use]
    pub fn has_rma(&self) -> bool {
        self.engine.borrow().endpoint().info().has_rma()
    }

    /// Connects to a peer by its name, in place of an earlier connection. Packets can be sent once the peer has connected too; until
    /// then its queue is full.
    ///
    /// # Errors
    /// [`OfiError::BadName`], or there is no memory for buffers.
    pub fn connect(&mut self, peer: NodeId, name: &[u8]) -> Result<(), OfiError> {
        let name = Name::from_bytes(name)?;
        if name.provider != self.provider {
            return Err(OfiError::BadName("the peer uses another provider; all ranks must use the same"));
        }
        self.engine.get_mut().connect(peer, &name)
    }

    /// Whether packets can be sent to a peer: it has connected too.
    pub fn is_ready(&mut self, peer: NodeId) -> bool {
        let engine = self.engine.get_mut();
        engine.progress();
        engine.peer(peer).is_some_and(|peer| peer.is_ready())
    }

    /// Has the peer say at once when it has released the next packet: [`drained`](Transport::drained) is going to be asked.
    pub fn ask_with_next(&mut self, peer: NodeId) {
        self.engine.get_mut().ask_with_next(peer);
    }

    /// Pieces of local memory in one store or fetch at most.
    #[must_use]
    pub fn max_pieces(&self) -> usize {
        self.engine.borrow().endpoint().max_pieces()
    }

    /// Registers memory of this process.
    #[must_use]
    pub fn registrar(&self) -> Registrar {
        self.engine.borrow().endpoint().registrar()
    }

    /// Begins to store `pieces`, in order, to a peer's memory from `offset` on, or to fetch into them from there. They must not
    /// change, and stay registered, until [`poll_done`](Self::poll_done) returns `token`.
    ///
    /// # Errors
    /// Nothing was begun; see [`RmaError`].
    pub fn transfer(
        &mut self,
        direction: Direction,
        peer: NodeId,
        remote: (&RemoteMemory, u64),
        pieces: &[LocalPiece<'_>],
        token: u64,
    ) -> Result<(), RmaError> {
        let engine = self.engine.get_mut();
        engine.transfer(direction, peer, remote, pieces, token)
    }

    /// The next store or fetch that is over, in any order.
    pub fn poll_done(&mut self) -> Option<RmaDone> {
        self.engine.get_mut().poll_done()
    }

    /// The next node that has spoken to this end without being connected to it, by its own claim. Whoever keeps the job may tell its name.
    pub fn poll_stranger(&mut self) -> Option<NodeId> {
        self.engine.get_mut().poll_stranger()
    }

    /// Whether [`poll_stranger`](Self::poll_stranger) has one.
    #[must_use]
    pub fn has_strangers(&self) -> bool {
        self.engine.borrow().has_strangers()
    }

    /// What a thread may sleep on, where the provider has it: readable when something comes, if [`has_input`](Transport::has_input) was false
    /// right before.
    #[must_use]
    pub fn fd(&self) -> Option<OwnedFd> {
        self.engine.borrow().endpoint().fd()?.try_clone_to_owned().ok()
    }

    /// Whether a packet or the end of a peer waits that has been seen: as [`has_input`](Transport::has_input), without a call of the
    /// library.
    #[must_use]
    pub fn has_received(&self) -> bool {
        self.engine.borrow().has_input()
    }

    /// Whether a packet of this peer waits that has been seen.
    #[must_use]
    pub fn has_next(&self, from: NodeId) -> bool {
        let engine = self.engine.borrow();
        engine.peer(from).is_some_and(|peer| peer.head().is_some())
    }

    /// Lets the library work, and takes what has come.
    pub fn progress(&self) {
        self.engine.borrow_mut().progress();
    }

    /// As [`disconnect`](Transport::disconnect), without a call of the library, which learns of it later.
    pub fn close(&mut self, peer: NodeId) {
        self.engine.get_mut().close(peer);
    }

    /// Peers with a connection, in no particular order.
    pub fn peers(&mut self) -> &[NodeId] {
        self.engine.get_mut().connected()
    }
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
    let is_local = ["tcp", "udp", "net", "sockets"].iter().any(|name| config.provider.split(';').next() == Some(name));
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

impl Transport for Ofi {
    fn max_payload_bytes(&self) -> usize {
        MAX_PAYLOAD
    }

    fn send(&mut self, to: NodeId, header: &Header, payload: Payload<'_>) -> Result<(), SendError> {
        debug_assert_eq!(header.payload_bytes() as usize, payload.len_bytes());
        self.engine.get_mut().send(to, header, payload)
    }

    fn poll_receive(&mut self) -> Result<Option<Packet<'_>>, ReceiveError> {
        self.engine.get_mut().poll_receive()
    }

    fn release(&mut self, from: NodeId) {
        self.engine.get_mut().release(from);
    }

    fn has_input(&self) -> bool {
        let mut engine = self.engine.borrow_mut();
        engine.progress();
        engine.has_input() || engine.has_moved() || !engine.endpoint().may_sleep()
    }

    fn flush(&mut self) {
        self.engine.get_mut().flush();
    }

    fn drained(&mut self, to: NodeId) -> Result<bool, SendError> {
        self.engine.get_mut().drained(to)
    }

    fn disconnect(&mut self, peer: NodeId) {
        self.engine.get_mut().disconnect(peer);
    }
}

impl Drop for Ofi {
    /// Says farewell. Takes up to half a second where peers take nothing.
    fn drop(&mut self) {
        let engine = self.engine.get_mut();
        engine.leave();
        let start = Instant::now();
        while engine.is_sending() && start.elapsed() < LAST_WORDS {
            engine.progress();
        }
    }
}
