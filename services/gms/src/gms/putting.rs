//! Putpage at the node that puts: frames granted by storing nodes, the copies on their way, and what comes of them.

use mapwire_vmmc::service::Broken;
use mapwire_wire::NodeId;

use super::Gms;
use crate::message::{FrameList, Message, Refusal};
use crate::outbox::Contents;
use crate::outcome::{Outcome, Place};
use crate::puts::{Origin, Put};
use crate::requests::Asked;

impl Gms {
    /// Begins a put of so many copies, each to a node of its own. Gives its number.
    pub(super) fn begin_put(&mut self, now_ns: u64, mut put: Put, copies: u8, to: Option<NodeId>) -> u32 {
        let number = self.next_sequence();
        put.is_directed = to.is_some();
        put.open = copies;
        self.puts.insert(number, put);
        for _ in 0..copies {
            let to = to.or_else(|| self.draw_node(number));
            self.begin_leg(now_ns, number, to, Refusal::NoDonor);
        }
        number
    }

    /// Sends one copy to a node; without one the copy fails.
    fn begin_leg(&mut self, now_ns: u64, number: u32, to: Option<NodeId>, why: Refusal) {
        let Some(put) = self.puts.get(number) else { return };
        let Some(to) = to else {
            put.open -= 1;
            put.why = why;
            if put.open == 0 {
                self.end_put(now_ns, number);
            }
            return;
        };
        put.note_tried(to);
        let sequence = self.next_sequence();
        if self.puts.add_leg(sequence, number, to) {
            self.out.send(to, Message::Want);
        }
        self.send_legs(to);
    }

    /// Sends the copies for which a node has granted frames: the contents, then the message.
    fn send_legs(&mut self, to: NodeId) {
        while let Some((sequence, number, frame)) = self.puts.next_ready(to) {
            if let Some(put) = self.puts.get(number) {
                let contents = Contents { from: put.frame, to: frame };
                let message = Message::Put { sequence, frame, moves: put.origin == Origin::Eviction, page: put.page };
                self.out.store(to, contents, message);
            }
        }
        if self.puts.begin_want(to) {
            self.out.send(to, Message::Want);
        }
    }

    /// A node grants frames, or has none.
    pub(super) fn handle_grant(&mut self, now_ns: u64, from: NodeId, frames: &FrameList) -> Result<(), Broken> {
        let frames = frames.as_slice();
        if !self.puts.end_want(from) || !self.puts.add_credit(from, frames) {
            return Err(Broken);
        }
        if frames.is_empty() {
            for sequence in self.puts.waiting_for(from) {
                self.end_leg(now_ns, sequence, Some(Refusal::NoFrame));
            }
        }
        self.use_credit(from);
        Ok(())
    }

    /// Sends what waits for frames of a node, or gives them back to one that is no member with this one any more.
    fn use_credit(&mut self, of: NodeId) {
        if self.view.is_member() && self.view.is_peer(of) {
            self.send_legs(of);
        } else {
            self.return_credit(of);
        }
    }

    /// Gives back all frames that a node has granted and that are not used.
    pub(super) fn return_credit(&mut self, to: NodeId) {
        let frames = self.puts.take_credit(to).into_iter().collect();
        self.out.send(to, Message::Return { frames });
    }

    /// A node has stored a page, or refuses it.
    pub(super) fn handle_put_end(
        &mut self,
        now_ns: u64,
        from: NodeId,
        sequence: u32,
        why: Option<Refusal>,
        grant: Option<u32>,
    ) -> Result<(), Broken> {
        let leg = self.puts.leg(sequence);
        if !leg.is_some_and(|leg| leg.to == from && leg.frame.is_some()) {
            return Err(Broken);
        }
        if !self.puts.add_credit(from, grant.as_slice()) {
            return Err(Broken);
        }
        self.end_leg(now_ns, sequence, why);
        self.use_credit(from);
        Ok(())
    }

    /// One copy is stored, or will not be by this node.
    pub(super) fn end_leg(&mut self, now_ns: u64, sequence: u32, why: Option<Refusal>) {
        let Some(leg) = self.puts.end_leg(sequence) else { return };
        let Some(put) = self.puts.get(leg.put) else { return };
        let Some(why) = why else {
            put.stored += 1;
            put.place = leg.frame.map(|frame| Place { node: leg.to, frame });
            put.open -= 1;
            if put.open == 0 {
                self.end_put(now_ns, leg.put);
            }
            return;
        };
        put.why = why;
        let is_final = matches!(why, Refusal::Older | Refusal::Obsolete | Refusal::Copies | Refusal::DirectoryFull);
        let tries = !is_final && put.may_try_again() && self.view.is_member();
        let next = if tries { self.draw_node(leg.put) } else { None };
        self.begin_leg(now_ns, leg.put, next, why);
    }

    /// All copies of a put are stored or refused.
    fn end_put(&mut self, now_ns: u64, number: u32) {
        let Some(put) = self.puts.remove(number) else { return };
        match (put.origin, put.place) {
            (Origin::Program(tag), Some(place)) => {
                self.counters.stored += 1;
                let copies = put.stored;
                let stored = Outcome::Stored { tag, copies, place };
                self.outcomes.push_back(stored);
            }
            (Origin::Program(tag), None) => {
                self.counters.refused += 1;
                let why = put.why;
                self.outcomes.push_back(Outcome::Refused { tag, why });
                // Nobody may read an older version in its place.
                if let Some(older) = put.page.version.checked_sub(1) {
                    self.ask(Asked::Discard(older), put.page.name);
                }
            }
            (Origin::Eviction, _) => self.end_eviction(now_ns, number, &put),
        }
        if let Some(version) = put.discarded
            && put.stored > 0
        {
            self.ask(Asked::Discard(version), put.page.name);
        }
    }

    /// A node is no member with this one any more. What is on its way there is answered still, unless the node is gone.
    pub(super) fn part_from(&mut self, now_ns: u64, node: NodeId) {
        if self.view.is_gone(node) {
            for sequence in self.puts.forget(node) {
                self.end_leg(now_ns, sequence, Some(Refusal::Gone));
            }
            return;
        }
        self.return_credit(node);
        for sequence in self.puts.waiting_for(node) {
            self.end_leg(now_ns, sequence, Some(Refusal::Gone));
        }
    }
}
