//! The links to the other nodes: a queue of packets for each, served in turn, and the numbers that keep each link in order.

use alloc::vec::Vec;

use mapwire_wire::{Endpoint, HandlerId, INLINE_BYTES, NodeId, ProcessId, Repr};

use crate::queue::Queue;
use crate::recovery::{self, Owed, Recovery};
use crate::transmit::{Source, Transmit, Work};
use crate::turns::Turns;

/// Packets that may wait for one node before commands to it are held back.
pub(crate) const QUEUE_LIMIT: usize = 8;
/// Packets that may wait for one node before handlers on the NIC may send it no more.
pub(crate) const HANDLER_LIMIT: usize = 64;
/// Packets that may wait for one node before services of the host may send it no more.
pub(crate) const HOST_LIMIT: usize = 8192;
/// Packets that may wait for one node before services of the host ask it for nothing more.
pub(crate) const REQUEST_LIMIT: usize = 32;

/// Fetches that one node may have under way at another. Both sides count: the one that asks waits when it has so many, and the one
/// that serves drops what comes beyond.
pub(crate) const MAX_FETCHES_A_LINK: u8 = 32;
/// Messages of more than one packet that may be under way on a link at a time. Both sides count: the sender begins no more, and
/// the receiver remembers no more ([`crate::inbound`]).
pub(crate) const MAX_OPEN_MESSAGES: u8 = 16;

#[derive(Debug)]
pub(crate) struct Link {
    /// Packets that are out and not acked, on a link that recovers from drops; then those that wait.
    pub(crate) queue: Queue,
    /// How many are out and not acked: none on a link that does not recover.
    pub(crate) out: usize,
    /// The transport took no more; wait until it says that it does.
    pub(crate) blocked: bool,
    /// The node has left: nothing goes there or comes from there.
    pub(crate) gone: bool,
    /// The driver has seen the first packet that waits and may be transmitting it.
    pub(crate) offered: bool,
    /// Sequence number of the front packet; those behind it have the next ones.
    pub(crate) next_sequence: u32,
    /// Sequence number that is due from there.
    pub(crate) due: u32,
    /// What is to be said of the packets that came from there.
    pub(crate) owed: Owed,
    /// Messages begun and not ended.
    open_messages: u8,
    /// Fetches asked and not answered.
    fetching: u8,
}

impl Link {
    /// Packets that wait.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len() - self.out
    }
}

/// All links.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) links: Vec<Link>,
    /// Nodes that have a packet waiting and are not blocked.
    pub(crate) ready: Turns,
    /// There when the links recover from packets that a receiver drops.
    pub(crate) recovery: Option<Recovery>,
}

impl Links {
    pub(crate) fn new(nodes: usize, recovers: bool) -> Self {
        let mut links = Vec::new();
        links.reserve_exact(nodes);
        // Twice the limit holds what receiving adds to what commands may queue, so that no steady state grows it.
        let places = 2 * QUEUE_LIMIT + if recovers { recovery::WINDOW } else { 0 };
        links.resize_with(nodes, || Link {
            queue: Queue::new(places.next_power_of_two()),
            out: 0,
            owed: Owed::Nothing,
            blocked: false,
            gone: false,
            offered: false,
            next_sequence: 0,
            due: 0,
            open_messages: 0,
            fetching: 0,
        });
        Self {
            links,
            ready: Turns::new(nodes),
            recovery: recovers.then(|| Recovery::new(nodes)),
        }
    }

    #[inline]
    fn link(&self, node: NodeId) -> Option<&Link> {
        self.links.get(usize::from(node.0))
    }

    #[inline]
    pub(crate) fn link_mut(&mut self, node: NodeId) -> Option<&mut Link> {
        self.links.get_mut(usize::from(node.0))
    }

    /// Nodes in the job, this one included.
    pub(crate) fn nodes(&self) -> usize {
        self.links.len()
    }

    /// Whether there is such a node.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        usize::from(node.0) < self.links.len()
    }

    /// Whether there is such a node and it has not left.
    #[inline]
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.link(node).is_some_and(|link| !link.gone)
    }

    /// Makes room for packets that wait for `node`.
    pub(crate) fn reserve(&mut self, node: NodeId) {
        if let Some(link) = self.link_mut(node) {
            link.queue.reserve();
        }
    }

    /// Packets waiting for `node`.
    #[inline]
    pub(crate) fn waiting_for(&self, node: NodeId) -> usize {
        self.link(node).map_or(0, Link::waiting)
    }

    /// Packets for `node` that wait or are out and not acked.
    pub(crate) fn unfinished_for(&self, node: NodeId) -> usize {
        self.link(node).map_or(0, |link| link.queue.len())
    }

    /// Whether `node` has room for another packet of a command.
    #[inline]
    pub(crate) fn has_room(&self, node: NodeId) -> bool {
        self.waiting_for(node) < QUEUE_LIMIT
    }

    /// Whether a chunk for `node` would be transmitted soon. One for a node that is blocked is not cut: its turn would be lost on
    /// the others.
    #[inline]
    pub(crate) fn can_cut(&self, node: NodeId) -> bool {
        self.link(node)
            .is_some_and(|link| !link.blocked && link.waiting() < QUEUE_LIMIT)
    }

    /// Whether packet `sequence` of `node` is the next; if so the one after it is due. Otherwise what was due.
    #[inline]
    pub(crate) fn take_number(&mut self, node: NodeId, sequence: u32) -> Result<(), u32> {
        let Some(link) = self.link_mut(node) else {
            return Err(0);
        };
        if link.due == sequence {
            link.due = sequence.wrapping_add(1);
            Ok(())
        } else {
            Err(link.due)
        }
    }

    /// Queues a packet for `to`, which is up; the caller makes its `source` and `work`.
    #[inline(always)] // So that the header of a known kind is written without a question.
    fn push(&mut self, to: NodeId, repr: &Repr) -> &mut Transmit {
        let index = usize::from(to.0);
        let link = &mut self.links[index];
        if !link.blocked && link.out < recovery::WINDOW {
            self.ready.insert(index);
        }
        let sequence = link.next_sequence.wrapping_add(link.queue.len() as u32);
        let transmit = link.queue.push();
        transmit.to = to;
        repr.emit_to(sequence, link.due, &mut transmit.header);
        transmit
    }

    /// Queues a packet with its payload, at most [`mapwire_wire::INLINE_BYTES`].
    #[inline(always)]
    pub(crate) fn push_inline(&mut self, to: NodeId, repr: &Repr, payload: &[u8]) {
        self.push(to, repr).source.set_inline(payload);
    }

    /// Queues a packet whose payload follows from its fields.
    pub(crate) fn push_plain(&mut self, to: NodeId, repr: &Repr) {
        let (_, payload) = repr.emit(0, 0);
        self.push_inline(to, repr, &payload);
    }

    /// Queues a message for a handler.
    #[inline]
    pub(crate) fn push_message(
        &mut self,
        from: ProcessId,
        to: Endpoint,
        handler: HandlerId,
        payload: &[u8],
    ) {
        let message = Repr::Handler {
            handler,
            from,
            to: to.process,
            length: payload.len() as u32,
        };
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
        transmit.work = work;
    }

    /// Whether a packet waits that may go out.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next packet of the node whose turn it is.
    #[inline]
    pub(crate) fn offer(&mut self) -> Option<&Transmit> {
        if self.recovery.is_some() {
            return self.offer_again();
        }
        let link = &mut self.links[self.ready.first()?];
        let transmit = link.queue.get_mut(0)?;
        debug_assert_eq!(
            transmit.header.sequence.get(),
            link.next_sequence,
            "the packets of a link are numbered without a gap"
        );
        link.offered = true;
        Some(transmit)
    }

    /// The packet that was offered for `node` is out: gives its payload bytes and what depends on that.
    #[inline]
    pub(crate) fn pop(&mut self, node: NodeId) -> Option<(u32, Work)> {
        if self.recovery.is_some() {
            return self.keep(node);
        }
        let index = usize::from(node.0);
        let link = self.links.get_mut(index)?;
        let transmit = link.queue.pop()?;
        let popped = (transmit.header.payload_bytes(), transmit.work);
        link.offered = false;
        link.next_sequence = link.next_sequence.wrapping_add(1);
        if link.queue.len() == 0 {
            self.ready.remove(index);
        }
        self.ready.served(index);
        Some(popped)
    }

    pub(crate) fn set_blocked(&mut self, node: NodeId, blocked: bool) {
        let index = usize::from(node.0);
        let Some(link) = self.links.get_mut(index) else {
            return;
        };
        link.blocked = blocked;
        if blocked {
            link.offered = false;
            self.ready.remove(index);
        } else if link.waiting() > 0 && link.out < recovery::WINDOW {
            self.ready.insert(index);
        }
        if let Some(recovery) = &mut self.recovery {
            recovery.set_blocked(node, blocked, link.owed);
        }
    }

    /// Whether another message of several packets may be begun.
    #[inline]
    pub(crate) fn may_open(&self, node: NodeId) -> bool {
        self.link(node)
            .is_some_and(|link| link.open_messages < MAX_OPEN_MESSAGES)
    }

    /// A message of several packets has been begun.
    pub(crate) fn open_message(&mut self, node: NodeId) {
        if let Some(link) = self.link_mut(node) {
            link.open_messages += 1;
        }
    }

    /// Its last packet is queued.
    pub(crate) fn close_message(&mut self, node: NodeId) {
        if let Some(link) = self.link_mut(node) {
            link.open_messages = link.open_messages.saturating_sub(1);
        }
    }

    /// Whether another fetch may be asked.
    #[inline]
    pub(crate) fn may_fetch(&self, node: NodeId) -> bool {
        self.link(node)
            .is_some_and(|link| link.fetching < MAX_FETCHES_A_LINK)
    }

    /// A fetch has been asked.
    pub(crate) fn begin_fetch(&mut self, node: NodeId) {
        if let Some(link) = self.link_mut(node) {
            link.fetching += 1;
        }
    }

    /// It has been answered.
    pub(crate) fn end_fetch(&mut self, node: NodeId) {
        if let Some(link) = self.link_mut(node) {
            link.fetching = link.fetching.saturating_sub(1);
        }
    }

    /// Takes out the waiting packets that `keep` says no to, except one that the driver may be transmitting. Those behind them are
    /// numbered anew, so that the link has no gap. Packets that are out and may have to be sent again keep their numbers: nothing
    /// else is left of them.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&mut Transmit) -> bool) {
        for (index, link) in self.links.iter_mut().enumerate() {
            for at in 0..link.out {
                if let Some(transmit) = link.queue.get_mut(at)
                    && !keep(transmit)
                {
                    let sequence = transmit.header.sequence.get();
                    transmit.header = Repr::Nothing.emit(sequence, link.due).0;
                    transmit.source = Source::EMPTY;
                    transmit.work = Work::None;
                }
            }
            let fixed = link.out + usize::from(link.offered);
            let mut sequence = link.next_sequence.wrapping_add(fixed as u32);
            link.queue.retain_from(fixed, |transmit| {
                let kept = keep(transmit);
                transmit.header.sequence = sequence.into();
                sequence = sequence.wrapping_add(u32::from(kept));
                kept
            });
            if link.waiting() == 0 {
                self.ready.remove(index);
            }
        }
    }

    /// Sees to it that nothing is told to `process` when the packets are out that the driver may be transmitting.
    pub(crate) fn disown_offered(&mut self, process: ProcessId) {
        let disown = |work: &mut Work| {
            if matches!(work, Work::Command { process: of, .. } if *of == process) {
                *work = Work::None;
            }
        };
        for link in &mut self.links {
            for at in 0..link.out + usize::from(link.offered) {
                if let Some(transmit) = link.queue.get_mut(at) {
                    disown(&mut transmit.work);
                }
            }
        }
    }

    /// Takes a node's link away for good, and forgets what waits for it; `lost` is told what depended on that. False when it was
    /// away already.
    pub(crate) fn take_down(&mut self, node: NodeId, mut lost: impl FnMut(Work)) -> bool {
        let index = usize::from(node.0);
        let Some(link) = self.links.get_mut(index).filter(|link| !link.gone) else {
            return false;
        };
        link.gone = true;
        link.blocked = true;
        link.offered = false;
        link.out = 0;
        let owed = core::mem::replace(&mut link.owed, Owed::Nothing);
        if let Some(recovery) = &mut self.recovery {
            recovery.forget(node, owed);
        }
        while let Some(transmit) = link.queue.pop() {
            lost(transmit.work);
        }
        self.ready.remove(index);
        true
    }

    /// The packets that wait, or are out and not acked.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &Transmit> {
        self.links.iter().flat_map(|link| link.queue.iter())
    }

    /// Whether a packet that `work` depends on waits, or is out and not acked.
    pub(crate) fn is_queued(&self, work: Work) -> bool {
        self.packets().any(|transmit| transmit.work == work)
    }

    /// NIC memory of the queues, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let queues: usize = self.links.iter().map(|link| link.queue.bytes()).sum();
        let recovery = self.recovery.as_ref().map_or(0, Recovery::bytes);
        queues + self.links.capacity() * size_of::<Link>() + self.ready.bytes() + recovery
    }
}
