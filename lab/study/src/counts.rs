//! What a replay counts.

use std::ops::AddAssign;

/// Counts of one configuration over a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Pages translated: one for each page of each operation.
    pub lookups: u64,
    /// Of them on the receive path.
    pub receive_lookups: u64,
    /// Times that the library found a page that a transfer needed not pinned, and had it pinned.
    pub check_misses: u64,
    /// Lookups that the NIC's cache did not answer.
    pub nic_misses: u64,
    /// Misses by path and kind; they sum up to `nic_misses`.
    pub misses: PathMisses,
    /// Pages pinned.
    pub pins: u64,
    /// Pages unpinned, one call each.
    pub unpins: u64,
    /// Times that the NIC asked the host.
    pub interrupts: u64,
}

/// NIC misses by cause (Hill's three): they sum up to the misses. The last two may be below 0: a cache with sets may keep what
/// one without would have lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Causes {
    /// First lookups of a page; of its line, if lines have several pages.
    pub compulsory: u64,
    /// What a fully associative LRU cache of as many entries misses besides.
    pub capacity: i64,
    /// The rest.
    pub conflict: i64,
}

impl Causes {
    /// Of a cache that misses `misses` times, `compulsory` of them on first lookups, where the fully associative one misses
    /// `associative` times.
    pub fn new(misses: u64, compulsory: u64, associative: u64) -> Self {
        Causes {
            compulsory,
            capacity: associative as i64 - compulsory as i64,
            conflict: misses as i64 - associative as i64,
        }
    }
}

impl AddAssign for Causes {
    fn add_assign(&mut self, other: Self) {
        self.compulsory += other.compulsory;
        self.capacity += other.capacity;
        self.conflict += other.conflict;
    }
}

/// NIC misses by path, and by whether the process ever missed the page (its line, for caches with longer ones) before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathMisses {
    /// Of sends and of destinations of fetches, first of the line.
    pub send_cold: u64,
    /// Of sends and of destinations of fetches, all others.
    pub send_other: u64,
    /// Of stores into exports and fetches out of them, first of the line.
    pub receive_cold: u64,
    /// Of stores into exports and fetches out of them, all others.
    pub receive_other: u64,
}

impl PathMisses {
    /// All of them.
    pub fn sum(&self) -> u64 {
        self.send_cold + self.send_other + self.receive_cold + self.receive_other
    }

    /// Counts a miss.
    #[inline]
    pub fn count(&mut self, receive: bool, cold: bool) {
        match (receive, cold) {
            (false, true) => self.send_cold += 1,
            (false, false) => self.send_other += 1,
            (true, true) => self.receive_cold += 1,
            (true, false) => self.receive_other += 1,
        }
    }
}

impl AddAssign for PathMisses {
    fn add_assign(&mut self, other: Self) {
        self.send_cold += other.send_cold;
        self.send_other += other.send_other;
        self.receive_cold += other.receive_cold;
        self.receive_other += other.receive_other;
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.lookups += other.lookups;
        self.receive_lookups += other.receive_lookups;
        self.check_misses += other.check_misses;
        self.nic_misses += other.nic_misses;
        self.misses += other.misses;
        self.pins += other.pins;
        self.unpins += other.unpins;
        self.interrupts += other.interrupts;
    }
}
