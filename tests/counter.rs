//! A small service in one file: a counter that any process adds to, and that answers with what it was. Tests run it in real jobs and in
//! virtual time.

use std::collections::VecDeque;

use mapwire_vmmc::service::{Action, Broken, Service};
use mapwire_wire::{Endpoint, HandlerId, NodeId};

/// The handler id of the service.
pub(crate) const COUNTER: HandlerId = HandlerId(40);

/// A message: a request or an answer, then its number.
const MESSAGE_BYTES: usize = 9;
const REQUEST: u8 = 0;
const ANSWER: u8 = 1;

/// The counter of a process, and its requests to those of others.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    value: u64,
    waiting: VecDeque<(Endpoint, [u8; MESSAGE_BYTES])>,
    sending: [u8; MESSAGE_BYTES],
    answers: Vec<u64>,
    gone: Vec<NodeId>,
    is_lost: bool,
    /// Requests wait for a thread of the host.
    is_on_host: bool,
}

#[allow(dead_code, reason = "each test uses some of it")]
impl Counter {
    /// A counter whose requests wait for a thread of the host.
    pub(crate) fn on_host() -> Self {
        Self { is_on_host: true, ..Self::default() }
    }

    /// Asks a process to add to its counter.
    pub(crate) fn add(&mut self, to: Endpoint, amount: u64) {
        self.post(to, REQUEST, amount);
    }

    /// What the counter holds.
    pub(crate) fn value(&self) -> u64 {
        self.value
    }

    /// What counters held before this process added to them, in the order of the answers.
    pub(crate) fn answers(&self) -> &[u64] {
        &self.answers
    }

    /// Whether a message was lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Nodes that are gone.
    pub(crate) fn gone(&self) -> &[NodeId] {
        &self.gone
    }

    fn post(&mut self, to: Endpoint, kind: u8, number: u64) {
        let mut message = [kind; MESSAGE_BYTES];
        message[1..].copy_from_slice(&number.to_le_bytes());
        self.waiting.push_back((to, message));
    }
}

impl Service for Counter {
    fn handle_message(&mut self, _: u64, from: Endpoint, message: &[u8]) -> Result<(), Broken> {
        let message: &[u8; MESSAGE_BYTES] = message.try_into().map_err(|_| Broken)?;
        let (kind, number) = message.split_first().ok_or(Broken)?;
        let number = u64::from_le_bytes(number.try_into().map_err(|_| Broken)?);
        match *kind {
            REQUEST => {
                self.post(from, ANSWER, self.value);
                self.value = self.value.wrapping_add(number);
            }
            ANSWER => self.answers.push(number),
            _ => return Err(Broken),
        }
        Ok(())
    }

    fn handle_peer_gone(&mut self, _: u64, node: NodeId) {
        self.gone.push(node);
    }

    fn handle_lost(&mut self, _: Endpoint) {
        self.is_lost = true;
    }

    fn handle_time(&mut self, _: u64) {}

    fn runs_on_host(&self, message: &[u8]) -> bool {
        self.is_on_host && message.first() == Some(&REQUEST)
    }

    fn poll_action(&mut self) -> Option<Action<'_>> {
        let (to, message) = self.waiting.pop_front()?;
        self.sending = message;
        Some(Action::Send { to, message: &self.sending })
    }

    fn poll_at(&self) -> Option<u64> {
        None
    }
}
