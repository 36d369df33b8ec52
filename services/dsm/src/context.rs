//! State shared by all parts of a rank: its shape, its threads, and the queued actions.

use crate::address::Key;
use crate::allocation::Wanted;
use crate::{
    Access, Action, Address, Barrier, Config, Counters, Error, Lock, MAX_PAGES_AHEAD, Message, Minipage, Outcome,
    Protection, Protocol, Rank, Thread,
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
        // Most actions of one input, so that the queue never grows.
        let lazy = match config.protocol {
            Protocol::Minipages => 0,
            Protocol::Hlrc => config.twins as usize + 2 * usize::from(MAX_PAGES_AHEAD),
        };
        let actions = 16 + 4 * (ranks + requests) + 2 * ranks * requests + lazy;
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
        self.counters.messages_sent += 1;
        self.actions.push_back(Action::Send { to, message });
    }

    pub(crate) fn send_minipage(&mut self, to: Rank, minipage: Minipage, message: Message) {
        self.counters.messages_sent += 1;
        self.counters.minipages_sent += 1;
        self.counters.bytes_sent += minipage.length_bytes;
        self.actions.push_back(Action::SendMinipage { to, minipage, message });
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
