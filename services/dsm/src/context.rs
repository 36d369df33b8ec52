//! State shared by all parts of a rank: its shape, its threads, and the queued actions.

use crate::address::Key;
use crate::allocation::Wanted;
use crate::config::SET;
use crate::{
    Access, Action, Address, Barrier, Config, Counters, Error, Lock, MAX_PAGES_AHEAD, Message, Minipage, ObjectCall,
    Outcome, Protection, Protocol, Rank, Thread, Views,
};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// What an application thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing: the thread runs.
    Nothing,
    /// Access to the minipage `key`, after a fault on `page`.
    Fault {
        key: Key,
        page: u32,
        access: Access,
    },
    /// Its turn in the rank's queue for the lock.
    Lock(Lock),
    Barrier(Barrier),
    /// The answer to its call, which was sent or waits for what it releases.
    Object {
        call: ObjectCall,
        is_sent: bool,
    },
    /// Pages for an allocation.
    Pages(Wanted),
    /// `left` acknowledgements of its new minipage.
    Registration {
        left: u16,
        address: Address,
    },
}

#[derive(Debug)]
pub(crate) struct Context {
    config: Config,
    /// Indexed by thread.
    waits: Vec<Wait>,
    /// Threads from this number on have never been used, and need no look.
    used_threads: Thread,
    /// In order of execution.
    actions: VecDeque<Action>,
    counters: Counters,
}

impl Context {
    pub(crate) fn new(config: Config) -> Self {
        let (ranks, requests) = (usize::from(config.ranks), usize::from(config.requests()));
        // Most actions of one input, so that the queue never grows: one ends requests for 64 minipages, or the holds of all threads, and a
        // rank has at most one request for each minipage.
        let lazy = match config.protocol {
            Protocol::Minipages => 0,
            Protocol::Hlrc => config.twins as usize + 2 * usize::from(MAX_PAGES_AHEAD),
        };
        let minipages = usize::from(SET).max(usize::from(config.threads));
        let actions = 16 + 4 * (ranks + requests) + 2 * ranks * minipages + lazy;
        Context {
            config,
            waits: vec![Wait::Nothing; usize::from(config.threads)],
            used_threads: 0,
            actions: VecDeque::with_capacity(actions),
            counters: Counters::default(),
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn rank(&self) -> Rank {
        self.config.rank
    }

    pub(crate) fn ranks(&self) -> u16 {
        self.config.ranks
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Begins an operation of a thread: checks that it exists and is idle.
    pub(crate) fn begin(&mut self, thread: Thread) -> Result<(), Error> {
        match self.waits.get(usize::from(thread)) {
            Some(Wait::Nothing) => {}
            Some(_) => return Err(Error::ThreadBusy { thread }),
            None => {
                return Err(Error::UnknownThread { thread, threads: self.config.threads });
            }
        }
        self.used_threads = self.used_threads.max(thread + 1);
        Ok(())
    }

    /// What a thread waits for; `None` if it does not exist.
    pub(crate) fn wait(&self, thread: Thread) -> Option<Wait> {
        self.waits.get(usize::from(thread)).copied()
    }

    /// What each thread that was ever used waits for.
    pub(crate) fn waits(&self) -> &[Wait] {
        &self.waits[..usize::from(self.used_threads)]
    }

    /// Page and access of a thread that faulted on the minipage and waits for it.
    pub(crate) fn fault_on(&self, key: Key, thread: usize) -> Option<(u32, Access)> {
        match self.waits[thread] {
            Wait::Fault { key: wanted, page, access } if wanted == key => Some((page, access)),
            _ => None,
        }
    }

    /// Makes an existing thread wait.
    pub(crate) fn set_wait(&mut self, thread: Thread, wait: Wait) {
        self.waits[usize::from(thread)] = wait;
    }

    /// Ends the wait of an existing thread.
    pub(crate) fn resume(&mut self, thread: Thread, outcome: Outcome) {
        self.set_wait(thread, Wait::Nothing);
        self.actions.push_back(Action::Resume { thread, outcome });
    }

    pub(crate) fn send(&mut self, to: Rank, message: Message) {
        self.push_message(to, message, Action::Send { to, message });
    }

    pub(crate) fn send_minipage(&mut self, to: Rank, minipage: Minipage, message: Message) {
        self.counters.minipages_sent += 1;
        self.counters.bytes_sent += minipage.length_bytes;
        self.push_message(to, message, Action::SendMinipage { to, minipage, message });
    }

    /// Queues the action that sends a message, unless the message queued last goes the same way and can stand for this one too. It then
    /// goes out behind what was queued meanwhile, none of which is a message: protections must precede the message that they belong to,
    /// and may precede others.
    fn push_message(&mut self, to: Rank, message: Message, action: Action) {
        let is_message = |action: &Action| !matches!(action, Action::Protect { .. } | Action::Resume { .. });
        let last = self.actions.iter().rposition(is_message);
        let joined = last.and_then(|at| match &mut self.actions[at] {
            Action::Send { to: other, message: last } | Action::SendMinipage { to: other, message: last, .. } => {
                let was_one = last.views() == Views::ONE;
                (*other == to && last.absorb(message)).then_some((at, was_one))
            }
            _ => None,
        });
        let Some((at, was_one)) = joined else {
            self.counters.messages_sent += 1;
            return self.actions.push_back(action);
        };
        self.counters.sets_sent += u64::from(was_one);
        if at + 1 < self.actions.len()
            && let Some(joined) = self.actions.remove(at)
        {
            self.actions.push_back(joined);
        }
    }

    pub(crate) fn protect(&mut self, minipage: Minipage, protection: Protection) {
        self.actions.push_back(Action::Protect { minipage, protection });
    }

    pub(crate) fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// The next action.
    pub(crate) fn front(&self) -> Option<&Action> {
        self.actions.front()
    }

    #[inline]
    pub(crate) fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front();
        if action.is_none() {
            // Later actions reuse memory in the processor's cache.
            self.actions.clear();
        }
        action
    }
}
