//! What happened in a run, so that one that shows nothing is noticed.

use crate::coverage::{Condition, Coverage};

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Getpages that found the page at another node.
    pub pages: u64,
    /// Those that found it in the node's own frames.
    pub here: u64,
    /// Those that did not find it.
    pub absent: u64,
    /// Of them, those of a page that is on permanent storage.
    pub from_disk: u64,
    /// Putpages that somebody stored.
    pub stored: u64,
    /// Of them, those that two nodes stored.
    pub stored_twice: u64,
    /// Those that nobody stored.
    pub refused: u64,
    /// Those whose page was not worth a frame.
    pub dropped: u64,
    /// Donations that were taken back.
    pub shrunk: u64,
    /// Nodes that became members.
    pub joined: u64,
    /// Nodes that left.
    pub left: u64,
    /// Nodes that died.
    pub crashed: u64,
}

impl Seen {
    /// All counts, in order.
    #[must_use]
    pub const fn counts(&self) -> [u64; 12] {
        [
            self.pages,
            self.here,
            self.absent,
            self.from_disk,
            self.stored,
            self.stored_twice,
            self.refused,
            self.dropped,
            self.shrunk,
            self.joined,
            self.left,
            self.crashed,
        ]
    }

    /// Notes it.
    pub(super) fn cover(&self, coverage: &mut Coverage) {
        for (condition, times) in [
            (Condition::PageFetched, self.pages),
            (Condition::PageAbsent, self.absent),
            (Condition::PageStored, self.stored),
            (Condition::PageStoredTwice, self.stored_twice),
            (Condition::PageRefused, self.refused),
            (Condition::Joined, self.joined),
            (Condition::Left, self.left),
            (Condition::Died, self.crashed),
        ] {
            coverage.note_many(condition, times);
        }
    }

    /// Adds what happened in another run.
    pub fn add(&mut self, other: &Self) {
        self.pages += other.pages;
        self.here += other.here;
        self.absent += other.absent;
        self.from_disk += other.from_disk;
        self.stored += other.stored;
        self.stored_twice += other.stored_twice;
        self.refused += other.refused;
        self.dropped += other.dropped;
        self.shrunk += other.shrunk;
        self.joined += other.joined;
        self.left += other.left;
        self.crashed += other.crashed;
    }
}
