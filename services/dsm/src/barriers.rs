//! Barriers, and the broadcast that rides on one.
//!
//! The manager of a barrier (its number modulo the ranks) counts the ranks that arrived and releases them all. A rank
//! that alone is missing is released ahead of its arrival, since it waits for nobody but itself: it then passes
//! without a wait, and two ranks meet after one message each way instead of one after the other. Rounds are
//! numbered, so a barrier is reusable at once. The broadcast is one more barrier, after the last.

use crate::ranks::RankSets;
use crate::threads::Wait;
use crate::{Barrier, Config, Dsm, Error, Message, Outcome, Rank, Thread, Violation};
use alloc::vec;
use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct Barriers {
    slots: Vec<Slot>,
    gathered: Vec<Gathered>,
    /// The ranks that arrived, where this rank is the manager.
    arrived: RankSets,
}

/// A barrier as this rank sees it.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// How many times it was passed, modulo 2³².
    epoch: u32,
    /// Threads of this rank that arrived in this round.
    arrived: u16,
    /// Whether the manager was told that all of them did.
    told: bool,
    /// The root that this rank named, and the value it gave, if it was told.
    root: Rank,
    value: u64,
    /// Root and value of a release that came before this rank arrived: everybody else is there.
    early: Option<(Rank, u64)>,
}

/// A barrier as its manager sees it.
#[derive(Debug, Clone, Copy, Default)]
struct Gathered {
    /// How many ranks arrived.
    count: u16,
    /// The rank that was released ahead of its arrival.
    early: Option<Rank>,
    root: Rank,
    value: u64,
}

impl Barriers {
    /// Nobody has arrived; `None` if the machine refuses memory for the table.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let count = config.barriers as usize + 1;
        Some(Barriers {
            slots: vec![Slot::default(); count],
            gathered: vec![Gathered::default(); count],
            arrived: RankSets::new(count, config.ranks)?,
        })
    }
}

impl Dsm {
    /// Waits until [`Config::participants`] threads of every rank arrived. A resume with [`Outcome::Passed`]
    /// always follows.
    pub fn barrier(&mut self, thread: Thread, barrier: Barrier) -> Result<(), Error> {
        let barriers = self.config.barriers;
        if barrier >= barriers {
            return Err(Error::UnknownBarrier { barrier, barriers });
        }
        self.begin(thread)?;
        let participants = self.config.participants;
        let slot = &mut self.barriers.slots[barrier as usize];
        if slot.told {
            return Err(Error::BarrierFull {
                barrier,
                participants,
            });
        }
        slot.arrived += 1;
        let complete = slot.arrived == participants;
        self.threads[usize::from(thread)].waits = Wait::Barrier(barrier);
        if complete {
            self.arrive(barrier, 0, 0);
        }
        Ok(())
    }

    /// Hands `value` of rank `root` to every rank. One thread of each rank calls it, in the same order in all
    /// ranks; the value of the others is ignored. A resume with [`Outcome::Value`] always follows.
    pub fn broadcast(&mut self, thread: Thread, root: Rank, value: u64) -> Result<(), Error> {
        if root >= self.config.ranks {
            return Err(Error::UnknownRank {
                rank: root,
                ranks: self.config.ranks,
            });
        }
        self.begin(thread)?;
        let barrier = self.config.barriers;
        let slot = &mut self.barriers.slots[barrier as usize];
        if slot.told {
            return Err(Error::BroadcastBusy);
        }
        let gathered = &self.barriers.gathered[barrier as usize];
        let named = match slot.early {
            Some((root, _)) => Some(root),
            None => (gathered.count != 0).then_some(gathered.root),
        };
        if let Some(others) = named
            && others != root
        {
            return Err(Error::OtherRoot { root, others });
        }
        slot.arrived = 1;
        self.threads[usize::from(thread)].waits = Wait::Barrier(barrier);
        self.arrive(
            barrier,
            root,
            if root == self.config.rank { value } else { 0 },
        );
        Ok(())
    }

    /// Changes how many threads of this rank take part in barriers, between two barriers.
    pub fn set_participants(&mut self, participants: u16) -> Result<(), Error> {
        let threads = self.config.threads;
        let idle = self.barriers.slots.iter().all(|slot| slot.arrived == 0);
        if participants == 0 || participants > threads || !idle {
            return Err(Error::BadParticipants {
                participants,
                threads,
            });
        }
        self.config.participants = participants;
        Ok(())
    }

    /// Whether a message about the barrier may name this root: a barrier that is no broadcast has none, which is written 0.
    fn names_a_root(&self, barrier: Barrier, root: Rank) -> bool {
        let barriers = self.config.barriers;
        barrier < barriers && root == 0 || barrier == barriers && root < self.config.ranks
    }

    fn barrier_manager(&self, barrier: Barrier) -> Rank {
        (barrier % u32::from(self.config.ranks)) as Rank
    }

    /// All participants of this rank are there.
    fn arrive(&mut self, barrier: Barrier, root: Rank, value: u64) {
        let slot = &mut self.barriers.slots[barrier as usize];
        slot.told = true;
        slot.root = root;
        slot.value = value;
        let (epoch, early) = (slot.epoch, slot.early);
        let manager = self.barrier_manager(barrier);
        if manager != self.config.rank {
            self.out.send(
                manager,
                Message::BarrierArrive {
                    barrier,
                    epoch,
                    root,
                    value,
                },
            );
            if let Some((_, value)) = early {
                self.release(barrier, value);
            }
            return;
        }
        self.barriers.gathered[barrier as usize].root = root;
        self.gather(self.config.rank, barrier, root, value);
    }

    /// Notes at the manager that a rank is there.
    fn gather(&mut self, from: Rank, barrier: Barrier, root: Rank, value: u64) {
        let (me, ranks) = (self.config.rank, self.config.ranks);
        let index = barrier as usize;
        self.barriers.arrived.insert(index, from);
        let gathered = &mut self.barriers.gathered[index];
        gathered.count += 1;
        if from == root {
            gathered.value = value;
        }
        let Gathered {
            count,
            early,
            root,
            value,
        } = *gathered;
        let missing = ranks - count;
        let message = Message::BarrierRelease {
            barrier,
            epoch: self.barriers.slots[index].epoch,
            root,
            value,
        };
        if missing == 0 {
            *gathered = Gathered::default();
            self.barriers.arrived.clear(index);
            for to in (0..ranks).filter(|&to| to != me && Some(to) != early) {
                self.out.send(to, message);
            }
            self.release(barrier, value);
        } else if missing == 1 {
            let last = self.barriers.arrived.first_absent(index);
            if last != me {
                gathered.early = Some(last);
                self.out.send(last, message);
            }
        }
    }

    /// Everybody is there. `value` is the root's, unless this rank is the root, which knows it best.
    fn release(&mut self, barrier: Barrier, value: u64) {
        let slot = &mut self.barriers.slots[barrier as usize];
        let value = if slot.root == self.config.rank {
            slot.value
        } else {
            value
        };
        *slot = Slot {
            epoch: slot.epoch.wrapping_add(1),
            ..Slot::default()
        };
        self.out.counters.barriers += 1;
        let outcome = if barrier == self.config.barriers {
            Outcome::Value(value)
        } else {
            Outcome::Passed
        };
        for thread in 0..self.used_threads {
            let waiter = &mut self.threads[usize::from(thread)];
            if waiter.waits == Wait::Barrier(barrier) {
                waiter.waits = Wait::Nothing;
                self.out.resume(thread, outcome);
            }
        }
    }

    pub(crate) fn handle_barrier_arrive(
        &mut self,
        from: Rank,
        barrier: Barrier,
        epoch: u32,
        root: Rank,
        value: u64,
    ) -> Result<(), Violation> {
        if !self.names_a_root(barrier, root) {
            return Err(Violation::OutOfRange);
        }
        if self.barrier_manager(barrier) != self.config.rank {
            return Err(Violation::NotManager);
        }
        if epoch != self.barriers.slots[barrier as usize].epoch {
            return Err(Violation::Epoch);
        }
        if self.barriers.arrived.contains(barrier as usize, from) {
            return Err(Violation::Repeated);
        }
        let gathered = &mut self.barriers.gathered[barrier as usize];
        if gathered.count != 0 && gathered.root != root {
            return Err(Violation::Root);
        }
        gathered.root = root;
        self.gather(from, barrier, root, value);
        Ok(())
    }

    pub(crate) fn handle_barrier_release(
        &mut self,
        from: Rank,
        barrier: Barrier,
        epoch: u32,
        root: Rank,
        value: u64,
    ) -> Result<(), Violation> {
        if !self.names_a_root(barrier, root) {
            return Err(Violation::OutOfRange);
        }
        if self.barrier_manager(barrier) != from {
            return Err(Violation::NotManager);
        }
        let slot = &mut self.barriers.slots[barrier as usize];
        if epoch != slot.epoch {
            return Err(Violation::Epoch);
        }
        if !slot.told {
            // This rank alone is missing.
            if slot.early.is_some() {
                return Err(Violation::Repeated);
            }
            slot.early = Some((root, value));
            return Ok(());
        }
        if root != slot.root {
            return Err(Violation::Root);
        }
        self.release(barrier, value);
        Ok(())
    }
}
