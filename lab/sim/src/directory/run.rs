//! Time passes: what NICs and hosts do at each event.

use mapwire_gms::Scanned;

use super::host::{HostJob, Phase};
use super::nic::{Job, Step, Transfer};
use super::{Event, Machine, MachineError, Placement, Told, refused};
use crate::hardware::wires::Flight;
use crate::hardware::{Cost, Lane, Ps};

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
                if self.nodes[node].nic.processor.is_planned(plan) {
                    self.nodes[node].nic.processor.end(self.now_ps, node, &mut self.timeline);
                    self.run_nic(node)?;
                }
            }
            Event::Host { node } => self.run_host(node)?,
            Event::Dma { node, is_wire, begins } => {
                let end = self.nodes[node].nic.processor.change_dma(self.now_ps, is_wire, begins);
                self.enter_nic(node, end);
            }
            Event::Arrive(flight) => {
                for flight in self.orders.arrive(flight) {
                    let (node, job) = (usize::from(flight.to), self.jobs.arrived(flight));
                    self.give_nic(node, job);
                }
            }
            Event::Ask { node, name, call } => self.give_host(node, HostJob::Ask(name, call)),
        }
        Ok(())
    }

    /// Adds a job for a NIC.
    pub(super) fn give_nic(&mut self, node: usize, job: Job) {
        let nic = &mut self.nodes[node].nic;
        nic.queue.push_back(job);
        if nic.job.is_none() && !nic.processor.works() {
            // It begins now, behind what happens at the same time.
            self.wake_nic(node, self.now_ps);
        }
    }

    fn wake_nic(&mut self, node: usize, at_ps: Ps) {
        let plan = self.nodes[node].nic.processor.plan();
        self.enter_nic(node, Some((at_ps, plan)));
    }

    fn enter_nic(&mut self, node: usize, planned: Option<(Ps, u64)>) {
        if let Some((at_ps, plan)) = planned {
            self.agenda.enter(at_ps, Event::Nic { node, plan });
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
                    let rates = code.rates(&self.jobs.profile);
                    let end = nic.processor.begin(now_ps, work_ps, label, rates);
                    self.enter_nic(node, end);
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
        let computer = &mut self.nodes[node];
        let took_ps = self.now_ps - computer.nic.job_began_ps;
        computer.load.nic_ps += took_ps;
        if computer.nic.job.take().is_some_and(|job| job.is_send) {
            computer.load.nic_sending_ps += took_ps;
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
        self.enter_dma(node, false, (begin_ps, end_ps));
    }

    fn enter_dma(&mut self, node: usize, is_wire: bool, (from_ps, to_ps): (Ps, Ps)) {
        for (at_ps, begins) in [(from_ps, true), (to_ps, false)] {
            self.agenda.enter(at_ps, Event::Dma { node, is_wire, begins });
        }
    }

    /// A message leaves. A page is sent on as it comes from the host, a pulse behind (cut-through, as Trapeze does).
    fn transmit(&mut self, node: usize, mut out: Flight) {
        let profile = &self.jobs.profile;
        let bytes = self.jobs.message_bytes(out.bytes.len()) + out.data_bytes;
        let pulse = profile.of(Cost::PulseBytes).min(bytes);
        let pulse_ps = profile.wire(pulse);
        let has_page = out.data_bytes > 0;
        let (ready_ps, last_ps) = match has_page {
            true => {
                let transfer = self.nodes[node].nic.transfer;
                ((transfer.begin_ps + profile.dma(pulse)).max(self.now_ps), transfer.end_ps + pulse_ps)
            }
            false => (self.now_ps, 0),
        };
        let (to, takes) = (usize::from(out.to), (profile.wire(bytes), profile.of(Cost::WireLatency)));
        let on_wire = self.wires.pass((node, to), (ready_ps, last_ps), takes);
        out.tail_ps = on_wire.tail_ps;
        let (sent, received) = ((on_wire.begin_ps, on_wire.end_ps), (on_wire.head_ps, on_wire.tail_ps));
        self.enter_dma(node, true, sent);
        self.enter_dma(to, true, received);
        self.timeline.note(node, Lane::SendWire, "sends", sent);
        self.timeline.note(to, Lane::ReceiveWire, "receives", received);
        let arrival_ps = if has_page { on_wire.head_ps + pulse_ps } else { on_wire.tail_ps };
        self.agenda.enter(arrival_ps, Event::Arrive(out));
    }

    /// A NIC's handler carries out a directory operation: what it looks at is charged behind it.
    fn handle_at_nic(&mut self, node: usize) -> Result<(), MachineError> {
        let job = self.nodes[node].nic.job.as_mut();
        let Some(flight) = job.and_then(|job| job.message.take()) else { return Ok(()) };
        let before = self.scanned(node);
        self.deliver(node, &flight)?;
        let scanned = since(before, self.scanned(node));
        // Pages are the host's to send.
        let drained = self.drain(node).into_iter();
        let (pages, out): (Vec<_>, Vec<_>) = drained.partition(|out| out.data_bytes > 0);
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
        if let Some(job) = &host.job {
            let is_interrupt = is_woken && !matches!(job, HostJob::Ask(..));
            self.nodes[node].load.interrupts += u64::from(is_interrupt);
            let host = &mut self.nodes[node].host;
            let takes_ps = host.before(&self.jobs.profile, self.now_ps, is_woken);
            self.begin_phase(node, Phase::Handles, takes_ps);
        }
    }

    fn begin_phase(&mut self, node: usize, phase: Phase, takes_ps: Ps) {
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
        let is_program = matches!(host.job, Some(HostJob::Ask(..)));
        if !is_program {
            self.nodes[node].load.host_ps += span.1 - span.0;
        }
        let host = &mut self.nodes[node].host;
        match host.phase {
            None => {}
            Some(Phase::Handles) => {
                let label = if is_program { "asks" } else { "handles" };
                self.timeline.note(node, Lane::Host, label, span);
                let takes_ps = self.handle_at_host(node)?;
                self.begin_phase(node, Phase::Answers, takes_ps);
            }
            Some(Phase::Answers) => {
                host.last_end_ps = now_ps;
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
                host.last_end_ps = now_ps;
                self.timeline.note(node, Lane::Host, "returns", span);
                self.begin_host(node, true);
            }
        }
        Ok(())
    }

    /// The host's job meets the service. Gives how much longer the host takes for what that did.
    fn handle_at_host(&mut self, node: usize) -> Result<Ps, MachineError> {
        let before = self.scanned(node);
        let now_ns = self.now_ns();
        match self.nodes[node].host.job.take() {
            None => {}
            Some(HostJob::Message(flight)) => self.deliver(node, &flight)?,
            Some(HostJob::Serve(pages)) => self.nodes[node].host.out.extend(pages),
            Some(HostJob::Ask(name, call)) => {
                let called = call.make(&mut self.nodes[node].gms, now_ns, name);
                called.map_err(|error| refused(node, error))?;
                self.nodes[node].host.job = Some(HostJob::Ask(name, call));
            }
        }
        let out = self.drain(node);
        self.nodes[node].host.out.extend(out);
        let scanned = since(before, self.scanned(node));
        let profile = &self.jobs.profile;
        let out = &self.nodes[node].host.out;
        let pages = out.iter().filter(|out| out.data_bytes > 0).count() as u64;
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
