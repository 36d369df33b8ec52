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
        bytes: u64,
    },
    /// It loads from a minipage, or stores to it.
    Touch {
        minipage: u32,
        writes: bool,
    },
    /// It asks for a minipage before it touches it.
    Prefetch {
        minipage: u32,
        writes: bool,
    },
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
    pub deed: Deed,
    /// The number that errors name.
    pub number: u64,
}

/// What one thread of a rank does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
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
    pub views: u16,
    /// Threads of each rank that take part in barriers, at the start.
    pub participants: u16,
    pub minipages: u32,
    pub scripts: Vec<Script>,
}

impl Script {
    /// How long it computes before each barrier, and after the last.
    fn phases(&self) -> Vec<Ps> {
        let mut phases: Vec<Ps> = vec![0];
        for entry in &self.entries {
            match (entry.deed, phases.last_mut()) {
                (Deed::Compute(ps), Some(phase)) => *phase = phase.saturating_add(ps),
                (Deed::Barrier(_), _) => phases.push(0),
                _ => {}
            }
        }
        phases
    }

    /// Shortens what it computes to these sums.
    fn shorten(&mut self, to: &[Ps]) {
        let from = self.phases();
        let mut phase = 0;
        for entry in &mut self.entries {
            match &mut entry.deed {
                Deed::Compute(ps) => {
                    let scaled = u128::from(*ps) * u128::from(to[phase]);
                    *ps = (scaled / u128::from(from[phase].max(1))) as Ps;
                }
                Deed::Barrier(_) => phase += 1,
                _ => {}
            }
        }
    }
}

impl Program {
    /// How long all threads compute together, as far as it can be counted.
    pub fn computing_ps(&self) -> Ps {
        let times = self.scripts.iter().flat_map(|script| &script.entries).map(|entry| match entry.deed {
            Deed::Compute(ps) => ps,
            _ => 0,
        });
        times.fold(0, Ps::saturating_add)
    }

    /// The same program with its computing times multiplied by `numerator / denominator`.
    #[must_use]
    pub fn scaled(mut self, numerator: u64, denominator: u64) -> Self {
        let entries = self.scripts.iter_mut().flat_map(|it| &mut it.entries);
        for entry in entries {
            if let Deed::Compute(ps) = &mut entry.deed {
                let scaled = u128::from(*ps) * u128::from(numerator);
                let scaled = scaled / u128::from(denominator.max(1));
                *ps = u64::try_from(scaled).unwrap_or(u64::MAX);
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

    /// The program of the first of several traces of one program, with as little computing as any of them has between two barriers of a
    /// thread: what a computer did besides made it longer. `None` if they do not have the same threads and barriers, as with a program
    /// that shares out its work while it runs.
    pub fn least(programs: &[Self]) -> Option<Self> {
        let mut least = programs.first()?.clone();
        for (at, script) in least.scripts.iter_mut().enumerate() {
            let mut phases: Option<Vec<Ps>> = None;
            for program in programs {
                let other = program.scripts.get(at)?;
                let theirs = other.phases();
                phases = Some(match phases {
                    None => theirs,
                    Some(ours) if ours.len() == theirs.len() && other.rank == script.rank => {
                        ours.into_iter().zip(theirs).map(|(one, two)| one.min(two)).collect()
                    }
                    Some(_) => return None,
                });
            }
            script.shorten(&phases?);
        }
        Some(least)
    }

    /// How long all threads compute together between their first barriers and their last.
    pub fn work_computing_ps(&self) -> Ps {
        let times = self.scripts.iter().map(|script| {
            let phases = script.phases();
            let inner = phases.len().saturating_sub(1).max(1);
            phases[1.min(inner)..inner].iter().fold(0, |sum: Ps, ps| sum.saturating_add(*ps))
        });
        times.fold(0, Ps::saturating_add)
    }

    /// Appends a deed to the script of a rank's only thread, which errors name by its place there.
    pub(super) fn add(&mut self, rank: u16, deed: Deed) {
        let at = match self.scripts.iter().position(|script| script.rank == rank) {
            Some(at) => at,
            None => {
                self.scripts.push(Script { rank, ..Script::default() });
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
