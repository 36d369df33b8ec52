//! Time for a thread to use what it was granted.
//!
//! A thread that is resumed after a fault still has to return from the fault handler and repeat its access. If the minipage were taken
//! away first, the fault would have been useless, and two ranks could take it from each other for ever. So a right that was just granted
//! is *held*: a request that would reduce it waits until the resumed thread gives its next input, which proves that its access is over, or
//! until [`Config::hold_ns`](crate::Config::hold_ns) have passed. A hold lasts a bounded time, so it delays others but blocks nobody. An
//! instruction that needs two minipages gets them one after the other: each fault ends the previous hold, and the repeated access finds
//! the first minipage still there unless another rank requested it in between; then the instruction faults again.

use crate::address::Key;
use crate::context::Context;
use crate::{Access, Protection, Thread};
use alloc::vec;

use super::{Hold, Holds, Order, SequentialConsistency};

impl Holds {
    pub(super) fn new(threads: Thread, hold_ns: u64) -> Self {
        Holds {
            hold_ns,
            holds: vec![None; usize::from(threads)],
            put_off: vec![None; usize::from(threads)],
            count: 0,
            waiting: 0,
            end: 0,
        }
    }

    fn any(&self) -> bool {
        self.count > 0
    }

    /// Whether some thread holds a greater right to the minipage than `leaves`.
    pub(super) fn forbid(&self, key: Key, leaves: Protection) -> bool {
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

    /// Delays an order; returns it if it need not or cannot wait.
    #[must_use]
    fn put_off(&mut self, order: Order) -> Option<Order> {
        if !self.forbid(order.key, order.work.leaves()) {
            return Some(order);
        }
        match self.put_off.iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                *place = Some(order);
                self.waiting += 1;
            }
            None => return Some(order),
        }
        None
    }

    /// An order for the minipage that need not wait any longer.
    fn ready(&mut self, key: Key) -> Option<Order> {
        if self.waiting == 0 {
            return None;
        }
        let at = self
            .put_off
            .iter()
            .position(|place| place.is_some_and(|order| order.key == key && !self.forbid(key, order.work.leaves())))?;
        self.waiting -= 1;
        self.put_off[at].take()
    }

    pub(super) fn is_put_off(&self, key: Key) -> bool {
        self.waiting > 0 && self.put_off.iter().flatten().any(|order| order.key == key)
    }
}

impl SequentialConsistency {
    pub(crate) fn holds_any(&self) -> bool {
        self.holds.any()
    }

    /// Time at which [`release_holds`](Self::release_holds) must be called, if another rank waits for a minipage that a thread of this one
    /// was just granted.
    pub(crate) fn poll_hold(&self) -> Option<u64> {
        if !self.holds.any() {
            return None;
        }
        let holds = self.holds.holds[..self.holds.end].iter().flatten();
        holds
            .filter(|hold| self.holds.is_put_off(hold.key) || self.is_stalled(hold.key))
            .map(|hold| hold.until_ns)
            .min()
    }

    /// Ends expired holds, and serves the requests that waited for them.
    pub(crate) fn release_holds(&mut self, context: &mut Context, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        if !self.holds.any() {
            return;
        }
        for thread in 0..self.holds.end {
            let over = |hold: Hold| hold.until_ns <= self.now_ns;
            if self.holds.holds[thread].is_some_and(over) {
                self.end_hold(context, thread as Thread);
            }
        }
    }

    /// Begins to hold the minipage for a thread that is being resumed.
    pub(super) fn hold(&mut self, thread: Thread, key: Key, access: Access) {
        if self.holds.hold_ns > 0 {
            let until_ns = self.now_ns.saturating_add(self.holds.hold_ns);
            self.holds.set(thread, Hold { key, access, until_ns });
        }
    }

    /// A thread gives its next input: it has finished the access for which it was granted a minipage.
    pub(crate) fn end_hold(&mut self, context: &mut Context, thread: Thread) {
        if let Some(hold) = self.holds.take(thread) {
            while let Some(order) = self.holds.ready(hold.key) {
                self.give_up(context, order);
            }
            self.serve_waiting(context, hold.key);
        }
    }

    /// Carries out a manager's order, now or at the end of a hold.
    pub(super) fn give_up_in_time(&mut self, context: &mut Context, order: Order) {
        match self.holds.put_off(order) {
            Some(order) => self.give_up(context, order),
            None => context.counters_mut().held_back += 1,
        }
    }
}
