//! Events.

use mapwire_nic::Dma;
use mapwire_wire::NodeId;

use super::engine::{Then, Transfer, takes};
use super::event::Event;
use super::jobs::report;
use super::nic::{FINDS_TABLE, Step, TRANSLATES, rates};
use super::program::Wait;
use super::{Computers, ComputersError};
use crate::hardware::memory::BadAccess;
use crate::hardware::{Cost, Lane, Ps, US};

impl Computers {
    /// Lets time pass until nothing happens any more.
    pub fn run(&mut self) -> Result<(), ComputersError> {
        while self.failed.is_none() {
            let Some((at_ps, event)) = self.agenda.pop() else { break };
            self.now_ps = at_ps;
            self.happen(event);
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut stuck = self.programs.iter();
        match stuck.find(|runner| runner.wait != Wait::Ended) {
            Some(runner) => Err(ComputersError::Stuck { node: runner.of.node, process: runner.of.process }),
            None => Ok(()),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Nic { node, plan } => {
                if self.computers[node].nic.processor.is_planned(plan) {
                    self.end_work(node);
                    self.run_nic(node);
                }
            }
            Event::Engine(node) => self.end_transfer(node),
            Event::Comes(node) => self.change_dma(node, true, true),
            Event::Sent(node) => self.sent(node),
            Event::Arrive(slot) => self.arrive(slot),
            Event::Host { node, at, change } => self.run_host(node, at, change),
            Event::Handler(node) => self.begin_handling(node),
            Event::Program(program) => self.run_program(program),
            Event::Late(node, then) => {
                self.deliver(node, *then);
                self.go_on(node);
            }
            Event::Link(event) => self.link_event(event),
            Event::Timer(node) => {
                let computer = &mut self.computers[node];
                if computer.nic.timer_ps == Some(self.now_ps) {
                    computer.nic.timer_ps = None;
                    computer.node.handle_time(self.now_ps / 1000 + 1);
                    self.told(node);
                    self.set_timer(node);
                    self.wake_nic(node);
                }
            }
        }
    }

    /// Does the steps that take no time, up to one that does.
    fn run_nic(&mut self, node: usize) {
        loop {
            let Some(job) = &mut self.computers[node].nic.job else {
                let Some(steps) = self.next_job(node) else { return };
                self.computers[node].nic.job = Some(steps);
                continue;
            };
            let Some(step) = job.pop_front() else {
                let nic = &mut self.computers[node].nic;
                (nic.job, nic.free_ps) = (None, Some(self.now_ps));
                self.set_timer(node);
                continue;
            };
            match step {
                Step::Work(ps, label) => {
                    if self.begin_work(node, ps, label) {
                        return;
                    }
                }
                Step::Queue(transfer) => {
                    self.computers[node].engine.waiting.push_back(transfer);
                }
                Step::Table(bytes) => {
                    let computer = &mut self.computers[node];
                    computer.nic.awaits_table = true;
                    computer.nic.table_since_ps = self.now_ps;
                    computer.engine.waiting.push_front(Transfer { bytes, label: "table from host", then: Then::Table });
                }
                Step::AwaitTable => {
                    let computer = &mut self.computers[node];
                    if computer.nic.awaits_table {
                        self.put_back(node, Step::AwaitTable);
                        if !self.computers[node].engine.can_begin() {
                            return;
                        }
                        self.put_back(node, Step::Program);
                    } else {
                        let since_ps = computer.nic.table_since_ps;
                        computer.load.lookups_ps += self.now_ps - since_ps;
                    }
                }
                Step::Program => {
                    let setup_ps = self.profile.of(Cost::DmaSetup);
                    self.put_back(node, Step::Begin);
                    if self.begin_work(node, setup_ps, "programs DMA") {
                        return;
                    }
                }
                Step::Begin => self.begin_transfer(node),
                Step::Command(process, posted) => {
                    let steps = self.take_command(node, process, &posted);
                    self.append(node, steps);
                }
                Step::Transmit(parcel) => self.transmit(node, parcel),
                Step::Resend { to, first, most } => {
                    let steps = self.resend(node, to, first, most);
                    self.append(node, steps);
                }
                Step::Again(parcel) => self.transmit_again(node, parcel),
                Step::Ask { from, first } => self.asked(node, from, first),
                Step::Take(slot) => {
                    let steps = self.take_packet(node, slot);
                    self.append(node, steps);
                }
            }
        }
    }

    /// The processor looks for something to do, behind what happens at the same time.
    pub(super) fn wake_nic(&mut self, node: usize) {
        if self.computers[node].nic.job.is_none() {
            self.plan_nic(node, self.now_ps);
        }
    }

    fn plan_nic(&mut self, node: usize, at_ps: Ps) {
        let plan = self.computers[node].nic.processor.plan();
        self.enter_nic(node, Some((at_ps, plan)));
    }

    fn enter_nic(&mut self, node: usize, planned: Option<(Ps, u64)>) {
        if let Some((at_ps, plan)) = planned {
            self.agenda.enter(at_ps, Event::Nic { node, plan });
        }
    }

    /// Begins a part of a job. Whether that takes time.
    fn begin_work(&mut self, node: usize, left_ps: Ps, label: &'static str) -> bool {
        if left_ps > 0 {
            let rates = rates(&self.profile);
            let end = self.computers[node].nic.processor.begin(self.now_ps, left_ps, label, rates);
            self.enter_nic(node, end);
        }
        left_ps > 0
    }

    /// The work in progress is done.
    fn end_work(&mut self, node: usize) {
        let computer = &mut self.computers[node];
        if let Some((label, took_ps)) = computer.nic.processor.end(self.now_ps, node, &mut self.timeline) {
            computer.load.nic_ps += took_ps;
            if [TRANSLATES, FINDS_TABLE].contains(&label) {
                computer.load.lookups_ps += took_ps;
            }
        }
    }

    /// A transfer begins or ends.
    pub(super) fn change_dma(&mut self, node: usize, is_wire: bool, begins: bool) {
        let end = self.computers[node].nic.processor.change_dma(self.now_ps, is_wire, begins);
        self.enter_nic(node, end);
    }

    fn put_back(&mut self, node: usize, step: Step) {
        if let Some(job) = &mut self.computers[node].nic.job {
            job.push_front(step);
        }
    }

    fn append(&mut self, node: usize, steps: impl IntoIterator<Item = Step>) {
        if let Some(job) = &mut self.computers[node].nic.job {
            job.extend(steps);
        }
    }

    /// The engine begins the transfer that was programmed.
    fn begin_transfer(&mut self, node: usize) {
        let computer = &mut self.computers[node];
        let Some(transfer) = computer.engine.waiting.pop_front() else { return };
        let takes_ps = takes(&self.profile, transfer.bytes);
        computer.engine.current = Some((transfer, self.now_ps));
        self.change_dma(node, false, true);
        self.agenda.enter(self.now_ps + takes_ps, Event::Engine(node));
    }

    /// The engine has transferred: what it moved is there.
    fn end_transfer(&mut self, node: usize) {
        self.change_dma(node, false, false);
        let computer = &mut self.computers[node];
        let Some((transfer, since_ps)) = computer.engine.current.take() else { return };
        computer.load.engine_ps += self.now_ps - since_ps;
        let span = (since_ps, self.now_ps);
        self.timeline.note(node, Lane::HostDma, transfer.label, span);
        match transfer.then.late_ps(&self.profile) {
            0 => self.deliver(node, transfer.then),
            late_ps => self.agenda.enter(self.now_ps + late_ps, Event::Late(node, Box::new(transfer.then))),
        }
        self.go_on(node);
    }

    /// What was transferred has got to where it goes.
    fn deliver(&mut self, node: usize, then: Then) {
        match then {
            Then::Loaded(parcel, told) => self.computers[node].nic.ended.push_back((parcel, told)),
            Then::Stored { parcel, dma, is_last } => self.stored(node, parcel, &dma, is_last),
            Then::Complete(process, word) => self.changed(node, process, Some(word)),
            Then::Table => self.computers[node].nic.awaits_table = false,
        }
    }

    /// The NIC's processor goes on, if it waited for the engine.
    fn go_on(&mut self, node: usize) {
        let nic = &self.computers[node].nic;
        match nic.job {
            // It waits for table entries.
            Some(_) if !nic.processor.works() => self.plan_nic(node, self.now_ps),
            _ => self.wake_nic(node),
        }
    }

    /// A move of a packet that came is done.
    fn stored(&mut self, node: usize, slot: usize, dma: &Dma, is_last: bool) {
        let computer = &mut self.computers[node];
        let Some(parcel) = &self.flights[slot] else { return };
        let old = computer.memory.carry_out(parcel.packet.body(), dma, None).unwrap_or_else(|BadAccess(text)| {
            let node = NodeId(node as u16);
            self.failed.get_or_insert(ComputersError::Host { node, text });
            0
        });
        computer.node.handle_moved(dma, old);
        if is_last {
            self.free_buffer(slot);
        }
        for told in self.told(node) {
            if let Some(Step::Queue(transfer)) = report(&told) {
                self.computers[node].engine.waiting.push_back(transfer);
            }
        }
        self.changed(node, dma.process, None);
    }

    /// Notes when the links of a node want to be called.
    pub(super) fn set_timer(&mut self, node: usize) {
        let computer = &mut self.computers[node];
        let Some(at_ns) = computer.node.poll_at() else { return };
        // What is late already waits for the NIC's processor, and needs no further call at once.
        let at_ps = (at_ns * 1000).max(self.now_ps + US);
        if computer.nic.timer_ps.is_none_or(|set_ps| set_ps > at_ps) {
            computer.nic.timer_ps = Some(at_ps);
            self.agenda.enter(at_ps, Event::Timer(node));
        }
    }
}
