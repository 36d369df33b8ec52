//! What this rank knows of the minipages it manages: who holds copies, and who waits.
//!
//! Two dense tables with a row for each run of pages (see [`Spread`](crate::spread::Spread)) and view: the
//! copyset, and a state word of, low to high, 1 bit registered, 1 bit busy, 6 bits owner, 16 bits tail of the
//! queue + 1. The queue is a ring through the nodes, one node for every request that may
//! be on its way in the job: each is for one minipage.

use crate::address::Key;
use crate::{Access, Rank, Thread, tables};
use alloc::vec;
use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct Directory {
    copysets: Vec<u64>,
    states: Vec<u32>,
    nodes: Vec<Node>,
    rows: usize,
    /// Of each rank.
    requests: u16,
}

/// Where a minipage stands in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(usize);

/// A request that waits, or at the head of a busy queue is being served.
#[derive(Debug, Clone, Copy)]
struct Node {
    used: bool,
    access: Access,
    next: u16,
}

/// The request at the head of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) requester: Rank,
    pub(crate) thread: Thread,
    pub(crate) access: Access,
}

const REGISTERED: u32 = 1;
const BUSY: u32 = 2;
const OWNER_SHIFT: u32 = 2;
const OWNER_MASK: u32 = 0x3F << OWNER_SHIFT;
const TAIL_SHIFT: u32 = 8;
const TAIL_MASK: u32 = 0xFFFF << TAIL_SHIFT;

impl Directory {
    /// Empty tables; `None` if the machine refuses memory for them.
    pub(crate) fn new(rows: u32, views: u16, ranks: u16, requests: u16) -> Option<Self> {
        let node = Node {
            used: false,
            access: Access::Read,
            next: 0,
        };
        Some(Directory {
            copysets: tables::double_words(rows, views)?,
            states: tables::words(rows, views)?,
            nodes: vec![node; usize::from(ranks) * usize::from(requests)],
            rows: rows as usize,
            requests,
        })
    }

    /// The entry for a minipage that this rank manages, given the row of its first page.
    pub(crate) fn entry(&self, key: Key, row: u32) -> Entry {
        Entry(usize::from(key.view) * self.rows + row as usize)
    }

    pub(crate) fn is_registered(&self, entry: Entry) -> bool {
        self.states[entry.0] & REGISTERED != 0
    }

    /// Adds a minipage of which `owner` holds the only copy.
    pub(crate) fn register(&mut self, entry: Entry, owner: Rank) {
        self.states[entry.0] = REGISTERED;
        self.set_owner(entry, owner);
        self.copysets[entry.0] = 1 << owner;
    }

    /// Whether a request is being served whose end will be told.
    pub(crate) fn is_busy(&self, entry: Entry) -> bool {
        self.states[entry.0] & BUSY != 0
    }

    pub(crate) fn set_busy(&mut self, entry: Entry, busy: bool) {
        let state = &mut self.states[entry.0];
        *state = if busy { *state | BUSY } else { *state & !BUSY };
    }

    /// The rank that last wrote; it holds a copy.
    pub(crate) fn owner(&self, entry: Entry) -> Rank {
        ((self.states[entry.0] & OWNER_MASK) >> OWNER_SHIFT) as Rank
    }

    pub(crate) fn set_owner(&mut self, entry: Entry, owner: Rank) {
        let state = &mut self.states[entry.0];
        *state = *state & !OWNER_MASK | u32::from(owner) << OWNER_SHIFT & OWNER_MASK;
    }

    /// The ranks that hold copies, bit per rank.
    pub(crate) fn copyset(&self, entry: Entry) -> u64 {
        self.copysets[entry.0]
    }

    pub(crate) fn set_copyset(&mut self, entry: Entry, copyset: u64) {
        self.copysets[entry.0] = copyset;
    }

    fn tail(&self, entry: Entry) -> Option<u16> {
        ((self.states[entry.0] & TAIL_MASK) >> TAIL_SHIFT)
            .checked_sub(1)
            .map(|tail| tail as u16)
    }

    fn set_tail(&mut self, entry: Entry, tail: Option<u16>) {
        let field = tail.map_or(0, |tail| u32::from(tail) + 1);
        self.states[entry.0] = self.states[entry.0] & !TAIL_MASK | field << TAIL_SHIFT;
    }

    /// Queues a request; false if that thread already has one here, as no correct rank would.
    #[must_use]
    pub(crate) fn enqueue(&mut self, entry: Entry, request: Waiting) -> bool {
        let node = request.requester * self.requests + request.thread;
        if self.nodes[usize::from(node)].used {
            return false;
        }
        let next = match self.tail(entry) {
            None => node,
            Some(tail) => core::mem::replace(&mut self.nodes[usize::from(tail)].next, node),
        };
        self.nodes[usize::from(node)] = Node {
            used: true,
            access: request.access,
            next,
        };
        self.set_tail(entry, Some(node));
        true
    }

    /// The request whose turn it is.
    pub(crate) fn head(&self, entry: Entry) -> Option<Waiting> {
        let node = self.nodes[usize::from(self.tail(entry)?)].next;
        Some(Waiting {
            requester: node / self.requests,
            thread: node % self.requests,
            access: self.nodes[usize::from(node)].access,
        })
    }

    /// Ends the turn of the request at the head.
    pub(crate) fn pop(&mut self, entry: Entry) {
        let Some(tail) = self.tail(entry) else { return };
        let head = self.nodes[usize::from(tail)].next;
        let after = core::mem::replace(&mut self.nodes[usize::from(head)].next, 0);
        self.nodes[usize::from(head)].used = false;
        if head == tail {
            self.set_tail(entry, None);
        } else {
            self.nodes[usize::from(tail)].next = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(requester: Rank, thread: Thread) -> Waiting {
        Waiting {
            requester,
            thread,
            access: Access::Write,
        }
    }

    #[test]
    fn requests_for_a_minipage_are_served_in_the_order_they_came() {
        let mut directory = Directory::new(4, 2, 64, 3).unwrap();
        let (a, b) = (
            directory.entry(Key { view: 0, page: 0 }, 1),
            directory.entry(Key { view: 1, page: 0 }, 1),
        );
        for r in [request(63, 2), request(0, 0), request(5, 1)] {
            assert!(directory.enqueue(a, r));
        }
        assert!(directory.enqueue(b, request(7, 0)));
        assert!(!directory.enqueue(b, request(5, 1)), "a thread waits once");
        for r in [request(63, 2), request(0, 0), request(5, 1)] {
            assert_eq!(directory.head(a), Some(r));
            directory.pop(a);
        }
        assert_eq!(directory.head(a), None);
        assert_eq!(directory.head(b), Some(request(7, 0)));
        assert!(
            directory.enqueue(b, request(5, 1)),
            "once served it may wait again"
        );
    }

    #[test]
    fn the_fields_of_a_state_word_do_not_disturb_each_other() {
        let mut directory = Directory::new(1, 1, 64, 1023).unwrap();
        let entry = directory.entry(Key::default(), 0);
        directory.register(entry, 63);
        directory.set_busy(entry, true);
        assert!(directory.enqueue(entry, request(63, 1022)));
        directory.set_owner(entry, 42);
        assert_eq!(
            (directory.owner(entry), directory.is_busy(entry)),
            (42, true)
        );
        assert_eq!(directory.head(entry), Some(request(63, 1022)));
        directory.set_busy(entry, false);
        directory.pop(entry);
        assert!(directory.is_registered(entry) && !directory.is_busy(entry));
        assert_eq!(
            (directory.owner(entry), directory.copyset(entry)),
            (42, 1 << 63)
        );
    }
}
