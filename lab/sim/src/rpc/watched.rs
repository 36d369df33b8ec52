//! The calls of a node, whose replies are watched as they come.

use mapwire_rpc::{ENVELOPE_BYTES, Incoming, Rpc, Xid};
use mapwire_vmmc::service::{Action, Broken, Service};
use mapwire_wire::{Endpoint, NodeId};

/// The first byte of a message that is a record.
const RECORD: u8 = 3;
/// The second word of a record that is a reply.
const REPLY: u32 = 1;

#[derive(Debug)]
pub(super) struct Watched {
    pub(super) rpc: Rpc,
    /// A bug: a reply that comes again is that to the call before.
    pub(super) mixes_up: bool,
    /// What came and was not looked at: from whom, and to which call.
    replies: Vec<(NodeId, u32)>,
}

impl Watched {
    pub(super) fn new(rpc: Rpc, mixes_up: bool) -> Self {
        let replies = Vec::new();
        Self { rpc, mixes_up, replies }
    }

    pub(super) fn has_news(&self) -> bool {
        self.rpc.has_calls() || !self.replies.is_empty()
    }

    /// The next call, and the replies.
    pub(super) fn take_news(&mut self) -> (Option<Box<Incoming>>, Vec<(NodeId, u32)>) {
        (self.rpc.next_call(), core::mem::take(&mut self.replies))
    }
}

fn answered(message: &[u8]) -> Option<u32> {
    let words = message.get(ENVELOPE_BYTES..)?.first_chunk::<8>()?;
    let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| words[at + byte]));
    (message[0] == RECORD && word(4) == REPLY).then(|| word(0))
}

impl Service for Watched {
    fn handle_message(&mut self, now_ns: u64, from: Endpoint, message: &[u8]) -> Result<(), Broken> {
        if let Some(xid) = answered(message) {
            let is_due = !self.mixes_up || self.rpc.is_waiting(Xid(xid), from.node);
            let xid = if is_due { xid } else { xid.wrapping_sub(1) };
            self.replies.push((from.node, xid));
        }
        self.rpc.handle_message(now_ns, from, message)
    }

    fn handle_peer_gone(&mut self, now_ns: u64, node: NodeId) {
        self.rpc.handle_peer_gone(now_ns, node);
    }

    fn handle_lost(&mut self, to: Endpoint) {
        self.rpc.handle_lost(to);
    }

    fn handle_time(&mut self, now_ns: u64) {
        self.rpc.handle_time(now_ns);
    }

    fn has_actions(&self) -> bool {
        self.rpc.has_actions()
    }

    fn poll_action(&mut self) -> Option<Action<'_>> {
        self.rpc.poll_action()
    }

    fn poll_at(&self) -> Option<u64> {
        self.rpc.poll_at()
    }

    fn needs_time(&self, message: &[u8]) -> bool {
        self.rpc.needs_time(message)
    }
}
