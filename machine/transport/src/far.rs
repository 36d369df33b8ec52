//! Packets to ranks of other hosts by libfabric, in place of datagrams: lossless, and not sealed.
//!
//! The library allocates and takes locks, so nothing of it is called while the fabric is *confined*, in the page-fault handler: peers seem
//! to have no room then, and to have sent nothing. Who runs the handler leaves them to another thread.

use core::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mapwire_host::descriptors::occupy_stdio;
use mapwire_wire::{Header, NodeId};

use crate::net::{CardError, NetConfig};
use crate::ofi::{Ofi, OfiConfig, OfiError, core_of, usual_provider};
use crate::payload::Payload;
use crate::rendezvous::Card;
use crate::transport::{Abilities, Packet, ReceiveError, SendError, Transport};

/// Providers whose endpoints have addresses of the Internet protocol, by which an interface is chosen.
const BY_ADDRESS: [&str; 5] = ["tcp", "net", "udp", "sockets", "verbs"];

/// See [the module](self).
#[derive(Debug)]
pub struct Far {
    ofi: Ofi,
    fd: Option<OwnedFd>,
    /// The provider stores to and fetches from memory of peers, and says of each operation how it ended, so that the memory can be given
    /// back.
    has_memory: bool,
    is_confined: bool,
    /// Its packets come before those of others, the next time that both have some.
    is_first: Cell<bool>,
}

impl Far {
    /// Opens the endpoint of rank `me`. `provider`: a name, or a part of one; `None`: the best that there is. Of the addresses of `net` the
    /// first that the provider has is used, if it has such; without any, loopback for tcp and udp, and the choice of the provider for
    /// others.
    ///
    /// # Errors
    /// [`OfiError`].
    pub fn open(provider: Option<&str>, net: &NetConfig, me: NodeId) -> Result<Self, OfiError> {
        // The library takes whatever number a descriptor gets.
        occupy_stdio();
        let provider = match provider {
            Some(provider) => provider.to_owned(),
            None => usual_provider()?,
        };
        let mut config = OfiConfig {
            node: me,
            wants_fd: !net.spins,
            // A transfer's memory is the program's, and cannot be given back before the library does.
            patience: None,
            ..OfiConfig::new(&provider)
        };
        let addresses = match BY_ADDRESS.contains(&core_of(&provider)) {
            true => &net.addresses[..],
            false => &[],
        };
        // Of an earlier process of this number: this one has no endpoint yet.
        crate::ofi::remove_leftovers(std::process::id());
        let mut opened = match addresses.first() {
            None => Ofi::open_with(&config),
            Some(_) => Err(OfiError::BadName("no address")),
        };
        for address in addresses {
            config.source = Some(address.to_string());
            opened = Ofi::open_with(&config);
            if !matches!(opened, Err(OfiError::NoProvider { .. })) {
                break;
            }
        }
        let ofi = opened?;
        let has_memory = ofi.has_rma() && !["udp", "shm"].contains(&core_of(&provider));
        Ok(Self { fd: ofi.fd(), ofi, has_memory, is_confined: false, is_first: Cell::new(false) })
    }

    /// What other ranks need to know of this endpoint.
    #[must_use]
    pub fn card(&self) -> Card {
        crate::net::card_of_endpoint(self.ofi.name())
    }

    /// Connects to a peer.
    ///
    /// # Errors
    /// Its card is of no use here.
    pub fn introduce(&mut self, peer: NodeId, card: &Card) -> Result<(), CardError> {
        let name = crate::net::endpoint_of_card(card)?;
        let connected = self.ofi.connect(peer, name);
        connected.map_err(|error| match error {
            OfiError::BadName(why) => CardError::Endpoint(why),
            _ => CardError::Endpoint("there is no memory for its packets"),
        })
    }

    /// The provider's full name.
    #[must_use]
    pub fn provider(&self) -> &str {
        self.ofi.provider()
    }

    /// The endpoint, where it stores to and fetches from memory of peers, and while the library is not left alone.
    #[must_use]
    pub fn memory(&mut self) -> Option<&mut Ofi> {
        (self.has_memory && !self.is_confined).then_some(&mut self.ofi)
    }

    /// What threads may sleep on, where the provider has it: see [`Ofi::fd`].
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Peers with a connection.
    pub fn peers(&mut self) -> &[NodeId] {
        self.ofi.peers()
    }

    /// Begins or ends to leave the library alone.
    pub fn set_confined(&mut self, on: bool) {
        self.is_confined = on;
    }

    /// Whether the library is left alone.
    #[inline]
    pub(crate) fn is_confined(&self) -> bool {
        self.is_confined
    }

    /// Whether its next packet comes before one of the others; `others`: whether they have one.
    #[inline]
    pub(crate) fn is_next(&self, others: bool) -> bool {
        if self.is_confined || !self.has_seen() {
            return false;
        }
        let is_first = !self.is_first.get();
        self.is_first.set(is_first);
        is_first || !others
    }

    /// Looks whether anything has come.
    fn has_seen(&self) -> bool {
        self.ofi.has_received() || {
            self.ofi.progress();
            self.ofi.has_received()
        }
    }

    /// Whether a packet of this peer has been seen.
    pub(crate) fn has_next(&self, from: NodeId) -> bool {
        !self.is_confined && self.ofi.has_next(from)
    }

    /// Looks what has come, also while the next packet of another peer waits.
    pub fn look(&self) {
        if !self.is_confined {
            self.ofi.progress();
        }
    }

    /// Whether ranks have spoken that were not introduced.
    pub(crate) fn has_strangers(&self) -> bool {
        self.ofi.has_strangers()
    }

    /// The next of them, as it claims: see [`Ofi::poll_stranger`].
    pub(crate) fn poll_stranger(&mut self) -> Option<NodeId> {
        self.ofi.poll_stranger()
    }
}

impl Transport for Far {
    #[inline]
    fn abilities(&self, _: NodeId) -> Abilities {
        Abilities { remote_access: self.has_memory, lossless: true, passes_memory: false, rings: false }
    }

    fn max_payload_bytes(&self) -> usize {
        self.ofi.max_payload_bytes()
    }

    #[inline]
    fn send(&mut self, to: NodeId, header: &Header, payload: Payload<'_>) -> Result<(), SendError> {
        if self.is_confined {
            return Err(SendError::WouldBlock(to));
        }
        self.ofi.send(to, header, payload)
    }

    #[inline]
    fn poll_receive(&mut self) -> Result<Option<Packet<'_>>, ReceiveError> {
        match self.is_confined {
            true => Ok(None),
            false => self.ofi.poll_receive(),
        }
    }

    /// The packet was taken while the fabric was not confined.
    #[inline]
    fn release(&mut self, from: NodeId) {
        self.ofi.release(from);
    }

    fn has_input(&self) -> bool {
        !self.is_confined && self.ofi.has_input()
    }

    fn flush(&mut self) {
        if !self.is_confined {
            self.ofi.flush();
        }
    }

    fn drained(&mut self, to: NodeId) -> Result<bool, SendError> {
        match self.is_confined {
            true => Ok(false),
            false => self.ofi.drained(to),
        }
    }

    fn disconnect(&mut self, peer: NodeId) {
        match self.is_confined {
            true => self.ofi.close(peer),
            false => self.ofi.disconnect(peer),
        }
    }
}
