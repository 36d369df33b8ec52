//! How a thread of the host learns that messages wait for it: what an interrupt is to a host whose NIC has none of its own.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use core::time::Duration;

use mapwire_host::waiting::{WaitStrategy, futex_wait, futex_wake, measure_wake_up, now_ns};

/// Looks of a thread that spins between two chances for others to have its processor.
const LOOKS: u32 = 64;

/// How long a thread sleeps at most. No ring is missed: this bounds what a fault here could cost.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// A bell that the NIC rings, and for which one thread of the host waits.
#[derive(Debug)]
pub struct HostBell {
    /// Rings so far.
    rings: AtomicU32,
    sleeps: AtomicBool,
    ended: AtomicBool,
    strategy: WaitStrategy,
    spin_ns: u64,
}

impl HostBell {
    /// A bell for a thread that waits in this way.
    #[must_use]
    pub fn new(strategy: WaitStrategy) -> Self {
        let spin_ns = match strategy {
            WaitStrategy::Poll => u64::MAX,
            WaitStrategy::Event => 0,
            WaitStrategy::Adaptive { spin_ns } => spin_ns.unwrap_or_else(measure_wake_up),
        };
        Self {
            rings: AtomicU32::new(0),
            sleeps: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            strategy,
            spin_ns,
        }
    }

    /// Rings: something waits.
    pub fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.sleeps.load(Ordering::Relaxed) {
            futex_wake(&self.rings, 1);
        }
    }

    /// Nobody waits any more.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.ring();
    }

    /// Rings so far: to be read before it is looked what waits.
    #[must_use]
    pub fn rings(&self) -> u32 {
        self.rings.load(Ordering::Acquire)
    }

    /// Waits until it has been rung since there were `seen` rings. False: it has [ended](Self::end).
    #[must_use]
    pub fn wait(&self, seen: u32) -> bool {
        let is_rung = || self.rings() != seen || self.ended.load(Ordering::Acquire);
        if !self.spin(is_rung) {
            self.sleeps.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            while !is_rung() {
                futex_wait(&self.rings, seen, Some(LONGEST_NAP));
            }
            self.sleeps.store(false, Ordering::Relaxed);
        }
        !self.ended.load(Ordering::Acquire)
    }

    /// Looks as long as the strategy says; whether it was rung.
    fn spin(&self, is_rung: impl Fn() -> bool) -> bool {
        let begun_ns = match self.strategy {
            WaitStrategy::Adaptive { .. } => now_ns(),
            WaitStrategy::Poll | WaitStrategy::Event => 0,
        };
        loop {
            for _ in 0..LOOKS {
                if is_rung() {
                    return true;
                }
                core::hint::spin_loop();
            }
            match self.strategy {
                WaitStrategy::Event => return false,
                WaitStrategy::Poll => std::thread::yield_now(),
                WaitStrategy::Adaptive { .. } if now_ns() - begun_ns >= self.spin_ns => {
                    return false;
                }
                WaitStrategy::Adaptive { .. } => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_ring_is_heard_in_every_way_of_waiting_and_the_end_too() {
        for way in ["poll", "event", "adaptive", "adaptive:1000"] {
            let bell = Arc::new(HostBell::new(way.parse().unwrap()));
            let heard = Arc::new(AtomicU32::new(0));
            let (of_thread, count) = (Arc::clone(&bell), Arc::clone(&heard));
            let thread = std::thread::spawn(move || {
                let mut seen = 0;
                while of_thread.wait(seen) {
                    seen = of_thread.rings();
                    count.store(seen, Ordering::Release);
                }
            });
            for number in 1..=200 {
                bell.ring();
                while heard.load(Ordering::Acquire) < number {
                    std::thread::yield_now();
                }
            }
            bell.end();
            thread.join().unwrap();
        }
    }
}
