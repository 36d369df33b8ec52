//! What the threads of ranks do: computing, and calls of the shared memory.

use crate::hardware::Ps;

/// Something that a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It computes for so long.
    Compute(Ps),
    /// It allocates the minipage with this number, of so many bytes.
    Allocate {
        /// The number: others touch it by that.
        minipage: u32,
        /// Its bytes.
        bytes: u64,
    },
    /// It loads from a minipage, or stores to it.
    Touch {
        /// The minipage.
        minipage: u32,
        /// Whether it stores.
        writes: bool,
    },
    /// It asks for a minipage before it touches it.
    Prefetch {
        /// The minipage.
        minipage: u32,
        /// Whether it will store.
        writes: bool,
    },
    /// It takes a lock.
    Lock(u32),
    /// It gives a lock back.
    Unlock(u32),
    /// It waits for all at a barrier.
    Barrier(u32),
    /// It takes part in a broadcast of this rank.
    Broadcast(u16),
    /// From now on so many threads of its rank take part in barriers.
    Participants(u16),
}

impl Deed {
    /// What it is, for people.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Compute(_) => "computing",
            Self::Allocate { .. } => "an allocation",
            Self::Touch { writes: false, .. } => "a load",
            Self::Touch { writes: true, .. } => "a store",
            Self::Prefetch { .. } => "a prefetch",
            Self::Lock(_) => "a lock",
            Self::Unlock(_) => "an unlock",
            Self::Barrier(_) => "a barrier",
            Self::Broadcast(_) => "a broadcast",
            Self::Participants(_) => "a change of participants",
        }
    }
}

/// A deed, with the number of what it was made of: a record of a trace, for instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What is done.
    pub deed: Deed,
    /// The number that errors name.
    pub number: u64,
}

/// What one thread of a rank does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The rank.
    pub rank: u16,
    /// Its deeds in their order.
    pub entries: Vec<Entry>,
    /// It begins when this script of the same rank has done so many deeds; at the start otherwise.
    pub after: Option<(usize, usize)>,
}

/// What all ranks do, and on what shared memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Ranks, from 1 to 1,024.
    pub ranks: u16,
    /// Pages of 4 KiB in the segment.
    pub pages: u32,
    /// Views.
    pub views: u16,
    /// Threads of each rank that take part in barriers, at the start.
    pub participants: u16,
    /// Minipages that are allocated.
    pub minipages: u32,
    /// The threads.
    pub scripts: Vec<Script>,
}

impl Program {
    /// How long all threads compute together, as far as it can be counted.
    #[must_use]
    pub fn computing_ps(&self) -> Ps {
        let entries = self.scripts.iter().flat_map(|script| &script.entries);
        let times = entries.map(|entry| match entry.deed {
            Deed::Compute(ps) => ps,
            _ => 0,
        });
        times.fold(0, Ps::saturating_add)
    }

    /// The same program on processors that are so many times faster.
    #[must_use]
    pub fn faster(mut self, times: u64) -> Self {
        let entries = self.scripts.iter_mut().flat_map(|it| &mut it.entries);
        for entry in entries {
            if let Deed::Compute(ps) = &mut entry.deed {
                *ps /= times.max(1);
            }
        }
        self
    }

    /// The same program up to each thread's last barrier. What follows belongs to no time that is measured.
    #[must_use]
    pub fn up_to_last_barrier(mut self) -> Self {
        for script in &mut self.scripts {
            let is_barrier = |entry: &Entry| matches!(entry.deed, Deed::Barrier(_));
            let end = script.entries.iter().rposition(is_barrier);
            script.entries.truncate(end.map_or(0, |at| at + 1));
        }
        self
    }

    /// Appends a deed to the script of a rank's only thread, which errors name by its place there.
    pub(super) fn add(&mut self, rank: u16, deed: Deed) {
        let at = match self.scripts.iter().position(|script| script.rank == rank) {
            Some(at) => at,
            None => {
                self.scripts.push(Script {
                    rank,
                    ..Script::default()
                });
                self.scripts.len() - 1
            }
        };
        let entries = &mut self.scripts[at].entries;
        let number = entries.len() as u64;
        entries.push(Entry { deed, number });
    }

    /// Appends a deed of all ranks.
    pub(super) fn add_to_all(&mut self, deed: Deed) {
        for rank in 0..self.ranks {
            self.add(rank, deed);
        }
    }

    /// Has a rank allocate minipages of so many bytes; gives their numbers.
    pub(super) fn allocate(&mut self, rank: u16, count: u32, bytes: u64) -> core::ops::Range<u32> {
        let first = self.minipages;
        self.minipages += count;
        for minipage in first..self.minipages {
            self.add(rank, Deed::Allocate { minipage, bytes });
        }
        first..self.minipages
    }
}
