//! The barrier of plain threads: spins for about as long as a wake-up costs, then sleeps.
//!
//! It is a strong baseline for ranks that spin too: a barrier that always sleeps would cost the threads tens of microseconds a phase, and
//! flatter what they are compared with.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a worker spins before it sleeps.
const SPIN: Duration = Duration::from_micros(100);
/// Waits that sleep at once after a spin in vain: others need the processors.
const SLEEPS: usize = 16;

/// A barrier for a fixed number of threads, used again and again.
pub(super) struct Barrier {
    count: usize,
    /// Whether each thread can have its own processor, so that spinning delays nobody.
    spins: bool,
    arrived: AtomicUsize,
    round: AtomicUsize,
    given_up: AtomicBool,
    /// Further waits that sleep at once.
    sleeps: AtomicUsize,
    /// How many sleep, so that nobody is woken in vain.
    sleepers: Mutex<usize>,
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
            sleeps: AtomicUsize::new(0),
            sleepers: Mutex::new(0),
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
            let some_sleep = *held > 0;
            drop(held);
            if some_sleep {
                self.wake.notify_all();
            }
        } else if !(self.spins && self.spin_until_over(round)) {
            let mut held = self.hold();
            *held += 1;
            while !self.is_over(round) {
                held = self.wake.wait(held).unwrap_or_else(PoisonError::into_inner);
            }
            *held -= 1;
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
        let sleeps = self.sleeps.load(Ordering::Relaxed);
        if sleeps > 0 {
            // A rough count: several may count one wait.
            self.sleeps.store(sleeps - 1, Ordering::Relaxed);
            return self.is_over(round);
        }
        let start = Instant::now();
        loop {
            for _ in 0..64 {
                if self.is_over(round) {
                    return true;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() > SPIN {
                self.sleeps.store(SLEEPS, Ordering::Relaxed);
                return false;
            }
        }
    }

    fn hold(&self) -> std::sync::MutexGuard<'_, usize> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
