//! A mutex: who holds it, and who gets it next.
//!
//! A thread that comes when it is free takes it, also past others that sleep: handing it to a sleeper each time would cost a wake-up each
//! time. But a sleeper that has waited for a millisecond, and was woken in vain, takes the *turn*: whoever holds the mutex hands it over
//! when he unlocks. Among sleepers the kernel wakes the one that has slept longest.
//!
//! `state` is 0, or the holder's number, with a bit if others sleep or the holder has not taken note yet that it was handed over. The
//! waiter whose turn it is sleeps on `calls`, all others on `state`.

use crate::sync::error::{Object, SyncError, Who};
use crate::sync::threads::{FREED, NUMBER};
use crate::sync::words::{Rounds, Waits, Word};
use crate::waiting::Waited;

/// Others sleep.
const WAITERS: u32 = 1 << 31;
/// Handed to the holder, which has not taken note yet: it has changed nothing.
const HANDED: u32 = 1 << 30;
/// In `turn`: the mutex is about to be handed to that thread, and nobody takes this back.
const PROMISED: u32 = 1 << 30;

/// For so long a waiter lets others pass, in nanoseconds.
const PATIENT_NS: u64 = 1_000_000;

/// Bytes of a mutex.
pub const MUTEX_BYTES: u64 = 32;

/// The words of a mutex; all zero: unlocked.
#[derive(Debug)]
pub(crate) struct MutexWords<'a, W> {
    pub(crate) state: &'a W,
    /// The number of the waiter that is next, or 0.
    pub(crate) turn: &'a W,
    /// Counts what is done for that waiter, after it is done: so it misses nothing between its looks and its sleep.
    pub(crate) calls: &'a W,
    /// Not 0 once the holder was found to have ended: the rank plus one, the process, the thread.
    pub(crate) lost: [&'a W; 3],
}

/// A mutex with those who use it.
#[derive(Debug)]
pub(crate) struct Mutex<'a, S: Waits> {
    pub(crate) waits: &'a S,
    pub(crate) words: MutexWords<'a, S::Word>,
    /// Its name for messages.
    pub(crate) object: Object,
}

impl<'a, S: Waits> Mutex<'a, S> {
    /// Locks for thread `me`.
    #[inline]
    pub(crate) fn lock(&self, me: u32) -> Result<(), SyncError> {
        match self.words.state.replace(0, me) {
            Ok(()) => Ok(()),
            Err(seen) => self.lock_slowly(me, seen, None).map(drop),
        }
    }

    /// Locks; false: not by `deadline_ns`.
    #[inline]
    pub(crate) fn lock_until(&self, me: u32, deadline_ns: u64) -> Result<bool, SyncError> {
        match self.words.state.replace(0, me) {
            Ok(()) => Ok(true),
            Err(seen) => self.lock_slowly(me, seen, Some(deadline_ns)),
        }
    }

    /// Locks if it is free. `looks`: whether to find out whether a holder has ended, which takes some microseconds.
    #[inline]
    pub(crate) fn try_lock(&self, me: u32, looks: impl FnOnce() -> bool) -> Result<bool, SyncError> {
        match self.words.state.replace(0, me) {
            Ok(()) => Ok(true),
            Err(seen) => self.explain_busy(me, seen, looks),
        }
    }

    #[cold]
    fn explain_busy(&self, me: u32, seen: u32, looks: impl FnOnce() -> bool) -> Result<bool, SyncError> {
        if seen & NUMBER == me && seen & HANDED == 0 {
            return Ok(false);
        }
        self.check(me, seen)?;
        if looks() {
            self.look_at_holder(seen)?;
        }
        Ok(false)
    }

    /// Unlocks for thread `me`.
    #[inline]
    pub(crate) fn unlock(&self, me: u32) -> Result<(), SyncError> {
        match self.words.state.replace(me, 0) {
            Ok(()) => Ok(()),
            Err(seen) => self.unlock_slowly(me, seen),
        }
    }

    /// Refuses whoever does not hold it.
    pub(crate) fn check_holder(&self, me: u32) -> Result<(), SyncError> {
        let seen = self.words.state.load();
        if seen & !WAITERS == me { Ok(()) } else { Err(self.not_held(seen)) }
    }

    #[cold]
    fn not_held(&self, seen: u32) -> SyncError {
        let object = self.object;
        if seen == FREED {
            return SyncError::Freed(object);
        }
        let holder = seen & NUMBER;
        SyncError::NotHeld { object, holder: (holder != 0).then(|| self.waits.who(holder)) }
    }

    #[cold]
    fn unlock_slowly(&self, me: u32, seen: u32) -> Result<(), SyncError> {
        if seen != me | WAITERS {
            return Err(self.not_held(seen));
        }
        let MutexWords { state, turn, .. } = self.words;
        let next = turn.load();
        let is_waiter = next & !NUMBER == 0 && next != 0;
        if is_waiter && turn.replace(next, next | PROMISED).is_ok() {
            state.store(next | HANDED | WAITERS);
            self.call();
            return Ok(());
        }
        state.swap(0);
        self.waits.wake(state, 1);
        // One that took the turn since then may have seen the mutex locked.
        if turn.load_in_order() != 0 {
            self.call();
        }
        Ok(())
    }

    /// Wakes the waiter whose turn it is.
    fn call(&self) {
        self.words.calls.add(1);
        self.waits.wake(self.words.calls, u32::MAX);
    }

    /// Refuses what can never be locked by `me`, given the state.
    fn check(&self, me: u32, seen: u32) -> Result<(), SyncError> {
        if seen == FREED {
            return Err(SyncError::Freed(self.object));
        }
        if seen & !WAITERS == me {
            return Err(SyncError::Held(self.object));
        }
        match self.words.lost.map(Word::load) {
            [0, ..] => Ok(()),
            [rank, pid, tid] => {
                let who = Who { rank: rank.wrapping_sub(1), pid, tid };
                Err(SyncError::HolderEnded { object: self.object, who })
            }
        }
    }

    /// Refuses a holder that has ended, for all from now on.
    fn look_at_holder(&self, seen: u32) -> Result<(), SyncError> {
        let state = self.words.state;
        let Some(who) = self.waits.ended(seen & NUMBER) else { return Ok(()) };
        if seen & NUMBER == 0 || state.load() != seen {
            return Ok(());
        }
        if seen & HANDED != 0 {
            // It never had it.
            if state.replace(seen, 0).is_ok() {
                let _ = self.words.turn.replace(seen & NUMBER | PROMISED, 0);
                self.waits.wake(state, 1);
            }
            return Ok(());
        }
        Err(self.lose(who))
    }

    /// Makes all know that the holder has ended.
    fn lose(&self, who: Who) -> SyncError {
        let [rank, pid, tid] = self.words.lost;
        pid.store(who.pid);
        tid.store(who.tid);
        rank.store(who.rank.wrapping_add(1).max(1));
        self.waits.wake(self.words.state, u32::MAX);
        self.call();
        SyncError::HolderEnded { object: self.object, who }
    }

    /// Leaves the mutex, which the calling thread holds, to one that has ended: nobody gets it any more.
    #[cold]
    pub(crate) fn lose_to(&self, number: u32, who: Who) -> SyncError {
        self.words.state.store(number & NUMBER | WAITERS);
        self.lose(who)
    }

    #[cold]
    fn lock_slowly(&self, me: u32, seen: u32, deadline_ns: Option<u64>) -> Result<bool, SyncError> {
        self.check(me, seen)?;
        let state = self.words.state;
        if self.waits.spin(|| state.load() == 0 && state.replace(0, me).is_ok()) {
            return Ok(true);
        }
        let locked = self.sleep_for_it(me, deadline_ns);
        if !matches!(locked, Ok(true)) {
            self.pass_on_waking();
        }
        locked
    }

    fn sleep_for_it(&self, me: u32, deadline_ns: Option<u64>) -> Result<bool, SyncError> {
        let MutexWords { state, turn, .. } = self.words;
        let begun_ns = self.waits.now_ns();
        let mut rounds = Rounds::default();
        let mut has_slept = false;
        loop {
            rounds.next(self.waits)?;
            let seen = state.load();
            if seen == 0 {
                // Others may sleep still.
                if state.replace(0, me | WAITERS).is_ok() {
                    return Ok(true);
                }
                continue;
            }
            self.check(me, seen)?;
            let is_late = has_slept && self.waits.now_ns().saturating_sub(begun_ns) > PATIENT_NS;
            if is_late && turn.replace(0, me).is_ok() {
                if let Some(locked) = self.sleep_for_turn(me, deadline_ns)? {
                    return Ok(locked);
                }
                continue;
            }
            if seen & WAITERS == 0 && state.replace(seen, seen | WAITERS).is_err() {
                continue;
            }
            let seen = seen | WAITERS;
            if self.waits.sleep(state, seen, deadline_ns, &mut || self.look_at_holder(seen))? == Waited::TimedOut {
                return Ok(false);
            }
            has_slept = true;
        }
    }

    /// Sleeps with the turn taken. `None`: it was lost.
    fn sleep_for_turn(&self, me: u32, deadline_ns: Option<u64>) -> Result<Option<bool>, SyncError> {
        let MutexWords { state, turn, calls, .. } = self.words;
        let mut rounds = Rounds::default();
        // How the wait ends if the mutex was not promised.
        let mut end = None;
        loop {
            rounds.next(self.waits)?;
            let called = calls.load_in_order();
            let seen = state.load_in_order();
            let is_mine = seen & !WAITERS == me | HANDED;
            if is_mine || seen == 0 {
                if state.replace(seen, me | WAITERS).is_ok() {
                    turn.store(0);
                    return Ok(Some(true));
                }
                continue;
            }
            if let Some(end) = end.take()
                && turn.replace(me, 0).is_ok()
            {
                return end;
            }
            if seen & WAITERS == 0 && state.replace(seen, seen | WAITERS).is_err() {
                continue;
            }
            let seen_turn = turn.load();
            if seen_turn & NUMBER != me {
                // Taken away by one that took this thread for dead, or that is hostile.
                return Ok(None);
            }
            // What is promised comes.
            let deadline_ns = deadline_ns.filter(|_| seen_turn == me);
            let seen = seen | WAITERS;
            let mut look = || {
                self.check(me, state.load())?;
                self.look_at_holder(seen)
            };
            match self.waits.sleep(calls, called, deadline_ns, &mut look) {
                Ok(Waited::Changed) => {}
                Ok(Waited::TimedOut) => end = Some(Ok(Some(false))),
                Err(error) if seen_turn & PROMISED != 0 => return Err(error),
                Err(error) => end = Some(Err(error)),
            }
        }
    }

    /// A thread that gives up may have been woken in the place of another.
    fn pass_on_waking(&self) {
        let state = self.words.state;
        let seen = state.load();
        let must_wake = seen == 0 || seen & WAITERS == 0 && state.replace(seen, seen | WAITERS).is_err();
        if must_wake {
            self.waits.wake(state, 1);
        }
    }
}
