//! Barriers, and the broadcast that rides on one.
//!
//! The manager of a barrier (its number modulo the ranks) counts the ranks that arrived and releases them all. A rank
//! that alone is missing is released ahead of its arrival, since it waits for nobody but itself: it then passes
//! without a wait, and two ranks meet after one message each way instead of one after the other. Rounds are
//! numbered, so a barrier is reusable at once. The broadcast is one more barrier, after the last.

use crate::coherence::Coherence;
use crate::context::{Context, Wait};
use crate::ranks::RankSets;
use crate::{Barrier, Config, Error, Message, Outcome, Rank, Thread, Violation};
use alloc::vec;
use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct Barriers {
    slots: Vec<Slot>,
    gathered: Vec<Gathered>,
    /// The ranks that arrived, where this rank is the manager.
    arrived: RankSets,
    /// Threads of this rank that take part.
    participants: u16,
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

/// What a message says of a barrier.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    barrier: Barrier,
    epoch: u32,
    root: Rank,
    value: u64,
}

impl Round {
    pub(crate) fn new(barrier: Barrier, epoch: u32, root: Rank, value: u64) -> Self {
        Round {
            barrier,
            epoch,
            root,
            value,
        }
    }
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
            participants: config.participants,
        })
    }

    /// The number of the broadcast: as many as there are other barriers.
    fn broadcast_number(&self) -> Barrier {
        self.slots.len() as Barrier - 1
    }

    /// Waits until all participants of every rank arrived, with a thread that waits for nothing.
    pub(crate) fn arrive(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        thread: Thread,
        barrier: Barrier,
    ) -> Result<(), Error> {
        let (barriers, participants) = (self.broadcast_number(), self.participants);
        if barrier >= barriers {
            return Err(Error::UnknownBarrier { barrier, barriers });
        }
        let slot = &mut self.slots[barrier as usize];
        if slot.told {
            return Err(Error::BarrierFull {
                barrier,
                participants,
            });
        }
        slot.arrived += 1;
        let complete = slot.arrived == participants;
        context.set_wait(thread, Wait::Barrier(barrier));
        if complete {
            self.tell(context, coherence, barrier, 0, 0);
        }
        Ok(())
    }

    /// Hands `value` of rank `root` to every rank, with a thread that waits for nothing.
    pub(crate) fn broadcast(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        thread: Thread,
        root: Rank,
        value: u64,
    ) -> Result<(), Error> {
        let ranks = context.ranks();
        if root >= ranks {
            return Err(Error::UnknownRank { rank: root, ranks });
        }
        let barrier = self.broadcast_number();
        let slot = &mut self.slots[barrier as usize];
        if slot.told {
            return Err(Error::BroadcastBusy);
        }
        let gathered = &self.gathered[barrier as usize];
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
        context.set_wait(thread, Wait::Barrier(barrier));
        let value = if root == context.rank() { value } else { 0 };
        self.tell(context, coherence, barrier, root, value);
        Ok(())
    }

    /// Changes how many threads of this rank take part, between two barriers.
    pub(crate) fn set_participants(
        &mut self,
        context: &Context,
        participants: u16,
    ) -> Result<(), Error> {
        let threads = context.config().threads;
        let idle = self.slots.iter().all(|slot| slot.arrived == 0);
        if participants == 0 || participants > threads || !idle {
            return Err(Error::BadParticipants {
                participants,
                threads,
            });
        }
        self.participants = participants;
        Ok(())
    }

    /// Whether a message about the barrier may name this root: a barrier that is no broadcast has none, which is written 0.
    fn names_a_root(&self, context: &Context, barrier: Barrier, root: Rank) -> bool {
        let broadcast = self.broadcast_number();
        barrier < broadcast && root == 0 || barrier == broadcast && root < context.ranks()
    }

    /// All participants of this rank are there.
    fn tell(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        barrier: Barrier,
        root: Rank,
        value: u64,
    ) {
        let slot = &mut self.slots[barrier as usize];
        slot.told = true;
        slot.root = root;
        slot.value = value;
        let (epoch, early) = (slot.epoch, slot.early);
        let manager = manager(context, barrier);
        if manager != context.rank() {
            coherence.release(context, manager);
            context.send(
                manager,
                Message::BarrierArrive {
                    barrier,
                    epoch,
                    root,
                    value,
                },
            );
            if let Some((_, value)) = early {
                self.release(context, barrier, value);
            }
            return;
        }
        self.gathered[barrier as usize].root = root;
        self.gather(context, coherence, context.rank(), barrier, root, value);
    }

    /// Notes at the manager that a rank is there.
    fn gather(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        from: Rank,
        barrier: Barrier,
        root: Rank,
        value: u64,
    ) {
        let (me, ranks) = (context.rank(), context.ranks());
        let index = barrier as usize;
        self.arrived.insert(index, from);
        let gathered = &mut self.gathered[index];
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
            epoch: self.slots[index].epoch,
            root,
            value,
        };
        if missing == 0 {
            *gathered = Gathered::default();
            self.arrived.clear(index);
            for to in (0..ranks).filter(|&to| to != me && Some(to) != early) {
                coherence.release(context, to);
                context.send(to, message);
            }
            self.release(context, barrier, value);
        } else if missing == 1 {
            let last = self.arrived.first_absent(index);
            if last != me {
                gathered.early = Some(last);
                coherence.release(context, last);
                context.send(last, message);
            }
        }
    }

    /// Everybody is there. `value` is the root's, unless this rank is the root, which knows it best.
    fn release(&mut self, context: &mut Context, barrier: Barrier, value: u64) {
        let slot = &mut self.slots[barrier as usize];
        let value = if slot.root == context.rank() {
            slot.value
        } else {
            value
        };
        *slot = Slot {
            epoch: slot.epoch.wrapping_add(1),
            ..Slot::default()
        };
        context.counters_mut().barriers += 1;
        let outcome = if barrier == self.broadcast_number() {
            Outcome::Value(value)
        } else {
            Outcome::Passed
        };
        for thread in 0..context.waits().len() {
            if context.waits()[thread] == Wait::Barrier(barrier) {
                context.resume(thread as Thread, outcome);
            }
        }
    }

    pub(crate) fn handle_arrival(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        from: Rank,
        round: Round,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let Round {
            barrier,
            epoch,
            root,
            value,
        } = round;
        if !self.names_a_root(context, barrier, root) {
            return Err(Violation::OutOfRange);
        }
        if manager(context, barrier) != context.rank() {
            return Err(Violation::NotManager);
        }
        if epoch != self.slots[barrier as usize].epoch {
            return Err(Violation::Epoch);
        }
        if self.arrived.contains(barrier as usize, from) {
            return Err(Violation::Repeated);
        }
        let gathered = &mut self.gathered[barrier as usize];
        if gathered.count != 0 && gathered.root != root {
            return Err(Violation::Root);
        }
        coherence.acquire(context, from, payload)?;
        gathered.root = root;
        self.gather(context, coherence, from, barrier, root, value);
        Ok(())
    }

    pub(crate) fn handle_release(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        from: Rank,
        round: Round,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let Round {
            barrier,
            epoch,
            root,
            value,
        } = round;
        if !self.names_a_root(context, barrier, root) {
            return Err(Violation::OutOfRange);
        }
        if manager(context, barrier) != from {
            return Err(Violation::NotManager);
        }
        let slot = &mut self.slots[barrier as usize];
        if epoch != slot.epoch {
            return Err(Violation::Epoch);
        }
        if !slot.told && slot.early.is_some() {
            return Err(Violation::Repeated);
        }
        if slot.told && root != slot.root {
            return Err(Violation::Root);
        }
        coherence.acquire(context, from, payload)?;
        if slot.told {
            self.release(context, barrier, value);
        } else {
            // This rank alone is missing.
            slot.early = Some((root, value));
        }
        Ok(())
    }
}

fn manager(context: &Context, barrier: Barrier) -> Rank {
    (barrier % u32::from(context.ranks())) as Rank
}
