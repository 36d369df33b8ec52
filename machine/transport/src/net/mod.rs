//! Sealed datagrams over UDP to ranks of other hosts. They may be lost; the links of the network interface recover them.

mod addresses;
mod alarm;
pub mod capture;
mod card;
mod carrier;
mod naming;
mod outbound;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use mapwire_host::processes::Owner;
#[cfg(feature = "sealing")]
use mapwire_seal::{Config, Rotation, StaticKey};
use mapwire_seal::{
    Envelope, JobSecret, Opened, Plain, PublicKey, SEALED_BACK_BYTES, SEALED_FRONT_BYTES, first_length,
};
use mapwire_wire::link::LINK_HEADER_BYTES;
use mapwire_wire::{HEADER_BYTES, NodeId};
use rustix::rand::{GetRandomFlags, getrandom};

pub use addresses::{Addresses, AddressesError};
pub(crate) use alarm::Alarm;
use capture::Capture;
pub use card::{CardError, Contact, MAX_ADDRESSES};
use card::{address_of, bytes_of};
pub(crate) use card::{card_of_endpoint, endpoint_of_card};
pub use carrier::{Carrier, CarrierError};
use naming::Naming;
pub use outbound::{Lost, Outbound};

use crate::rendezvous::{Card, Secret};
use crate::udp::{Destination, Loss, Lossy, MAX_DATAGRAM_BYTES, Udp, UdpConfig, UdpError};

/// Idle looks between two looks at the clock for what sessions have to do.
const LOOKS_TO_DUE: u8 = 64;
/// Bytes of a datagram that its envelope takes at most.
const ENVELOPE_BYTES: usize = SEALED_FRONT_BYTES + SEALED_BACK_BYTES;

/// Configuration of what leads to other hosts.
#[derive(Clone, Debug, Default)]
pub struct NetConfig {
    pub carrier: Carrier,
    /// Threads that wait spin rather than sleep: they need nothing to sleep on, which takes system calls for each packet of libfabric.
    pub spins: bool,
    /// The addresses of this host that datagrams come to, the preferred one first. None: the loopback address, so that nothing
    /// listens beyond this host unless it is told to.
    pub addresses: Vec<IpAddr>,
    /// Datagrams are neither sealed nor authenticated: for measurements.
    pub insecure: bool,
    /// Microseconds for which the kernel polls the network device: see [`UdpConfig::busy_poll_us`].
    pub busy_poll_us: Option<u32>,
    /// A folder into which the datagrams of links are captured: see [`capture`].
    pub capture: Option<PathBuf>,
    /// Faults injected into what is received, for tests and measurements.
    pub loss: Option<Loss>,
}

/// Why other hosts cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// Cannot start the thread that watches the sockets.
    #[error("cannot watch for datagrams: {0}; raise the limits on threads and descriptors (ulimit -u, ulimit -n)")]
    Watch(std::io::Error),
    /// This build does not seal.
    #[error(
        "this program was built without the feature `sealing` of mapwire, which ranks of several hosts and --transport udp take: cargo add mapwire --features sealing; or seal nothing (--insecure, MAPWIRE_INSECURE=true)"
    )]
    NotBuilt,
    /// The kernel gives no random bytes.
    #[error("no random bytes for keys: {0}")]
    Entropy(rustix::io::Errno),
    /// The capture of this rank cannot be begun.
    #[error("the capture cannot be written to {}: {error}; its folder must be there, and without this file", path.display())]
    Capture { path: PathBuf, error: std::io::Error },
}

#[derive(Debug)]
pub enum Arrival<'a> {
    /// A datagram of `from`, without its envelope.
    Datagram { from: NodeId, bytes: &'a mut [u8] },
    /// Something from a rank whose card is not known yet.
    Stranger(NodeId),
    /// Nothing that concerns the links.
    Other,
}

/// A rank of another host.
#[derive(Debug)]
struct Remote {
    /// Where each of its paths leads.
    paths: Vec<Path>,
    /// Longest datagram that all paths take, in bytes with its envelope.
    max_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    /// For most datagrams.
    usual: Destination,
    /// By the socket whose address the peer knows.
    main: Destination,
}

/// Sessions with ranks of other hosts, and the paths there.
struct Sessions {
    /// A forked child has the same keys and counters. What it sealed would be sealed under numbers that its parent uses again.
    owner: Owner,
    envelope: Envelope,
    peers: Vec<Option<Box<Remote>>>,
    /// Handshakes may have something to send.
    greets: bool,
    /// Peers whose paths have become shorter.
    shortened: Vec<NodeId>,
    capture: Option<Box<Capture>>,
}

/// Datagrams to and from ranks of other hosts.
pub struct Net {
    udp: Udp,
    sessions: Sessions,
    /// This rank's public key.
    key: [u8; 32],
    naming: Naming,
    /// Looks since the clock was last read in [`is_due_soon`](Self::is_due_soon).
    looks: u8,
    lossy: Option<Box<Lossy>>,
}

impl core::fmt::Debug for Net {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Net").field("udp", &self.udp).finish_non_exhaustive()
    }
}

/// Random bytes of the operating system; it has them once it has started.
fn entropy(bytes: &mut [u8]) {
    for part in bytes.chunks_mut(256) {
        while getrandom(&mut *part, GetRandomFlags::empty()).is_err() {}
    }
}

/// Envelope of datagrams, the job's number in them, and this rank's public key.
struct Wrapped {
    envelope: Envelope,
    job: u32,
    public: PublicKey,
}

fn wrap(insecure: bool, me: NodeId, nodes: u32, secret: JobSecret) -> Result<Wrapped, NetError> {
    if insecure {
        let job = secret.label();
        return Ok(Wrapped { envelope: Envelope::Plain(Plain::new(me, nodes, job)), job, public: PublicKey([0; 32]) });
    }
    sealed(me, nodes, secret)
}

#[cfg(feature = "sealing")]
fn sealed(me: NodeId, nodes: u32, secret: JobSecret) -> Result<Wrapped, NetError> {
    let bytes = crate::local::random().map_err(|(_, errno)| NetError::Entropy(errno))?;
    let (job, key) = (secret.job(), StaticKey::new(bytes));
    let public = key.public();
    let config = Config { me, nodes, job, secret, key, rotation: Rotation::default() };
    Ok(Wrapped { envelope: Envelope::Sealed(Box::new(mapwire_seal::Sessions::new(config, &mut entropy))), job, public })
}

#[cfg(not(feature = "sealing"))]
fn sealed(_: NodeId, _: u32, _: JobSecret) -> Result<Wrapped, NetError> {
    Err(NetError::NotBuilt)
}

impl Net {
    /// Opens the sockets of rank `me` of `size`, and draws its key.
    ///
    /// # Errors
    /// [`NetError`].
    pub fn open(config: &NetConfig, me: NodeId, size: usize, secret: Secret) -> Result<Self, NetError> {
        let addresses = match &config.addresses[..] {
            [] => vec![Ipv4Addr::LOCALHOST.into()],
            given => given.to_vec(),
        };
        let udp = Udp::bind(&UdpConfig {
            busy_poll_us: config.busy_poll_us,
            first_length: Some(first_length),
            ..UdpConfig::new(addresses)
        })?;
        let Wrapped { envelope, job, public } = wrap(config.insecure, me, size as u32, JobSecret::new(secret.0))?;
        let begin = |folder: &PathBuf| {
            let begun = Capture::create(folder, me, job);
            begun.map_err(|error| NetError::Capture { path: capture::file_of(folder, me.0.into()), error })
        };
        let capture = config.capture.as_ref().map(begin).transpose()?.map(Box::new);
        let mut peers = Vec::new();
        peers.resize_with(size, || None);
        Ok(Self {
            udp,
            sessions: Sessions {
                owner: Owner::me(),
                envelope,
                peers,
                greets: false,
                shortened: Vec::with_capacity(size),
                capture,
            },
            key: public.0,
            naming: Naming::new(),
            looks: 0,
            // Each rank loses others.
            lossy: (config.loss).map(|loss| Box::new(Lossy::new(loss.faults, loss.seed << 16 | u64::from(me.0)))),
        })
    }

    /// What other ranks need to know.
    #[must_use]
    pub fn card(&self) -> Card {
        let addresses = self.udp.addresses().collect();
        let key = self.key;
        Contact { addresses, key }.to_card()
    }

    /// Paths to a peer.
    #[must_use]
    pub fn paths(&self) -> u8 {
        self.udp.addresses().len() as u8
    }

    /// Bytes of the longest datagram of a link.
    #[must_use]
    pub const fn max_datagram_bytes() -> usize {
        MAX_DATAGRAM_BYTES - ENVELOPE_BYTES
    }

    /// Bytes of the longest payload of a packet.
    #[must_use]
    pub const fn max_payload_bytes() -> usize {
        Self::max_datagram_bytes() - LINK_HEADER_BYTES - HEADER_BYTES
    }

    /// Learns how `peer` is reached. Gives the longest datagram that a link may send there, in bytes.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn introduce(&mut self, peer: NodeId, card: &Card) -> Result<usize, CardError> {
        let contact = Contact::from_card(card)?;
        let own: Vec<SocketAddr> = self.udp.addresses().collect();
        let paths: Vec<Path> = (contact.addresses.iter().enumerate())
            .filter_map(|(number, to)| {
                // Addresses that stand at the same place on both sides are taken to be of one network.
                let is_fit = |via: &usize| own[*via].is_ipv4() == to.is_ipv4();
                let same = Some(number).filter(|via| *via < own.len()).filter(is_fit);
                let via = same.or_else(|| (0..own.len()).find(is_fit))?;
                let to = *to;
                let main = Destination { via, to, may_fragment: false };
                let own = self.udp.connect(via, to);
                let usual = Destination { via: own.unwrap_or(via), ..main };
                Some(Path { usual, main })
            })
            .collect();
        if paths.is_empty() {
            return Err(CardError::Family);
        }
        self.sessions.envelope.set_peer(peer, PublicKey(contact.key));
        self.sessions.greets = true;
        let mut remote = Box::new(Remote { paths, max_bytes: 0 });
        let bytes = remote.measure(&self.udp);
        if let Some(entry) = self.sessions.peers.get_mut(usize::from(peer.0)) {
            *entry = Some(remote);
        }
        Ok(bytes)
    }

    /// The sockets, to be watched.
    pub(crate) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.udp.fds().collect()
    }

    /// Whether `peer` has been introduced.
    #[must_use]
    pub fn knows(&self, peer: NodeId) -> bool {
        self.sessions.peers.get(usize::from(peer.0)).is_some_and(Option::is_some)
    }

    /// Whether what [`poll`](Self::poll) takes next is a datagram of a session, which it opens without memory; `None` if nothing has
    /// come. May cost a system call.
    pub fn is_next_of_session(&mut self) -> Option<bool> {
        let next = self.udp.peek().map(Envelope::is_data);
        // With faults another may come next.
        next.map(|is_data| is_data && self.lossy.is_none())
    }

    /// Takes the next datagram, if one has come. A forked child takes none: they are its parent's.
    #[inline]
    pub fn poll(&mut self, now_ns: impl FnOnce() -> u64) -> Option<Arrival<'_>> {
        if !self.sessions.owner.is_me() {
            return None;
        }
        if let Some(on) = self.naming.take_change() {
            self.udp.set_naming(on);
        }
        let datagram = match &mut self.lossy {
            None => self.udp.receive(),
            Some(lossy) => lossy.receive(&mut self.udp),
        }?;
        let (from, bytes) = (datagram.from, datagram.bytes);
        let now_ns = now_ns();
        let first = bytes.first().copied().unwrap_or_default();
        if Envelope::is_handshake(first) {
            self.naming.handle_handshake(now_ns);
            if from.is_none() && Envelope::needs_sender(first) {
                // It comes again, and then its sender is known.
                return Some(Arrival::Other);
            }
        }
        let (address, length) = from.as_ref().map_or(([0; 18], 0), bytes_of);
        let opened = (self.sessions.envelope).handle(now_ns, &address[..length], bytes, &mut entropy);
        Some(match opened {
            Opened::Data { from, bytes: range } => match self.sessions.peers.get(usize::from(from.0)) {
                Some(Some(_)) => {
                    self.naming.handle_data(now_ns);
                    let bytes = &mut bytes[range];
                    if let Some(capture) = &mut self.sessions.capture {
                        capture.take(from, bytes);
                    }
                    Arrival::Datagram { from, bytes }
                }
                _ => Arrival::Stranger(from),
            },
            other => {
                self.sessions.greets |= matches!(other, Opened::Handled);
                self.sessions.envelope.poll_wanted_key().map_or(Arrival::Other, Arrival::Stranger)
            }
        })
    }

    /// The preferred address of `peer`, once it has been introduced.
    #[must_use]
    pub fn address_of(&self, peer: NodeId) -> Option<SocketAddr> {
        let remote = self.sessions.peers.get(usize::from(peer.0))?.as_ref()?;
        remote.paths.first().map(|path| path.main.to)
    }

    /// Counters of rejected datagrams by cause, and of handshakes.
    #[must_use]
    pub const fn counters(&self) -> &mapwire_seal::Counters {
        self.sessions.envelope.counters()
    }

    /// Whether [`poll`](Self::poll) gives something without a system call.
    #[inline]
    #[must_use]
    pub fn has_received(&self) -> bool {
        self.udp.has_received()
    }

    /// Whether a handshake has something to send at `now_ns`: [`begin`](Self::begin) sends it.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.sessions.greets || self.sessions.envelope.poll_at().is_some_and(|at| at <= now_ns)
    }

    /// As [`is_due`](Self::is_due), for polling loops: reads the clock in one call of 64.
    #[inline]
    pub fn is_due_soon(&mut self, now_ns: impl FnOnce() -> u64) -> bool {
        self.looks = (self.looks + 1) % LOOKS_TO_DUE;
        // An answer waits: it must leave before this thread sleeps.
        let waits = self.sessions.greets || self.sessions.envelope.poll_at() == Some(0);
        waits || self.looks == 0 && self.is_due(now_ns())
    }

    /// A peer whose paths have become shorter, and the longest datagram that a link may send there now, in bytes.
    pub fn poll_shortened(&mut self) -> Option<(NodeId, usize)> {
        let peer = self.sessions.shortened.pop()?;
        let remote = self.sessions.peers.get_mut(usize::from(peer.0))?.as_mut()?;
        Some((peer, remote.measure(&self.udp)))
    }
}

impl Remote {
    /// Finds out what all paths take. Gives the longest datagram that a link may send, in bytes.
    fn measure(&mut self, udp: &Udp) -> usize {
        let lengths = self.paths.iter();
        let lengths = lengths.map(|path| udp.max_bytes_towards(path.main.via, &path.main.to));
        self.max_bytes = lengths.min().unwrap_or(0);
        self.max_bytes.saturating_sub(ENVELOPE_BYTES)
    }

    #[inline]
    fn path(&self, number: u8) -> &Path {
        match &self.paths[..] {
            [only] => only,
            paths => &paths[usize::from(number) % paths.len()],
        }
    }
}
