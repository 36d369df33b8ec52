//! Time for a thread to use what it was granted.
//!
//! A thread that is resumed after a fault still has to return from the fault handler and repeat its access. If
//! the minipage is taken away before, the fault was for nothing, and two ranks could take it from each other
//! for ever. So a right that was just granted is *held*: a request that would reduce it waits until the
//! resumed thread gives its next input, which proves that its access is over, or until
//! [`Config::hold_ns`](crate::Config::hold_ns) have passed. A hold lasts a bounded time, so it delays others
//! but blocks nobody. An instruction that needs two minipages gets them one after the other: each fault ends
//! the hold of the one before, and the repeated access finds the first one still there unless another rank
//! asked for it in between, in which case the instruction faults on.

use crate::address::Key;
use crate::{Access, Dsm, Protection, Rank, Thread};
use alloc::vec;
use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct Holds {
    /// Of each thread.
    holds: Vec<Option<Hold>>,
    /// What waits, at most one per minipage held, and so one per thread.
    put_off: Vec<Option<PutOff>>,
    /// How many holds there are.
    count: usize,
    /// How much work waits.
    waiting: usize,
    /// No thread from this one on ever held anything.
    end: usize,
}

#[derive(Debug, Clone, Copy)]
struct Hold {
    key: Key,
    access: Access,
    until_ns: u64,
}

/// A request of a manager that waits for the end of a hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PutOff {
    pub(crate) key: Key,
    pub(crate) manager: Rank,
    pub(crate) requester: Rank,
    pub(crate) thread: Thread,
    pub(crate) work: Work,
}

/// What a manager asked of the holder of a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    Forward { access: Access, acks: u16 },
    Invalidate,
}

impl Work {
    /// What the rank may keep.
    fn leaves(self) -> Protection {
        match self {
            Work::Forward {
                access: Access::Read,
                ..
            } => Protection::Read,
            _ => Protection::None,
        }
    }
}

impl Holds {
    pub(crate) fn new(threads: usize) -> Self {
        Holds {
            holds: vec![None; threads],
            put_off: vec![None; threads],
            count: 0,
            waiting: 0,
            end: 0,
        }
    }

    /// Whether some thread holds something.
    pub(crate) fn any(&self) -> bool {
        self.count > 0
    }

    /// Whether some thread holds more of the minipage than would be left.
    pub(crate) fn forbid(&self, key: Key, leaves: Protection) -> bool {
        self.count > 0
            && self.holds[..self.end]
                .iter()
                .flatten()
                .any(|hold| hold.key == key && Protection::from(hold.access) > leaves)
    }

    fn set(&mut self, thread: Thread, hold: Hold) {
        self.end = self.end.max(usize::from(thread) + 1);
        if self.holds[usize::from(thread)].replace(hold).is_none() {
            self.count += 1;
        }
    }

    fn take(&mut self, thread: Thread) -> Option<Hold> {
        let hold = self.holds[usize::from(thread)].take();
        self.count -= usize::from(hold.is_some());
        hold
    }

    /// Keeps the work for later; gives it back if it need not or cannot wait.
    #[must_use]
    fn put_off(&mut self, work: PutOff) -> Option<PutOff> {
        if !self.forbid(work.key, work.work.leaves()) {
            return Some(work);
        }
        match self.put_off.iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                *place = Some(work);
                self.waiting += 1;
            }
            None => return Some(work),
        }
        None
    }

    /// Work on the minipage that waits no longer.
    fn ready(&mut self, key: Key) -> Option<PutOff> {
        if self.waiting == 0 {
            return None;
        }
        let at = self.put_off.iter().position(|place| {
            place.is_some_and(|work| work.key == key && !self.forbid(key, work.work.leaves()))
        })?;
        self.waiting -= 1;
        self.put_off[at].take()
    }

    pub(crate) fn is_put_off(&self, key: Key) -> bool {
        self.waiting > 0 && self.put_off.iter().flatten().any(|work| work.key == key)
    }
}

impl Dsm {
    /// The time at which [`release_holds`](Self::release_holds) must be called, if another rank waits for a
    /// minipage that a thread of this one was just granted; on the clock of `handle_message`.
    pub fn poll_hold(&self) -> Option<u64> {
        if self.holds.count == 0 {
            return None;
        }
        let holds = self.holds.holds[..self.holds.end].iter().flatten();
        holds
            .filter(|hold| self.holds.is_put_off(hold.key) || self.is_stalled(hold.key))
            .map(|hold| hold.until_ns)
            .min()
    }

    /// Lets go what was granted more than [`Config::hold_ns`](crate::Config::hold_ns) ago, and serves those
    /// who waited for it. `handle_message` and `handle_fault` do the same for the time they are given.
    pub fn release_holds(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        if self.holds.count == 0 {
            return;
        }
        for thread in 0..self.used_threads {
            let over = |hold: Hold| hold.until_ns <= self.now_ns;
            if self.holds.holds[usize::from(thread)].is_some_and(over) {
                self.end_hold(thread);
            }
        }
    }

    /// Begins to hold the minipage for a thread that is being resumed.
    pub(crate) fn hold(&mut self, thread: Thread, key: Key, access: Access) {
        if self.config.hold_ns > 0 {
            let until_ns = self.now_ns.saturating_add(self.config.hold_ns);
            self.holds.set(
                thread,
                Hold {
                    key,
                    access,
                    until_ns,
                },
            );
        }
    }

    /// Ends what the thread holds, and does what waited for it.
    pub(crate) fn end_hold(&mut self, thread: Thread) {
        if self.holds.count == 0 {
            return;
        }
        if let Some(hold) = self.holds.take(thread) {
            while let Some(work) = self.holds.ready(hold.key) {
                self.give_up(work);
            }
            self.serve_waiting(hold.key);
        }
    }

    /// Does what a manager asked, now or at the end of a hold.
    pub(crate) fn give_up_in_time(&mut self, work: PutOff) {
        match self.holds.put_off(work) {
            Some(work) => self.give_up(work),
            None => self.out.counters.held_back += 1,
        }
    }
}
