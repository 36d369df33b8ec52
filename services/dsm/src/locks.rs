//! Queue locks: a token per lock that stays where it was last used.
//!
//! The manager of a lock (its number modulo the ranks) knows only the last rank of the queue. It forwards a
//! request to that rank, which passes the token on when it is done: directly to the next, in the order in
//! which the manager saw them ask. A rank that holds the token idle needs no message to lock again.
//!
//! Threads of a rank queue there. While another rank waits, they hand the lock to each other at most
//! [`Config::lock_local_passes`](crate::Config::lock_local_passes) times before it moves on; then the rank
//! queues again.

use crate::threads::{NO_THREAD, Wait};
use crate::{Config, Dsm, Error, Lock, Message, Outcome, Progress, Rank, Thread, Violation};
use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct Locks {
    slots: Vec<Slot>,
    /// The last rank of the queue, where this rank is the manager.
    tails: Vec<Rank>,
}

/// A lock as this rank sees it.
#[derive(Debug, Clone, Copy)]
struct Slot {
    holder: Thread,
    /// The local queue, linked through the threads.
    first: Thread,
    last: Thread,
    /// To whom the token goes next.
    successor: Rank,
    /// How often the lock went to a thread of this rank while another rank waited.
    passes: u8,
    token: bool,
    asked: bool,
}

const NO_RANK: Rank = Rank::MAX;

impl Locks {
    /// All tokens idle at their managers.
    pub(crate) fn new(config: &Config) -> Self {
        let manager = |lock| (lock % u32::from(config.ranks)) as Rank;
        let slots = (0..config.locks).map(|lock| Slot {
            holder: NO_THREAD,
            first: NO_THREAD,
            last: NO_THREAD,
            successor: NO_RANK,
            passes: 0,
            token: manager(lock) == config.rank,
            asked: false,
        });
        Locks {
            slots: slots.collect(),
            tails: (0..config.locks).map(manager).collect(),
        }
    }
}

impl Dsm {
    /// Locks. `Done`: the thread has it (the token was here and idle). `Pending`: a resume with
    /// [`Outcome::Locked`] follows when it is the thread's turn.
    pub fn lock(&mut self, thread: Thread, lock: Lock) -> Result<Progress, Error> {
        self.begin(thread)?;
        let locks = self.config.locks;
        let slot = self
            .locks
            .slots
            .get_mut(lock as usize)
            .ok_or(Error::UnknownLock { lock, locks })?;
        if slot.holder == thread {
            return Err(Error::LockHeld { lock, thread });
        }
        if slot.token && slot.holder == NO_THREAD {
            slot.holder = thread;
            self.out.counters.lock_acquires_local += 1;
            return Ok(Progress::Done);
        }
        let before = core::mem::replace(&mut slot.last, thread);
        if before == NO_THREAD {
            slot.first = thread;
        } else {
            self.threads[usize::from(before)].next = thread;
        }
        let waiter = &mut self.threads[usize::from(thread)];
        waiter.waits = Wait::Lock(lock);
        waiter.next = NO_THREAD;
        self.ask_for_token(lock);
        Ok(Progress::Pending)
    }

    /// Unlocks, and passes the lock on to whoever waits. Never waits itself.
    pub fn unlock(&mut self, thread: Thread, lock: Lock) -> Result<(), Error> {
        self.begin(thread)?;
        let locks = self.config.locks;
        let slot = self
            .locks
            .slots
            .get_mut(lock as usize)
            .ok_or(Error::UnknownLock { lock, locks })?;
        if slot.holder != thread {
            return Err(Error::LockNotHeld { lock, thread });
        }
        slot.holder = NO_THREAD;
        let remote = slot.successor != NO_RANK;
        if remote && (slot.first == NO_THREAD || slot.passes >= self.config.lock_local_passes) {
            self.pass_token(lock);
            if self.locks.slots[lock as usize].first != NO_THREAD {
                self.ask_for_token(lock);
            }
        } else if slot.first != NO_THREAD {
            slot.passes = if remote { slot.passes + 1 } else { 0 };
            self.out.counters.lock_acquires_local += 1;
            self.grant_first(lock);
        }
        Ok(())
    }

    fn lock_manager(&self, lock: Lock) -> Rank {
        (lock % u32::from(self.config.ranks)) as Rank
    }

    /// Queues this rank at the manager unless it is queued or has the token.
    fn ask_for_token(&mut self, lock: Lock) {
        let slot = &mut self.locks.slots[lock as usize];
        if slot.token || slot.asked {
            return;
        }
        slot.asked = true;
        let (me, manager) = (self.config.rank, self.lock_manager(lock));
        if manager != me {
            self.out.send(manager, Message::LockRequest { lock });
            return;
        }
        // The manager itself is not last in the queue, or it would have the token or have asked.
        let tail = core::mem::replace(&mut self.locks.tails[lock as usize], me);
        self.out.send(
            tail,
            Message::LockForward {
                lock,
                successor: me,
            },
        );
    }

    /// Gives the idle token to the rank that comes next.
    fn pass_token(&mut self, lock: Lock) {
        let slot = &mut self.locks.slots[lock as usize];
        slot.token = false;
        let to = core::mem::replace(&mut slot.successor, NO_RANK);
        self.out.send(to, Message::LockToken { lock });
    }

    /// Gives the lock to the first thread of the local queue.
    fn grant_first(&mut self, lock: Lock) {
        let slot = &mut self.locks.slots[lock as usize];
        let thread = slot.first;
        let waiter = &mut self.threads[usize::from(thread)];
        slot.holder = thread;
        slot.first = waiter.next;
        if slot.first == NO_THREAD {
            slot.last = NO_THREAD;
        }
        waiter.waits = Wait::Nothing;
        self.out.resume(thread, Outcome::Locked);
    }

    fn checked_lock(&self, lock: Lock) -> Result<Slot, Violation> {
        self.locks
            .slots
            .get(lock as usize)
            .copied()
            .ok_or(Violation::OutOfRange)
    }

    pub(crate) fn handle_lock_request(&mut self, from: Rank, lock: Lock) -> Result<(), Violation> {
        self.checked_lock(lock)?;
        if self.lock_manager(lock) != self.config.rank {
            return Err(Violation::NotManager);
        }
        let tail = self.locks.tails[lock as usize];
        if tail == from {
            return Err(Violation::LockOrder);
        }
        if tail == self.config.rank {
            self.follow(lock, from)?;
        } else {
            self.out.send(
                tail,
                Message::LockForward {
                    lock,
                    successor: from,
                },
            );
        }
        self.locks.tails[lock as usize] = from;
        Ok(())
    }

    pub(crate) fn handle_lock_forward(
        &mut self,
        from: Rank,
        lock: Lock,
        successor: Rank,
    ) -> Result<(), Violation> {
        self.checked_lock(lock)?;
        if self.lock_manager(lock) != from {
            return Err(Violation::NotManager);
        }
        if successor >= self.config.ranks || successor == self.config.rank {
            return Err(Violation::OutOfRange);
        }
        self.follow(lock, successor)
    }

    /// Another rank comes after this one.
    fn follow(&mut self, lock: Lock, successor: Rank) -> Result<(), Violation> {
        let slot = &mut self.locks.slots[lock as usize];
        if slot.successor != NO_RANK || !(slot.token || slot.asked) {
            return Err(Violation::LockOrder);
        }
        slot.successor = successor;
        if slot.token && slot.holder == NO_THREAD {
            self.pass_token(lock);
        }
        Ok(())
    }

    pub(crate) fn handle_lock_token(&mut self, lock: Lock) -> Result<(), Violation> {
        self.checked_lock(lock)?;
        let slot = &mut self.locks.slots[lock as usize];
        if slot.token || !slot.asked || slot.first == NO_THREAD {
            return Err(Violation::LockOrder);
        }
        slot.token = true;
        slot.asked = false;
        slot.passes = 0;
        self.out.counters.lock_acquires_remote += 1;
        self.grant_first(lock);
        Ok(())
    }
}
