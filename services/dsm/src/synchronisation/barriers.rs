//! Barriers, and the broadcast, which uses one.
//!
//! The manager of a barrier (its number modulo the ranks) counts the ranks that arrived and releases them all. If a single rank is
//! missing, it is released ahead of its arrival, since it waits for nobody but itself: it then passes without a wait, and two ranks meet
//! after one message each way instead of one after the other, except under lazy protocols
//! ([`Coherence::releases_early`]). Rounds are numbered, so a barrier is reusable at once. The broadcast is one more barrier, after the last.

use crate::coherence::{Coherence, Release};
use crate::context::{Context, Wait};
use crate::ranks::RankSets;
use crate::synchronisation::WaitedBarrier;
use crate::{Barrier, Config, Error, Message, Outcome, Rank, Round, Thread, Violation};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;

#[derive(Debug)]
pub(crate) struct Barriers {
    slots: Vec<Slot>,
    gathered: Vec<Gathered>,
    /// At the manager: ranks that have arrived.
    arrived: RankSets,
    /// Threads of this rank that take part.
    participants: u16,
}

/// State of a barrier in each rank.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// How often it was passed, modulo 2³².
    epoch: u32,
    /// Threads of this rank that have arrived in this round.
    arrived: u16,
    /// Root and value that this rank named, if all its participants have arrived.
    told: Option<(Rank, u64)>,
    /// It has reported that to the manager.
    is_reported: bool,
    /// Root and value of a release that came before this rank arrived: everybody else has arrived.
    early: Option<(Rank, u64)>,
}

/// State of a barrier at its manager.
#[derive(Debug, Clone, Copy, Default)]
struct Gathered {
    /// Number of ranks that have arrived.
    count: u16,
    /// Rank that was released ahead of its arrival.
    early: Option<Rank>,
    root: Rank,
    value: u64,
}

impl Barriers {
    /// Empty barriers; `None` if the machine refuses memory for the table.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let count = config.barriers as usize + 1;
        Some(Barriers {
            slots: vec![Slot::default(); count],
            gathered: vec![Gathered::default(); count],
            arrived: RankSets::new(count, config.ranks)?,
            participants: config.participants,
        })
    }

    /// The number of the broadcast: one after the last barrier.
    fn broadcast_number(&self) -> Barrier {
        self.slots.len() as Barrier - 1
    }

    /// Waits with an idle thread until all participants of every rank have arrived.
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
        if slot.told.is_some() {
            return Err(Error::BarrierFull { barrier, participants });
        }
        slot.arrived += 1;
        let complete = slot.arrived == participants;
        context.set_wait(thread, Wait::Barrier(barrier));
        if complete {
            self.tell(context, coherence, barrier, 0, 0);
        }
        Ok(())
    }

    /// Sends `value` of rank `root` to every rank, with an idle thread.
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
        if slot.told.is_some() {
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

    /// Sets how many threads of this rank take part; only between two barriers.
    pub(crate) fn set_participants(&mut self, context: &Context, participants: u16) -> Result<(), Error> {
        let threads = context.config().threads;
        let idle = self.slots.iter().all(|slot| slot.arrived == 0);
        if participants == 0 || participants > threads || !idle {
            return Err(Error::BadParticipants { participants, threads });
        }
        self.participants = participants;
        Ok(())
    }

    /// All participants of this rank have arrived.
    fn tell(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        barrier: Barrier,
        root: Rank,
        value: u64,
    ) {
        let slot = &mut self.slots[barrier as usize];
        slot.told = Some((root, value));
        if coherence.release(Release::Arrival { barrier }) {
            self.report(context, coherence, barrier);
        }
    }

    /// Reports the arrival of this rank, whose participants have all arrived and whose writes are in place.
    pub(crate) fn report(&mut self, context: &mut Context, coherence: &mut impl Coherence, barrier: Barrier) {
        let slot = &mut self.slots[barrier as usize];
        let Some((root, value)) = slot.told else { return };
        slot.is_reported = true;
        let (epoch, early) = (slot.epoch, slot.early);
        coherence.arrive(barrier);
        // Built in place: copying it costs more than building it.
        let round = || Round { barrier, epoch, root, value };
        let manager = manager(context, barrier);
        if manager == context.rank() {
            return self.gather(context, coherence, manager, round());
        }
        context.send(manager, Message::BarrierArrive { round: round() });
        if let Some((_, value)) = early {
            self.release(context, coherence, barrier, value);
        }
    }

    /// At the manager, records the arrival of a rank.
    fn gather(&mut self, context: &mut Context, coherence: &mut impl Coherence, from: Rank, round: Round) {
        let (me, ranks) = (context.rank(), context.ranks());
        let index = round.barrier as usize;
        self.arrived.insert(index, from);
        let gathered = &mut self.gathered[index];
        gathered.count += 1;
        gathered.root = round.root;
        if from == round.root {
            gathered.value = round.value;
        }
        let (value, early) = (gathered.value, gathered.early);
        let message = Message::BarrierRelease { round: Round { value, ..round } };
        let missing = ranks - gathered.count;
        if missing == 0 {
            *gathered = Gathered::default();
            self.arrived.clear(index);
            for to in (0..ranks).filter(|&to| to != me && Some(to) != early) {
                context.send(to, message);
            }
            self.release(context, coherence, round.barrier, value);
        } else if missing == 1 && coherence.releases_early() {
            let last = self.arrived.first_absent(index);
            if last != me {
                gathered.early = Some(last);
                context.send(last, message);
            }
        }
    }

    /// All ranks have arrived. `value` is the root's; the root itself uses its own.
    fn release(&mut self, context: &mut Context, coherence: &mut impl Coherence, barrier: Barrier, value: u64) {
        coherence.pass(barrier);
        let slot = &mut self.slots[barrier as usize];
        let value = match slot.told {
            Some((root, mine)) if root == context.rank() => mine,
            _ => value,
        };
        *slot = Slot { epoch: slot.epoch.wrapping_add(1), ..Slot::default() };
        context.counters_mut().barriers += 1;
        let outcome = if barrier == self.broadcast_number() { Outcome::Value(value) } else { Outcome::Passed };
        for thread in 0..context.waits().len() {
            if context.waits()[thread] == Wait::Barrier(barrier) {
                context.resume(thread as Thread, outcome);
            }
        }
    }

    /// What is known of barriers with waiting threads: which ranks have arrived at those that this rank manages, and who manages the
    /// others where threads of this rank wait.
    pub(crate) fn waited_for(&self, context: &Context) -> Vec<WaitedBarrier> {
        let (me, ranks) = (context.rank(), context.ranks());
        let numbers = 0..self.slots.len() as Barrier;
        let of = |barrier: Barrier| {
            let index = barrier as usize;
            let threads = self.slots[index].arrived;
            let manager = manager(context, barrier);
            let has_come = |rank: &Rank| self.arrived.contains(index, *rank);
            let (come, missing): (Vec<Rank>, Vec<Rank>) = match manager == me {
                true => (0..ranks).partition(has_come),
                false => (Vec::new(), Vec::new()),
            };
            (threads > 0 || !come.is_empty()).then_some(WaitedBarrier {
                barrier: (barrier < self.broadcast_number()).then_some(barrier),
                threads,
                participants: self.participants,
                manager,
                come,
                missing,
            })
        };
        numbers.filter_map(of).collect()
    }

    /// Checks that a message may be about that round of a barrier, which rank `by` manages.
    fn check(&self, context: &Context, round: Round, by: Rank) -> Result<(), Violation> {
        let (barrier, broadcast) = (round.barrier, self.broadcast_number());
        // A barrier other than the broadcast has no root, which is encoded as 0.
        let roots = match barrier.cmp(&broadcast) {
            Ordering::Less => 1,
            Ordering::Equal => context.ranks(),
            Ordering::Greater => 0,
        };
        if round.root >= roots {
            return Err(Violation::OutOfRange);
        }
        if manager(context, barrier) != by {
            return Err(Violation::NotManager);
        }
        if round.epoch != self.slots[barrier as usize].epoch {
            return Err(Violation::Epoch);
        }
        Ok(())
    }

    pub(crate) fn handle_arrival(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        from: Rank,
        round: Round,
        payload: &[u8],
    ) -> Result<(), Violation> {
        self.check(context, round, context.rank())?;
        let index = round.barrier as usize;
        if self.arrived.contains(index, from) {
            return Err(Violation::Repeated);
        }
        if self.gathered[index].count != 0 && self.gathered[index].root != round.root {
            return Err(Violation::Root);
        }
        coherence.acquire(context, from, payload)?;
        self.gather(context, coherence, from, round);
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
        self.check(context, round, from)?;
        let slot = &mut self.slots[round.barrier as usize];
        match slot.told {
            _ if slot.early.is_some() => return Err(Violation::Repeated),
            Some((root, _)) if root != round.root => return Err(Violation::Root),
            _ => {}
        }
        coherence.acquire(context, from, payload)?;
        if slot.is_reported {
            self.release(context, coherence, round.barrier, round.value);
        } else {
            // Only this rank is missing.
            slot.early = Some((round.root, round.value));
        }
        Ok(())
    }
}

fn manager(context: &Context, barrier: Barrier) -> Rank {
    (barrier % u32::from(context.ranks())) as Rank
}
