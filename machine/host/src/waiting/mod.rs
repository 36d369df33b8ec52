//! Ways of waiting for memory to change: spinning, sleeping, or one after the other.
//!
//! A spin is a number of looks, so that no wait reads the clock. The cost of a look is measured once for each process, and so is the cost
//! of a wake-up, once or twice of which `adaptive` spins: spinning for the price of a wake-up loses at most as much as sleeping at once
//! would have cost.
//!
//! That holds while the processor has nothing else to do. [`Patience`] therefore watches how spins end: after one that found nothing it
//! asks the kernel how many threads are runnable, and sleeps at once while they outnumber the processors.

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use rustix::thread::futex;
use rustix::time::{ClockId, clock_gettime};

use crate::choice::{ChoiceError, choose};

#[allow(unsafe_code)]
mod either;
mod load;

pub use either::EitherWait;
use load::Load;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitStrategy {
    Poll,
    Event,
    /// Spin for a while, then sleep; sleep at once while more threads are runnable than there are processors.
    Adaptive {
        /// Nanoseconds to spin; `None`: the measured cost of a wake-up.
        spin_ns: Option<u64>,
    },
}

impl Default for WaitStrategy {
    fn default() -> Self {
        Self::Adaptive { spin_ns: None }
    }
}

impl fmt::Display for WaitStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poll => f.write_str("poll"),
            Self::Event => f.write_str("event"),
            Self::Adaptive { spin_ns: None } => f.write_str("adaptive"),
            Self::Adaptive { spin_ns: Some(spin_ns) } => write!(f, "adaptive:{spin_ns}"),
        }
    }
}

impl FromStr for WaitStrategy {
    type Err = ChoiceError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        if let Some(spin_ns) = word.strip_prefix("adaptive:").and_then(|spin| spin.parse().ok()) {
            return Ok(Self::Adaptive { spin_ns: Some(spin_ns) });
        }
        let legal = "poll, event, adaptive, or adaptive:N to spin for N nanoseconds (MAPWIRE_WAIT, --wait)";
        choose(&[Self::Poll, Self::Event, Self::default()], word, "way to wait", legal)
    }
}

/// Nanoseconds of a monotonic clock, the same in all processes of a host.
#[inline]
pub fn now_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// As [`now_ns`], but up to some milliseconds old, for a quarter of the price.
#[inline]
pub fn coarse_now_ns() -> u64 {
    read_ns(ClockId::MonotonicCoarse)
}

/// Nanoseconds of processor time used by the calling thread. May be called in a signal handler.
#[must_use]
pub fn thread_time_ns() -> u64 {
    read_ns(ClockId::ThreadCPUTime)
}

#[inline]
fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// Woken, perhaps spuriously: check the word.
    Woken,
    /// The word was not as expected, so there was no sleep.
    Changed,
    TimedOut,
}

/// Sleeps while `word` is `expected`, until [`futex_wake`] on the same memory, in this process or another, or until `timeout`.
/// Async-signal-safe; a signal ends the sleep as if woken.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Woken {
    let timeout = timeout.map(|timeout| futex::Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // Without the private flag: the word may lie in memory that processes share.
    match futex::wait(word, futex::Flags::empty(), expected, timeout.as_ref()) {
        Err(rustix::io::Errno::AGAIN) => Woken::Changed,
        Err(rustix::io::Errno::TIMEDOUT) => Woken::TimedOut,
        // Interrupted, or the word cannot be slept on: the caller checks again.
        Ok(()) | Err(_) => Woken::Woken,
    }
}

/// Wakes up to `sleepers` sleepers of `word`; returns the number woken. Async-signal-safe.
pub fn futex_wake(word: &AtomicU32, sleepers: u32) -> usize {
    futex::wake(word, futex::Flags::empty(), sleepers.min(i32::MAX as u32)).unwrap_or(0)
}

/// Bounds of the assumed cost of a wake-up, in nanoseconds.
const WAKE_NS: RangeInclusive<u64> = 2_000..=100_000;
/// Most wake-ups measured, and the time limit.
const PINGS: u32 = 9;
const PINGS_NS: u64 = 2_000_000;

/// Measures the nanoseconds of a wake-up from one thread to another: the median of a few, there and back. Takes 2 ms at most on an idle
/// machine.
pub fn measure_wake_up() -> u64 {
    let word = AtomicU32::new(0);
    // Even: the asker's turn. The last answer comes without a question, so that nobody waits for ever.
    let pass = |turn: u32| {
        word.store(turn, Ordering::Release);
        futex_wake(&word, 1);
    };
    let wait_while = |turn: u32| {
        while word.load(Ordering::Acquire) == turn {
            futex_wait(&word, turn, None);
        }
    };
    const END: u32 = u32::MAX;
    let mut taken_ns = Vec::with_capacity(PINGS as usize);
    std::thread::scope(|scope| {
        let answer = || {
            for turn in 0..PINGS {
                wait_while(2 * turn);
                if word.load(Ordering::Acquire) == END {
                    return;
                }
                pass(2 * turn + 2);
            }
        };
        let started = std::thread::Builder::new().stack_size(64 << 10);
        if started.spawn_scoped(scope, answer).is_err() {
            return;
        }
        let begun_ns = now_ns();
        for turn in 0..PINGS {
            let asked_ns = now_ns();
            pass(2 * turn + 1);
            wait_while(2 * turn + 1);
            let answered_ns = now_ns();
            // The first waits for the thread to start.
            if turn > 0 {
                taken_ns.push((answered_ns - asked_ns) / 2);
            }
            if answered_ns - begun_ns > PINGS_NS {
                pass(END);
                return;
            }
        }
    });
    taken_ns.sort_unstable();
    let median = taken_ns.get(taken_ns.len() / 2).copied();
    median.unwrap_or(*WAKE_NS.end()).clamp(*WAKE_NS.start(), *WAKE_NS.end())
}

/// Waits that sleep at once after the threads were found to outnumber the processors; then the kernel is asked again.
const CROWDED_WAITS: u32 = 16;
/// Parameters for a process whose spins find nothing.
#[derive(Debug, Clone)]
struct Habit {
    /// Length of a spin, in wake-ups.
    wake_ups: u64,
    /// Bounds of the assumed cost of a wake-up, in nanoseconds, whatever was measured.
    wake_ns: RangeInclusive<u64>,
    /// Spins in a row that may end in a sleep before the next waits sleep at once; each further one doubles their number.
    failures: u32,
    /// Most waits that sleep at once.
    most_sleeps: u32,
}

impl Habit {
    /// Each rank has a processor. A spin lasts long enough for the answer of a peer that had to be woken: otherwise a late answer would
    /// make two ranks send each other to sleep from then on.
    const ROOMY: Self = Self {
        wake_ups: 2,
        // The measurement may have hit a thread that stayed on its processor, which costs a tenth.
        wake_ns: 40_000..=*WAKE_NS.end(),
        failures: 16,
        most_sleeps: 64,
    };
    /// Ranks share processors: a spin occupies one that those who could end it need.
    const CROWDED: Self = Self {
        wake_ups: 1,
        // The processors are busy: no wake-up waits for one to leave its idle state, as the measured one may have.
        wake_ns: *WAKE_NS.start()..=5_000,
        failures: 2,
        most_sleeps: 256,
    };

    fn spin_ns(&self) -> u64 {
        self.wake_ups * measure_wake_up().clamp(*self.wake_ns.start(), *self.wake_ns.end())
    }

    /// Most failures counted, so that a few successful spins change everything.
    const fn most_failures(&self) -> u32 {
        self.failures + self.most_sleeps.ilog2()
    }
}

/// Decides for all threads of a process whether a wait spins, and for how many looks.
#[derive(Debug)]
pub struct Patience {
    /// Looks of a spin; 0: sleep at once, [`u32::MAX`]: never sleep.
    looks: u32,
    /// Whether the strategy is never to sleep, but there are more ranks than processors.
    yields: bool,
    load: Load,
    habit: Habit,
    /// Number of further waits that sleep at once.
    sleeps: AtomicU32,
    /// Number of spins in a row that ended in a sleep.
    failures: AtomicU32,
}

impl Patience {
    /// For a process of a job of `ranks` on this host that waits by `strategy`. `look` is what a thread does between two decisions; it is
    /// called a few hundred times, to measure its time.
    pub fn new(strategy: WaitStrategy, ranks: usize, look: impl FnMut()) -> Self {
        // A rank that is bound to one processor says nothing about the others' processors.
        let (mine, all) = (crate::limits::processors(), crate::limits::online_processors());
        let habit = match ranks > all || mine > 1 && ranks > mine {
            true => Habit::CROWDED,
            false => Habit::ROOMY,
        };
        Self::by_habit(strategy, (ranks, Load::of_job(ranks)), habit, look)
    }

    /// As [`new`](Self::new), for a job most of whose ranks have not joined yet or have left: two that communicate are assumed to have a
    /// processor each, until a check of the load shows otherwise.
    pub fn of_open_job(strategy: WaitStrategy, ranks: usize, look: impl FnMut()) -> Self {
        Self::by_habit(strategy, (ranks, Load::of_job(1)), Habit::ROOMY, look)
    }

    fn by_habit(strategy: WaitStrategy, (ranks, load): (usize, Load), habit: Habit, look: impl FnMut()) -> Self {
        let looks = match strategy {
            WaitStrategy::Poll => u32::MAX,
            WaitStrategy::Event => 0,
            WaitStrategy::Adaptive { spin_ns } => {
                let spin_ns = spin_ns.unwrap_or_else(|| habit.spin_ns());
                let looks = spin_ns * 1000 / look_ps(look);
                looks.min(u64::from(u32::MAX - 1)) as u32
            }
        };
        Self {
            looks,
            yields: strategy == WaitStrategy::Poll && ranks > crate::limits::processors(),
            load,
            habit,
            sleeps: AtomicU32::new(0),
            failures: AtomicU32::new(0),
        }
    }

    /// Whether the next wait spins.
    #[inline]
    pub fn spins(&self) -> bool {
        self.looks != 0 && self.sleeps.load(Ordering::Relaxed) == 0
    }

    /// A spinner for one wait.
    #[inline]
    pub fn begin(&self) -> Spinner {
        let looks = match self.sleeps.load(Ordering::Relaxed) {
            0 => self.looks,
            left => {
                self.skip(left);
                0
            }
        };
        Spinner { looks, spent: 0, yields: self.yields }
    }

    #[cold]
    fn skip(&self, left: u32) {
        // Concurrent threads count one wait as one: it is a rough count.
        let next = match left {
            1 if self.load.is_crowded() => CROWDED_WAITS,
            _ => left - 1,
        };
        self.sleeps.store(next, Ordering::Relaxed);
    }

    /// A spin succeeded.
    #[inline]
    pub fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            let failures = self.failures.load(Ordering::Relaxed) / 2;
            self.failures.store(failures, Ordering::Relaxed);
        }
    }

    /// A spin failed, and the thread sleeps.
    #[cold]
    pub fn failed(&self) {
        if self.looks == u32::MAX {
            // The wait had a time limit. The next one spins all the same.
            return;
        }
        let failures = self.failures.load(Ordering::Relaxed) + 1;
        let failures = failures.min(self.habit.most_failures());
        self.failures.store(failures, Ordering::Relaxed);
        let crowded = if self.load.is_crowded() { CROWDED_WAITS } else { 0 };
        let doublings = failures.saturating_sub(self.habit.failures);
        let sleeps = ((1_u32 << doublings) - 1).clamp(crowded, self.habit.most_sleeps);
        self.sleeps.store(sleeps, Ordering::Relaxed);
    }
}

/// Picoseconds of a call of `look`: the least of a few series.
fn look_ps(mut look: impl FnMut()) -> u64 {
    const SERIES: u64 = 64;
    let series = (0..5).map(|_| {
        let start_ns = now_ns();
        (0..SERIES).for_each(|_| look());
        (now_ns() - start_ns) * 1000 / SERIES
    });
    series.min().unwrap_or(1).max(1)
}

/// Spins in a loop: call [`spin`](Self::spin) after each look that found nothing, and sleep once it says so.
#[derive(Debug, Clone)]
pub struct Spinner {
    looks: u32,
    spent: u32,
    yields: bool,
}

impl Spinner {
    /// Looks before the processor is told that this is a spin: the hint takes as long as the transfer of a cache line.
    const EAGER_LOOKS: u32 = 4096;
    /// Looks after which a processor that others may need is yielded: a microsecond or two.
    const LOOKS_BEFORE_YIELD: u32 = 64;

    /// Whether this wait spins at all.
    #[inline]
    pub fn spins(&self) -> bool {
        self.looks != 0
    }

    /// Restarts, after something was found.
    #[inline]
    pub fn reset(&mut self) {
        self.spent = 0;
    }

    /// Pauses briefly. Returns whether to look again; if not, sleep.
    #[inline]
    pub fn spin(&mut self) -> bool {
        self.spent = self.spent.wrapping_add(1);
        if self.spent > self.looks {
            return false;
        }
        if self.yields && self.spent.is_multiple_of(Self::LOOKS_BEFORE_YIELD) {
            rustix::thread::sched_yield();
        } else if self.spent > Self::EAGER_LOOKS {
            core::hint::spin_loop();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patience(strategy: WaitStrategy) -> Patience {
        Patience::new(strategy, 1, core::hint::spin_loop)
    }

    /// Looks that a wait makes before it sleeps, up to a million.
    fn looks(patience: &Patience) -> u32 {
        let mut spinner = patience.begin();
        let looks = (0..1_000_000).take_while(|_| spinner.spin()).count() as u32;
        if looks > 0 {
            patience.failed();
        }
        looks
    }

    #[test]
    fn every_strategy_reads_back_as_it_prints() {
        for strategy in [
            WaitStrategy::Poll,
            WaitStrategy::Event,
            WaitStrategy::default(),
            WaitStrategy::Adaptive { spin_ns: Some(7) },
        ] {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        let error = "sometimes".parse::<WaitStrategy>().unwrap_err();
        assert!(error.to_string().contains("sometimes") && error.to_string().contains("adaptive"));
    }

    #[test]
    fn a_wait_sleeps_at_once_when_events_are_wanted_and_never_when_polling() {
        assert_eq!(looks(&patience(WaitStrategy::Event)), 0);
        let polls = patience(WaitStrategy::Poll);
        // Also after waits whose timeout expired.
        for _ in 0..20 {
            assert_eq!(looks(&polls), 1_000_000);
        }
    }

    #[test]
    fn a_spin_takes_about_as_long_as_it_is_told_to() {
        let spin_ns = 2_000_000;
        let strategy = WaitStrategy::Adaptive { spin_ns: Some(spin_ns) };
        let patience = patience(strategy);
        let taken_ns = (0..5).map(|_| {
            let mut spinner = patience.begin();
            let start_ns = now_ns();
            while spinner.spin() {
                core::hint::spin_loop();
            }
            now_ns() - start_ns
        });
        let least_ns = taken_ns.min().unwrap();
        assert!(least_ns > spin_ns / 8, "{least_ns}");
        assert!(least_ns < spin_ns * 20, "{least_ns}");
    }

    #[test]
    fn a_process_whose_spins_find_nothing_sleeps_at_once_for_ever_longer_and_spins_again_when_one_does() {
        let patience = patience(WaitStrategy::Adaptive { spin_ns: Some(500) });
        let spins = (0..1000).filter(|_| looks(&patience) > 0).count();
        assert!((1..100).contains(&spins), "{spins} waits of 1000 have spun");
        patience.sleeps.store(0, Ordering::Relaxed);
        let mut spinner = patience.begin();
        assert!(spinner.spin());
        let failures = patience.failures.load(Ordering::Relaxed);
        patience.succeeded();
        assert!(patience.spins());
        assert_eq!(patience.failures.load(Ordering::Relaxed), failures / 2);
    }

    #[test]
    fn a_wake_up_costs_something() {
        assert!(WAKE_NS.contains(&measure_wake_up()));
    }

    #[test]
    fn a_sleep_on_a_word_ends_when_it_changes_and_at_its_timeout() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while word.load(Ordering::Acquire) == 0 {
                    futex_wait(&word, 0, None);
                }
            });
            std::thread::sleep(Duration::from_millis(5));
            word.store(3, Ordering::Release);
            futex_wake(&word, u32::MAX);
            sleeper.join().unwrap();
        });
        assert_eq!(futex_wait(&word, 1, None), Woken::Changed);
        assert_eq!(futex_wait(&word, 3, Some(Duration::from_millis(1))), Woken::TimedOut);
    }
}
