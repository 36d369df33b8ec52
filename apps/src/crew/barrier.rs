//! The barrier of plain threads: spins for about as long as a wake-up costs, then sleeps.
//!
//! It is a strong baseline for ranks that spin too: a barrier that always sleeps would cost the threads tens of microseconds a phase, and
//! flatter what they are compared with.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a worker spins before it sleeps.
const SPIN: Duration = Duration::from_micros(100);

/// A barrier for a fixed number of threads, used again and again.
pub(super) struct Barrier {
    count: usize,
    /// Whether each thread can have its own processor, so that spinning delays nobody.
    spins: bool,
    arrived: AtomicUsize,
    round: AtomicUsize,
    given_up: AtomicBool,
    sleepers: Mutex<()>,
    wake: Condvar,
}

impl Barrier {
    pub(super) fn new(count: usize, spins: bool) -> Self {
        Self {
            count,
            spins,
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            given_up: AtomicBool::new(false),
            sleepers: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Returns when all threads have arrived. Panics once a thread has given up.
    pub(super) fn wait(&self) {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.count {
            self.arrived.store(0, Ordering::Relaxed);
            // Under the lock, so that no thread falls asleep between its last check and this change.
            let held = self.hold();
            self.round.store(round.wrapping_add(1), Ordering::Release);
            drop(held);
            self.wake.notify_all();
        } else if !(self.spins && self.spin_until_over(round)) {
            let mut held = self.hold();
            while !self.is_over(round) {
                held = self.wake.wait(held).unwrap_or_else(PoisonError::into_inner);
            }
        }
        assert!(!self.given_up.load(Ordering::Relaxed), "another worker of this run has panicked");
    }

    /// Makes every thread that waits, or begins to wait, panic instead of waiting for ever.
    pub(super) fn give_up(&self) {
        let held = self.hold();
        self.given_up.store(true, Ordering::SeqCst);
        drop(held);
        self.wake.notify_all();
    }

    fn is_over(&self, round: usize) -> bool {
        self.round.load(Ordering::Acquire) != round || self.given_up.load(Ordering::Relaxed)
    }

    fn spin_until_over(&self, round: usize) -> bool {
        let start = Instant::now();
        loop {
            for _ in 0..64 {
                if self.is_over(round) {
                    return true;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() > SPIN {
                return false;
            }
        }
    }

    fn hold(&self) -> std::sync::MutexGuard<'_, ()> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
