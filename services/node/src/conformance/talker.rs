//! A service that sends messages for the suite, and keeps what it hears.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mapwire_translation::TranslationDesign;
use mapwire_vmmc::service::{Action, Broken, Service};
use mapwire_wire::{Endpoint, HandlerId, NodeId, ProcessId};

use super::{Heard, Refused};
use crate::node::Node;

/// The handler id of [`Talker`].
pub const TALKER: HandlerId = HandlerId(41);

/// The process that it is registered at.
const PROCESS: ProcessId = ProcessId(0);

/// Sends one message at a time to the talker of another node, from first process to first process.
#[derive(Debug, Default)]
pub struct Talker {
    next: Option<(NodeId, Vec<u8>)>,
    is_offered: bool,
    is_lost: bool,
    heard: VecDeque<Heard>,
}

impl Talker {
    /// Sends a message by the talker of `node`. `settle` has the node carry out what it asks for.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn send<D: TranslationDesign, W>(
        world: &mut W,
        node: impl Fn(&mut W) -> &mut Node<D>,
        settle: impl FnOnce(&mut W),
        to: NodeId,
        message: &[u8],
    ) -> Result<(), Refused> {
        let say = |talker: &mut Self| {
            talker.next = Some((to, message.into()));
            (talker.is_offered, talker.is_lost) = (false, false);
        };
        node(world).call(PROCESS, TALKER, say).expect("a talker");
        settle(world);
        let node = node(world);
        let is_lost = node.call(PROCESS, TALKER, |talker: &mut Self| {
            talker.next = None;
            talker.is_lost || !talker.is_offered
        });
        match is_lost {
            Some(false) => Ok(()),
            _ if node.is_gone(to) => Err(Refused::Gone),
            _ => Err(Refused::Full),
        }
    }

    /// What the talker of `node` hears next.
    pub fn hear<D: TranslationDesign>(node: &mut Node<D>) -> Option<Heard> {
        node.call(PROCESS, TALKER, |talker: &mut Self| talker.heard.pop_front())?
    }
}

impl Service for Talker {
    fn handle_message(&mut self, _: u64, from: Endpoint, message: &[u8]) -> Result<(), Broken> {
        self.heard.push_back(Heard::Message(from.node, message.into()));
        Ok(())
    }

    fn handle_peer_gone(&mut self, _: u64, node: NodeId) {
        self.heard.push_back(Heard::Gone(node));
    }

    fn handle_lost(&mut self, _: Endpoint) {
        self.is_lost = true;
    }

    fn handle_time(&mut self, _: u64) {}

    fn poll_action(&mut self) -> Option<Action<'_>> {
        let (to, message) = self.next.as_ref().filter(|_| !self.is_offered)?;
        self.is_offered = true;
        let to = Endpoint::first_of(*to);
        Some(Action::Send { to, message })
    }

    fn poll_at(&self) -> Option<u64> {
        None
    }
}
