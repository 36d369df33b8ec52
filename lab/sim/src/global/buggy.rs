//! A global memory that breaks its protocol in one way, to show that the checks find it, or that lies about the pages that it stores.

use std::collections::VecDeque;

use mapwire_gms::{Gms, Message, Refusal};
use mapwire_vmmc::service::{Action, Broken, Region, Service};
use mapwire_wire::{Endpoint, NodeId};

use crate::canary::Canary;

/// What a node is asked to send: after these bytes, if any, this message.
#[derive(Debug)]
struct Sending {
    to: Endpoint,
    store: Option<(Region, u64)>,
    message: Vec<u8>,
}

/// A global memory whose messages are changed as the bug has it.
#[derive(Debug)]
pub(crate) struct Buggy {
    gms: Gms,
    bug: Option<Canary>,
    /// Every second page that is asked for counts as an older version, and every second that is put as refused.
    lies: Option<bool>,
    waiting: VecDeque<Sending>,
    sending: Option<Sending>,
    /// Pages that are stored by now, as the bug has it: word of it that comes is not due any more.
    landed: Vec<(Endpoint, u32)>,
    now_ns: u64,
}

impl Buggy {
    pub(crate) fn new(gms: Gms, bug: Option<Canary>) -> Self {
        Self { gms, bug, lies: None, waiting: VecDeque::new(), sending: None, landed: Vec::new(), now_ns: 0 }
    }

    pub(crate) fn gms(&self) -> &Gms {
        &self.gms
    }

    pub(crate) fn gms_mut(&mut self) -> &mut Gms {
        &mut self.gms
    }

    pub(crate) fn begin_lies(&mut self) {
        self.lies = Some(true);
    }

    /// What it says in place of a message.
    fn lie(&mut self, to: NodeId, said: Message) -> Message {
        let Some(lies) = &mut self.lies else { return said };
        let lie = match said {
            Message::Page { sequence, mut page } => {
                page.version = page.version.saturating_sub(1);
                Message::Page { sequence, page }
            }
            // One that moves from another donor would be lost there.
            Message::Stored { sequence, grant } if to.0 == 0 => {
                Message::Refused { sequence, why: Refusal::NoFrame, grant }
            }
            _ => return said,
        };
        *lies = !*lies;
        if *lies { lie } else { said }
    }

    /// Takes what the node has to send.
    fn take_all(&mut self) {
        loop {
            while let Some(action) = self.gms.poll_action() {
                let (to, store, message) = match action {
                    Action::Send { to, message } => (to, None, message),
                    Action::Store { to, region, at, message } => (to, Some((region, at)), message),
                    _ => continue,
                };
                let mut message = message.to_vec();
                let said = Message::parse(&message).ok();
                if let Some(said) = said.filter(|_| self.lies.is_some()) {
                    message.clear();
                    self.lie(to.node, said).encode(&mut message);
                }
                if self.bug == Some(Canary::LostRemove) && matches!(said, Some(Message::Remove { .. })) {
                    continue;
                }
                self.waiting.push_back(Sending { to, store, message });
                match (self.bug, said) {
                    (Some(Canary::EarlyReported), Some(Message::Map { version, .. })) => {
                        let mut message = Vec::new();
                        Message::Reported { version, free: 0 }.encode(&mut message);
                        let store = None;
                        self.waiting.push_back(Sending { to, store, message });
                    }
                    (Some(Canary::EarlyLanded), Some(Message::Page { sequence, .. })) => {
                        self.landed.push((to, sequence));
                    }
                    _ => {}
                }
            }
            let Some((from, sequence)) = self.landed.last().copied() else { return };
            let is_taken = true;
            let mut message = Vec::new();
            Message::Landed { sequence, is_taken }.encode(&mut message);
            let _ = self.gms.handle_message(self.now_ns, from, &message);
            self.landed.pop();
        }
    }
}

impl Service for Buggy {
    fn handle_message(&mut self, now_ns: u64, from: Endpoint, message: &[u8]) -> Result<(), Broken> {
        self.now_ns = now_ns;
        if self.bug == Some(Canary::EarlyLanded) && matches!(Message::parse(message), Ok(Message::Landed { .. })) {
            return Ok(());
        }
        self.gms.handle_message(now_ns, from, message)
    }

    fn handle_peer_gone(&mut self, now_ns: u64, node: NodeId) {
        self.now_ns = now_ns;
        self.gms.handle_peer_gone(now_ns, node);
    }

    fn handle_lost(&mut self, to: Endpoint) {
        self.gms.handle_lost(to);
    }

    fn handle_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.gms.handle_time(now_ns);
    }

    fn poll_action(&mut self) -> Option<Action<'_>> {
        self.take_all();
        self.sending = self.waiting.pop_front();
        let Sending { to, store, message } = self.sending.as_ref()?;
        Some(match *store {
            None => Action::Send { to: *to, message },
            Some((region, at)) => Action::Store { to: *to, region, at, message },
        })
    }

    fn poll_at(&self) -> Option<u64> {
        self.gms.poll_at()
    }
}
