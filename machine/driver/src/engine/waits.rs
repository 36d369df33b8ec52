//! How threads run the duty cycle while they wait: every wait of a thread, and the rounds of the service thread.

use core::sync::atomic::Ordering;
use core::time::Duration;

use mapwire_host::waiting::{Spinner, WaitStrategy, now_ns};
use mapwire_wire::NodeId;

use super::{Engine, Place};
use crate::config::DriverMode;
use crate::driver::{Driver, peer_flags};
use crate::error::DriverError;
use crate::log::Line;
use crate::notices::Notice;

/// How long a thread sleeps while packets wait for room at a peer, which does not ring when there is room again, or commands until
/// a peer has read their memory.
const BLOCKED_NAP: Duration = Duration::from_micros(50);

/// How long a thread sleeps that waits for memory which a peer stores into directly.
const MEMORY_NAP: Duration = Duration::from_micros(200);

/// Looks of a waiting thread before it rings for what it sent: about as long as the answer of a peer that polls takes.
const LOOKS_BEFORE_RINGING: u32 = 8;

fn as_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Engine {
    /// Counts the calling thread as one that polls, until [`leave_polling`](Self::leave_polling): peers then ring nobody.
    pub fn enter_polling(&self) {
        self.board.enter_polling(self.rank);
    }

    /// Ends [`enter_polling`](Self::enter_polling), and looks once more at what came meanwhile.
    pub fn leave_polling(&self) {
        self.board.leave_polling(self.rank);
        self.poll();
        self.wake_sleepers();
    }

    /// Waits until all that this process has sent to `peer` is delivered there.
    ///
    /// # Errors
    /// [`DriverError::PeerGone`], [`DriverError::PeerBroken`]; [`DriverError::Timeout`] when the peer takes nothing.
    pub fn settle(&self, peer: NodeId) -> Result<(), DriverError> {
        let deadline_ns = now_ns().saturating_add(as_ns(self.timeout));
        // Nobody rings when the peer has taken a packet: look again soon.
        let nap = match self.wait {
            WaitStrategy::Poll => self.timeout,
            _ => BLOCKED_NAP,
        };
        loop {
            let settled = self.wait_until(Some(nap), |engine| {
                let mut driver = engine.driver.lock();
                if driver.is_gone(peer) {
                    return Some(Err(driver.why_gone(peer)));
                }
                driver.settled(peer).then(|| {
                    let flags = &engine.peers[usize::from(peer.0)];
                    flags.fetch_and(!peer_flags::RING_DIRTY, Ordering::AcqRel);
                    Ok(())
                })
            });
            if let Some(outcome) = settled {
                return outcome;
            }
            if now_ns() >= deadline_ns {
                return Err(DriverError::Timeout {
                    what: format!("delivery of what was sent to rank {}", peer.0),
                    after: self.timeout,
                    waiting_for: self.states(),
                });
            }
        }
    }

    /// Waits for memory of this process to become what `check` looks for, stored by a peer on either path.
    ///
    /// On the direct path nobody rings, so the wait polls, and sleeps at most 200 µs between looks when the strategy
    /// is to sleep.
    pub fn wait_for_memory<T>(
        &self,
        timeout: Option<Duration>,
        mut check: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let deadline_ns = timeout.map(|timeout| now_ns().saturating_add(as_ns(timeout)));
        loop {
            let left =
                deadline_ns.map(|deadline| Duration::from_nanos(deadline.saturating_sub(now_ns())));
            let nap = match self.wait {
                WaitStrategy::Poll => left,
                _ => Some(left.map_or(MEMORY_NAP, |left| left.min(MEMORY_NAP))),
            };
            if let Some(found) = self.wait_until(nap, |_| check()) {
                return Some(found);
            }
            if deadline_ns.is_some_and(|deadline| now_ns() >= deadline) {
                return check();
            }
        }
    }

    /// Runs one turn of the duty cycle, and what the program is owed after it: handlers of notifications that came, and lines
    /// of its log. Whether anything was done.
    #[inline]
    pub fn poll(&self) -> bool {
        let (worked, owing, notice) = match self.driver.try_lock() {
            None => return false,
            Some(mut driver) => (
                driver.poll(),
                driver.owes_program(),
                driver.teller.notices.pop_front(),
            ),
        };
        if owing {
            self.serve_program(notice);
        }
        worked
    }

    /// The end of a wait: serves what came meanwhile and rings what is due. What the program is owed is left to the service
    /// thread. `fenced` says that this thread has made a full fence since its last packet left; one that another thread has sent
    /// meanwhile is ordered by the driver's lock, which was taken after it.
    #[inline]
    fn end_quietly(&self, fenced: bool) {
        let owing = {
            let mut driver = self.driver.lock();
            if driver.has_work() {
                driver.poll();
            } else if fenced {
                driver.ring_due_fenced();
            } else {
                driver.ring_due();
            }
            driver.owes_program()
        };
        if owing {
            self.board.wake(self.rank);
        }
    }

    /// Runs handlers of the program, `first` and those that wait, and writes the lines of its log; without the driver, and
    /// never in the page-fault handler.
    #[cold]
    fn serve_program(&self, first: Option<Notice>) {
        let mut next = (first, None);
        loop {
            let (notice, line) = next;
            if let Some(line) = line {
                Line::write(line);
            }
            if let Some(Notice {
                handler,
                notification,
            }) = notice
            {
                handler(notification);
            }
            let mut driver = self.driver.lock();
            if !driver.owes_program() {
                return;
            }
            next = (driver.teller.notices.pop_front(), driver.log.pop());
        }
    }

    /// Runs the duty cycle until `check`, which is called with the driver held, gives something; in the way that the
    /// strategy says, for `timeout` at most.
    ///
    /// # Errors
    /// [`DriverError::Timeout`] with what `what` says.
    pub fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        what: impl FnOnce() -> String,
        check: impl FnMut(&mut Driver) -> Option<T>,
    ) -> Result<T, DriverError> {
        self.wait_driver(Place::Program, timeout, check)
            .ok_or_else(|| DriverError::Timeout {
                what: what(),
                after: timeout.unwrap_or_default(),
                waiting_for: self.states(),
            })
    }

    /// As [`wait_for`](Self::wait_for), with a check that is called without the driver, and so may do anything; `None` when
    /// the time is over.
    #[inline]
    pub fn wait_until<T>(
        &self,
        timeout: Option<Duration>,
        mut check: impl FnMut(&Self) -> Option<T>,
    ) -> Option<T> {
        self.wait(timeout, |engine, _| (engine.poll(), check(engine)))
    }

    /// Runs the duty cycle and `check` in one hold of the driver, until there is something or the time is over.
    #[inline]
    pub(super) fn wait_driver<T>(
        &self,
        place: Place,
        timeout: Option<Duration>,
        mut check: impl FnMut(&mut Driver) -> Option<T>,
    ) -> Option<T> {
        let mut looks = 0;
        let patience = if self.crowded || self.wait == WaitStrategy::Event {
            0
        } else {
            LOOKS_BEFORE_RINGING
        };
        let found = self.wait(timeout, |engine, sleeping| {
            let mut driver = match engine.driver.try_lock() {
                Some(driver) => driver,
                // Somebody else runs the cycle. Before sleeping the check must be made all the same.
                None if sleeping => engine.driver.lock(),
                None => return (false, None),
            };
            looks += 1;
            let worked = if looks > patience || sleeping {
                driver.poll()
            } else {
                driver.turn()
            };
            let found = check(&mut driver);
            let owing = driver.owes_program();
            if owing {
                // What the program is owed may take long.
                driver.ring_due();
            }
            let notice = match place {
                Place::Program => driver.teller.notices.pop_front(),
                Place::FaultHandler => None,
            };
            drop(driver);
            match place {
                Place::Program if owing => engine.serve_program(notice),
                // A handler of the program may do anything, as may its log, and so must not run in a signal handler: the
                // service thread runs it.
                Place::FaultHandler if owing => engine.board.wake(engine.rank),
                _ => {}
            }
            (worked, found)
        });
        // A wait that is over at its first look ends without another.
        if looks == 1 && patience > 0 {
            self.driver.lock().ring_due();
        }
        found
    }

    /// The wait of all waits: calls `step`, which polls and checks, as the strategy says. `step` is told whether the thread
    /// sleeps if it finds nothing.
    #[inline]
    fn wait<T>(
        &self,
        timeout: Option<Duration>,
        mut step: impl FnMut(&Self, bool) -> (bool, Option<T>),
    ) -> Option<T> {
        if let (_, Some(found)) = step(self, false) {
            return Some(found);
        }
        let deadline_ns = timeout.map(|timeout| now_ns().saturating_add(as_ns(timeout)));
        let mut spinner = Spinner::new(self.wait, self.crowded);
        let mut looks = 0_u32;
        self.board.enter_polling(self.rank);
        let found = loop {
            let (worked, found) = step(self, false);
            if worked {
                spinner.reset();
                self.wake_sleepers();
            }
            if found.is_some() {
                break found;
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1024)
                && deadline_ns.is_some_and(|deadline| now_ns() >= deadline)
            {
                break None;
            }
            if spinner.spin() {
                continue;
            }
            self.board.leave_polling(self.rank);
            let found = self.sleep(deadline_ns, &mut step);
            self.board.enter_polling(self.rank);
            if found.is_some() {
                break found;
            }
            if deadline_ns.is_some_and(|deadline| now_ns() >= deadline) {
                break step(self, true).1;
            }
        };
        let fenced = self.board.leave_polling(self.rank);
        // What came while this thread counted as polling rang nobody: look once more, now that it does not.
        self.end_quietly(fenced);
        self.wake_sleepers();
        found
    }

    /// Sleeps until there may be something to do; gives what `step` found.
    fn sleep<T>(
        &self,
        deadline_ns: Option<u64>,
        step: &mut impl FnMut(&Self, bool) -> (bool, Option<T>),
    ) -> Option<T> {
        let left = |at_ns: u64| Duration::from_nanos(at_ns.saturating_sub(now_ns()));
        let nap = {
            let mut driver = self.driver.lock();
            driver.flush();
            let blocked = driver.is_blocked().then_some(BLOCKED_NAP);
            let due = driver.next_deadline().map(left);
            [deadline_ns.map(left), blocked, due]
                .into_iter()
                .flatten()
                .min()
        };
        let mut found = None;
        // Counted before the check: a thread that does afterwards what this one waits for sees it and rings.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        self.board.sleep(
            self.rank,
            || {
                let (worked, this) = step(self, true);
                found = this;
                if worked {
                    self.wake_sleepers();
                }
                found.is_some() || self.driver.lock().has_work()
            },
            nap,
        );
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        found
    }

    /// Wakes threads of this process that sleep: what this one did may be what they wait for.
    #[inline]
    pub(super) fn wake_sleepers(&self) {
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            self.board.wake(self.rank);
        }
    }

    /// Serves misses that the NIC has left to this thread, and the packets that waited for them. Whether there were any.
    fn serve_misses(&self) -> bool {
        let mut driver = self.driver.lock();
        if !driver.has_misses() {
            return false;
        }
        driver.serve_misses();
        driver.poll();
        true
    }

    /// One round of the service thread. False when it should end.
    pub(super) fn serve_once(&self) -> bool {
        if self.stop.load(Ordering::Acquire) {
            return false;
        }
        let polling = self.mode == DriverMode::Thread;
        self.board.enter_polling(self.rank);
        let mut spinner = Spinner::new(
            if polling {
                self.wait
            } else {
                WaitStrategy::Event
            },
            self.crowded,
        );
        loop {
            if self.serve_misses() || self.poll() {
                spinner.reset();
                self.wake_sleepers();
            } else if self
                .driver
                .try_lock()
                .is_some_and(|driver| driver.is_holding())
            {
                // A few microseconds, which a sleep would turn into many.
                core::hint::spin_loop();
            } else if !spinner.spin() || self.stop.load(Ordering::Acquire) {
                break;
            }
        }
        self.board.leave_polling(self.rank);
        if self.stop.load(Ordering::Acquire) {
            return false;
        }
        let nap = {
            let mut driver = self.driver.lock();
            driver.reclaim();
            driver.flush();
            let blocked = driver.is_blocked().then_some(BLOCKED_NAP);
            let due = driver
                .next_deadline()
                .map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(now_ns())));
            blocked.into_iter().chain(due).min()
        };
        self.board.sleep(
            self.rank,
            || {
                let driver = self.driver.lock();
                self.stop.load(Ordering::Acquire) || driver.has_work() || driver.has_misses()
            },
            Some(nap.unwrap_or(Duration::from_secs(1))),
        );
        true
    }
}
