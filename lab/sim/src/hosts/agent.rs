//! Threads of hosts, and the steps that they take.

use std::collections::VecDeque;

use crate::hardware::Ps;
use crate::hardware::processors::ThreadId;
use crate::hardware::wires::Flight;

use super::program::{Entry, Script};

/// What comes about when a step is over.
#[derive(Debug)]
pub(super) enum Effect {
    Nothing,
    /// A thread of a program makes its call.
    Call,
    /// A message has been taken in: the protocol handles it.
    Handle(Flight),
    /// The protocol is told the time.
    Time,
    Transmit(Flight),
    /// Threads of the rank look whether what they wait for is there.
    Outcomes,
    /// A thread that sleeps is woken.
    Wake(usize),
}

/// Something that takes a thread processor time.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) cost_ps: Ps,
    pub(super) effect: Effect,
}

/// What a thread of a program is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    NotBegun,
    /// Its next deed is to be begun.
    Ready,
    /// It is in the steps of a deed.
    Stepping,
    /// It waits for the outcome of its call.
    Waiting,
    /// It waits for a minipage to be allocated.
    WaitingForMinipage(u32),
    Finished,
}

/// A thread of a program.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) script: usize,
    pub(super) rank: u16,
    /// Its number in its rank.
    pub(super) thread: u16,
    pub(super) entries: Vec<Entry>,
    pub(super) after: Option<(usize, usize)>,
    pub(super) at: usize,
    pub(super) doing: Doing,
    pub(super) since_ps: Ps,
    /// Counts its waits: the end of the polling of an earlier one is void.
    pub(super) wait: u64,
}

impl Worker {
    pub(super) fn new(number: usize, thread: u16, script: &Script) -> Self {
        Self {
            script: number,
            rank: script.rank,
            thread,
            entries: script.entries.clone(),
            after: script.after,
            at: 0,
            doing: match script.after {
                None => Doing::Ready,
                Some(_) => Doing::NotBegun,
            },
            since_ps: 0,
            wait: 0,
        }
    }

    /// The deed that it is at.
    pub(super) fn entry(&self) -> Option<Entry> {
        self.entries.get(self.at).copied()
    }
}

#[derive(Debug)]
pub(super) enum Role {
    /// A thread of the program.
    Worker(Box<Worker>),
    /// Woken to handle messages, at high priority.
    Server,
    Poller,
    /// Computes without end beside the program.
    Background,
}

/// A thread of a host.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) host: usize,
    pub(super) thread: ThreadId,
    pub(super) rank: u16,
    pub(super) role: Role,
    pub(super) steps: VecDeque<Step>,
    /// The step that it is in.
    pub(super) current: Option<Effect>,
    /// It goes on right now: it does not look for messages.
    pub(super) goes: bool,
}

impl Agent {
    pub(super) fn push(&mut self, cost_ps: Ps, effect: Effect) {
        self.steps.push_back(Step { cost_ps, effect });
    }

    pub(super) fn worker(&mut self) -> Option<&mut Worker> {
        match &mut self.role {
            Role::Worker(worker) => Some(worker),
            _ => None,
        }
    }
}
