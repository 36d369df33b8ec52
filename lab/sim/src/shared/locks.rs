//! Locks as programs take them, and what is checked of them: they exclude, go in turn to the threads of a rank, and are not kept from
//! another rank that waits.

use mapwire_dsm::{ObjectCall, ObjectKind, Progress, Verb};

use super::{Doing, Programs, Touch};
use crate::canary::Canary;
use crate::cluster::{Cluster, Observer};
use crate::coverage::Condition;

impl Programs {
    pub(super) fn lock(&mut self, cluster: &mut Cluster, who: usize, lock: u32) {
        self.asked += 1;
        self.programs[who].doing = Doing::Locking(lock, self.asked);
        let thread = self.thread_of(who);
        if self.shape.mutexes {
            return self.call_mutex(cluster, who, lock, Verb::Take);
        }
        match self.call(cluster, who, |dsm| dsm.lock(thread, lock)) {
            Some(Ok(Progress::Done)) => {
                self.programs[who].is_pending = false;
                self.locked(cluster, who, lock);
            }
            Some(Ok(Progress::Pending)) => self.note_queued(who, lock),
            other => {
                let text = format!("thread {who}: a lock gave {other:?}");
                self.broke(cluster.now_ns(), "locks", text);
            }
        }
    }

    fn call_mutex(&mut self, cluster: &mut Cluster, who: usize, lock: u32, verb: Verb) {
        let (thread, object) = (self.thread_of(who), 64 + 8 * u64::from(lock));
        let call = ObjectCall { object, kind: ObjectKind::Mutex, verb, argument: 0 };
        let begun = self.call(cluster, who, |dsm| dsm.call_object(thread, call));
        if !matches!(begun, Some(Ok(()))) {
            self.broke(cluster.now_ns(), "locks", format!("thread {who}: {call:?} gave {begun:?}"));
        }
    }

    pub(super) fn unlock(&mut self, cluster: &mut Cluster, who: usize, lock: u32) {
        self.holders[lock as usize] = None;
        if self.shape.mutexes {
            self.programs[who].doing = Doing::Unlocking;
            return self.call_mutex(cluster, who, lock, Verb::Give);
        }
        let (thread, rank) = (self.thread_of(who), self.rank_of(who));
        let unlocked = self.call(cluster, who, |dsm| (dsm.lock_successor(lock), dsm.unlock(thread, lock)));
        self.programs[who].is_pending = false;
        let (successor, unlocked) = unlocked.unwrap_or((None, Ok(())));
        if let Err(error) = unlocked {
            self.broke(cluster.now_ns(), "locks", format!("thread {who}: {error}"));
        }
        let (last, times) = self.handed[lock as usize];
        let times = match successor {
            None => 0,
            Some(_) if last == rank => times + 1,
            Some(_) => 1,
        };
        self.handed[lock as usize] = (rank, times);
        if times > self.shape.lock_passes.into() && self.waiters(who, lock).next().is_some() {
            self.coverage.note(Condition::LockYielded);
        }
    }

    /// A thread has a lock, and adds to its word.
    pub(super) fn locked(&mut self, cluster: &mut Cluster, who: usize, lock: u32) {
        self.coverage.note(Condition::Locked);
        let holder = self.holders[lock as usize].replace(who);
        if let Some(other) = holder {
            let text = format!("lock {lock} is held by thread {who} and by thread {other}");
            self.broke(cluster.now_ns(), "locks", text);
        }
        self.check_turn(cluster.now_ns(), who, lock);
        if self.tests.is_some() {
            return self.tested(cluster, who);
        }
        self.programs[who].doing =
            Doing::Touching(Touch { allocation: lock as usize, offset: 0, store: None, lock: Some(lock) });
        self.again(cluster, who, 500);
    }

    /// A thread waits for a lock.
    pub(super) fn note_queued(&mut self, who: usize, lock: u32) {
        let rank = self.rank_of(who);
        let others = self.waiters(who, lock).count();
        let holder = self.holders[lock as usize].map(|holder| self.rank_of(holder));
        self.coverage.note(if others > 0 || holder == Some(rank) {
            Condition::LockQueued
        } else {
            Condition::LockWaits
        });
        if others > 0 {
            self.coverage.note(Condition::LockQueuedDeep);
        }
    }

    /// Other threads of the rank that wait for the lock, and since which call.
    pub(super) fn waiters(&self, who: usize, lock: u32) -> impl Iterator<Item = (usize, u64)> {
        let first = who - usize::from(self.thread_of(who));
        let of_rank = first..first + usize::from(self.shape.threads);
        of_rank.filter_map(move |other| match self.programs[other].doing {
            Doing::Locking(of, since) if of == lock && other != who => Some((other, since)),
            _ => None,
        })
    }

    /// Another thread of the rank that waits for the lock, if a bug is to show.
    pub(super) fn other_waiter(&self, who: usize, lock: u32, bug: Canary) -> Option<usize> {
        let is_hit = self.canary == Some(bug);
        let mut others = self.waiters(who, lock).filter(|_| is_hit);
        others.next().map(|(other, _)| other)
    }

    /// A lock goes in turn to the threads of a rank, and no more than so often while another rank waits.
    pub(super) fn check_turn(&mut self, now_ns: u64, who: usize, lock: u32) {
        let (last, times) = self.handed[lock as usize];
        if last == self.rank_of(who) && times > self.shape.lock_passes.into() {
            let text = format!("rank {last} keeps lock {lock}, for which another waits, {times} times");
            self.broke(now_ns, "locks", text);
        }
        let Doing::Locking(_, since) = self.programs[who].doing else { return };
        let before = self.waiters(who, lock).find(|(_, other)| *other < since);
        if let Some((other, _)) = before {
            let text = format!("thread {who} gets lock {lock} before thread {other}, which asked first");
            self.broke(now_ns, "locks", text);
        }
    }
}
