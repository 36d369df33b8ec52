//! Queue locks: a token per lock that stays where it was last used.
//!
//! The manager of a lock (its number modulo the ranks) knows only the last rank of the queue. It forwards a request to that rank, which
//! passes the token on when it is done: directly to the next, in the order in which the manager saw the requests. A rank that holds the
//! idle token needs no message to lock again.
//!
//! Threads of a rank queue there. While another rank waits, they pass the lock to each other at most
//! [`Config::lock_local_passes`](crate::Config::lock_local_passes) times before it moves on; then the rank queues again.

use crate::coherence::{Coherence, Release};
use crate::context::{Context, Wait};
use crate::{Config, Error, Lock, Message, Outcome, Progress, Rank, Thread, Violation};
use alloc::vec;
use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct Locks {
    slots: Vec<Slot>,
    /// At the manager: last rank of each lock's queue.
    tails: Vec<Rank>,
    /// Successor of each thread of this rank in its queue.
    next: Vec<Thread>,
    local_passes: u8,
}

/// State of a lock in each rank.
#[derive(Debug, Clone, Copy)]
struct Slot {
    holder: Thread,
    /// The local queue, linked through the threads.
    first: Thread,
    last: Thread,
    /// Rank that gets the token next.
    successor: Rank,
    /// How often the lock went to a thread of this rank while another rank waited.
    passes: u8,
    token: bool,
    asked: bool,
}

/// No thread, in links and holders.
const NO_THREAD: Thread = Thread::MAX;
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
            next: vec![NO_THREAD; usize::from(config.threads)],
            local_passes: config.lock_local_passes,
        }
    }

    fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The rank that waits for the lock behind this one, as far as this one knows.
    pub(crate) fn successor(&self, lock: Lock) -> Option<Rank> {
        let slot = self.slots.get(lock as usize)?;
        Some(slot.successor).filter(|rank| *rank != NO_RANK)
    }

    /// Locks, for an idle thread.
    pub(crate) fn lock(&mut self, context: &mut Context, thread: Thread, lock: Lock) -> Result<Progress, Error> {
        let slot = self.slot(lock)?;
        if slot.holder == thread {
            return Err(Error::LockHeld { lock, thread });
        }
        if slot.token && slot.holder == NO_THREAD {
            slot.holder = thread;
            context.counters_mut().lock_acquires_local += 1;
            return Ok(Progress::Done);
        }
        let before = core::mem::replace(&mut slot.last, thread);
        if before == NO_THREAD {
            slot.first = thread;
        } else {
            self.next[usize::from(before)] = thread;
        }
        self.next[usize::from(thread)] = NO_THREAD;
        context.set_wait(thread, Wait::Lock(lock));
        self.ask_for_token(context, lock);
        Ok(Progress::Pending)
    }

    /// Unlocks, and passes the lock to the next waiter.
    pub(crate) fn unlock(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        thread: Thread,
        lock: Lock,
    ) -> Result<(), Error> {
        let local_passes = self.local_passes;
        let slot = self.slot(lock)?;
        if slot.holder != thread {
            return Err(Error::LockNotHeld { lock, thread });
        }
        slot.holder = NO_THREAD;
        let (local, remote) = (slot.first != NO_THREAD, slot.successor != NO_RANK);
        if remote && (!local || slot.passes >= local_passes) {
            self.pass_token(context, coherence, lock);
            if local {
                self.ask_for_token(context, lock);
            }
        } else if local {
            slot.passes = if remote { slot.passes + 1 } else { 0 };
            context.counters_mut().lock_acquires_local += 1;
            self.grant_first(context, lock);
        }
        Ok(())
    }

    fn slot(&mut self, lock: Lock) -> Result<&mut Slot, Error> {
        let locks = self.count();
        let slot = self.slots.get_mut(lock as usize);
        slot.ok_or(Error::UnknownLock { lock, locks })
    }

    /// Queues this rank at the manager unless it is queued or has the token.
    fn ask_for_token(&mut self, context: &mut Context, lock: Lock) {
        let slot = &mut self.slots[lock as usize];
        if slot.token || slot.asked {
            return;
        }
        slot.asked = true;
        let (me, manager) = (context.rank(), manager(context, lock));
        if manager != me {
            context.send(manager, Message::LockRequest { lock });
            return;
        }
        // The manager itself is not last in the queue: otherwise it would have the token or have requested it.
        let tail = core::mem::replace(&mut self.tails[lock as usize], me);
        context.send(tail, Message::LockForward { lock, successor: me });
    }

    /// Passes the idle token to the next rank. Apart, so that a lock that stays costs less.
    #[inline(never)]
    fn pass_token(&mut self, context: &mut Context, coherence: &mut impl Coherence, lock: Lock) {
        let slot = &mut self.slots[lock as usize];
        slot.token = false;
        let to = core::mem::replace(&mut slot.successor, NO_RANK);
        if coherence.release(Release::Token { lock, to }) {
            self.send_token(context, lock, to);
        }
    }

    /// Sends a token that was given away.
    pub(crate) fn send_token(&mut self, context: &mut Context, lock: Lock, to: Rank) {
        context.send(to, Message::LockToken { lock });
    }

    /// Gives the lock to the first thread of the local queue.
    fn grant_first(&mut self, context: &mut Context, lock: Lock) {
        let slot = &mut self.slots[lock as usize];
        let thread = slot.first;
        slot.holder = thread;
        slot.first = self.next[usize::from(thread)];
        if slot.first == NO_THREAD {
            slot.last = NO_THREAD;
        }
        context.resume(thread, Outcome::Locked);
    }

    fn check(&self, lock: Lock) -> Result<(), Violation> {
        if lock < self.count() { Ok(()) } else { Err(Violation::OutOfRange) }
    }

    pub(crate) fn handle_request(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        from: Rank,
        lock: Lock,
        payload: &[u8],
    ) -> Result<(), Violation> {
        self.check(lock)?;
        if manager(context, lock) != context.rank() {
            return Err(Violation::NotManager);
        }
        let tail = self.tails[lock as usize];
        if tail == from {
            return Err(Violation::LockOrder);
        }
        if tail == context.rank() {
            self.may_follow(lock)?;
        }
        coherence.note_request(from, from, payload)?;
        if tail == context.rank() {
            self.follow(context, coherence, lock, from);
        } else {
            context.send(tail, Message::LockForward { lock, successor: from });
        }
        self.tails[lock as usize] = from;
        Ok(())
    }

    pub(crate) fn handle_forward(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        from: Rank,
        lock: Lock,
        successor: Rank,
        payload: &[u8],
    ) -> Result<(), Violation> {
        self.check(lock)?;
        if manager(context, lock) != from {
            return Err(Violation::NotManager);
        }
        if successor >= context.ranks() || successor == context.rank() {
            return Err(Violation::OutOfRange);
        }
        self.may_follow(lock)?;
        coherence.note_request(from, successor, payload)?;
        self.follow(context, coherence, lock, successor);
        Ok(())
    }

    /// Checks that another rank may follow this one.
    fn may_follow(&self, lock: Lock) -> Result<(), Violation> {
        let slot = &self.slots[lock as usize];
        let may = slot.successor == NO_RANK && (slot.token || slot.asked);
        if may { Ok(()) } else { Err(Violation::LockOrder) }
    }

    /// Another rank follows this one.
    fn follow(&mut self, context: &mut Context, coherence: &mut impl Coherence, lock: Lock, successor: Rank) {
        let slot = &mut self.slots[lock as usize];
        slot.successor = successor;
        if slot.token && slot.holder == NO_THREAD {
            self.pass_token(context, coherence, lock);
        }
    }

    pub(crate) fn handle_token(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        from: Rank,
        lock: Lock,
        payload: &[u8],
    ) -> Result<(), Violation> {
        self.check(lock)?;
        let slot = &mut self.slots[lock as usize];
        if slot.token || !slot.asked || slot.first == NO_THREAD {
            return Err(Violation::LockOrder);
        }
        coherence.acquire(context, from, payload)?;
        slot.token = true;
        slot.asked = false;
        slot.passes = 0;
        context.counters_mut().lock_acquires_remote += 1;
        self.grant_first(context, lock);
        Ok(())
    }
}

fn manager(context: &Context, lock: Lock) -> Rank {
    (lock % u32::from(context.ranks())) as Rank
}
