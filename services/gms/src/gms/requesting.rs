//! The requesting node: getpage and discardpage from their start to their end (GMS-NP §2.3).

use mapwire_wire::NodeId;

use super::Gms;
use crate::message::{Message, Operation, PageInfo, Request};
use crate::outcome::Outcome;
use crate::requests::{Asked, Pending};

impl Gms {
    /// Sends a request to the page's directory node.
    pub(super) fn send_request(&mut self, sequence: u32) {
        let Some(&Pending { asked, name, hash }) = self.requests.get(sequence) else { return };
        let Some(directory) = self.view.map().directory_node(hash) else { return };
        let (operation, value) = match asked {
            Asked::Get(get) if get.keep => (Operation::Get, get.frame),
            Asked::Get(get) => (Operation::Take, get.frame),
            Asked::Discard(version) => (Operation::Discard, version),
        };
        let request = Request {
            operation,
            attempts: 0,
            requester: self.me(),
            sequence,
            value,
            map: self.view.version(),
            hash,
            name,
        };
        self.out.send(directory, Message::Request(request));
    }

    /// All members go by this map, and no request of an earlier one is under way any more: sends all that have no answer. Those of a node
    /// that is no member end.
    pub(super) fn send_requests(&mut self) {
        for sequence in self.requests.sequences() {
            if self.view.is_member() {
                self.send_request(sequence);
            } else if let Some(&pending) = self.requests.get(sequence) {
                self.end_without_page(sequence, &pending);
            }
        }
    }

    fn end_without_page(&mut self, sequence: u32, pending: &Pending) {
        self.requests.end(sequence, pending.name);
        if let Asked::Get(get) = pending.asked {
            self.counters.absents += 1;
            self.outcomes.push_back(Outcome::Absent { tag: get.tag });
        }
    }

    pub(super) fn handle_answer(&mut self, from: NodeId, request: &Request) {
        let is_its = self.view.map().directory_node(request.hash) == Some(from);
        let is_mine = request.requester == self.me() && request.map == self.view.version();
        let Some(&pending) = self.requests.get(request.sequence) else { return };
        let fits = match pending.asked {
            Asked::Get(_) => request.operation == Operation::Absent,
            Asked::Discard(_) => request.operation == Operation::Discarded,
        };
        if is_its && is_mine && fits && pending.name == request.name && self.view.is_settled() {
            self.end_without_page(request.sequence, &pending);
        }
    }

    /// A page came. Whoever sent it keeps it if it was not asked for.
    pub(super) fn handle_page(&mut self, from: NodeId, sequence: u32, page: &PageInfo) {
        let get = match self.requests.get(sequence) {
            Some(pending) if pending.name == page.name => match pending.asked {
                Asked::Get(get) => Some(get),
                Asked::Discard(_) => None,
            },
            _ => None,
        };
        let is_taken = get.is_some();
        if let Some(get) = get {
            self.requests.end(sequence, page.name);
            self.counters.hits += 1;
            self.outcomes.push_back(Outcome::Page {
                tag: get.tag,
                frame: get.frame,
                version: page.version,
                checksum: page.checksum,
                age_ms: page.age_ms,
            });
        } else {
            self.counters.strays += 1;
        }
        self.out.send(from, Message::Landed { sequence, is_taken });
    }
}
