//! Messages at a rank: who handles them, and what that takes.

use mapwire_dsm::Message;
use mapwire_node::SharedMemory;
use mapwire_vmmc::service::Service;
use mapwire_wire::{Endpoint, NodeId};

use crate::hardware::wires::Flight;
use crate::hardware::{Cost, Ps};

use super::HostsError;
use super::agent::{Agent, Doing, Effect, Role};
use super::machine::Notice;
use super::run::{Event, Incoming, Run, SERVER};

impl Run<'_> {
    /// Something has come for a rank: sees to it that a thread handles it.
    pub(super) fn notify(&mut self, rank: usize) -> Result<(), HostsError> {
        if self.ranks[rank].inbox.is_empty() {
            return Ok(());
        }
        match self.machine.notice {
            Notice::Interrupts => self.wake_server(rank),
            Notice::Polling => {
                let poller = self.ranks[rank].poller;
                match poller.filter(|&poller| self.polls(poller)) {
                    Some(poller) => self.go(poller)?,
                    None => self.await_tick(rank),
                }
            }
            Notice::Waiters => match self.polling_worker(rank) {
                Some(worker) => self.go(worker)?,
                None => self.wake_server(rank),
            },
        }
        Ok(())
    }

    fn polls(&self, agent: usize) -> bool {
        let Agent { host, thread, .. } = self.agents[agent];
        self.hosts[host].is_polling(thread) && !self.agents[agent].goes
    }

    fn polling_worker(&self, rank: usize) -> Option<usize> {
        self.ranks[rank].workers.iter().copied().into_iter().find(|&worker| self.polls(worker))
    }

    /// An interrupt or a signal wakes the thread that handles messages, unless it is awake.
    fn wake_server(&mut self, rank: usize) {
        let server = self.ranks[rank].server;
        let Agent { host, thread, .. } = self.agents[server];
        if !self.ranks[rank].is_waking && self.hosts[host].is_asleep(thread) {
            self.ranks[rank].is_waking = true;
            self.wake_later(server);
        }
    }

    fn wake_later(&mut self, agent: usize) {
        let at_ps = self.now_ps + self.machine.of(Cost::WakeDelay);
        self.agenda.enter(at_ps, Event::Wake(agent));
    }

    /// The thread that looks at the beat of a timer will find what has come. Timers of ranks beat at different times, evenly apart.
    fn await_tick(&mut self, rank: usize) {
        if self.ranks[rank].tick_due {
            return;
        }
        self.ranks[rank].tick_due = true;
        let period_ps = self.machine.of(Cost::PollPeriod).max(1);
        let phase_ps = period_ps * rank as Ps / self.ranks.len() as Ps;
        let since_ps = (self.now_ps + period_ps - phase_ps) % period_ps;
        self.agenda.enter(self.now_ps + period_ps - since_ps, Event::Tick(rank));
    }

    /// The timer of a rank beats.
    pub(super) fn tick(&mut self, rank: usize) {
        self.ranks[rank].tick_due = false;
        let server = self.ranks[rank].server;
        let Agent { host, thread, .. } = self.agents[server];
        if !self.ranks[rank].inbox.is_empty() && self.hosts[host].is_asleep(thread) {
            let look_ps = self.machine.of(Cost::PollNothing);
            self.agents[server].push(look_ps, Effect::Nothing);
            self.wake(server);
        }
    }

    /// The protocol of a rank wants to know the time, if it still does.
    pub(super) fn time(&mut self, rank: usize) -> Result<(), HostsError> {
        let now_ns = self.now_ns();
        let rank_state = &mut self.ranks[rank];
        rank_state.time_due_ps = None;
        match rank_state.memory.poll_at() {
            Some(at_ns) if at_ns <= now_ns => {
                if !rank_state.time_waits {
                    rank_state.time_waits = true;
                    rank_state.inbox.push_back(Incoming::Time);
                }
                self.notify(rank)
            }
            Some(_) => {
                self.set_timer(rank);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A thread that handles messages goes on to the next, or has none. Whether it goes on.
    pub(super) fn serve(&mut self, agent: usize) -> bool {
        if self.take(agent) {
            return true;
        }
        let Agent { host, thread, .. } = self.agents[agent];
        match self.agents[agent].role {
            Role::Poller => {
                self.hosts[host].poll(self.now_ps, thread);
                self.hosts[host].boost(self.now_ps, thread, None);
            }
            _ => self.hosts[host].sleep(self.now_ps, thread),
        }
        false
    }

    /// A thread takes the next message of its rank. Whether there was one.
    pub(super) fn take(&mut self, agent: usize) -> bool {
        let rank = usize::from(self.agents[agent].rank);
        if self.is_handled_by_another(rank, agent) {
            return false;
        }
        let (cost_ps, effect) = match self.ranks[rank].inbox.pop_front() {
            None => return false,
            Some(Incoming::Time) => {
                self.ranks[rank].time_waits = false;
                (0, Effect::Time)
            }
            Some(Incoming::Message(flight)) => (self.handling_ps(&flight), Effect::Handle(flight)),
        };
        let Agent { host, thread, .. } = self.agents[agent];
        if let Role::Poller = self.agents[agent].role {
            // A thread that has begun to handle a message is not kept from its end.
            self.hosts[host].boost(self.now_ps, thread, Some(SERVER));
            self.ranks[rank].outcome.serving_ps += cost_ps;
        }
        self.ranks[rank].handler = Some(agent);
        self.agents[agent].push(cost_ps, effect);
        true
    }

    /// Whether another thread is at a message of the rank: one is handled after the other.
    pub(super) fn is_handled_by_another(&self, rank: usize, agent: usize) -> bool {
        self.ranks[rank].handler.is_some_and(|other| other != agent)
    }

    /// What a message takes its receiver, up to the answer.
    fn handling_ps(&self, flight: &Flight) -> Ps {
        let machine = self.machine;
        let receive_ps = machine.receive_ps(flight.bytes.len() as u64, flight.data_bytes);
        let handle_ps = match Message::parse(&flight.bytes) {
            Ok((Message::Request { .. }, _)) => machine.of(Cost::HandleRequest) + machine.of(Cost::LookupMinipage),
            Ok((
                Message::Refuse { .. }
                | Message::Forward { .. }
                | Message::Grant { .. }
                | Message::Invalidate { .. }
                | Message::InvalidateAck { .. }
                | Message::Done { .. },
                _,
            )) => machine.of(Cost::HandleRequest),
            _ => machine.of(Cost::HandleSync),
        };
        receive_ps + handle_ps
    }

    pub(super) fn effect(&mut self, agent: usize, effect: Effect) -> Result<(), HostsError> {
        let rank = usize::from(self.agents[agent].rank);
        let now_ns = self.now_ns();
        match effect {
            Effect::Nothing => {}
            Effect::Call => self.call(agent)?,
            Effect::Handle(flight) => {
                let memory = &mut self.ranks[rank].memory;
                let from = Endpoint::first_of(NodeId(flight.from));
                // Bytes of minipages that a message will follow are only stored. A rank that breaks the protocol ends the memory, which
                // is asked next.
                if !flight.bytes.is_empty() {
                    let _ = memory.handle_message(now_ns, from, &flight.bytes);
                }
                if let Some(end) = memory.end() {
                    let rank = rank as u16;
                    return Err(HostsError::Ended { rank, end });
                }
                self.ranks[rank].handler = None;
                self.drain(agent);
            }
            Effect::Time => {
                self.ranks[rank].handler = None;
                self.ranks[rank].memory.handle_time(now_ns);
                self.drain(agent);
            }
            Effect::Transmit(flight) => self.transmit(agent, flight),
            Effect::Outcomes => self.outcomes(agent, rank)?,
            Effect::Wake(other) => self.wake_later(other),
        }
        Ok(())
    }

    /// What the protocol asks for becomes steps of the thread that runs it.
    pub(super) fn drain(&mut self, agent: usize) {
        let machine = self.machine;
        let rank = usize::from(self.agents[agent].rank);
        let from = rank as u16;
        while let Some(action) = SharedMemory::poll_action(&mut self.ranks[rank].memory) {
            let Some(flight) = self.orders.make_asked(from, &action) else {
                let cost_ps = machine.of(Cost::SetProtection);
                self.agents[agent].push(cost_ps, Effect::Nothing);
                continue;
            };
            let cost_ps = machine.send_ps(flight.bytes.len() as u64, flight.data_bytes);
            self.agents[agent].push(cost_ps, Effect::Transmit(flight));
        }
        self.agents[agent].push(0, Effect::Outcomes);
        self.set_timer(rank);
    }

    /// A message leaves the host.
    fn transmit(&mut self, agent: usize, flight: Flight) {
        let to = usize::from(flight.to);
        let (from_host, to_host) = (self.agents[agent].host, self.ranks[to].host);
        let long_ps = (flight.bytes.len() as u64 + flight.data_bytes) * self.machine.of(Cost::WireByte);
        let latency_ps = self.machine.of(Cost::WireLatency);
        let at_ps = if from_host == to_host {
            self.now_ps + long_ps + latency_ps
        } else {
            self.wires.pass((from_host, to_host), (self.now_ps, 0), (long_ps, latency_ps)).tail_ps
        };
        if self.machine.notice == Notice::Waiters && self.polling_worker(to).is_none() {
            // The sender itself wakes a thread there.
            let signal_ps = self.machine.of(Cost::Signal);
            self.agents[agent].steps.push_front(super::agent::Step { cost_ps: signal_ps, effect: Effect::Nothing });
        }
        self.agenda.enter(at_ps, Event::Arrive(flight));
    }

    /// Threads of a rank whose calls are over go on.
    fn outcomes(&mut self, agent: usize, rank: usize) -> Result<(), HostsError> {
        for at in 0..self.ranks[rank].workers.len() {
            let other = self.ranks[rank].workers[at];
            if other == agent {
                continue;
            }
            let Some(worker) = self.agents[other].worker() else { continue };
            if worker.doing != Doing::Waiting {
                continue;
            }
            let thread = worker.thread;
            let Some(outcome) = self.ranks[rank].memory.take_outcome(thread) else { continue };
            self.finish_call(other, outcome)?;
            let is_stepping = self.agents[other].current.is_some() || !self.agents[other].steps.is_empty();
            if is_stepping {
                // It handles a message, and finds that its call is over when it has done so.
                continue;
            }
            let Agent { host, thread, .. } = self.agents[other];
            if self.hosts[host].is_asleep(thread) {
                let signal_ps = self.machine.of(Cost::Signal);
                self.agents[agent].push(signal_ps, Effect::Wake(other));
            } else {
                // It polls, now or as soon as it has a processor.
                self.hosts[host].work(self.now_ps, thread, 0);
            }
        }
        Ok(())
    }
}
