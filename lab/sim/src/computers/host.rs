//! Processors of a host: programs take turns on them, and handlers of interrupts take the first away from its program.

use std::collections::VecDeque;

use mapwire_node::Node;
use mapwire_translation::{AnyDesign, HostRequest, Page, TranslationDesign};
use mapwire_wire::{Endpoint, ProcessId};

use super::Computers;
use super::pins::{Calls, Pins};
use super::program::{After, Do, Moment, Program, Runner, Wait, Word, word};
use super::run::Event;
use crate::hardware::{Cost, Lane, Ps};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handler {
    Misses,
    /// Messages are there for services of the host.
    Messages,
}

/// What a processor does for a program.
#[derive(Clone, Copy, Debug)]
struct Running {
    program: usize,
    label: &'static str,
    began_ps: Ps,
    end_ps: Ps,
    plan: u32,
}

#[derive(Debug)]
pub(super) struct Host {
    processors: Vec<Option<Running>>,
    /// Programs that want a processor, for how long and for what.
    ready: VecDeque<(usize, Ps, &'static str)>,
    handlers: VecDeque<Handler>,
    is_handling: bool,
    handles_since_ps: Ps,
    /// Until when handlers have the first processor.
    handled_until_ps: Ps,
    plan: u32,
}

impl Host {
    pub(super) fn new(processors: u16) -> Self {
        Self {
            processors: vec![None; usize::from(processors)],
            ready: VecDeque::new(),
            handlers: VecDeque::new(),
            is_handling: false,
            handles_since_ps: 0,
            handled_until_ps: 0,
            plan: 0,
        }
    }
}

/// The pages that the NIC's misses want pinned.
fn expected(node: &Node<AnyDesign>) -> Calls {
    let mut calls = Calls::default();
    for request in node.misses() {
        if let HostRequest::Fill { process, pages, .. } = *request {
            let design = node.nic().translation();
            let absent = |page: &Page| design.installed(process, *page).is_garbage();
            calls.note(pages.into_iter().filter(absent).count() as u64);
        }
    }
    calls
}

impl Computers {
    /// Gives a process its program, which begins now. A process has one at most at a time.
    pub fn start(&mut self, of: Endpoint, program: impl Program + 'static) {
        let words = self.shape.words as usize;
        let runner = Runner {
            of,
            program: Box::new(program),
            wait: Wait::Nothing,
            posted: None,
            after: After::Nothing,
            taken: vec![false; words],
            complete: vec![false; words],
        };
        let ended = |other: &Runner| other.of == of && other.wait == Wait::Ended;
        let slot = match self.programs.iter().position(ended) {
            Some(slot) => {
                self.programs[slot] = runner;
                slot
            }
            None => {
                self.programs.push(runner);
                self.programs.len() - 1
            }
        };
        self.agenda.enter(self.now_ps, Event::Program(slot));
    }

    /// A program chooses what to do next.
    pub(super) fn run_program(&mut self, program: usize) {
        let now_ps = self.now_ps;
        let runner = &mut self.programs[program];
        runner.wait = Wait::Nothing;
        let node = usize::from(runner.of.node.0);
        let mut moment = Moment {
            now_ps,
            of: runner.of,
            posted: runner.posted.take(),
            memory: &mut self.computers[node].memory,
            marks: &mut self.marks,
        };
        match runner.program.next(&mut moment) {
            Do::Send(send) => {
                if let Err(error) = self.post_send(program, send) {
                    self.fail(error);
                }
            }
            Do::Fetch(fetch) => {
                if let Err(error) = self.post_fetch(program, fetch) {
                    self.fail(error);
                }
            }
            Do::Await(word) => self.wait(program, Wait::Word(word)),
            Do::Watch { address, least } => self.wait(program, Wait::Watch { address, least }),
            Do::Compute(ps, label) => self.step(program, ps, label, After::Nothing),
            Do::Copy { from, to, bytes } => {
                let ps = bytes * self.profile.of(Cost::HostCopyByte);
                self.step(program, ps, "copies", After::Copy { from, to, bytes });
            }
            Do::Call(ps, call) => self.step(program, ps, "calls", After::Call(call)),
            Do::End => self.programs[program].wait = Wait::Ended,
        }
    }

    fn wait(&mut self, program: usize, wait: Wait) {
        self.programs[program].wait = wait;
        if self.is_over(program) {
            self.resume(program, 0);
        }
    }

    /// Whether what a program waits for is there.
    pub(super) fn is_over(&mut self, program: usize) -> bool {
        let runner = &mut self.programs[program];
        let memory = &mut self.computers[usize::from(runner.of.node.0)].memory;
        match runner.wait {
            Wait::Nothing | Wait::Ended => false,
            Wait::Word(Word(number)) => {
                let number = number as usize;
                let is_complete = core::mem::take(&mut runner.complete[number]);
                if is_complete {
                    runner.taken[number] = false;
                }
                is_complete
            }
            Wait::Watch { address, least } => word(memory, runner.of.process, address) >= least,
        }
    }

    /// What a program waited for is there, and it sees that so much later.
    pub(super) fn resume(&mut self, program: usize, after_ps: Ps) {
        self.programs[program].wait = Wait::Nothing;
        let at_ps = self.now_ps + after_ps;
        self.agenda.enter(at_ps, Event::Program(program));
    }

    /// A completion word is in host memory.
    pub(super) fn completed(&mut self, node: usize, process: u16, word: u32) {
        let notice_ps = self.profile.of(Cost::HostNotice);
        for program in 0..self.programs.len() {
            let runner = &mut self.programs[program];
            if usize::from(runner.of.node.0) != node || runner.of.process.0 != process {
                continue;
            }
            if let Some(complete) = runner.complete.get_mut(word as usize) {
                *complete = true;
            }
            if runner.wait == Wait::Word(Word(word)) && self.is_over(program) {
                self.resume(program, notice_ps);
            }
        }
    }

    /// A program wants a processor for so long.
    pub(super) fn step(&mut self, program: usize, takes_ps: Ps, label: &'static str, after: After) {
        let runner = &mut self.programs[program];
        runner.after = after;
        let node = usize::from(runner.of.node.0);
        let host = &mut self.computers[node].host;
        host.ready.push_back((program, takes_ps, label));
        self.begin_steps(node);
    }

    fn begin_steps(&mut self, node: usize) {
        let now_ps = self.now_ps;
        let host = &mut self.computers[node].host;
        while let Some(processor) = host.processors.iter().position(Option::is_none)
            && let Some((program, takes_ps, label)) = host.ready.pop_front()
        {
            let began_ps = match processor {
                0 => now_ps.max(host.handled_until_ps),
                _ => now_ps,
            };
            host.plan += 1;
            let (plan, end_ps) = (host.plan, began_ps + takes_ps);
            host.processors[processor] = Some(Running { program, label, began_ps, end_ps, plan });
            let event = Event::Host { node, processor, plan };
            self.agenda.enter(end_ps, event);
        }
    }

    /// A processor has done what a program wanted.
    pub(super) fn end_step(&mut self, node: usize, processor: usize, plan: u32) {
        let slot = &mut self.computers[node].host.processors[processor];
        let Some(running) = slot.filter(|running| running.plan == plan) else { return };
        *slot = None;
        let span = (running.began_ps, self.now_ps);
        self.timeline.note(node, Lane::Host, running.label, span);
        let runner = &mut self.programs[running.program];
        let process = runner.of.process;
        match core::mem::replace(&mut runner.after, After::Nothing) {
            After::Nothing => {}
            After::Post(command) => {
                self.computers[node].nic.commands[usize::from(process.0)].push_back(command);
                self.wake_nic(node);
            }
            After::Copy { from, to, bytes } => {
                let memory = &mut self.computers[node].memory;
                let mut copied = vec![0; bytes as usize];
                memory.read(process.0, from, &mut copied);
                memory.write(process.0, to, &copied);
            }
            After::Call(call) => {
                let now_ns = self.now_ps / 1000 + 1;
                let computer = &mut self.computers[node];
                call(&mut computer.node, &mut computer.memory, now_ns);
                self.settle_asks(node);
                self.wake_nic(node);
            }
        }
        self.agenda.enter(self.now_ps, Event::Program(running.program));
        self.begin_steps(node);
    }

    /// The NIC asks the host for what its firmware misses.
    pub(super) fn ask_host(&mut self, node: usize) {
        let computer = &mut self.computers[node];
        let is_asked = computer.host.handlers.contains(&Handler::Misses);
        if computer.node.has_misses() && !is_asked {
            self.interrupt(node, Handler::Misses);
        }
    }

    pub(super) fn interrupt(&mut self, node: usize, handler: Handler) {
        let host = &mut self.computers[node].host;
        host.handlers.push_back(handler);
        if !host.is_handling {
            host.is_handling = true;
            host.handles_since_ps = self.now_ps;
            self.computers[node].load.interrupts += 1;
            let takes_ps = self.profile.of(Cost::HostInterrupt);
            self.take_from_program(node, takes_ps);
            self.agenda.enter(self.now_ps + takes_ps, Event::Handler(node));
        }
    }

    /// A handler takes the first processor for so long.
    fn take_from_program(&mut self, node: usize, takes_ps: Ps) {
        let host = &mut self.computers[node].host;
        host.handled_until_ps = host.handled_until_ps.max(self.now_ps + takes_ps);
        if let Some(running) = &mut host.processors[0] {
            host.plan += 1;
            running.plan = host.plan;
            running.end_ps = running.end_ps.max(self.now_ps) + takes_ps;
            let event = Event::Host { node, processor: 0, plan: running.plan };
            self.agenda.enter(running.end_ps, event);
        }
    }

    /// The interrupt has got to its handler, which works for as long as its pages are to be pinned. What comes of it is there when
    /// that is over.
    pub(super) fn run_handler(&mut self, node: usize) {
        let computer = &self.computers[node];
        let mut takes_ps = self.profile.of(Cost::HostHandler);
        let mut waits_ps = 0;
        if computer.host.handlers.front() == Some(&Handler::Misses) {
            match self.resends.draw() {
                Some(drawn) => (waits_ps, takes_ps) = drawn,
                None => takes_ps += expected(&computer.node).of_handler(&self.profile),
            }
        }
        self.take_from_program(node, takes_ps);
        self.agenda.enter(self.now_ps + waits_ps + takes_ps, Event::Handled(node));
    }

    pub(super) fn end_handler(&mut self, node: usize) {
        let now_ns = self.now_ps / 1000 + 1;
        let computer = &mut self.computers[node];
        match computer.host.handlers.pop_front() {
            Some(Handler::Misses) => {
                let expected = expected(&computer.node).of_handler(&self.profile);
                let mut pins = Pins::of(&mut computer.memory);
                let mut failed = None;
                computer.node.serve_misses(&mut pins, |error| {
                    failed.get_or_insert(error.to_string());
                });
                let took = pins.calls.of_handler(&self.profile);
                computer.nic.lacks = false;
                // Pages given back on the way keep the host, and not the NIC.
                if self.shape.miss_times.is_none() {
                    let late_ps = took.saturating_sub(expected);
                    computer.load.handlers_ps += late_ps;
                    self.take_from_program(node, late_ps);
                }
                if let Some(text) = failed {
                    self.fail_host(node, text);
                }
                self.ask_for_dropped(node);
            }
            Some(Handler::Messages) => {
                for process in 0..self.shape.processes {
                    computer.node.serve_on_host(now_ns, ProcessId(process));
                }
                self.settle_asks(node);
            }
            None => {}
        }
        let computer = &mut self.computers[node];
        let span = (computer.host.handles_since_ps, self.now_ps);
        if computer.host.handlers.is_empty() {
            computer.host.is_handling = false;
            computer.load.handlers_ps += span.1 - span.0;
            self.timeline.note(node, Lane::Host, "handles", span);
        } else {
            self.agenda.enter(self.now_ps, Event::Handler(node));
        }
        self.ask_host(node);
        self.wake_nic(node);
    }
}
