//! The minipages that this rank manages: holders of copies, and waiting requests.
//!
//! Two dense tables with a row for each run of pages (see [`Spread`](super::spread::Spread)) and view: the copyset, and a state word of,
//! low to high, 1 bit registered, 1 bit busy, 10 bits owner, 20 bits tail of the queue + 1. The queue is a ring through the nodes, one
//! node for every request that may be outstanding in the job: each is for one minipage. A node is a word of, low to high, 1 bit used, 1
//! bit write, 20 bits next node.

use crate::address::Key;
use crate::config::MAX_REQUESTS;
use crate::ranks::RankSets;
use crate::{Access, MAX_RANKS, Rank, Thread, tables};
use alloc::vec::Vec;

#[derive(Debug)]
pub(super) struct Directory {
    copysets: RankSets,
    states: Vec<u32>,
    nodes: Vec<u32>,
    rows: usize,
    /// Requests of each rank.
    requests: u16,
}

/// A request that waits at its manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) requester: Rank,
    pub(super) thread: Thread,
    pub(super) access: Access,
}

/// Index of a minipage in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(usize);

const REGISTERED: u32 = 1;
const BUSY: u32 = 2;
const OWNER_SHIFT: u32 = 2;
const OWNER_MASK: u32 = (MAX_RANKS as u32 - 1) << OWNER_SHIFT;
const TAIL_SHIFT: u32 = 12;
const TAIL_MASK: u32 = MAX_REQUESTS << TAIL_SHIFT;
// A rank, and a node + 1, fit their fields.
const _: () = assert!(MAX_RANKS.is_power_of_two() && OWNER_MASK < 1 << TAIL_SHIFT);
const _: () = assert!(MAX_REQUESTS == u32::MAX >> TAIL_SHIFT);

const USED: u32 = 1;
const WRITE: u32 = 2;
const NEXT_SHIFT: u32 = 2;

impl Directory {
    /// Empty tables; `None` if the machine refuses memory for them.
    pub(super) fn new(rows: u32, views: u16, ranks: u16, requests: u16) -> Option<Self> {
        let entries = tables::entries(rows, views)?;
        Some(Directory {
            copysets: RankSets::new(entries, ranks)?,
            states: tables::zeroes(entries)?,
            nodes: tables::zeroes(usize::from(ranks) * usize::from(requests))?,
            rows: rows as usize,
            requests,
        })
    }

    /// The entry for a minipage that this rank manages, given the row of its first page.
    pub(super) fn entry(&self, key: Key, row: u32) -> Entry {
        Entry(usize::from(key.view) * self.rows + row as usize)
    }

    pub(super) fn is_registered(&self, entry: Entry) -> bool {
        self.states[entry.0] & REGISTERED != 0
    }

    /// Adds a minipage of which `owner` holds the only copy.
    pub(super) fn register(&mut self, entry: Entry, owner: Rank) {
        self.states[entry.0] = REGISTERED;
        self.give_to(entry, owner);
    }

    /// Whether a request is being served whose end will be reported.
    pub(super) fn is_busy(&self, entry: Entry) -> bool {
        self.states[entry.0] & BUSY != 0
    }

    pub(super) fn set_busy(&mut self, entry: Entry, busy: bool) {
        let state = &mut self.states[entry.0];
        *state = if busy { *state | BUSY } else { *state & !BUSY };
    }

    /// The last rank that wrote; it holds a copy.
    pub(super) fn owner(&self, entry: Entry) -> Rank {
        ((self.states[entry.0] & OWNER_MASK) >> OWNER_SHIFT) as Rank
    }

    fn set_owner(&mut self, entry: Entry, owner: Rank) {
        let state = &mut self.states[entry.0];
        *state = *state & !OWNER_MASK | u32::from(owner) << OWNER_SHIFT & OWNER_MASK;
    }

    pub(super) fn has_copy(&self, entry: Entry, rank: Rank) -> bool {
        self.copysets.contains(entry.0, rank)
    }

    pub(super) fn holders(&self, entry: Entry) -> impl Iterator<Item = Rank> + '_ {
        self.copysets.members(entry.0)
    }

    pub(super) fn count_holders(&self, entry: Entry) -> u16 {
        self.copysets.count(entry.0)
    }

    pub(super) fn remove_holder(&mut self, entry: Entry, rank: Rank) {
        self.copysets.remove(entry.0, rank);
    }

    pub(super) fn add_holder(&mut self, entry: Entry, rank: Rank) {
        self.copysets.insert(entry.0, rank);
    }

    /// Makes a rank the owner and only holder of a copy.
    pub(super) fn give_to(&mut self, entry: Entry, owner: Rank) {
        self.copysets.clear(entry.0);
        self.copysets.insert(entry.0, owner);
        self.set_owner(entry, owner);
    }

    fn tail(&self, entry: Entry) -> Option<u32> {
        (self.states[entry.0] >> TAIL_SHIFT).checked_sub(1)
    }

    fn set_tail(&mut self, entry: Entry, tail: Option<u32>) {
        let field = tail.map_or(0, |tail| tail + 1);
        self.states[entry.0] = self.states[entry.0] & !TAIL_MASK | field << TAIL_SHIFT;
    }

    fn next(&self, node: u32) -> u32 {
        self.nodes[node as usize] >> NEXT_SHIFT
    }

    fn set_next(&mut self, node: u32, next: u32) {
        let node = &mut self.nodes[node as usize];
        *node = *node & (USED | WRITE) | next << NEXT_SHIFT;
    }

    /// Queues a request; false if that thread already has one here, which no correct rank would do.
    #[must_use]
    pub(super) fn enqueue(&mut self, entry: Entry, request: Waiting) -> bool {
        let requests = u32::from(self.requests);
        let node = u32::from(request.requester) * requests + u32::from(request.thread);
        if self.nodes[node as usize] & USED != 0 {
            return false;
        }
        let write = match request.access {
            Access::Read => 0,
            Access::Write => WRITE,
        };
        self.nodes[node as usize] = USED | write;
        match self.tail(entry) {
            None => self.set_next(node, node),
            Some(tail) => {
                self.set_next(node, self.next(tail));
                self.set_next(tail, node);
            }
        }
        self.set_tail(entry, Some(node));
        true
    }

    /// The first request in the queue.
    pub(super) fn head(&self, entry: Entry) -> Option<Waiting> {
        let node = self.next(self.tail(entry)?);
        let requests = u32::from(self.requests);
        let access = if self.nodes[node as usize] & WRITE != 0 { Access::Write } else { Access::Read };
        Some(Waiting { requester: (node / requests) as Rank, thread: (node % requests) as Thread, access })
    }

    /// Removes the first request.
    pub(super) fn pop(&mut self, entry: Entry) {
        let Some(tail) = self.tail(entry) else { return };
        let head = self.next(tail);
        if head == tail {
            self.set_tail(entry, None);
        } else {
            self.set_next(tail, self.next(head));
        }
        self.nodes[head as usize] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(requester: Rank, thread: Thread) -> Waiting {
        Waiting { requester, thread, access: Access::Write }
    }

    #[test]
    fn requests_for_a_minipage_are_served_in_the_order_they_came() {
        let mut directory = Directory::new(4, 2, 64, 3).unwrap();
        let (a, b) = (directory.entry(Key { view: 0, page: 0 }, 1), directory.entry(Key { view: 1, page: 0 }, 1));
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
        assert!(directory.enqueue(b, request(5, 1)), "once served it may wait again");
    }

    #[test]
    fn the_fields_of_a_state_word_do_not_disturb_each_other() {
        let mut directory = Directory::new(1, 1, 1024, 1023).unwrap();
        let entry = directory.entry(Key::default(), 0);
        directory.register(entry, 1023);
        directory.set_busy(entry, true);
        assert!(directory.enqueue(entry, request(1023, 1022)));
        assert_eq!((directory.owner(entry), directory.is_busy(entry)), (1023, true));
        directory.give_to(entry, 642);
        assert_eq!(directory.head(entry), Some(request(1023, 1022)));
        directory.set_busy(entry, false);
        directory.pop(entry);
        assert!(directory.is_registered(entry) && !directory.is_busy(entry));
        assert_eq!(directory.owner(entry), 642);
        assert!(directory.holders(entry).eq([642]));
    }
}
