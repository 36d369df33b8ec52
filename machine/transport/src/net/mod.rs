//! The way to ranks of other hosts: datagrams, which may be lost. The links of the network interface recover them.

mod alarm;
mod card;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use mapwire_wire::link::LINK_HEADER_BYTES;
use mapwire_wire::{HEADER_BYTES, NodeId};

pub(crate) use alarm::Alarm;
pub use card::{CardError, Contact, MAX_ADDRESSES};

use crate::payload::Payload;
use crate::rendezvous::{Card, Secret};

/// Bytes of the envelope of a datagram that is not sealed.
const PLAIN_BYTES: usize = 8;
const PLAIN: u8 = 5;
/// Longest datagram that UDP carries over IPv4.
const MAX_UDP_BYTES: usize = 65_507;

/// What a rank's way to other hosts is made with.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// The addresses of this host that datagrams come to.
    pub addresses: Vec<IpAddr>,
    /// Datagrams are neither sealed nor authenticated: for measurements.
    pub insecure: bool,
}

impl Default for NetConfig {
    /// The loopback address: nothing listens beyond this host unless it is told to.
    fn default() -> Self {
        Self {
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            insecure: false,
        }
    }
}

/// Why there is no way to other hosts.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// An address cannot be used.
    #[error(
        "cannot take datagrams at {address}: {source}; name addresses of this host (MAPWIRE_ADDRESSES)"
    )]
    Bind {
        /// The address.
        address: IpAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The thread that watches the sockets cannot be had.
    #[error(
        "cannot watch for datagrams: {0}; raise the limits on threads and descriptors (ulimit -u, ulimit -n)"
    )]
    Watch(std::io::Error),
    /// No address was given.
    #[error("no address to take datagrams at; name some of this host (MAPWIRE_ADDRESSES)")]
    NoAddress,
}

/// A datagram of a rank, without its envelope.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// Who has sent it.
    pub from: NodeId,
    /// What the links see.
    pub bytes: &'a mut [u8],
}

/// What has come.
#[derive(Debug)]
pub enum Arrival<'a> {
    /// A datagram.
    Datagram(Datagram<'a>),
    /// Something from a rank whose card is not known yet.
    Stranger(NodeId),
    /// Nothing that concerns the links.
    Other,
}

/// Datagrams to and from ranks of other hosts.
#[derive(Debug)]
pub struct Net {
    me: NodeId,
    job: u32,
    socket: UdpSocket,
    address: SocketAddr,
    /// Addresses of each rank that is known.
    peers: Vec<Option<Box<[SocketAddr]>>>,
    out: Vec<u8>,
    buffer: Box<[u8]>,
}

impl Net {
    /// Opens the sockets of rank `me` of `size`.
    ///
    /// # Errors
    /// [`NetError`].
    pub fn open(
        config: &NetConfig,
        me: NodeId,
        size: usize,
        secret: Secret,
    ) -> Result<Self, NetError> {
        let [.., a, b, c, d] = secret.0;
        let job = u32::from_le_bytes([a, b, c, d]);
        let &address = config.addresses.first().ok_or(NetError::NoAddress)?;
        let bind = || {
            let socket = UdpSocket::bind((address, 0))?;
            socket.set_nonblocking(true)?;
            let local = socket.local_addr()?;
            Ok((socket, local))
        };
        let (socket, local) = bind().map_err(|source| NetError::Bind { address, source })?;
        Ok(Self {
            me,
            job,
            socket,
            address: local,
            peers: vec![None; size],
            out: Vec::with_capacity(MAX_UDP_BYTES),
            buffer: vec![0; 1 << 16].into(),
        })
    }

    /// What other ranks need to know.
    #[must_use]
    pub fn card(&self) -> Card {
        let addresses = vec![self.address];
        Contact {
            addresses,
            key: [0; 32],
        }
        .to_card()
    }

    /// Bytes of the longest datagram of a link.
    #[must_use]
    pub fn max_datagram_bytes(&self) -> usize {
        MAX_UDP_BYTES - PLAIN_BYTES
    }

    /// Bytes of the longest payload of a packet.
    #[must_use]
    pub fn max_payload_bytes(&self) -> usize {
        self.max_datagram_bytes() - LINK_HEADER_BYTES - HEADER_BYTES
    }

    /// Learns how `peer` is reached. Gives the longest datagram that a link may send there, in bytes.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn introduce(&mut self, peer: NodeId, card: &Card) -> Result<usize, CardError> {
        let contact = Contact::from_card(card)?;
        if let Some(entry) = self.peers.get_mut(usize::from(peer.0)) {
            *entry = Some(contact.addresses.into());
        }
        Ok(self.max_datagram_bytes())
    }

    /// The sockets, to be watched.
    pub(crate) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.socket.as_fd()]
    }

    /// Whether `peer` has been introduced.
    #[must_use]
    pub fn knows(&self, peer: NodeId) -> bool {
        self.peers
            .get(usize::from(peer.0))
            .is_some_and(Option::is_some)
    }

    /// Sends a datagram: `head`, then the payload. False when the peer is not known yet: then it is lost.
    pub fn send(&mut self, to: NodeId, path: u8, head: &[u8], payload: Payload<'_>) -> bool {
        let Some(Some(addresses)) = self.peers.get(usize::from(to.0)) else {
            return false;
        };
        let address = addresses[usize::from(path) % addresses.len()];
        self.out.clear();
        self.out.extend([PLAIN, 0]);
        self.out.extend(self.me.0.to_le_bytes());
        self.out.extend(self.job.to_le_bytes());
        self.out.extend(head);
        for piece in payload.pieces() {
            let at = self.out.len();
            self.out.resize(at + piece.len(), 0);
            piece.copy_to_slice(&mut self.out[at..]);
        }
        let _ = self.socket.send_to(&self.out, address);
        true
    }

    /// Takes the next datagram, if one has come.
    pub fn poll(&mut self) -> Option<Arrival<'_>> {
        let (length, _) = self.socket.recv_from(&mut self.buffer).ok()?;
        let bytes = &mut self.buffer[..length];
        let Some((envelope, bytes)) = bytes.split_first_chunk_mut::<PLAIN_BYTES>() else {
            return Some(Arrival::Other);
        };
        let [PLAIN, 0, from @ .., a, b, c, d] = *envelope else {
            return Some(Arrival::Other);
        };
        let from = NodeId(u16::from_le_bytes(from));
        if u32::from_le_bytes([a, b, c, d]) != self.job || usize::from(from.0) >= self.peers.len() {
            return Some(Arrival::Other);
        }
        Some(match self.peers[usize::from(from.0)] {
            Some(_) => Arrival::Datagram(Datagram { from, bytes }),
            None => Arrival::Stranger(from),
        })
    }
}
