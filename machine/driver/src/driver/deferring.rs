//! What the page-fault handler leaves to other threads. It may have interrupted `malloc`, so nothing on its way allocates or
//! frees: it takes packets whose way is known to do neither, keeps control messages in memory made beforehand, and leaves all
//! else where it is. The service thread is woken for it.

use std::collections::VecDeque;

use mapwire_host::masking;
use mapwire_transport::payload::Received;
use mapwire_wire::{Endpoint, HandlerId, Header, Kind, MAX_CONTROL_BYTES, NodeId};

use super::Driver;
use crate::breach::Breach;
use crate::engine::Place;

/// Control messages kept; those beyond wait in their rings.
const MESSAGES: usize = 32;

/// Packets that may wait for a peer that takes none before the handler asks for more: the NIC has made room for twice as many.
const WAITING_PACKETS: usize = 8;

/// A control message and its sender.
#[derive(Debug)]
struct Message {
    from: NodeId,
    length: usize,
    bytes: [u8; MAX_CONTROL_BYTES],
}

/// What waits for a thread that may allocate.
#[derive(Debug)]
pub(crate) struct Deferred {
    /// The page-fault handler runs the driver.
    pub(super) active: bool,
    control: VecDeque<Message>,
    /// Peers that are gone, of which the models have not been told.
    gone: Vec<NodeId>,
    /// Something was left where it is.
    left: bool,
    /// The service thread has been woken.
    told: bool,
}

impl Deferred {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            active: false,
            control: VecDeque::with_capacity(MESSAGES),
            gone: Vec::with_capacity(nodes),
            left: false,
            told: false,
        }
    }

    /// Something stays where it is.
    pub(crate) fn leave(&mut self) {
        self.left = true;
    }

    /// Whether the page-fault handler may take a packet.
    pub(super) fn takes(&self, header: &Header) -> bool {
        let is_control =
            header.kind == Kind::Handler as u8 && header.message.get() == HandlerId::CONTROL.0;
        !is_control || self.control.len() < MESSAGES
    }

    /// Keeps a control message: of [`MAX_CONTROL_BYTES`] at most.
    pub(super) fn keep(&mut self, from: NodeId, payload: &Received<'_>) {
        let length = payload.len_bytes();
        let mut bytes = [0; MAX_CONTROL_BYTES];
        payload.copy_to_slice(0, &mut bytes[..length]);
        self.control.push_back(Message {
            from,
            length,
            bytes,
        });
    }

    /// Keeps that a peer is gone. Each peer goes once.
    pub(super) fn note_gone(&mut self, node: NodeId) {
        self.gone.push(node);
    }

    fn is_empty(&self) -> bool {
        self.control.is_empty() && self.gone.is_empty() && !self.left
    }
}

impl Driver {
    /// Does `work` as may be done at `place`.
    #[inline]
    pub(crate) fn at<T>(&mut self, place: Place, work: impl FnOnce(&mut Self) -> T) -> T {
        // A fault on the service thread interrupts nothing, and nobody else would do what it left.
        self.deferred.active = place == Place::FaultHandler && !masking::is_library_thread();
        let done = work(self);
        self.deferred.active = false;
        done
    }

    /// Carries out what the page-fault handler has left. Whether there was anything.
    #[inline]
    pub(super) fn serve_deferred(&mut self) -> bool {
        self.deferred.told = false;
        !self.deferred.is_empty() && self.serve_all_deferred()
    }

    #[cold]
    fn serve_all_deferred(&mut self) -> bool {
        self.deferred.left = false;
        while let Some(message) = self.deferred.control.pop_front() {
            self.handle_control(message.from, &message.bytes[..message.length]);
        }
        while let Some(node) = self.deferred.gone.pop() {
            self.forget_peer(node);
        }
        self.transport.bury();
        true
    }

    /// Takes a control message.
    pub(super) fn handle_control(&mut self, from: NodeId, bytes: &[u8]) {
        // All ranks of a job are of one user: the broker has checked each by SO_PEERCRED.
        let uid = self.job.uid();
        if self
            .vmmc
            .handle_control(Endpoint::first_of(from), uid, bytes)
            .is_err()
        {
            self.handle_breach(from, Breach::Control);
        }
    }

    /// Whether the page-fault handler has left anything to others.
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Whether the service thread is to be woken for what the handler may not do. Says so once, until a thread has done it.
    pub(crate) fn needs_service(&mut self) -> bool {
        let needs = !self.deferred.is_empty()
            || self.owes_program()
            || self.nic.has_misses()
            || self.queue.has_commands()
            || self.has_news();
        needs && !core::mem::replace(&mut self.deferred.told, true)
    }

    /// How many actions of the shared memory may be carried out before packets are sent again. In the handler no queue of
    /// packets may grow beyond the room that the NIC has made.
    pub(crate) fn shared_budget(&self) -> usize {
        let has_room = |&node: &NodeId| self.nic.waiting_for(node) < WAITING_PACKETS;
        if !self.deferred.active {
            usize::MAX
        } else if self.blocked.iter().all(has_room) {
            WAITING_PACKETS
        } else {
            0
        }
    }
}
