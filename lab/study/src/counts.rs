//! What a replay counts.

use std::ops::AddAssign;

/// Counts of one configuration over a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Pages translated: one for each page of each operation.
    pub lookups: u64,
    pub receive_lookups: u64,
    /// Times that the library found a page that a transfer needed not pinned, and had it pinned.
    pub check_misses: u64,
    /// Lookups that the NIC's cache did not answer.
    pub nic_misses: u64,
    /// Misses by path and kind; they sum up to `nic_misses`.
    pub misses: PathMisses,
    pub pins: u64,
    /// Pages unpinned, one call each.
    pub unpins: u64,
    /// Times that the NIC asked the host, for translations and handles.
    pub interrupts: u64,
    /// Handles of buffers (CBH) that the NIC looked up and did not have.
    pub buffer_misses: u64,
    /// Handles of processes (PCH) that the NIC looked up and did not have.
    pub process_misses: u64,
    /// Installed pages at the end whose entry in their process's table does not follow that of the page before them (UTLB §3.3): 0
    /// in designs whose tables are indexed by page.
    pub fragmented_pages: u64,
}

/// NIC misses by cause, each miss by itself as DineroIV does it: the three sum up to the misses. Beside the cache stands a fully
/// associative LRU cache of as many entries, with lines as long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Causes {
    /// Misses there too, and the page was never looked up before; the line, where a miss fills lines whole.
    pub compulsory: u64,
    /// All others that miss there too.
    pub capacity: u64,
    /// Those that hit there.
    pub conflict: u64,
    /// What the fully associative cache misses, also where the real one hits.
    pub associative: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    Compulsory,
    Capacity,
    Conflict,
}

impl Causes {
    pub fn count(&mut self, cause: Cause) {
        *match cause {
            Cause::Compulsory => &mut self.compulsory,
            Cause::Capacity => &mut self.capacity,
            Cause::Conflict => &mut self.conflict,
        } += 1;
    }

    /// Misses less those of the fully associative cache: conflicts as Hill counts them. Below 0 where sets keep what a cache
    /// without sets would have lost.
    pub fn hill_conflict(&self) -> i64 {
        (self.compulsory + self.capacity + self.conflict) as i64 - self.associative as i64
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
    pub fn sum(&self) -> u64 {
        self.send_cold + self.send_other + self.receive_cold + self.receive_other
    }

    /// Those of a cache of which only all misses by path are known, where the first lookup of a line, so many of which there are, always
    /// misses.
    #[must_use]
    pub fn with_cold(self, cold: &PathMisses) -> Self {
        PathMisses {
            send_cold: cold.send_cold,
            send_other: self.send_other - cold.send_cold,
            receive_cold: cold.receive_cold,
            receive_other: self.receive_other - cold.receive_cold,
        }
    }

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

/// Sums field by field.
macro_rules! summed {
    ($($name:ident { $($field:ident)+ })+) => {$(
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)+
            }
        }
    )+};
}

summed! {
    Causes { compulsory capacity conflict associative }
    PathMisses { send_cold send_other receive_cold receive_other }
    Counts {
        lookups receive_lookups check_misses nic_misses misses pins unpins interrupts buffer_misses process_misses fragmented_pages
    }
}
