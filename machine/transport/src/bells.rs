//! The bells of a rank, in memory that all ranks share: they show who sleeps there, and wake them.
//!
//! A rank has two bells. The threads of the program that wait sleep on one, the service thread on the
//! other ([`Sleeper`]). A sleeper marks its bell before it looks for the last time; whoever rings changes
//! the mark and wakes one thread. A thread that waits serves whatever comes, so it is woken rather
//! than the service thread, never both. Until that thread has looked, further senders make no system
//! call.
//!
//! A mark that another process sets or takes off for no reason costs a needless wake-up, or a delay
//! of the longest nap.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use mapwire_host::waiting::{Woken, futex_wake};

/// Marks of a bell; 0 when nobody sleeps there. The bits above count the rings.
const MARKS: u32 = 3;
/// Somebody went to sleep since the last ring.
const ASLEEP: u32 = 1;
/// The bell was rung, and who slept there is about to look.
const RUNG: u32 = 2;
const RING: u32 = 4;

/// Kind of sleeper, which determines its bell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeper {
    /// A thread of the program that waits, and serves whatever comes meanwhile.
    Waiting,
    /// The service thread, which serves while no thread waits.
    Service,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// All threads that wait.
    Waiting,
    /// The service thread.
    Service,
    /// Both.
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slept {
    /// There was something to do; else the time is over.
    pub found: bool,
    /// Somebody may have published during or after the last look, without waking anybody: look once more.
    pub was_rung: bool,
}

/// The bells of a rank.
pub(crate) struct Bells<'a> {
    /// Not 0 while a thread of the rank polls.
    pub(crate) polling: &'a AtomicU32,
    /// On which threads sleep that wait.
    pub(crate) waiting: &'a AtomicU32,
    /// On which the service thread sleeps.
    pub(crate) service: &'a AtomicU32,
}

impl Bells<'_> {
    /// Wakes a thread of the rank if nobody polls there and somebody sleeps. Whether it woke anybody.
    /// The caller has made a full fence since it published.
    pub(crate) fn ring(&self) -> bool {
        if self.polling.load(Ordering::Relaxed) != 0 {
            return false;
        }
        // A bell that was rung already is left to the thread that was woken, which has yet to look.
        match ring_one(self.waiting) {
            0 => ring_one(self.service) == ASLEEP && futex_wake(self.service, 1) > 0,
            mark => mark == ASLEEP && futex_wake(self.waiting, 1) > 0,
        }
    }

    /// Wakes a thread of the rank that sleeps while it waits, unless another polls, for what is not published yet. Whether it woke anybody.
    pub(crate) fn rouse(&self) -> bool {
        self.polling.load(Ordering::Relaxed) == 0 && ring_one(self.waiting) == ASLEEP && futex_wake(self.waiting, 1) > 0
    }

    /// Wakes all of `who`, marked or not.
    pub(crate) fn wake(&self, who: Wake) {
        for (bell, other) in [(self.waiting, Wake::Service), (self.service, Wake::Waiting)] {
            if who != other {
                bell.fetch_add(RING, Ordering::SeqCst);
                futex_wake(bell, u32::MAX);
            }
        }
    }

    /// The count of rings of the bell on which the service thread sleeps.
    pub(crate) fn service_rings(&self) -> u32 {
        self.service.load(Ordering::SeqCst) & !MARKS
    }

    /// See [`Board::sleep`](crate::board::Board::sleep). `wait` sleeps while a bell has that value, for so long at most.
    pub(crate) fn sleep(
        &self,
        sleeper: Sleeper,
        mut recheck: impl FnMut(bool) -> bool,
        timeout: Option<Duration>,
        mut nap: impl FnMut() -> Duration,
        mut wait: impl FnMut(&AtomicU32, u32, Duration) -> Woken,
    ) -> Slept {
        let mut was_nap = false;
        let bell = match sleeper {
            Sleeper::Waiting => self.waiting,
            Sleeper::Service => self.service,
        };
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let found = loop {
            let seen = mark(bell, ASLEEP);
            fence(Ordering::SeqCst);
            if recheck(was_nap) {
                break true;
            }
            let limit = match deadline {
                None => nap(),
                Some(end) => match end.checked_duration_since(Instant::now()) {
                    None | Some(Duration::ZERO) => break false,
                    Some(left) => left.min(nap()),
                },
            };
            was_nap = wait(bell, seen, limit) == Woken::TimedOut;
        };
        // Others of this bell that still sleep are woken by this thread, or by the service thread. From here on whoever publishes
        // wakes that one; who published before the last look was seen by it.
        let was_rung = set_mark(bell, 0) & MARKS != ASLEEP;
        Slept { found, was_rung }
    }
}

/// Sleeps until the bell is rung.
pub(crate) fn by_word(bell: &AtomicU32, seen: u32, limit: Duration) -> Woken {
    mapwire_host::waiting::futex_wait(bell, seen, Some(limit))
}

/// Rings a bell where somebody sleeps. The mark that was there.
fn ring_one(bell: &AtomicU32) -> u32 {
    let rung = |seen: u32| (seen & MARKS == ASLEEP).then(|| (seen ^ ASLEEP ^ RUNG).wrapping_add(RING));
    match bell.fetch_update(Ordering::SeqCst, Ordering::Relaxed, rung) {
        Ok(seen) | Err(seen) => seen & MARKS,
    }
}

/// Sets the mark of a bell; the bell then.
fn mark(bell: &AtomicU32, mark: u32) -> u32 {
    set_mark(bell, mark) & !MARKS | mark
}

/// Sets the mark of a bell; the bell before.
fn set_mark(bell: &AtomicU32, mark: u32) -> u32 {
    let marked = |seen: u32| Some(seen & !MARKS | mark);
    match bell.fetch_update(Ordering::SeqCst, Ordering::Relaxed, marked) {
        Ok(seen) | Err(seen) => seen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    const NAP: Duration = Duration::from_secs(5);

    #[derive(Default)]
    struct Words([AtomicU32; 3]);

    impl Words {
        fn bells(&self) -> Bells<'_> {
            let [polling, waiting, service] = &self.0;
            Bells { polling, waiting, service }
        }
    }

    #[test]
    fn a_sender_rings_only_when_nobody_polls() {
        let words = Words::default();
        let bells = words.bells();
        for (polling, rung) in [(1, false), (0, true)] {
            bells.polling.store(polling, Ordering::SeqCst);
            let asleep = mark(bells.service, ASLEEP);
            bells.ring();
            assert_eq!(bells.service.load(Ordering::SeqCst) != asleep, rung);
        }
    }

    #[test]
    fn who_is_roused_wakes_looks_and_sleeps_until_something_is_there() {
        let words = Words::default();
        let bells = words.bells();
        assert!(!bells.rouse(), "nobody sleeps");
        let (is_there, looks) = (AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let look = |_| {
                    looks.fetch_add(1, Ordering::SeqCst);
                    is_there.load(Ordering::SeqCst)
                };
                bells.sleep(Sleeper::Waiting, look, None, || NAP, by_word)
            });
            let start = Instant::now();
            while !bells.rouse() {
                assert!(start.elapsed() < NAP, "nobody slept");
            }
            while looks.load(Ordering::SeqCst) < 2 {
                thread::yield_now();
            }
            assert!(!sleeper.is_finished());
            is_there.store(true, Ordering::SeqCst);
            bells.ring();
            assert!(sleeper.join().unwrap().found);
            assert!(start.elapsed() < NAP, "woken, not by itself");
        });
        // Whoever does not wait is left asleep, and so is who sleeps where another polls.
        mark(bells.service, ASLEEP);
        assert!(!bells.rouse());
        mark(bells.waiting, ASLEEP);
        bells.polling.store(1, Ordering::SeqCst);
        assert!(!bells.rouse());
        assert_eq!(bells.waiting.load(Ordering::SeqCst) & MARKS, ASLEEP);
    }

    #[test]
    fn a_bell_that_was_rung_is_not_rung_again_before_its_sleeper_has_looked() {
        let words = Words::default();
        let bells = words.bells();
        let all = || [bells.waiting, bells.service].map(|bell| bell.load(Ordering::SeqCst));
        mark(bells.waiting, ASLEEP);
        mark(bells.service, ASLEEP);
        bells.ring();
        assert_eq!(all(), [RING | RUNG, ASLEEP]);
        bells.ring();
        assert_eq!(all(), [RING | RUNG, ASLEEP], "who was woken has not looked yet");
        // The thread that waited goes on: it is the service thread's turn.
        mark(bells.waiting, 0);
        bells.ring();
        assert_eq!(all(), [RING, RING | RUNG]);
        bells.ring();
        assert_eq!(all(), [RING, RING | RUNG]);
    }

    #[test]
    fn a_ring_wakes_the_thread_that_waits_and_leaves_the_service_thread_asleep() {
        let words = Words::default();
        let bells = words.bells();
        let flags = [(); 2].map(|()| AtomicBool::new(false));
        let looks = [(); 2].map(|()| AtomicU32::new(0));
        thread::scope(|scope| {
            let sleeper = |index: usize, who| {
                let (bells, flags, looks) = (&bells, &flags, &looks);
                scope.spawn(move || {
                    let look = |_| {
                        looks[index].fetch_add(1, Ordering::SeqCst);
                        flags[index].load(Ordering::SeqCst)
                    };
                    bells.sleep(who, look, None, || NAP, by_word)
                })
            };
            let service = sleeper(0, Sleeper::Service);
            let waiting = sleeper(1, Sleeper::Waiting);
            // Who has said that he sleeps, and has looked since, only sleeps.
            let sleeps = |bell: &AtomicU32| bell.load(Ordering::SeqCst) & ASLEEP != 0;
            while !sleeps(bells.waiting)
                || !sleeps(bells.service)
                || looks.iter().any(|n| n.load(Ordering::SeqCst) == 0)
            {
                thread::yield_now();
            }
            let start = Instant::now();
            flags[1].store(true, Ordering::SeqCst);
            bells.ring();
            assert!(waiting.join().unwrap().found);
            assert_eq!(looks[0].load(Ordering::SeqCst), 1);
            // Nobody waits now.
            flags[0].store(true, Ordering::SeqCst);
            bells.ring();
            assert!(service.join().unwrap().found);
            assert!(start.elapsed() < NAP, "woken, not by itself");
        });
    }

    #[test]
    fn sleep_gives_up_at_its_timeout() {
        let words = Words::default();
        let bells = words.bells();
        let start = Instant::now();
        let limit = Duration::from_millis(30);
        let asleep = |limit| bells.sleep(Sleeper::Waiting, |_| false, Some(limit), || NAP, by_word).found;
        assert!(!asleep(limit));
        assert!(start.elapsed() >= limit);
        assert!(!asleep(Duration::ZERO));
    }

    #[test]
    fn who_is_rung_during_the_last_look_is_told_to_look_once_more() {
        let words = Words::default();
        let bells = words.bells();
        for rung in [false, true] {
            let look = |_| {
                if rung {
                    bells.ring();
                }
                true
            };
            let slept = bells.sleep(Sleeper::Waiting, look, None, || NAP, by_word);
            assert_eq!((slept.found, slept.was_rung), (true, rung));
        }
    }
}
