//! Time passes: what NICs and hosts do at each event.

use mapwire_gms::Scanned;

use super::call::Ask;
use super::flight::{Flight, is_for_directory};
use super::host::{HostJob, Phase};
use super::nic::{Job, Step, Transfer};
use super::profile::Cost;
use super::timeline::Lane;
use super::{Machine, MachineError, Placement, Told, refused};

/// Something that happens at a node.
#[derive(Debug)]
pub(super) enum Event {
    /// The NIC's processor ends a step of this plan.
    Nic { node: usize, plan: u64 },
    /// The host ends a phase.
    Host { node: usize },
    /// A transfer begins or ends.
    Dma { node: usize, is_wire: bool, begins: bool },
    /// A message is there, or its head if a page follows.
    Arrive { node: usize, flight: Flight },
    /// The program makes a call.
    Ask { node: usize, ask: Ask },
}

impl Machine {
    /// Lets time pass up to the next outcome or bare message, and gives it; `None` once nothing happens any more.
    pub fn poll_told(&mut self) -> Result<Option<Told>, MachineError> {
        loop {
            if let Some(told) = self.told.pop_front() {
                return Ok(Some(told));
            }
            let Some((at_ps, event)) = self.agenda.pop() else { return Ok(None) };
            self.now_ps = at_ps;
            self.happen(event)?;
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), MachineError> {
        match event {
            Event::Nic { node, plan } => {
                if self.nodes[node].nic.plan == plan {
                    self.end_compute(node);
                    self.run_nic(node)?;
                }
            }
            Event::Host { node } => self.run_host(node)?,
            Event::Dma { node, is_wire, begins } => {
                let nic = &mut self.nodes[node].nic;
                nic.change_dma(&self.jobs.profile, self.now_ps, is_wire, begins);
                if nic.computes() {
                    self.plan_compute(node);
                }
            }
            Event::Arrive { node, flight } => {
                for flight in self.orders.arrive((flight.from.0, node as u16), flight.number, flight) {
                    let is_mine = self.jobs.placement != Placement::Host;
                    let job = if is_mine && is_for_directory(&flight.bytes) {
                        self.jobs.operate(flight)
                    } else {
                        self.jobs.receive(flight)
                    };
                    self.give_nic(node, job);
                }
            }
            Event::Ask { node, ask } => self.give_host(node, HostJob::Ask(ask)),
        }
        Ok(())
    }

    /// Adds a job for a NIC.
    pub(super) fn give_nic(&mut self, node: usize, job: Job) {
        let nic = &mut self.nodes[node].nic;
        nic.queue.push_back(job);
        if nic.job.is_none() && !nic.computes() {
            // It begins now, behind what happens at the same time.
            self.wake_nic(node, self.now_ps);
        }
    }

    fn wake_nic(&mut self, node: usize, at_ps: u64) {
        let nic = &mut self.nodes[node].nic;
        nic.plan += 1;
        let plan = nic.plan;
        self.agenda.enter(at_ps, Event::Nic { node, plan });
    }

    /// Plans the end of the work in progress anew.
    fn plan_compute(&mut self, node: usize) {
        self.nodes[node].nic.plan += 1;
        if let Some(at_ps) = self.nodes[node].nic.ends_at(&self.jobs.profile) {
            self.wake_nic(node, at_ps);
        }
    }

    fn end_compute(&mut self, node: usize) {
        if let Some((label, began_ps)) = self.nodes[node].nic.end() {
            let span = (began_ps, self.now_ps);
            self.timeline.note(node, Lane::Nic, label, span);
        }
    }

    /// Does the steps that take no time, up to one that does.
    fn run_nic(&mut self, node: usize) -> Result<(), MachineError> {
        loop {
            let now_ps = self.now_ps;
            let nic = &mut self.nodes[node].nic;
            let Some(job) = &mut nic.job else {
                let Some(job) = nic.queue.pop_front() else { return Ok(()) };
                nic.job = Some(job);
                nic.job_began_ps = now_ps;
                continue;
            };
            let Some(step) = job.steps.pop_front() else {
                self.end_job(node);
                continue;
            };
            match step {
                Step::Compute(work_ps, code, label) => {
                    nic.begin(now_ps, work_ps, code, label);
                    self.plan_compute(node);
                    return Ok(());
                }
                Step::Dma { .. } => self.begin_transfer(node, step),
                Step::Await(_) | Step::AwaitEnd => {
                    let transfer = nic.transfer;
                    let until_ps = match step {
                        Step::Await(bytes) => transfer.begin_ps + self.jobs.profile.dma(bytes),
                        _ => transfer.end_ps,
                    };
                    let until_ps = until_ps.min(transfer.end_ps);
                    if until_ps > now_ps {
                        self.wake_nic(node, until_ps);
                        return Ok(());
                    }
                }
                Step::Handle => self.handle_at_nic(node)?,
                Step::Transmit => {
                    if let Some(out) = job.out.pop_front() {
                        self.transmit(node, out);
                    }
                }
                Step::Interrupt => {
                    let (message, for_host) = (job.message.take(), job.for_host.take());
                    match message {
                        // Its receiver polls.
                        Some(flight) if flight.bytes.is_empty() => self.tell(node, None),
                        Some(flight) => self.give_host(node, HostJob::Message(flight)),
                        None => {
                            if let Some(given) = for_host {
                                self.give_host(node, given);
                            }
                        }
                    }
                }
            }
        }
    }

    fn end_job(&mut self, node: usize) {
        let nic = &mut self.nodes[node].nic;
        let took_ps = self.now_ps - nic.job_began_ps;
        nic.busy_ps += took_ps;
        if nic.job.take().is_some_and(|job| job.is_send) {
            nic.sending_ps += took_ps;
        }
        self.tell_outcomes(node);
    }

    fn begin_transfer(&mut self, node: usize, step: Step) {
        let Step::Dma { bytes, reads, not_before_ps, label } = step else { return };
        let computer = &mut self.nodes[node];
        let wait_ps = match reads {
            true => {
                let latency_ps = self.jobs.profile.of(Cost::DmaLatency);
                latency_ps + computer.host.bus_wait(&self.jobs.profile)
            }
            false => 0,
        };
        let begin_ps = self.now_ps.max(computer.nic.transfer.end_ps) + wait_ps;
        let end_ps = (begin_ps + self.jobs.profile.dma(bytes)).max(not_before_ps);
        computer.nic.transfer = Transfer { begin_ps, end_ps };
        self.timeline.note(node, Lane::HostDma, label, (begin_ps, end_ps));
        for (at_ps, begins) in [(begin_ps, true), (end_ps, false)] {
            let is_wire = false;
            self.agenda.enter(at_ps, Event::Dma { node, is_wire, begins });
        }
    }

    /// A NIC's handler carries out a directory operation: what it looks at is charged behind it.
    fn handle_at_nic(&mut self, node: usize) -> Result<(), MachineError> {
        let job = self.nodes[node].nic.job.as_mut();
        let Some(flight) = job.and_then(|job| job.message.take()) else { return Ok(()) };
        let before = self.scanned(node);
        self.deliver(node, flight.from, &flight.bytes)?;
        let scanned = since(before, self.scanned(node));
        // Pages are the host's to send.
        let drained = self.drain(node).into_iter();
        let (pages, out): (Vec<_>, Vec<_>) = drained.partition(|out| out.page_bytes > 0);
        let mut steps = self.jobs.directory(scanned, out.len());
        if !pages.is_empty() {
            steps.push(Step::Interrupt);
        }
        if let Some(job) = &mut self.nodes[node].nic.job {
            steps.extend(job.steps.drain(..));
            job.steps = steps.into();
            job.out = out.into();
            job.for_host = (!pages.is_empty()).then_some(HostJob::Serve(pages));
        }
        Ok(())
    }

    fn give_host(&mut self, node: usize, job: HostJob) {
        let host = &mut self.nodes[node].host;
        host.queue.push_back(job);
        if host.phase.is_none() {
            self.begin_host(node, true);
        }
    }

    /// Begins the next job of a host, by an interrupt if `is_woken`.
    fn begin_host(&mut self, node: usize, is_woken: bool) {
        let host = &mut self.nodes[node].host;
        host.phase = None;
        host.job = host.queue.pop_front();
        if host.job.is_some() {
            let takes_ps = host.before(&self.jobs.profile, self.now_ps, is_woken);
            self.begin_phase(node, Phase::Handles, takes_ps);
        }
    }

    fn begin_phase(&mut self, node: usize, phase: Phase, takes_ps: u64) {
        let host = &mut self.nodes[node].host;
        host.phase = Some(phase);
        host.phase_began_ps = self.now_ps;
        let at_ps = self.now_ps + takes_ps;
        self.agenda.enter(at_ps, Event::Host { node });
    }

    /// A phase of a host's job ends.
    fn run_host(&mut self, node: usize) -> Result<(), MachineError> {
        let now_ps = self.now_ps;
        let host = &mut self.nodes[node].host;
        let span = (host.phase_began_ps, now_ps);
        let is_program = matches!(host.job, Some(HostJob::Ask(_)));
        if !is_program {
            host.busy_ps += now_ps - host.phase_began_ps;
        }
        match host.phase {
            None => {}
            Some(Phase::Handles) => {
                let label = if is_program { "asks" } else { "handles" };
                self.timeline.note(node, Lane::Host, label, span);
                let takes_ps = self.handle_at_host(node)?;
                self.begin_phase(node, Phase::Answers, takes_ps);
            }
            Some(Phase::Answers) => {
                host.note_end(now_ps);
                self.timeline.note(node, Lane::Host, "answers", span);
                while let Some(out) = self.nodes[node].host.out.pop_front() {
                    let job = self.jobs.send(out);
                    self.give_nic(node, job);
                }
                self.tell_outcomes(node);
                let host = &mut self.nodes[node].host;
                if is_program || !host.queue.is_empty() {
                    self.begin_host(node, is_program);
                } else {
                    let takes_ps = host.after(&self.jobs.profile);
                    self.begin_phase(node, Phase::Returns, takes_ps);
                }
            }
            Some(Phase::Returns) => {
                host.note_end(now_ps);
                self.timeline.note(node, Lane::Host, "returns", span);
                self.begin_host(node, true);
            }
        }
        Ok(())
    }

    /// The host's job meets the service. Gives how much longer the host takes for what that did.
    fn handle_at_host(&mut self, node: usize) -> Result<u64, MachineError> {
        let before = self.scanned(node);
        let now_ns = self.now_ns();
        match self.nodes[node].host.job.take() {
            None => {}
            Some(HostJob::Message(flight)) => self.deliver(node, flight.from, &flight.bytes)?,
            Some(HostJob::Serve(pages)) => self.nodes[node].host.out.extend(pages),
            Some(HostJob::Ask(ask)) => {
                let called = ask.make(&mut self.nodes[node].gms, now_ns);
                called.map_err(|error| refused(node, error))?;
                self.nodes[node].host.job = Some(HostJob::Ask(ask));
            }
        }
        let out = self.drain(node);
        self.nodes[node].host.out.extend(out);
        let scanned = since(before, self.scanned(node));
        let profile = &self.jobs.profile;
        let out = &self.nodes[node].host.out;
        let pages = out.iter().filter(|out| out.page_bytes > 0).count() as u64;
        let mut takes_ps = pages * profile.of(Cost::HostServe);
        if self.jobs.placement == Placement::Host {
            takes_ps += scanned.entries.saturating_sub(1) * profile.of(Cost::HostScan);
        } else if scanned.rows > 0 {
            let job = self.jobs.look_up(scanned);
            self.give_nic(node, job);
        }
        Ok(takes_ps)
    }

    fn tell_outcomes(&mut self, node: usize) {
        while let Some(outcome) = self.nodes[node].gms.poll_outcome() {
            self.tell(node, Some(outcome));
        }
    }

    fn tell(&mut self, node: usize, outcome: Option<mapwire_gms::Outcome>) {
        self.told.push_back(Told { at_ps: self.now_ps, node: node as u16, outcome });
    }
}

fn since(before: Scanned, now: Scanned) -> Scanned {
    Scanned {
        rows: now.rows - before.rows,
        entries: now.entries - before.entries,
        written: now.written - before.written,
    }
}
