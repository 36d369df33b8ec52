//! What a link needs to recover from a packet that its receiver drops (dynamic handle lookup §IV-A: a request that misses is dropped,
//! and the sender's link sends it again).
//!
//! The sender keeps each packet until it is acked: a command is over then, and not before, so that its memory can be read once more.
//! The receiver takes packets in their order only, so that behind one that it drops it drops all; once it can take that one, it asks
//! for it, and the sender goes back to it. An ack rides on every packet, or goes by itself when nothing else does.
//!
//! The paper's link has no word for "send again", and waits for a timeout (§V-B names it as the price of a miss). This one has; over a
//! transport that loses nothing no timeout is needed.

use mapwire_wire::{Header, NodeId, Repr};

use crate::links::Links;
use crate::transmit::{Source, Transmit, Work};
use crate::turns::Turns;

/// Packets of a link that may be out and not acked.
pub(crate) const WINDOW: usize = 64;

/// What a node is owed for the packets that came from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    /// Nothing.
    Nothing,
    /// An ack.
    Ack,
    /// Nothing yet: a packet was dropped, and cannot be taken before the host has acted.
    Later,
    /// Word to send again from the packet that was dropped.
    Resend,
}

/// Acks that go by themselves.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// Nodes that are owed an ack or word to send again, and are not blocked.
    acks: Turns,
    /// Of these, those that are owed word to send again.
    resends: usize,
    /// The ack that was offered last.
    bare: Transmit,
    /// Whether it is being transmitted.
    offered: bool,
}

impl Recovery {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            acks: Turns::new(nodes),
            resends: 0,
            bare: Transmit::EMPTY,
            offered: false,
        }
    }

    pub(crate) fn set_blocked(&mut self, node: NodeId, blocked: bool, owed: Owed) {
        let index = usize::from(node.0);
        if blocked {
            self.acks.remove(index);
            if self.bare.to == node {
                self.offered = false;
            }
        } else if matches!(owed, Owed::Ack | Owed::Resend) {
            self.acks.insert(index);
        }
    }

    /// The node is gone; this is what it was owed.
    pub(crate) fn forget(&mut self, node: NodeId, owed: Owed) {
        self.set_blocked(node, true, owed);
        self.resends -= usize::from(owed == Owed::Resend);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.acks.bytes()
    }
}

impl Links {
    /// Whether packets that the receiver drops are sent again.
    #[inline]
    pub(crate) const fn recovers(&self) -> bool {
        self.recovery.is_some()
    }

    /// Whether an ack waits that goes by itself.
    #[inline]
    pub(crate) fn has_acks(&self) -> bool {
        self.recovery
            .as_ref()
            .is_some_and(|recovery| !recovery.acks.is_empty())
    }

    /// The next packet, numbered and acking; or an ack by itself: first when a peer waits for word to send again, else when nothing
    /// else is there to carry it.
    pub(crate) fn offer_again(&mut self) -> Option<&Transmit> {
        let recovery = self.recovery.as_mut()?;
        if recovery.resends > 0 || self.ready.is_empty() {
            let links = &self.links;
            let first = match recovery.resends {
                0 => recovery.acks.first(),
                _ => recovery
                    .acks
                    .first_that(|index| links[index].owed == Owed::Resend),
            };
            if let Some(index) = first {
                let resend = links[index].owed == Owed::Resend;
                recovery.bare = Transmit {
                    to: NodeId(index as u16),
                    header: Repr::Ack { resend }.emit(0, links[index].due).0,
                    source: Source::EMPTY,
                    work: Work::None,
                };
                recovery.offered = true;
                return Some(&recovery.bare);
            }
        }
        recovery.offered = false;
        let link = &mut self.links[self.ready.first()?];
        let due = link.due;
        let transmit = link.queue.get_mut(link.out)?;
        debug_assert_eq!(
            transmit.header.sequence.get(),
            link.next_sequence.wrapping_add(link.out as u32),
            "the packets of a link are numbered without a gap"
        );
        transmit.header.ack = due.into();
        link.offered = true;
        Some(transmit)
    }

    /// The packet that was offered for `node` is out. What depends on it waits for the ack.
    pub(crate) fn keep(&mut self, node: NodeId) -> Option<(u32, Work)> {
        let index = usize::from(node.0);
        let recovery = self.recovery.as_mut()?;
        let link = self.links.get_mut(index)?;
        if recovery.offered && recovery.bare.to == node {
            recovery.offered = false;
            recovery.acks.remove(index);
            recovery.acks.served(index);
            if link.owed == Owed::Resend {
                recovery.resends -= 1;
            }
            link.owed = Owed::Nothing;
            return Some((0, Work::None));
        }
        if !link.offered {
            // The peer has asked for an earlier one meanwhile.
            return None;
        }
        link.offered = false;
        let transmit = link.queue.get_mut(link.out)?;
        let bytes = transmit.header.payload_bytes();
        link.out += 1;
        if link.owed == Owed::Ack && transmit.header.ack.get() == link.due {
            link.owed = Owed::Nothing;
            recovery.acks.remove(index);
        }
        if link.waiting() == 0 || link.out >= WINDOW {
            self.ready.remove(index);
        }
        self.ready.served(index);
        Some((bytes, Work::None))
    }

    /// Takes the ack of a packet of `node`: all packets before it are there. `over` is told what depended on them. False for an ack
    /// of a packet that was never sent; nothing is changed then.
    pub(crate) fn take_ack(
        &mut self,
        node: NodeId,
        header: &Header,
        resend: bool,
        mut over: impl FnMut(Work),
    ) -> bool {
        let index = usize::from(node.0);
        let Some(link) = self.links.get_mut(index) else {
            return false;
        };
        let count = header.ack.get().wrapping_sub(link.next_sequence) as usize;
        if count > link.out {
            // One that an earlier packet of the peer has outrun says nothing new.
            return header.ack.get().wrapping_sub(link.next_sequence) as i32 <= 0;
        }
        for _ in 0..count {
            if let Some(transmit) = link.queue.pop() {
                over(transmit.work);
            }
        }
        link.next_sequence = link.next_sequence.wrapping_add(count as u32);
        link.out -= count;
        if resend {
            link.out = 0;
            link.offered = false;
        }
        if !link.blocked && !link.gone && link.waiting() > 0 && link.out < WINDOW {
            self.ready.insert(index);
        }
        true
    }

    /// Packet `due` of `node` has been taken, or one that was taken before has come once more: an ack is owed.
    #[inline]
    pub(crate) fn owe_ack(&mut self, node: NodeId) {
        let Some(link) = self.links.get_mut(usize::from(node.0)) else {
            return;
        };
        if link.owed == Owed::Nothing {
            link.owed = Owed::Ack;
            if let Some(recovery) = self.recovery.as_mut().filter(|_| !link.blocked) {
                recovery.acks.insert(usize::from(node.0));
            }
        }
    }

    /// The packet of `node` that was due could not be taken and is dropped: it is due again, when
    /// [`ask_again`](Self::ask_again) says so.
    pub(crate) fn drop_due(&mut self, node: NodeId) {
        let index = usize::from(node.0);
        let Some(link) = self.links.get_mut(index) else {
            return;
        };
        link.due = link.due.wrapping_sub(1);
        if let Some(recovery) = &mut self.recovery {
            match link.owed {
                Owed::Resend => recovery.resends -= 1,
                Owed::Ack | Owed::Later | Owed::Nothing => {}
            }
            recovery.acks.remove(index);
            link.owed = Owed::Later;
        }
    }

    /// Asks the peers for the packets that were dropped: the host has acted.
    pub(crate) fn ask_again(&mut self) {
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        for (index, link) in self.links.iter_mut().enumerate() {
            if link.owed == Owed::Later {
                link.owed = Owed::Resend;
                recovery.resends += 1;
                if !link.blocked {
                    recovery.acks.insert(index);
                }
            }
        }
    }
}
