//! Packets on their way out: one queue for each node, served in turn.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mapwire_wire::{Header, INLINE_BYTES, NodeId, ProcessId};

use crate::pieces::Piece;

/// Packets that may wait for one node before commands to it are held back.
pub(crate) const QUEUE_LIMIT: usize = 8;

/// The payload of a packet to transmit, by value when it is short and by reference when it is in a process's memory.
#[derive(Clone, Debug)]
pub enum Source {
    /// The bytes themselves.
    Inline {
        /// The first `length` bytes count.
        bytes: [u8; INLINE_BYTES],
        /// How many.
        length: u8,
    },
    /// A control message that is too long to be inline; rare, so it may live on the heap.
    Control(Box<[u8]>),
    /// A piece of one frame of a process, then `trailer` (the signal of a `put_signal`).
    Memory {
        /// Whose frame.
        process: ProcessId,
        /// The bytes.
        piece: Piece,
        /// The signal that follows them.
        trailer: Option<[u8; mapwire_wire::SIGNAL_TRAILER_BYTES]>,
    },
}

impl Source {
    /// `payload`, at most [`INLINE_BYTES`], by value.
    #[inline]
    pub(crate) fn inline(payload: &[u8]) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        bytes[..payload.len()].copy_from_slice(payload);
        Self::Inline {
            bytes,
            length: payload.len() as u8,
        }
    }
}

/// A packet to transmit.
#[derive(Clone, Debug)]
pub struct Transmit {
    /// Where to.
    pub to: NodeId,
    /// Its header, complete.
    pub header: Header,
    /// Its payload: `header.length` bytes.
    pub source: Source,
    /// The command whose source may be reused once this packet is out.
    pub(crate) done: Option<(ProcessId, u32)>,
}

#[derive(Debug, Default)]
struct Link {
    queue: VecDeque<Transmit>,
    /// The transport took no more; wait until it says that it does.
    blocked: bool,
    /// Sequence number of the next packet.
    next_sequence: u32,
    /// Sequence number that is due from there.
    due: u32,
}

/// All queues.
#[derive(Debug)]
pub(crate) struct Links {
    links: Vec<Link>,
    /// The node to look at first, so that all are served in turn.
    next: usize,
    /// Packets waiting in all queues: most polls find none, and look no further.
    waiting: usize,
}

impl Links {
    pub(crate) fn new(nodes: usize) -> Self {
        let mut links = Vec::with_capacity(nodes);
        // Twice the limit holds what receiving adds (refusals) to what sending may queue, so that no steady state grows it.
        links.resize_with(nodes, || Link {
            queue: VecDeque::with_capacity(2 * QUEUE_LIMIT),
            ..Link::default()
        });
        Self {
            links,
            next: 0,
            waiting: 0,
        }
    }

    #[inline]
    pub(crate) fn has(&self, node: NodeId) -> bool {
        usize::from(node.0) < self.links.len()
    }

    /// Nodes in the job, this one included.
    pub(crate) fn nodes(&self) -> usize {
        self.links.len()
    }

    /// The sequence number and cumulative ack of the next packet to `node`, which must be pushed next.
    #[inline]
    pub(crate) fn number(&mut self, node: NodeId) -> (u32, u32) {
        let link = &mut self.links[usize::from(node.0)];
        let sequence = link.next_sequence;
        link.next_sequence = sequence.wrapping_add(1);
        (sequence, link.due)
    }

    /// Whether `sequence` is the next from `node`; if so the one after it is due. Otherwise what was due.
    #[inline]
    pub(crate) fn in_order(&mut self, node: NodeId, sequence: u32) -> Result<(), u32> {
        let link = &mut self.links[usize::from(node.0)];
        if link.due == sequence {
            link.due = sequence.wrapping_add(1);
            Ok(())
        } else {
            Err(link.due)
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, transmit: Transmit) {
        self.waiting += 1;
        self.links[usize::from(transmit.to.0)]
            .queue
            .push_back(transmit);
    }

    /// Whether `node` has room for another packet of a command.
    #[inline]
    pub(crate) fn has_room(&self, node: NodeId) -> bool {
        self.links[usize::from(node.0)].queue.len() < QUEUE_LIMIT
    }

    /// The next packet of the next node that has one and is not blocked.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<&Transmit> {
        if self.waiting == 0 {
            return None;
        }
        let nodes = self.links.len();
        let mut found = self.next;
        for _ in 0..nodes {
            let link = &self.links[found];
            if !link.blocked && !link.queue.is_empty() {
                self.next = found;
                return self.links[found].queue.front();
            }
            found += 1;
            if found == nodes {
                found = 0;
            }
        }
        None
    }

    /// The front packet for `node` is out.
    #[inline]
    pub(crate) fn pop(&mut self, node: NodeId) -> Option<Transmit> {
        let index = usize::from(node.0);
        let transmit = self.links.get_mut(index)?.queue.pop_front()?;
        self.waiting -= 1;
        self.next = if index + 1 == self.links.len() {
            0
        } else {
            index + 1
        };
        Some(transmit)
    }

    pub(crate) fn set_blocked(&mut self, node: NodeId, blocked: bool) {
        if let Some(link) = self.links.get_mut(usize::from(node.0)) {
            link.blocked = blocked;
        }
    }

    /// Packets waiting for `node`.
    pub(crate) fn waiting_for(&self, node: NodeId) -> usize {
        self.links
            .get(usize::from(node.0))
            .map_or(0, |link| link.queue.len())
    }

    /// Forgets what waits for a node that is gone; gives the commands whose packets these were.
    pub(crate) fn clear(&mut self, node: NodeId, mut lost: impl FnMut(ProcessId, u32)) {
        if let Some(link) = self.links.get_mut(usize::from(node.0)) {
            self.waiting -= link.queue.len();
            for transmit in link.queue.drain(..) {
                if let Some((process, completion)) = transmit.done {
                    lost(process, completion);
                }
            }
            link.blocked = false;
        }
    }

    /// NIC memory of the queues, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.links.len() * 2 * QUEUE_LIMIT * size_of::<Transmit>()) as u64
    }
}
