//! Packets on their way out: a queue for each peer, served in turn, and the numbers that keep them in order.

use alloc::vec::Vec;

use mapwire_wire::link::LinkHeader;
use mapwire_wire::{Endpoint, HandlerId, INLINE_BYTES, Kind, NodeId, ProcessId, Repr};

use crate::link::{Body, Datagram, LINK_WINDOW, Link, LinkConfig};
use crate::lossy::Lossy;
use crate::queue::Queue;
use crate::transmit::{Source, Transmit, Work};
use crate::turns::Turns;

/// Packets that may wait for one node before commands to it are held back.
pub(crate) const QUEUE_LIMIT: usize = 8;
/// Packets that may wait for one node before services of the host may send it no more.
pub(crate) const HOST_LIMIT: usize = 8192;
/// Packets that may wait for one node before services of the host send it no further requests.
pub(crate) const REQUEST_LIMIT: usize = 32;

/// Fetches that one node may have under way at another. Both sides count: the asking node waits at this number, and the serving
/// node drops what exceeds it.
pub(crate) const MAX_FETCHES_A_LINK: u8 = 32;
/// Messages of several packets that may be under way on a link at a time. Both sides count: the sender begins no more, and the
/// receiver remembers no more ([`crate::inbound`]).
pub(crate) const MAX_OPEN_MESSAGES: u8 = 16;

#[derive(Debug)]
struct Peer {
    /// Packets that are out and unacked, on a transport that may lose them; then those that wait.
    queue: Queue,
    /// Number of packets that are out and unacked: 0 on a lossless transport.
    out: usize,
    /// Whether the transport has no room; it says when it has.
    blocked: bool,
    /// Whether the node has left: nothing goes there or comes from there.
    gone: bool,
    /// Whether the driver has seen the first packet that waits and may be transmitting it.
    offered: bool,
    /// Sequence number of the front packet; the others follow.
    next_sequence: u32,
    /// Sequence number that is due from that node.
    due: u32,
    open_messages: u8,
    fetching: u8,
    /// Whether packets may be lost, so that a link stands below.
    linked: bool,
    /// Longest piece of a transfer in one of its packets, in bytes.
    most_bytes: u32,
    /// Whether stores that had not arrived were dropped when the node went, and the program was not told.
    lost_stores: bool,
    is_told: bool,
}

impl Peer {
    /// A peer without traffic so far; its queue has `places` slots from its first use on.
    const fn new(places: usize, linked: bool) -> Self {
        Self {
            queue: Queue::new(places),
            out: 0,
            blocked: false,
            gone: false,
            offered: false,
            next_sequence: 0,
            due: 0,
            open_messages: 0,
            fetching: 0,
            linked,
            most_bytes: u32::MAX,
            lost_stores: false,
            is_told: false,
        }
    }

    /// Number of packets that wait.
    #[inline]
    fn waiting(&self) -> usize {
        self.queue.len() - self.out
    }
}

/// The queues to all peers, and their links if the transport may lose packets.
#[derive(Debug)]
pub(crate) struct Outbound {
    peers: Vec<Peer>,
    /// Peers without a link that have a packet waiting and are not blocked.
    ready: Turns,
    /// Peers with a link that may have something to send.
    linked: Turns,
    /// The links, if packets to some peers may be lost.
    lossy: Option<Lossy>,
}

impl Outbound {
    pub(crate) fn new(nodes: usize, link: Option<LinkConfig>) -> Self {
        let mut peers = Vec::new();
        peers.reserve_exact(nodes);
        // Twice the limit covers what receiving adds to what commands may queue, so that no steady state grows it.
        let unacked = if link.is_some() { LINK_WINDOW as usize } else { 0 };
        let places = (2 * QUEUE_LIMIT + unacked).next_power_of_two();
        peers.resize_with(nodes, || Peer::new(places, link.is_some()));
        Self {
            peers,
            ready: Turns::new(nodes),
            linked: Turns::new(if link.is_some() { nodes } else { 0 }),
            lossy: link.map(|config| Lossy::new(config, nodes)),
        }
    }

    /// The links, for reading.
    pub(crate) fn links(&self) -> Option<&Lossy> {
        self.lossy.as_ref()
    }

    pub(crate) fn lossy(&mut self) -> Option<&mut Lossy> {
        self.lossy.as_mut()
    }

    /// The links, if `node` has one.
    pub(crate) fn lossy_to(&mut self, node: NodeId) -> Option<&mut Lossy> {
        match self.peer(node)?.linked {
            true => self.lossy.as_mut(),
            false => None,
        }
    }

    /// Declares that packets to `node` are not lost. Nothing may have been sent to it yet.
    pub(crate) fn set_lossless(&mut self, node: NodeId) {
        if let Some(peer) = self.peer_mut(node) {
            *peer = Peer { most_bytes: peer.most_bytes, ..Peer::new((2 * QUEUE_LIMIT).next_power_of_two(), false) };
        }
    }

    /// Longest piece of a transfer in one packet to `node`, in bytes.
    #[inline]
    pub(crate) fn most_bytes(&self, node: NodeId) -> usize {
        self.peer(node).map_or(usize::MAX, |peer| peer.most_bytes as usize)
    }

    /// Limits packets to `node` to `bytes` of a transfer each.
    pub(crate) fn set_most_bytes(&mut self, node: NodeId, bytes: u32) {
        if let Some(peer) = self.peer_mut(node) {
            peer.most_bytes = bytes;
        }
    }

    /// The set of turns to which this peer belongs.
    #[inline]
    fn turns(&mut self, index: usize) -> &mut Turns {
        match self.peers[index].linked {
            true => &mut self.linked,
            false => &mut self.ready,
        }
    }

    #[inline]
    fn peer(&self, node: NodeId) -> Option<&Peer> {
        self.peers.get(usize::from(node.0))
    }

    #[inline]
    fn peer_mut(&mut self, node: NodeId) -> Option<&mut Peer> {
        self.peers.get_mut(usize::from(node.0))
    }

    /// Nodes in the job, this one included.
    pub(crate) fn nodes(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn has(&self, node: NodeId) -> bool {
        usize::from(node.0) < self.peers.len()
    }

    /// Whether there is such a node and it has not left.
    #[inline]
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.peer(node).is_some_and(|peer| !peer.gone)
    }

    /// Makes room for packets that wait for `node`.
    pub(crate) fn reserve(&mut self, node: NodeId) {
        if let Some(peer) = self.peer_mut(node) {
            peer.queue.reserve();
        }
        if let Some(lossy) = self.lossy_to(node) {
            lossy.reserve(node);
        }
    }

    /// Whether the next datagram can be sent without allocating.
    pub(crate) fn has_link_room(&self) -> bool {
        let link = |index: usize| self.lossy.as_ref()?.link(NodeId(index as u16));
        match self.linked.first() {
            None => true,
            Some(index) => link(index).is_some_and(Link::has_room),
        }
    }

    /// Whether taking a datagram from `node` with this header neither allocates nor frees.
    pub(crate) fn is_steady(&self, node: NodeId, header: &LinkHeader) -> bool {
        let link = self.lossy.as_ref().and_then(|lossy| lossy.link(node));
        let frees = |peer: &Peer| {
            let mut packets = peer.queue.iter();
            packets.any(|packet| matches!(packet.source, Source::Message(_)))
        };
        self.early_bytes() == 0
            && link.is_some_and(|link| link.is_steady(header))
            && self.peer(node).is_some_and(|peer| !frees(peer))
    }

    /// Number of packets that wait for `node`.
    #[inline]
    pub(crate) fn waiting_for(&self, node: NodeId) -> usize {
        self.peer(node).map_or(0, Peer::waiting)
    }

    /// Number of packets for `node` that wait or are unacked.
    pub(crate) fn unfinished_for(&self, node: NodeId) -> usize {
        self.peer(node).map_or(0, |peer| peer.queue.len())
    }

    /// Whether a store for `node` waits or is unacked.
    pub(crate) fn has_stores_for(&self, node: NodeId) -> bool {
        self.peer(node).is_some_and(|peer| peer.queue.iter().any(is_store))
    }

    /// Whether stores for `node` that had not arrived were dropped when it went, and the program was not told.
    pub(crate) fn has_lost_stores(&self, node: NodeId) -> bool {
        self.peer(node).is_some_and(|peer| peer.lost_stores)
    }

    /// A store for `node` was dropped because the node has gone.
    pub(crate) fn note_lost_store(&mut self, node: NodeId) {
        if let Some(peer) = self.peer_mut(node) {
            peer.lost_stores |= !peer.is_told;
        }
    }

    /// The program has been told that `node` has gone.
    pub(crate) fn note_told(&mut self, node: NodeId) {
        if let Some(peer) = self.peer_mut(node) {
            (peer.lost_stores, peer.is_told) = (false, true);
        }
    }

    /// Whether `node` has room for another packet of a command.
    #[inline]
    pub(crate) fn has_room(&self, node: NodeId) -> bool {
        self.waiting_for(node) < QUEUE_LIMIT
    }

    /// Whether a chunk for `node` would be transmitted soon. Nothing is cut for a blocked node: the turn would be lost to the
    /// others.
    #[inline]
    pub(crate) fn can_cut(&self, node: NodeId) -> bool {
        self.peer(node).is_some_and(|peer| !peer.blocked && peer.waiting() < QUEUE_LIMIT)
    }

    /// Whether packet `sequence` of `node` is the next; if so, the one after it is due. Otherwise returns the number that was
    /// due.
    #[inline]
    pub(crate) fn take_number(&mut self, node: NodeId, sequence: u32) -> Result<(), u32> {
        let Some(peer) = self.peer_mut(node) else {
            return Err(0);
        };
        if peer.due == sequence {
            peer.due = sequence.wrapping_add(1);
            Ok(())
        } else {
            Err(peer.due)
        }
    }

    /// Queues a packet for `to`, which must be up; the caller sets its `source` and `work`.
    #[inline(always)] // So that the header of a known kind is written without a question.
    fn push(&mut self, to: NodeId, repr: &Repr) -> &mut Transmit {
        let index = usize::from(to.0);
        let peer = &mut self.peers[index];
        if !peer.blocked {
            match peer.linked {
                true => self.linked.insert(index),
                false => self.ready.insert(index),
            }
        }
        let sequence = peer.next_sequence.wrapping_add(peer.queue.len() as u32);
        let transmit = peer.queue.push();
        transmit.to = to;
        repr.emit_to(sequence, &mut transmit.header);
        transmit
    }

    /// Queues a packet with its payload, at most [`mapwire_wire::INLINE_BYTES`].
    #[inline(always)]
    pub(crate) fn push_inline(&mut self, to: NodeId, repr: &Repr, payload: &[u8]) {
        self.push(to, repr).source.set_inline(payload);
    }

    /// Queues a packet whose payload follows from its fields.
    pub(crate) fn push_plain(&mut self, to: NodeId, repr: &Repr) {
        let (_, payload) = repr.emit(0);
        self.push_inline(to, repr, &payload);
    }

    #[inline]
    pub(crate) fn push_message(&mut self, from: ProcessId, to: Endpoint, handler: HandlerId, payload: &[u8]) {
        let message = Repr::Handler { handler, from, to: to.process, length: payload.len() as u32 };
        if payload.len() <= INLINE_BYTES {
            self.push_inline(to.node, &message, payload);
        } else {
            let source = Source::Message(payload.into());
            self.push_from(to.node, &message, source, Work::None);
        }
    }

    /// Queues a packet whose payload lies elsewhere.
    #[inline]
    pub(crate) fn push_from(&mut self, to: NodeId, repr: &Repr, source: Source, work: Work) {
        let transmit = self.push(to, repr);
        transmit.source = source;
        transmit.set_work(work);
    }

    /// Whether a packet waits that may be transmitted.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether a link may have something to send.
    #[inline]
    pub(crate) fn has_linked(&self) -> bool {
        !self.linked.is_empty()
    }

    /// The next packet of the node whose turn it is.
    #[inline]
    pub(crate) fn offer(&mut self) -> Option<&Transmit> {
        let peer = &mut self.peers[self.ready.first()?];
        let transmit = peer.queue.get_mut(0)?;
        debug_assert_eq!(
            transmit.header.sequence.get(),
            peer.next_sequence,
            "the packets of a link are numbered without a gap"
        );
        peer.offered = true;
        Some(transmit)
    }

    /// The packet offered for `node` is out: returns its payload bytes and the work that depends on it.
    #[inline]
    pub(crate) fn pop(&mut self, node: NodeId) -> Option<(u32, Work)> {
        let index = usize::from(node.0);
        let peer = self.peers.get_mut(index)?;
        let transmit = peer.queue.pop()?;
        let popped = (transmit.header.payload_bytes(), transmit.work());
        peer.offered = false;
        peer.next_sequence = peer.next_sequence.wrapping_add(1);
        if peer.queue.len() == 0 {
            self.ready.remove(index);
        }
        self.ready.served(index);
        Some(popped)
    }

    pub(crate) fn set_blocked(&mut self, node: NodeId, blocked: bool) {
        let index = usize::from(node.0);
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        peer.blocked = blocked;
        if blocked {
            peer.offered = false;
            self.turns(index).remove(index);
        } else if peer.waiting() > 0 || peer.linked {
            self.turns(index).insert(index);
        }
    }

    /// Whether another message of several packets may begin.
    #[inline]
    pub(crate) fn may_open(&self, node: NodeId) -> bool {
        self.peer(node).is_some_and(|peer| peer.open_messages < MAX_OPEN_MESSAGES)
    }

    pub(crate) fn open_message(&mut self, node: NodeId) {
        if let Some(peer) = self.peer_mut(node) {
            peer.open_messages += 1;
        }
    }

    /// The last packet of a message is queued.
    pub(crate) fn close_message(&mut self, node: NodeId) {
        if let Some(peer) = self.peer_mut(node) {
            peer.open_messages = peer.open_messages.saturating_sub(1);
        }
    }

    #[inline]
    pub(crate) fn may_fetch(&self, node: NodeId) -> bool {
        self.peer(node).is_some_and(|peer| peer.fetching < MAX_FETCHES_A_LINK)
    }

    pub(crate) fn begin_fetch(&mut self, node: NodeId) {
        if let Some(peer) = self.peer_mut(node) {
            peer.fetching += 1;
            self.await_answers(node);
        }
    }

    /// A fetch has been answered.
    pub(crate) fn end_fetch(&mut self, node: NodeId) {
        if let Some(peer) = self.peer_mut(node) {
            peer.fetching = peer.fetching.saturating_sub(1);
            self.await_answers(node);
        }
    }

    /// Tells the link whether answers are awaited.
    fn await_answers(&mut self, node: NodeId) {
        let is_awaiting = self.peer(node).is_some_and(|peer| peer.fetching > 0);
        if let Some(lossy) = self.lossy_to(node) {
            lossy.link_mut(node).set_awaiting(is_awaiting);
        }
    }

    /// Removes the waiting packets for which `keep` is false, except one that the driver may be transmitting. Those behind them
    /// are renumbered, so that the link has no gap. Unacked packets keep their numbers and lose everything else.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&mut Transmit) -> bool) {
        for (index, peer) in self.peers.iter_mut().enumerate() {
            for at in 0..peer.out {
                if let Some(transmit) = peer.queue.get_mut(at)
                    && !keep(transmit)
                {
                    let sequence = transmit.header.sequence.get();
                    transmit.header = Repr::Nothing.emit(sequence).0;
                    transmit.source = Source::EMPTY;
                    transmit.set_work(Work::None);
                }
            }
            let fixed = peer.out + usize::from(peer.offered);
            let mut sequence = peer.next_sequence.wrapping_add(fixed as u32);
            peer.queue.retain_from(fixed, |transmit| {
                let kept = keep(transmit);
                transmit.header.sequence = sequence.into();
                sequence = sequence.wrapping_add(u32::from(kept));
                kept
            });
            if peer.waiting() == 0 && !peer.linked {
                self.ready.remove(index);
            }
        }
    }

    /// Ensures that nothing is reported to `process` for the packets that the driver may be transmitting.
    pub(crate) fn disown_offered(&mut self, process: ProcessId) {
        let disown = |work: &mut Work| {
            if matches!(work, Work::Command { process: of, .. } if *of == process) {
                *work = Work::None;
            }
        };
        for peer in &mut self.peers {
            for at in 0..peer.out + usize::from(peer.offered) {
                if let Some(transmit) = peer.queue.get_mut(at) {
                    let mut work = transmit.work();
                    disown(&mut work);
                    transmit.set_work(work);
                }
            }
        }
    }

    /// Closes a node's link for good, and forgets what waits for it; passes the work that depended on it to `lost`. False if it
    /// was closed already.
    pub(crate) fn take_down(&mut self, node: NodeId, mut lost: impl FnMut(Work)) -> bool {
        let index = usize::from(node.0);
        let Some(peer) = self.peers.get_mut(index).filter(|peer| !peer.gone) else {
            return false;
        };
        peer.gone = true;
        peer.blocked = true;
        peer.offered = false;
        peer.out = 0;
        (peer.open_messages, peer.fetching) = (0, 0);
        while let Some(transmit) = peer.queue.pop() {
            peer.lost_stores |= is_store(transmit) && !peer.is_told;
            lost(transmit.work());
        }
        self.turns(index).remove(index);
        self.await_answers(node);
        true
    }

    /// A new incarnation of a node that was gone: packets are numbered from 0 on, both ways.
    pub(crate) fn bring_up(&mut self, node: NodeId) {
        if let Some(peer) = self.peer_mut(node) {
            // The queue was emptied when the former incarnation went.
            (peer.gone, peer.blocked, peer.is_told) = (false, false, false);
            (peer.next_sequence, peer.due) = (0, 0);
        }
    }

    /// The packet of `node` whose number was taken last could not be taken: it is due again.
    pub(crate) fn give_number_back(&mut self, node: NodeId) {
        if let Some(peer) = self.peer_mut(node) {
            peer.due = peer.due.wrapping_sub(1);
        }
    }

    /// The link to `node` may have something to send.
    pub(crate) fn wake(&mut self, node: NodeId) {
        let index = usize::from(node.0);
        if self.peers.get(index).is_some_and(|peer| peer.linked && (!peer.blocked || peer.gone)) {
            self.linked.insert(index);
        }
    }

    /// As [`wake`](Self::wake) if the link to `node` has something to send at `now_ns`; otherwise sets its timer.
    #[inline]
    pub(crate) fn settle(&mut self, now_ns: u64, node: NodeId) {
        let index = usize::from(node.0);
        let Some(peer) = self.peers.get(index).filter(|peer| peer.linked) else {
            return;
        };
        let Some(lossy) = &mut self.lossy else {
            return;
        };
        let waits = peer.waiting() > 0 || lossy.link_mut(node).is_due(now_ns);
        if waits && (!peer.blocked || peer.gone) {
            self.linked.insert(index);
        } else {
            lossy.arm(node);
        }
    }

    /// Makes all acks that links owe due now. Returns whether there are any.
    pub(crate) fn hasten_acks(&mut self) -> bool {
        let Some(lossy) = &mut self.lossy else {
            return false;
        };
        let linked = &mut self.linked;
        lossy.hasten_acks(|node| linked.insert(node.0.into()))
    }

    /// The next datagram of the links at `now_ns`, and its destination.
    pub(crate) fn next_datagram(&mut self, now_ns: u64) -> Option<(NodeId, Datagram)> {
        let lossy = self.lossy.as_mut()?;
        while let Some(index) = self.linked.first() {
            let node = NodeId(index as u16);
            let peer = &mut self.peers[index];
            let waiting = peer.queue.get_mut(peer.out);
            let waiting_bytes = waiting.map(|transmit| Lossy::datagram_bytes(&transmit.header));
            let link = lossy.link_mut(node);
            if let Some(datagram) = link.poll(now_ns, waiting_bytes) {
                if let Body::Packet { again: false, .. } = datagram.body {
                    peer.out += 1;
                }
                self.linked.served(index);
                return Some((node, datagram));
            }
            self.linked.remove(index);
            lossy.arm(node);
        }
        None
    }

    /// Packet `sequence` for `node`, which must be unacked.
    pub(crate) fn unacked(&mut self, node: NodeId, sequence: u32) -> Option<&Transmit> {
        let peer = self.peer_mut(node)?;
        let at = sequence.wrapping_sub(peer.next_sequence) as usize;
        let transmit = peer.queue.get_mut(at).filter(|_| at < peer.out)?;
        debug_assert_eq!(transmit.header.sequence.get(), sequence, "a link numbers packets as their queue does");
        Some(transmit)
    }

    /// The oldest packet for `node` is acked: returns the work that depended on it.
    pub(crate) fn pop_acked(&mut self, node: NodeId) -> Option<Work> {
        let peer = self.peer_mut(node).filter(|peer| peer.out > 0)?;
        let work = peer.queue.pop()?.work();
        peer.out -= 1;
        peer.next_sequence = peer.next_sequence.wrapping_add(1);
        Some(work)
    }

    /// All packets that wait or are unacked.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &Transmit> {
        self.peers.iter().flat_map(|peer| peer.queue.iter())
    }

    /// Whether a packet that `work` depends on waits or is unacked.
    pub(crate) fn is_queued(&self, work: Work) -> bool {
        self.packets().any(|transmit| transmit.work() == work)
    }

    /// Bytes of early packets of all peers.
    pub(crate) fn early_bytes(&self) -> usize {
        self.lossy.as_ref().map_or(0, Lossy::early_bytes)
    }

    /// NIC memory of the queues, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let queues: usize = self.peers.iter().map(|peer| peer.queue.bytes()).sum();
        let lossy = self.lossy.as_ref().map_or(0, Lossy::bytes);
        queues + self.peers.capacity() * size_of::<Peer>() + self.ready.bytes() + self.linked.bytes() + lossy
    }
}

/// Whether a packet carries data for an export, or a signal.
fn is_store(transmit: &Transmit) -> bool {
    Kind::from_code(transmit.header.kind) == Some(Kind::Store)
}
