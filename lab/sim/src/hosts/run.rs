//! Runs a program on a machine, by one agenda of events.

use std::collections::{BTreeMap, VecDeque};

use mapwire_dsm::{Address, Config, Dsm};
use mapwire_node::SharedMemory;
use mapwire_vmmc::service::Service;
use mapwire_wire::Endpoint;

use crate::hardware::processors::{Happened, Processors};
use crate::hardware::wires::{Flight, Orders, Wires};
use crate::hardware::{Agenda, Cost, Ps};

use super::agent::{Agent, Doing, Role, Worker};
use super::machine::{Machine, Notice};
use super::program::{Deed, Program};
use super::{HostsError, Outcome, RankOutcome};

/// Priorities of threads, as those of Windows NT.
const POLLER: u8 = 1;
const PROGRAM: u8 = 8;
pub(super) const SERVER: u8 = 15;

/// Events of a run at most: so many, so many more for each deed, and for each turn that threads compute.
const EVENTS: u64 = 1_000_000;
const EVENTS_OF_A_DEED: u64 = 200;
const EVENTS_OF_A_TURN: u64 = 8;
/// Turns that count for that at most: a run of more takes minutes.
const MOST_TURNS: u64 = 2_500_000;

#[derive(Debug)]
pub(super) enum Event {
    /// The work of a thread is done, or its turn over.
    Processor {
        host: usize,
        at: usize,
        change: u64,
    },
    Arrive(Flight),
    /// The beat of a rank's timer.
    Tick(usize),
    Wake(usize),
    /// The protocol of a rank wants to know the time.
    Time(usize),
    /// A thread has polled for long enough.
    SpinOver {
        agent: usize,
        wait: u64,
    },
}

/// What waits to be handled at a rank.
#[derive(Debug)]
pub(super) enum Incoming {
    Message(Flight),
    Time,
}

#[derive(Debug)]
pub(super) struct Rank {
    pub(super) memory: SharedMemory,
    pub(super) host: usize,
    pub(super) inbox: VecDeque<Incoming>,
    /// The thread that is at a message.
    pub(super) handler: Option<usize>,
    pub(super) workers: Vec<usize>,
    pub(super) server: usize,
    pub(super) poller: Option<usize>,
    /// A beat of its timer is to come.
    pub(super) tick_due: bool,
    /// Its server is being woken.
    pub(super) is_waking: bool,
    pub(super) time_due_ps: Option<Ps>,
    pub(super) time_waits: bool,
    pub(super) outcome: RankOutcome,
}

#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) machine: &'a Machine,
    pub(super) now_ps: Ps,
    pub(super) agenda: Agenda<Event>,
    pub(super) hosts: Vec<Processors>,
    by_thread: Vec<Vec<usize>>,
    pub(super) agents: Vec<Agent>,
    pub(super) ranks: Vec<Rank>,
    pub(super) wires: Wires,
    pub(super) orders: Orders,
    /// Where the program's minipages are.
    pub(super) minipages: Vec<Option<Address>>,
    /// Who begins when a script has done so many deeds.
    pub(super) followers: BTreeMap<(usize, usize), Vec<usize>>,
    pub(super) first_barrier_ps: Option<Ps>,
    pub(super) last_barrier_ps: Option<Ps>,
}

/// Runs a program. Hosts of the ranks in `backgrounds` have a thread more, which computes all the time.
pub fn run(machine: &Machine, program: &Program, backgrounds: &[u16]) -> Result<Outcome, HostsError> {
    let mut run = Run::new(machine, program)?;
    for rank in backgrounds {
        if let Some(host) = run.ranks.get(usize::from(*rank)).map(|rank| rank.host) {
            let agent = run.add(host, *rank, PROGRAM, Role::Background);
            run.wake(agent);
        }
    }
    let deeds: usize = program.scripts.iter().map(|it| it.entries.len()).sum();
    let turns = program.computing_ps() / machine.of(Cost::ThreadTurn).max(1_000_000);
    let of_ranks = EVENTS_OF_A_DEED + u64::from(program.ranks);
    let most = EVENTS + of_ranks * deeds as u64 + EVENTS_OF_A_TURN * turns.min(MOST_TURNS);
    for _ in 0..most {
        run.settle()?;
        if run.is_finished() {
            return Ok(run.outcome());
        }
        let Some((at_ps, event)) = run.agenda.pop() else { return Err(run.hang()) };
        run.now_ps = at_ps;
        run.happen(event)?;
    }
    Err(HostsError::Long(most))
}

impl<'a> Run<'a> {
    fn new(machine: &'a Machine, program: &Program) -> Result<Self, HostsError> {
        let per_host = match machine.ranks_per_host {
            0 => program.ranks.max(1),
            some => some,
        };
        let hosts = usize::from(program.ranks.div_ceil(per_host));
        let processors = || {
            let switch_ps = machine.of(Cost::ThreadSwitch);
            let turn_ps = machine.of(Cost::ThreadTurn);
            Processors::new(machine.processors, switch_ps, turn_ps)
        };
        let mut run = Self {
            machine,
            now_ps: 0,
            agenda: Agenda::new(),
            hosts: (0..hosts).map(|_| processors()).collect(),
            by_thread: vec![Vec::new(); hosts],
            agents: Vec::new(),
            ranks: Vec::new(),
            wires: Wires::new(hosts),
            orders: Orders::default(),
            minipages: vec![None; program.minipages as usize],
            followers: BTreeMap::new(),
            first_barrier_ps: None,
            last_barrier_ps: None,
        };
        let of_rank = |rank| program.scripts.iter().filter(move |it| it.rank == rank);
        let threads = (0..program.ranks).map(|rank| of_rank(rank).count()).max().unwrap_or(0).max(64) as u16;
        for rank in 0..program.ranks {
            let config = Config {
                participants: program.participants,
                hold_ns: machine.hold_ns,
                read_ahead: false,
                ..Config::new(rank, program.ranks, threads, program.pages, program.views)
            };
            let mut memory = SharedMemory::new(Dsm::new(config)?, 1);
            for peer in 0..program.ranks {
                memory.hear(Endpoint::first_of(mapwire_wire::NodeId(peer)));
            }
            let host = usize::from(rank / per_host);
            let server = run.add(host, rank, SERVER, Role::Server);
            let poller = match machine.notice {
                Notice::Polling => Some(run.add(host, rank, POLLER, Role::Poller)),
                _ => None,
            };
            run.ranks.push(Rank {
                memory,
                host,
                inbox: VecDeque::new(),
                handler: None,
                workers: Vec::new(),
                server,
                poller,
                tick_due: false,
                is_waking: false,
                time_due_ps: None,
                time_waits: false,
                outcome: RankOutcome::default(),
            });
            if let Some(poller) = poller {
                run.wake(poller);
            }
        }
        for (number, script) in program.scripts.iter().enumerate() {
            let Some(rank) = run.ranks.get(usize::from(script.rank)) else { continue };
            let thread = rank.workers.len() as u16;
            let worker = Worker::new(number, thread, script);
            let (host, after) = (rank.host, worker.after);
            let agent = run.add(host, script.rank, PROGRAM, Role::Worker(Box::new(worker)));
            run.ranks[usize::from(script.rank)].workers.push(agent);
            match after {
                None => run.wake(agent),
                Some(after) => run.followers.entry(after).or_default().push(agent),
            }
        }
        Ok(run)
    }

    fn add(&mut self, host: usize, rank: u16, priority: u8, role: Role) -> usize {
        let thread = self.hosts[host].add(priority);
        self.by_thread[host].push(self.agents.len());
        self.agents.push(Agent { host, thread, rank, role, steps: VecDeque::new(), current: None, goes: false });
        self.agents.len() - 1
    }

    /// Makes a thread that sleeps ready.
    pub(super) fn wake(&mut self, agent: usize) {
        let Agent { host, thread, .. } = self.agents[agent];
        self.hosts[host].work(self.now_ps, thread, 0);
    }

    /// Enters what processors will do next, and lets threads that have begun to poll look.
    fn settle(&mut self) -> Result<(), HostsError> {
        loop {
            let mut is_settled = true;
            for host in 0..self.hosts.len() {
                while let Some(thread) = self.hosts[host].poll_polling() {
                    let agent = self.by_thread[host][thread];
                    is_settled &= !self.look(agent)?;
                }
                while let Some((at, at_ps, change)) = self.hosts[host].poll_changed() {
                    let event = Event::Processor { host, at, change };
                    self.agenda.enter(at_ps, event);
                }
            }
            if is_settled {
                return Ok(());
            }
        }
    }

    /// A thread that polls looks for messages. Whether there is one.
    fn look(&mut self, agent: usize) -> Result<bool, HostsError> {
        let rank = usize::from(self.agents[agent].rank);
        let looks = !matches!(self.agents[agent].role, Role::Background | Role::Server);
        if !looks || self.ranks[rank].inbox.is_empty() || self.is_handled_by_another(rank, agent) {
            return Ok(false);
        }
        self.go(agent)?;
        Ok(true)
    }

    fn happen(&mut self, event: Event) -> Result<(), HostsError> {
        match event {
            Event::Processor { host, at, change } => {
                if let Happened::Done(thread) = self.hosts[host].handle(self.now_ps, at, change) {
                    let agent = self.by_thread[host][thread];
                    if let Some(effect) = self.agents[agent].current.take() {
                        self.effect(agent, effect)?;
                    }
                    self.go(agent)?;
                }
            }
            Event::Arrive(flight) => {
                let rank = usize::from(flight.to);
                let ready = self.orders.arrive(flight).into_iter();
                self.ranks[rank].inbox.extend(ready.map(Incoming::Message));
                self.notify(rank)?;
            }
            Event::Tick(rank) => self.tick(rank),
            Event::Wake(agent) => {
                let Agent { host, thread, rank, .. } = self.agents[agent];
                if let Role::Server = self.agents[agent].role {
                    self.ranks[usize::from(rank)].is_waking = false;
                }
                if self.hosts[host].is_asleep(thread) {
                    self.wake(agent);
                }
            }
            Event::Time(rank) => self.time(rank)?,
            Event::SpinOver { agent, wait } => self.end_spin(agent, wait),
        }
        Ok(())
    }

    /// Lets a thread that has a processor go on, until it takes time or sleeps.
    pub(super) fn go(&mut self, agent: usize) -> Result<(), HostsError> {
        self.agents[agent].goes = true;
        let gone = self.go_on(agent);
        self.agents[agent].goes = false;
        gone
    }

    fn go_on(&mut self, agent: usize) -> Result<(), HostsError> {
        loop {
            if let Some(step) = self.agents[agent].steps.pop_front() {
                if step.cost_ps == 0 {
                    self.effect(agent, step.effect)?;
                    continue;
                }
                let Agent { host, thread, .. } = self.agents[agent];
                self.agents[agent].current = Some(step.effect);
                self.hosts[host].work(self.now_ps, thread, step.cost_ps);
                return Ok(());
            }
            let goes_on = match self.agents[agent].role {
                Role::Worker(_) => self.next_deed(agent)?,
                Role::Server | Role::Poller => self.serve(agent),
                Role::Background => {
                    let Agent { host, thread, .. } = self.agents[agent];
                    self.hosts[host].poll(self.now_ps, thread);
                    false
                }
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.now_ps / 1000 + 1
    }

    fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.agents.iter().filter_map(|agent| match &agent.role {
            Role::Worker(worker) => Some(&**worker),
            _ => None,
        })
    }

    fn is_finished(&self) -> bool {
        self.workers().all(|worker| worker.doing == Doing::Finished)
    }

    /// Why nothing happens any more: of the threads that wait, one that waits for another rather than for all.
    fn hang(&self) -> HostsError {
        let waits = |worker: &&Worker| worker.doing != Doing::Finished;
        let waiting = self.workers().filter(waits).count();
        let for_all = |worker: &&Worker| {
            let deed = worker.entry().map(|entry| entry.deed);
            let is_meeting = matches!(deed, Some(Deed::Barrier(_) | Deed::Broadcast(_)));
            (is_meeting || worker.doing == Doing::NotBegun, worker.rank)
        };
        let one = self.workers().filter(waits).min_by_key(for_all);
        let entry = one.and_then(Worker::entry);
        HostsError::Hangs {
            at_ps: self.now_ps,
            rank: one.map_or(0, |worker| worker.rank),
            deed: entry.map_or("its end", |entry| entry.deed.name()),
            at: entry.map_or(0, |entry| entry.number),
            waiting,
        }
    }

    fn outcome(&mut self) -> Outcome {
        let mut ranks = Vec::new();
        let mut total_ps = 0;
        for rank in &self.ranks {
            let mut outcome = rank.outcome;
            for agent in [Some(rank.server), rank.poller].into_iter().flatten() {
                let Agent { host, thread, .. } = self.agents[agent];
                if Some(agent) != rank.poller {
                    outcome.serving_ps += self.hosts[host].used_ps(self.now_ps, thread);
                }
            }
            total_ps = total_ps.max(outcome.finished_ps);
            ranks.push(outcome);
        }
        let work = self.first_barrier_ps.zip(self.last_barrier_ps);
        Outcome {
            total_ps,
            work_ps: work.and_then(|(first, last)| (last > first).then(|| last - first)),
            messages: self.orders.messages,
            bytes: self.orders.bytes,
            ranks,
        }
    }

    /// Has the protocol of a rank be told the time when it wants.
    pub(super) fn set_timer(&mut self, rank: usize) {
        let Some(at_ns) = self.ranks[rank].memory.poll_at() else { return };
        let at_ps = (at_ns.saturating_sub(1) * 1000).max(self.now_ps);
        if self.ranks[rank].time_due_ps.is_none_or(|due| at_ps < due) {
            self.ranks[rank].time_due_ps = Some(at_ps);
            self.agenda.enter(at_ps, Event::Time(rank));
        }
    }
}
