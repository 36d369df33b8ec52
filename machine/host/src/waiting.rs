//! Ways of waiting for memory to change: spin, sleep, or first the one and then the other.

use core::fmt;
use core::str::FromStr;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use rustix::thread::futex;
use rustix::time::{ClockId, clock_gettime};

/// About what a wake-up costs on a virtual machine; spinning for longer than that wastes more
/// than sleeping at once would have.
pub const DEFAULT_SPIN_NS: u64 = 50_000;

/// How to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitStrategy {
    /// Spin until it happens.
    Poll,
    /// Sleep until woken.
    Event,
    /// Spin for a while, then sleep.
    Adaptive {
        /// Nanoseconds to spin.
        spin_ns: u64,
    },
}

impl WaitStrategy {
    /// Nanoseconds to spin before sleeping; `None` means for ever.
    pub fn spin_ns(self) -> Option<u64> {
        match self {
            Self::Poll => None,
            Self::Event => Some(0),
            Self::Adaptive { spin_ns } => Some(spin_ns),
        }
    }
}

impl Default for WaitStrategy {
    fn default() -> Self {
        Self::Adaptive {
            spin_ns: DEFAULT_SPIN_NS,
        }
    }
}

impl fmt::Display for WaitStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poll => f.write_str("poll"),
            Self::Event => f.write_str("event"),
            Self::Adaptive {
                spin_ns: DEFAULT_SPIN_NS,
            } => f.write_str("adaptive"),
            Self::Adaptive { spin_ns } => write!(f, "adaptive:{spin_ns}"),
        }
    }
}

/// A word that names no way of waiting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found:?} is no way to wait: use poll, event, adaptive, \
     or adaptive:N to spin for N nanoseconds (MAPWIRE_WAIT, --wait)"
)]
pub struct ParseWaitError {
    found: String,
}

impl FromStr for WaitStrategy {
    type Err = ParseWaitError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "poll" => Ok(Self::Poll),
            "event" => Ok(Self::Event),
            "adaptive" => Ok(Self::default()),
            _ => word
                .strip_prefix("adaptive:")
                .and_then(|spin| spin.parse().ok())
                .map(|spin_ns| Self::Adaptive { spin_ns })
                .ok_or_else(|| ParseWaitError {
                    found: word.to_owned(),
                }),
        }
    }
}

/// Nanoseconds of a clock that never goes back. The same clock in all processes of a host.
#[inline]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// How a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// Woken, perhaps for nothing: look at the word.
    Woken,
    /// The word was not as expected, so there was no sleep.
    Changed,
    /// The time was over.
    TimedOut,
}

/// Sleeps while `word` is `expected`, until [`futex_wake`] on the same memory, in this process or
/// another, or for `timeout`. Async-signal-safe; a signal ends the sleep as if woken.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Woken {
    let timeout = timeout.map(|timeout| futex::Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // Without the private flag: the word may lie in memory that processes share.
    match futex::wait(word, futex::Flags::empty(), expected, timeout.as_ref()) {
        Err(rustix::io::Errno::AGAIN) => Woken::Changed,
        Err(rustix::io::Errno::TIMEDOUT) => Woken::TimedOut,
        // Interrupted, or the word cannot be slept on: the caller looks again.
        Ok(()) | Err(_) => Woken::Woken,
    }
}

/// Wakes up to `sleepers` sleepers of `word`; how many were woken. Async-signal-safe.
pub fn futex_wake(word: &AtomicU32, sleepers: u32) -> usize {
    futex::wake(word, futex::Flags::empty(), sleepers.min(i32::MAX as u32)).unwrap_or(0)
}

/// Spins in a loop: [`spin`](Self::spin) after each look that found nothing, and sleep once it
/// says so.
#[derive(Debug, Clone)]
pub struct Spinner {
    spin_ns: Option<u64>,
    crowded: bool,
    started_ns: Option<u64>,
    rounds: u32,
}

impl Spinner {
    /// Looks between two readings of the clock, so that the clock costs little.
    const CLOCK_ROUNDS: u32 = 32;
    /// Looks before the processor is told that this is a spin: the hint takes as long as a cache line's way.
    const EAGER_ROUNDS: u32 = 4096;
    /// Looks after which a crowded processor is given away: about a microsecond.
    const YIELD_ROUNDS: u32 = 64;

    /// A spinner for one wait. `crowded`: there are more runnable ranks than processors, so
    /// whoever is waited for may need this one; the spinner then yields from time to time.
    pub fn new(strategy: WaitStrategy, crowded: bool) -> Self {
        Self {
            spin_ns: strategy.spin_ns(),
            crowded,
            started_ns: None,
            rounds: 0,
        }
    }

    /// Begins anew, after something was found.
    #[inline]
    pub fn reset(&mut self) {
        self.started_ns = None;
        self.rounds = 0;
    }

    /// Passes a moment. Whether to look again; if not, it is time to sleep.
    #[inline]
    pub fn spin(&mut self) -> bool {
        if self.spin_ns == Some(0) {
            return false;
        }
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(Self::CLOCK_ROUNDS) && self.is_over() {
            return false;
        }
        if self.crowded && self.rounds.is_multiple_of(Self::YIELD_ROUNDS) {
            rustix::thread::sched_yield();
        } else if self.rounds > Self::EAGER_ROUNDS {
            core::hint::spin_loop();
        }
        true
    }

    #[cold]
    fn is_over(&mut self) -> bool {
        let Some(spin_ns) = self.spin_ns else {
            return false;
        };
        let now = now_ns();
        let started = *self.started_ns.get_or_insert(now);
        now - started >= spin_ns
    }
}

/// Waits as `strategy` says until `word` is no longer `expected`, or for `timeout`. Returns the
/// word. A sleeper needs [`futex_wake`] from whoever changes it.
pub fn wait_for_change(
    word: &AtomicU32,
    expected: u32,
    strategy: WaitStrategy,
    crowded: bool,
    timeout: Option<Duration>,
) -> Option<u32> {
    let deadline = timeout
        .map(|timeout| now_ns().saturating_add(timeout.as_nanos().try_into().unwrap_or(u64::MAX)));
    let mut spinner = Spinner::new(strategy, crowded);
    let mut looks = 0u32;
    loop {
        let now = word.load(Ordering::Acquire);
        if now != expected {
            return Some(now);
        }
        if !spinner.spin() {
            let left = match deadline {
                None => None,
                Some(deadline) => match deadline.saturating_sub(now_ns()) {
                    0 => return None,
                    left => Some(Duration::from_nanos(left)),
                },
            };
            futex_wait(word, expected, left);
        } else {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1024) && deadline.is_some_and(|deadline| now_ns() >= deadline) {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_reads_back_as_it_prints() {
        for strategy in [
            WaitStrategy::Poll,
            WaitStrategy::Event,
            WaitStrategy::default(),
            WaitStrategy::Adaptive { spin_ns: 7 },
        ] {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        let error = "sometimes".parse::<WaitStrategy>().unwrap_err();
        assert!(error.to_string().contains("sometimes") && error.to_string().contains("adaptive"));
    }

    #[test]
    fn a_spinner_sleeps_at_once_when_events_are_wanted_and_never_when_polling() {
        assert!(!Spinner::new(WaitStrategy::Event, false).spin());
        let mut poll = Spinner::new(WaitStrategy::Poll, true);
        assert!((0..100_000).all(|_| poll.spin()));
    }

    #[test]
    fn an_adaptive_spinner_gives_up_after_its_time_and_begins_anew_when_reset() {
        let mut spinner = Spinner::new(WaitStrategy::Adaptive { spin_ns: 200_000 }, false);
        for _ in 0..2 {
            let start = now_ns();
            while spinner.spin() {}
            assert!(now_ns() - start >= 200_000);
            spinner.reset();
        }
    }

    #[test]
    fn every_strategy_sees_the_change_that_another_thread_makes() {
        for strategy in [
            WaitStrategy::Poll,
            WaitStrategy::Event,
            WaitStrategy::default(),
        ] {
            let word = AtomicU32::new(0);
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| wait_for_change(&word, 0, strategy, true, None));
                std::thread::sleep(Duration::from_millis(5));
                word.store(3, Ordering::Release);
                futex_wake(&word, u32::MAX);
                assert_eq!(waiter.join().unwrap(), Some(3));
            });
        }
    }

    #[test]
    fn a_wait_ends_at_its_timeout() {
        let word = AtomicU32::new(0);
        for strategy in [
            WaitStrategy::Poll,
            WaitStrategy::Event,
            WaitStrategy::default(),
        ] {
            let start = now_ns();
            let waited = wait_for_change(&word, 0, strategy, false, Some(Duration::from_millis(3)));
            assert_eq!(waited, None);
            assert!(now_ns() - start >= 3_000_000);
        }
        assert_eq!(futex_wait(&word, 1, None), Woken::Changed);
        assert_eq!(
            futex_wait(&word, 0, Some(Duration::from_millis(1))),
            Woken::TimedOut
        );
    }
}
