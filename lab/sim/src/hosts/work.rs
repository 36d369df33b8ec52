//! Threads of the program: deeds one after the other.

use mapwire_dsm::{Access, Address, AllocOptions, Error, Outcome as DsmOutcome, PAGE_BYTES, Progress, Unit};
use mapwire_node::SharedEnd;

use crate::hardware::Cost;

use super::HostsError;
use super::agent::{Agent, Doing, Effect, Worker};
use super::machine::Notice;
use super::program::Deed;
use super::run::{Event, Run};

const fn access(writes: bool) -> Access {
    if writes { Access::Write } else { Access::Read }
}

impl Run<'_> {
    fn worker(&mut self, agent: usize) -> Option<&mut Worker> {
        self.agents[agent].worker()
    }

    /// A thread of the program goes on. Whether it does, rather than waiting.
    pub(super) fn next_deed(&mut self, agent: usize) -> Result<bool, HostsError> {
        let Some(worker) = self.worker(agent) else { return Ok(false) };
        match worker.doing {
            Doing::NotBegun | Doing::Ready => Ok(self.begin(agent)),
            Doing::Stepping => {
                self.finish(agent);
                Ok(true)
            }
            Doing::Waiting => {
                let (rank, thread) = (usize::from(worker.rank), worker.thread);
                if let Some(outcome) = self.ranks[rank].memory.take_outcome(thread) {
                    self.finish_call(agent, outcome)?;
                    // Who leaves has others handle what has come meanwhile.
                    self.notify(rank)?;
                    return Ok(true);
                }
                Ok(self.wait(agent))
            }
            Doing::WaitingForMinipage(minipage) => {
                let is_there = self.minipages[minipage as usize].is_some();
                if is_there && let Some(worker) = self.worker(agent) {
                    worker.doing = Doing::Ready;
                    return Ok(true);
                }
                self.sleep(agent);
                Ok(false)
            }
            Doing::Finished => {
                self.sleep(agent);
                Ok(false)
            }
        }
    }

    fn sleep(&mut self, agent: usize) {
        let Agent { host, thread, .. } = self.agents[agent];
        self.hosts[host].sleep(self.now_ps, thread);
    }

    /// A thread waits for its outcome: by polling for some time where that is how ranks wait. Whether it has something to do.
    fn wait(&mut self, agent: usize) -> bool {
        let Agent { host, thread, .. } = self.agents[agent];
        let spin_ps = self.machine.of(Cost::Spin);
        if self.machine.notice != Notice::Waiters {
            self.sleep(agent);
            return false;
        }
        if self.take(agent) {
            return true;
        }
        if spin_ps == 0 || self.hosts[host].is_crowded() {
            self.sleep(agent);
            return false;
        }
        let now_ps = self.now_ps;
        if let Some(worker) = self.worker(agent) {
            worker.wait += 1;
            let wait = worker.wait;
            self.agenda.enter(now_ps + spin_ps, Event::SpinOver { agent, wait });
            self.hosts[host].poll(now_ps, thread);
        }
        false
    }

    /// A thread has polled for long enough, if it still does.
    pub(super) fn end_spin(&mut self, agent: usize, wait: u64) {
        let Agent { host, thread, .. } = self.agents[agent];
        if self.agents[agent].current.is_some() || !self.agents[agent].steps.is_empty() {
            return;
        }
        let is_stale = self.worker(agent).is_none_or(|worker| worker.wait != wait || worker.doing != Doing::Waiting);
        if !is_stale {
            self.hosts[host].sleep(self.now_ps, thread);
        }
    }

    /// Begins the next deed. Whether there is something to do.
    fn begin(&mut self, agent: usize) -> bool {
        let now_ps = self.now_ps;
        let machine = self.machine;
        let Some(worker) = self.worker(agent) else { return false };
        worker.since_ps = now_ps;
        let rank = usize::from(worker.rank);
        let Some(entry) = worker.entry() else {
            worker.doing = Doing::Finished;
            let finished_ps = &mut self.ranks[rank].outcome.finished_ps;
            *finished_ps = (*finished_ps).max(now_ps);
            return true;
        };
        worker.doing = Doing::Stepping;
        let local_ps = machine.of(Cost::LocalCall);
        let (cost_ps, effect) = match entry.deed {
            Deed::Compute(work_ps) => (machine.slowed(work_ps), Effect::Nothing),
            Deed::Touch { minipage, writes } => {
                let Some(address) = self.minipages[minipage as usize] else {
                    return self.await_minipage(agent, minipage);
                };
                let page = address.offset_bytes / PAGE_BYTES;
                let known = self.ranks[rank].memory.dsm().minipage_at(address.view, page);
                match known {
                    Some((_, may)) if may.allows(access(writes)) => (0, Effect::Nothing),
                    _ => {
                        self.ranks[rank].outcome.faults += 1;
                        let look_ps = machine.of(Cost::ReadProtection);
                        (machine.of(Cost::AccessFault) + look_ps, Effect::Call)
                    }
                }
            }
            Deed::Prefetch { minipage, .. } if self.minipages[minipage as usize].is_none() => {
                return self.await_minipage(agent, minipage);
            }
            Deed::Barrier(_) => (local_ps + machine.of(Cost::BarrierCall), Effect::Call),
            _ => (local_ps, Effect::Call),
        };
        self.agents[agent].push(cost_ps, effect);
        true
    }

    fn await_minipage(&mut self, agent: usize, minipage: u32) -> bool {
        if let Some(worker) = self.worker(agent) {
            worker.doing = Doing::WaitingForMinipage(minipage);
        }
        true
    }

    /// A thread makes its call of the shared memory.
    pub(super) fn call(&mut self, agent: usize) -> Result<(), HostsError> {
        let now_ns = self.now_ns();
        let Some(worker) = self.worker(agent) else { return Ok(()) };
        let (rank, thread) = (usize::from(worker.rank), worker.thread);
        let Some(entry) = worker.entry() else { return Ok(()) };
        let at = |minipage: u32, minipages: &[Option<Address>]| {
            let address = minipages[minipage as usize].unwrap_or(Address { view: 0, offset_bytes: 0 });
            (address.view, address.offset_bytes / PAGE_BYTES)
        };
        let (minipages, dsm) = (&self.minipages, self.ranks[rank].memory.dsm_mut());
        let pending = |done: Result<(), Error>| done.map(|()| Progress::Pending);
        let over = |done: Result<(), Error>| done.map(|()| Progress::Done);
        let progress = match entry.deed {
            Deed::Compute(_) => Ok(Progress::Done),
            Deed::Allocate { bytes, .. } => {
                let options = AllocOptions { unit: Unit::Whole, ..AllocOptions::default() };
                pending(dsm.alloc_with(thread, bytes, options))
            }
            Deed::Touch { minipage, writes } => {
                let (view, page) = at(minipage, minipages);
                dsm.handle_fault(now_ns, thread, view, page, access(writes))
            }
            Deed::Prefetch { minipage, writes } => {
                let (view, page) = at(minipage, minipages);
                let asked = dsm.prefetch(now_ns, thread, view, page, access(writes));
                over(asked.map(|_| ()))
            }
            Deed::Lock(lock) => dsm.lock(thread, lock),
            Deed::Unlock(lock) => over(dsm.unlock(thread, lock)),
            Deed::Barrier(barrier) => pending(dsm.barrier(thread, barrier)),
            Deed::Broadcast(root) => pending(dsm.broadcast(thread, root, 0)),
            Deed::Participants(participants) => over(dsm.set_participants(participants)),
        };
        let progress = progress.map_err(|error| HostsError::Refused {
            rank: rank as u16,
            deed: entry.deed.name(),
            at: entry.number,
            error,
        })?;
        if let (Progress::Pending, Some(worker)) = (progress, self.worker(agent)) {
            worker.doing = Doing::Waiting;
        }
        self.drain(agent);
        Ok(())
    }

    /// The call of a thread is over: its deed is done as soon as it goes on.
    pub(super) fn finish_call(
        &mut self,
        agent: usize,
        outcome: Result<DsmOutcome, SharedEnd>,
    ) -> Result<(), HostsError> {
        let Some(worker) = self.worker(agent) else { return Ok(()) };
        let rank = worker.rank;
        let Some(entry) = worker.entry() else { return Ok(()) };
        match (outcome, entry.deed) {
            (Err(end), _) => return Err(HostsError::Ended { rank, end }),
            (Ok(DsmOutcome::Failed(error)), deed) => {
                return Err(HostsError::Refused { rank, deed: deed.name(), at: entry.number, error });
            }
            (Ok(DsmOutcome::Allocated(address)), Deed::Allocate { minipage, .. }) => {
                self.minipages[minipage as usize] = Some(address);
                self.wake_for_minipage(minipage);
            }
            _ => {}
        }
        if let Some(worker) = self.worker(agent) {
            worker.doing = Doing::Stepping;
        }
        Ok(())
    }

    fn wake_for_minipage(&mut self, minipage: u32) {
        for agent in 0..self.agents.len() {
            let waits = self.worker(agent).is_some_and(|worker| worker.doing == Doing::WaitingForMinipage(minipage));
            let Agent { host, thread, .. } = self.agents[agent];
            if waits && self.hosts[host].is_asleep(thread) {
                self.wake(agent);
            }
        }
    }

    fn finish(&mut self, agent: usize) {
        let now_ps = self.now_ps;
        let Some(worker) = self.worker(agent) else { return };
        let took_ps = now_ps - worker.since_ps;
        let (rank, thread) = (usize::from(worker.rank), worker.thread);
        let deed = worker.entry().map(|entry| entry.deed);
        worker.doing = Doing::Ready;
        worker.at += 1;
        worker.wait += 1;
        let place = (worker.script, worker.at);
        if let (0, Some(deed)) = (thread, deed) {
            let spent = &mut self.ranks[rank].outcome.spent;
            match deed {
                Deed::Compute(_) => spent.computing_ps += took_ps,
                Deed::Touch { .. } | Deed::Prefetch { .. } => spent.faults_ps += took_ps,
                Deed::Lock(_) | Deed::Unlock(_) => spent.locks_ps += took_ps,
                Deed::Barrier(_) | Deed::Broadcast(_) => spent.barriers_ps += took_ps,
                Deed::Allocate { .. } | Deed::Participants(_) => {}
            }
            if rank == 0 && matches!(deed, Deed::Barrier(_)) {
                self.first_barrier_ps.get_or_insert(now_ps);
                self.last_barrier_ps = Some(now_ps);
            }
        }
        for follower in self.followers.remove(&place).unwrap_or_default() {
            self.wake(follower);
        }
    }
}
