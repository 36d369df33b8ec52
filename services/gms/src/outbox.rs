//! Messages on their way out.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mapwire_vmmc::service::{Action, Region};
use mapwire_wire::{Endpoint, NodeId, ProcessId};

use crate::config::FRAME_BYTES;
use crate::encoding::{KINDS, MAX_MESSAGE_BYTES};
use crate::message::Message;

/// Contents of a frame that travel before a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents {
    /// Of this node.
    pub from: u32,
    /// Of the receiver.
    pub to: u32,
}

/// What this node sends. The node drains it after every call, so it holds what one call made.
#[derive(Debug)]
pub(crate) struct Outbox {
    node: NodeId,
    process: ProcessId,
    waiting: VecDeque<(NodeId, Option<Contents>, Message)>,
    /// To this node itself.
    own: VecDeque<Message>,
    bytes: Vec<u8>,
    sent: [u64; KINDS + 1],
}

impl Outbox {
    pub(crate) fn new(node: NodeId, process: ProcessId) -> Self {
        Self {
            node,
            process,
            waiting: VecDeque::new(),
            own: VecDeque::new(),
            bytes: Vec::with_capacity(MAX_MESSAGE_BYTES),
            sent: [0; KINDS + 1],
        }
    }

    pub(crate) fn send(&mut self, to: NodeId, message: Message) {
        if to == self.node {
            self.own.push_back(message);
        } else {
            self.push(to, None, message);
        }
    }

    /// Sends a frame's contents, then the message, to another node.
    pub(crate) fn store(&mut self, to: NodeId, contents: Contents, message: Message) {
        self.push(to, Some(contents), message);
    }

    fn push(&mut self, to: NodeId, contents: Option<Contents>, message: Message) {
        self.sent[usize::from(message.kind())] += 1;
        self.waiting.push_back((to, contents, message));
    }

    /// The next message to this node itself.
    pub(crate) fn pop_own(&mut self) -> Option<Message> {
        self.own.pop_front()
    }

    /// Whether there is one.
    pub(crate) fn has_own(&self) -> bool {
        !self.own.is_empty()
    }

    /// What was sent, by kind.
    pub(crate) fn sent(&self) -> &[u64; KINDS + 1] {
        &self.sent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action<'_>> {
        let (to, contents, message) = self.waiting.pop_front()?;
        let to = Endpoint { node: to, process: self.process };
        self.bytes.clear();
        message.encode(&mut self.bytes);
        let message = self.bytes.as_slice();
        Some(match contents {
            None => Action::Send { to, message },
            Some(contents) => Action::Store {
                to,
                region: Region { view: 0, offset: u64::from(contents.from) * FRAME_BYTES, bytes: FRAME_BYTES },
                at: u64::from(contents.to) * FRAME_BYTES,
                message,
            },
        })
    }
}
