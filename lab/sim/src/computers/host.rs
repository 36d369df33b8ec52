//! The host of a computer: programs take turns on its processors, and a handler of interrupts takes one away from them.

use mapwire_node::Node;
use mapwire_translation::{AnyDesign, HostRequest, Page, TranslationDesign};
use mapwire_wire::{Endpoint, ProcessId};

use super::event::Event;
use super::handler::{Handling, PROGRAM};
use super::pins::{Calls, Pins};
use super::program::{After, Do, Mark, Runner, Wait};
use super::{Computer, Computers};
use crate::hardware::memory::Memory;
use crate::hardware::processors::Happened;
use crate::hardware::{Cost, Lane, Ps};

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

fn word(memory: &mut Memory, process: ProcessId, address: u64) -> u64 {
    let mut bytes = [0; 8];
    memory.read(process.0, address, &mut bytes);
    u64::from_le_bytes(bytes)
}

impl Computers {
    /// Gives a process a program, which begins now.
    pub fn start(&mut self, of: Endpoint, program: impl Iterator<Item = Do> + 'static) {
        let words = self.shape.words as usize;
        let thread = self.computers[usize::from(of.node.0)].host.processors.add(PROGRAM);
        self.agenda.enter(self.now_ps, Event::Program(self.programs.len()));
        self.programs.push(Runner {
            of,
            thread,
            program: Box::new(program),
            again: None,
            wait: Wait::Nothing,
            step: ("", self.now_ps),
            after: After::Nothing,
            posted: Vec::new(),
            taken: vec![false; words],
            complete: vec![false; words],
        });
    }

    /// A program goes on, up to a step that takes time.
    pub(super) fn run_program(&mut self, program: usize) {
        loop {
            let runner = &mut self.programs[program];
            let Some(next) = runner.again.take().or_else(|| runner.program.next()) else {
                return runner.wait = Wait::Ended;
            };
            let of = runner.of;
            match next {
                Do::Mark(number) => self.marks.push(Mark { at_ps: self.now_ps, of, number }),
                Do::Write(address, value) => {
                    let memory = &mut self.computers[usize::from(of.node.0)].memory;
                    memory.write(of.process.0, address, &value.to_le_bytes());
                }
                Do::Await(most) if runner.posted.len() <= most => {}
                Do::Await(_) => {
                    runner.again = Some(next);
                    let word = runner.posted.remove(0);
                    return self.wait(program, Wait::Word(word));
                }
                Do::Watch { address, least } => return self.wait(program, Wait::Watch { address, least }),
                Do::Compute(ps, label) => return self.step(program, ps, label, After::Nothing),
                Do::Copy { from, to, bytes } => {
                    let ps = bytes * self.profile.of(Cost::HostCopyByte);
                    return self.step(program, ps, "copies", After::Copy { from, to, bytes });
                }
                Do::Send(send) => {
                    return if let Err(error) = self.post(program, send) {
                        self.fail(error)
                    };
                }
            }
        }
    }

    fn wait(&mut self, program: usize, wait: Wait) {
        self.programs[program].wait = wait;
        self.look(program, 0);
    }

    /// A program looks whether what it waits for is there, and goes on so much later.
    fn look(&mut self, program: usize, after_ps: Ps) {
        let runner = &mut self.programs[program];
        let memory = &mut self.computers[usize::from(runner.of.node.0)].memory;
        let is_over = match runner.wait {
            Wait::Nothing | Wait::Ended => false,
            Wait::Word(number) => {
                let number = number as usize;
                let is_complete = core::mem::take(&mut runner.complete[number]);
                runner.taken[number] &= !is_complete;
                is_complete
            }
            Wait::Watch { address, least } => word(memory, runner.of.process, address) >= least,
        };
        if is_over {
            runner.wait = Wait::Nothing;
            self.agenda.enter(self.now_ps + after_ps, Event::Program(program));
        }
    }

    /// Host memory of a process has changed: its programs look, and see that a little later. `word` is complete, if it was a word.
    pub(super) fn changed(&mut self, node: usize, process: ProcessId, word: Option<u32>) {
        let notice_ps = self.profile.of(Cost::HostNotice);
        for program in 0..self.programs.len() {
            let runner = &mut self.programs[program];
            if usize::from(runner.of.node.0) != node || runner.of.process != process {
                continue;
            }
            if let Some(complete) = word.and_then(|word| runner.complete.get_mut(word as usize)) {
                *complete = true;
            }
            let looks = match (runner.wait, word) {
                (Wait::Word(awaited), Some(word)) => awaited == word,
                (Wait::Watch { .. }, None) => true,
                _ => false,
            };
            if looks {
                self.look(program, notice_ps);
            }
        }
    }

    /// A program wants a processor for so long.
    pub(super) fn step(&mut self, program: usize, takes_ps: Ps, label: &'static str, after: After) {
        let runner = &mut self.programs[program];
        (runner.after, runner.step) = (after, (label, self.now_ps));
        let (node, thread) = (usize::from(runner.of.node.0), runner.thread);
        self.computers[node].host.processors.work(self.now_ps, thread, takes_ps);
        self.plan_host(node);
    }

    /// Enters what the processors of a host do next.
    fn plan_host(&mut self, node: usize) {
        while let Some((at, at_ps, change)) = self.computers[node].host.processors.poll_changed() {
            self.agenda.enter(at_ps, Event::Host { node, at, change });
        }
    }

    /// The time of a host's event has come.
    pub(super) fn run_host(&mut self, node: usize, at: usize, change: u64) {
        let host = &mut self.computers[node].host;
        if let Happened::Done(thread) = host.processors.handle(self.now_ps, at, change) {
            if thread == host.handler {
                self.go_on_handling(node);
            } else {
                host.processors.sleep(self.now_ps, thread);
                let is_it = |runner: &Runner| usize::from(runner.of.node.0) == node && runner.thread == thread;
                if let Some(program) = self.programs.iter().position(is_it) {
                    self.end_step(node, program);
                }
            }
        }
        self.plan_host(node);
    }

    fn end_step(&mut self, node: usize, program: usize) {
        let runner = &mut self.programs[program];
        let (process, (label, since_ps)) = (runner.of.process, runner.step);
        self.timeline.note(node, Lane::Host, label, (since_ps, self.now_ps));
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
        }
        self.agenda.enter(self.now_ps, Event::Program(program));
    }

    /// The NIC asks the host for what its firmware misses.
    pub(super) fn ask_host(&mut self, node: usize) {
        let Computer { node: firmware, host, load, .. } = &mut self.computers[node];
        if firmware.has_misses() && host.handling == Handling::Nothing {
            load.interrupts += 1;
            (host.handling, host.handles_since_ps) = (Handling::Called, self.now_ps);
            host.processors.work(self.now_ps, host.handler, self.profile.of(Cost::HostInterrupt));
            self.plan_host(node);
        }
    }

    /// The handler has waited for long enough.
    pub(super) fn begin_handling(&mut self, node: usize) {
        let host = &mut self.computers[node].host;
        if let Handling::Waits(takes_ps) = host.handling {
            host.handling = Handling::Serves;
            host.processors.work(self.now_ps, host.handler, takes_ps);
            self.plan_host(node);
        }
    }

    /// The handler has done what it was at.
    fn go_on_handling(&mut self, node: usize) {
        let Computer { node: firmware, host, .. } = &mut self.computers[node];
        match host.handling {
            // It works for as long as its pages are to be pinned. What comes of it is there when that is over.
            Handling::Called => match self.resends.draw(&self.profile) {
                Some((waits_ps, takes_ps)) => {
                    host.handling = Handling::Waits(takes_ps);
                    host.processors.sleep(self.now_ps, host.handler);
                    self.agenda.enter(self.now_ps + waits_ps, Event::Handler(node));
                }
                None => {
                    let takes_ps = self.profile.of(Cost::HostHandler) + expected(firmware).of_handler(&self.profile);
                    host.handling = Handling::Serves;
                    host.processors.work(self.now_ps, host.handler, takes_ps);
                }
            },
            Handling::Serves => self.served(node),
            Handling::Unpins | Handling::Nothing | Handling::Waits(_) => {
                host.handling = Handling::Nothing;
                host.processors.sleep(self.now_ps, host.handler);
                self.ask_host(node);
            }
        }
    }

    /// The handler has brought in what the NIC misses.
    fn served(&mut self, node: usize) {
        let computer = &mut self.computers[node];
        let expected = expected(&computer.node).of_handler(&self.profile);
        let mut pins = Pins::of(&mut computer.memory);
        let mut failed = None;
        computer.node.serve_misses(&mut pins, |error| {
            failed.get_or_insert(error.to_string());
        });
        let took = pins.calls.of_handler(&self.profile);
        computer.nic.lacks = false;
        let span = (computer.host.handles_since_ps, self.now_ps);
        computer.load.handlers_ps += span.1 - span.0;
        // Pages given back on the way keep the host, and not the NIC.
        let late_ps = if self.shape.miss_seed.is_none() { took.saturating_sub(expected) } else { 0 };
        computer.load.handlers_ps += late_ps;
        if late_ps > 0 {
            computer.host.handling = Handling::Unpins;
            computer.host.processors.work(self.now_ps, computer.host.handler, late_ps);
        } else {
            computer.host.handling = Handling::Nothing;
            computer.host.processors.sleep(self.now_ps, computer.host.handler);
        }
        self.timeline.note(node, Lane::Host, "handles", span);
        if let Some(text) = failed {
            self.fail_host(node, text);
        }
        self.ask_for_dropped(node);
        self.ask_host(node);
        self.wake_nic(node);
    }
}
