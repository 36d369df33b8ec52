//! Memory that this process lends to the peers it sends to: on the ring path they then copy it themselves, once, instead of
//! each end copying once. A command whose memory is lent is over when the peer has read it.
//!
//! Lending is asked for by the program, buffer by buffer ([`Driver::lend`]), since a peer that has mapped a buffer can read all of
//! it. A peer gets it when something is first sent to it from there, and gives it back when the program takes it back.

use core::ops::Range;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use mapwire_nic::{Source, Transmit};
use mapwire_transport::shm::ShmTransport;
use mapwire_transport::shm::lent::{MAX_LENT, Reference};
use mapwire_wire::{CommandRepr, Kind, NodeId};

use crate::driver::{Driver, Interface};
use crate::log::Line;

/// Tags of lent memory among those of passed descriptors; those of exports count up from 0.
const LENT_TAG: u64 = 1 << 63;

/// Shorter payloads are copied into the ring: the answer that they were read would cost more than the copy.
const LEAST_BYTES: u32 = 1024;

/// Commands of one peer that may wait to be read: those of a full ring.
const DEPARTED: usize = 64;

/// The number that the tag of a passed descriptor stands for, if it is lent memory.
pub(crate) fn number_of(tag: u64) -> Option<u32> {
    // A number that is none names no memory.
    (tag & LENT_TAG != 0).then(|| u32::try_from(tag & !LENT_TAG).unwrap_or(u32::MAX))
}

/// What a peer has of one memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum With {
    /// Nothing.
    Nothing,
    /// Its descriptor, at least.
    Lent,
    /// It was told to give it back.
    TakenBack,
}

#[derive(Debug)]
struct Entry {
    memory: Range<usize>,
    /// `None` when it is over: nothing more is sent by reference, and the entry goes when no peer has the memory.
    file: Option<OwnedFd>,
    /// By peer.
    with: Vec<With>,
    /// By peer: packets sent to it when the entry was over.
    sent: Vec<u64>,
}

impl Entry {
    fn is_over(&self) -> bool {
        self.file.is_none()
    }

    fn end(&mut self, transport: &ShmTransport) {
        self.file = None;
        for (sent, node) in self.sent.iter_mut().zip(0..) {
            *sent = transport.sent(NodeId(node));
        }
    }
}

#[derive(Debug, Default)]
struct Peer {
    /// Packets sent to it when one last referred to lent memory: until it has released so many, its memory is being read.
    last: u64,
    /// The same for each command that waits to be read, oldest first.
    departed: VecDeque<u64>,
}

/// All that is lent, and who reads it.
#[derive(Debug)]
pub(crate) struct Lent {
    entries: Vec<Option<Entry>>,
    /// Entries to send from.
    live: usize,
    /// Entries that are over and that some peer has.
    over: usize,
    peers: Vec<Peer>,
    /// Commands that wait, of all peers.
    waiting: usize,
}

impl Lent {
    pub(crate) fn new(nodes: usize) -> Self {
        let mut peers = Vec::new();
        peers.resize_with(nodes, Peer::default);
        Self {
            entries: Vec::new(),
            live: 0,
            over: 0,
            peers,
            waiting: 0,
        }
    }

    /// Which memory holds the range, and where it begins there.
    #[inline]
    fn find(&self, address: usize, bytes: usize) -> Option<(u32, u64)> {
        if self.live == 0 {
            return None;
        }
        let end = address.checked_add(bytes)?;
        let holds = |entry: &Entry| {
            !entry.is_over() && entry.memory.start <= address && end <= entry.memory.end
        };
        self.entries.iter().zip(0..).find_map(|(entry, number)| {
            let entry = entry.as_ref().filter(|entry| holds(entry))?;
            Some((number, (address - entry.memory.start) as u64))
        })
    }

    /// The reference to send in place of a packet's bytes, which are at `address`; `None` if they must be copied.
    #[inline]
    pub(crate) fn reference(
        &self,
        transport: &mut ShmTransport,
        packet: &Transmit,
        address: impl FnOnce() -> usize,
    ) -> Option<Reference> {
        // Answers to fetches are copied: an export can be revoked at any time, and is then no longer read.
        let Source::Memory { piece, .. } = &packet.source else {
            return None;
        };
        if self.live == 0 || piece.length < LEAST_BYTES || packet.header.kind != Kind::Store as u8 {
            return None;
        }
        let (number, offset) = self.find(address(), piece.length as usize)?;
        transport
            .reads_lent(packet.to, number)
            .then_some(Reference {
                number,
                offset,
                len_bytes: piece.length,
            })
    }

    /// Notes that the packet just sent to `to` refers to lent memory.
    #[inline]
    pub(crate) fn note(&mut self, transport: &ShmTransport, to: NodeId) {
        if let Some(peer) = self.peers.get_mut(usize::from(to.0)) {
            peer.last = transport.sent(to);
        }
    }

    /// Tells the NIC that the packet just sent to `to` is out, and its source read or not.
    #[inline]
    pub(crate) fn tell_sent(
        &mut self,
        nic: &mut Interface,
        transport: &mut ShmTransport,
        to: NodeId,
    ) {
        if let Some(peer) = self.peers.get_mut(usize::from(to.0))
            && peer.last != 0
        {
            if transport.released(to) < peer.last {
                if nic.handle_departed(to) {
                    peer.departed.push_back(peer.last);
                    self.waiting += 1;
                }
                return;
            }
            peer.last = 0;
        }
        nic.handle_transmitted(to);
    }

    /// Tells the NIC what peers have read since. Whether there was anything.
    #[inline]
    pub(crate) fn collect(&mut self, nic: &mut Interface, transport: &mut ShmTransport) -> bool {
        let before = self.waiting;
        if before == 0 {
            return false;
        }
        for (peer, number) in self.peers.iter_mut().zip(0..) {
            if peer.departed.is_empty() {
                continue;
            }
            let node = NodeId(number);
            let released = transport.released(node);
            while peer.departed.front().is_some_and(|&at| at <= released) {
                peer.departed.pop_front();
                self.waiting -= 1;
                nic.handle_source_read(node);
            }
        }
        self.waiting != before
    }

    /// Whether commands wait until a peer has read their memory.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Whether a peer may have read something that a command waits for.
    pub(crate) fn has_news(&self, transport: &ShmTransport) -> bool {
        self.waiting > 0
            && self.peers.iter().zip(0..).any(|(peer, node)| {
                !peer.departed.is_empty() && transport.has_released(NodeId(node))
            })
    }

    /// Forgets a peer; the NIC has failed what waited for it.
    pub(crate) fn handle_peer_gone(&mut self, node: NodeId) {
        let index = usize::from(node.0);
        if let Some(peer) = self.peers.get_mut(index) {
            self.waiting -= peer.departed.len();
            peer.departed.clear();
            peer.last = 0;
        }
        for entry in self.entries.iter_mut().flatten() {
            if let Some(with) = entry.with.get_mut(index) {
                *with = With::Nothing;
            }
        }
    }

    /// Sends nothing more from memory that overlaps the range: other pages are there from now on.
    pub(crate) fn retire(&mut self, transport: &ShmTransport, memory: &Range<usize>) {
        for entry in self.entries.iter_mut().flatten() {
            if !entry.is_over()
                && entry.memory.start < memory.end
                && memory.start < entry.memory.end
            {
                entry.end(transport);
                self.live -= 1;
                self.over += 1;
            }
        }
    }

    /// Goes on with taking back what is over.
    #[inline]
    pub(crate) fn sweep(&mut self, transport: &mut ShmTransport) {
        if self.over > 0 {
            self.take_back(transport);
        }
    }

    #[cold]
    fn take_back(&mut self, transport: &mut ShmTransport) {
        for (place, number) in self.entries.iter_mut().zip(0..) {
            let Some(entry) = place.as_mut().filter(|entry| entry.is_over()) else {
                continue;
            };
            for ((with, &sent), node) in entry.with.iter_mut().zip(&entry.sent).zip(0..) {
                let node = NodeId(node);
                // Not before the peer has mapped it: its descriptor, still on the way, would else stand for the next memory.
                if *with == With::Lent
                    && transport.reads_lent(node, number)
                    && transport.released(node) >= sent
                {
                    transport.take_back(node, number);
                    *with = With::TakenBack;
                }
                if *with == With::TakenBack && !transport.keeps_lent(node, number) {
                    *with = With::Nothing;
                }
            }
            if entry.with.iter().all(|&with| with == With::Nothing) {
                *place = None;
                self.over -= 1;
            }
        }
    }
}

impl Driver {
    /// Lends memory, which `file` gives for reading from its first byte on, to whom this process sends from it. `None` when
    /// so much is lent that there is no number for it, or not yet again: what is sent from it is then copied.
    pub fn lend(&mut self, memory: Range<usize>, file: OwnedFd) -> Option<u32> {
        self.lent.sweep(&mut self.transport);
        let entries = &mut self.lent.entries;
        let number = match entries.iter().position(Option::is_none) {
            Some(number) => number,
            None if entries.len() < MAX_LENT as usize => {
                entries.push(None);
                entries.len() - 1
            }
            None => return None,
        };
        let peers = self.lent.peers.len();
        entries[number] = Some(Entry {
            memory,
            file: Some(file),
            with: vec![With::Nothing; peers],
            sent: vec![0; peers],
        });
        self.lent.live += 1;
        Some(number as u32)
    }

    /// Takes back what [`lend`](Self::lend) gave the number for. Peers unmap it when nothing under way refers to it.
    pub fn take_back(&mut self, number: u32) {
        if let Some(Some(entry)) = self.lent.entries.get_mut(number as usize)
            && !entry.is_over()
        {
            entry.end(&self.transport);
            self.lent.live -= 1;
            self.lent.over += 1;
        }
        self.lent.sweep(&mut self.transport);
    }

    /// Passes memory that is lent to the peer that a command is about to send it to. Makes room for what transmitting may need,
    /// so that it does not allocate.
    #[inline]
    pub(crate) fn prepare_lent(&mut self, command: &CommandRepr) {
        if self.lent.live > 0
            && let CommandRepr::LongSend {
                import,
                address,
                length,
                ..
            } = *command
            && length >= u64::from(LEAST_BYTES)
            && let Some(to) = self.nic.imported(import).map(|import| import.node)
            && to != self.me
        {
            self.pass_lent(to, address, length);
        }
    }

    #[cold]
    fn pass_lent(&mut self, to: NodeId, address: u64, bytes: u64) {
        let Some((number, _)) = self.lent.find(address as usize, bytes as usize) else {
            return;
        };
        let Some(Some(entry)) = self.lent.entries.get_mut(number as usize) else {
            return;
        };
        let index = usize::from(to.0);
        let Some(file) = &entry.file else { return };
        if entry.with.get(index) != Some(&With::Nothing) {
            return;
        }
        // Without a channel what is sent is copied: it comes with the first packet. Of a peer that is gone the send says so.
        if self.transport.lend(to, number).is_err() {
            return;
        }
        entry.with[index] = With::Lent;
        let tag = LENT_TAG | u64::from(number);
        if let Err(error) = self.job.pass(to, tag, file.as_fd()) {
            self.log.push(Line::NotLent { to, error });
            self.handle_lost_lent(to, number);
        }
        let departed = &mut self.lent.peers[index].departed;
        departed.reserve_exact(DEPARTED.saturating_sub(departed.len()));
        self.nic.reserve_departures(to, DEPARTED);
    }

    /// A peer will not get what was lent to it: what is sent to it is copied.
    #[cold]
    pub(crate) fn handle_lost_lent(&mut self, to: NodeId, number: u32) {
        self.transport.take_back(to, number);
        if let Some(Some(entry)) = self.lent.entries.get_mut(number as usize)
            && let Some(with) = entry.with.get_mut(usize::from(to.0))
        {
            *with = With::TakenBack;
        }
    }
}
