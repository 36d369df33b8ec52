//! How threads run the duty cycle while they wait: every wait of a thread.

use core::sync::atomic::{Ordering, fence};
use core::time::Duration;

use mapwire_host::masking::{self, Mask};
use mapwire_host::waiting::{Spinner, WaitStrategy, now_ns};
use mapwire_transport::bells::{Sleeper, Slept, Wake};
use mapwire_transport::fabric::{Doorbells, Fabric};
use mapwire_wire::NodeId;

use super::deadline::{BLOCKED_NAP, Deadline, as_ns};
use super::naps::{AskForWake, Naps};
use super::polling::{Asleep, is_polling_here};
use super::{DriverGuard, Engine};
use crate::driver::Driver;
use crate::driver::confined::{Caller, Confined};
use crate::error::DriverError;
use crate::log::Line;
use crate::notices::Notice;

/// Looks of a thread that spins between two thorough ones.
const THOROUGH_LOOKS: u32 = 1 << 16;

/// Looks of a waiting thread before it rings for what it sent: about as long as the answer of a peer's NIC takes, if that polls.
const LOOKS_BEFORE_RINGING: u32 = 8;

/// Looks of a waiting thread between two questions whether a signal waits for it: a system call each.
const LOOKS_BETWEEN_SIGNALS: u32 = 256;

impl<F: Fabric> Engine<F> {
    /// Waits until all that this process has sent to `peer` is delivered there.
    ///
    /// # Errors
    /// [`DriverError::PeerGone`], [`DriverError::PeerBroken`]; [`DriverError::Timeout`] when the peer takes nothing;
    /// [`DriverError::Forked`].
    pub fn settle(&self, peer: NodeId) -> Result<(), DriverError> {
        self.check_here()?;
        let deadline_ns = now_ns().saturating_add(as_ns(self.timeout));
        // Nobody rings when the peer has taken a packet: look again soon.
        let nap = match self.wait {
            WaitStrategy::Poll => self.timeout,
            _ => BLOCKED_NAP,
        };
        loop {
            let settled = self.wait_until(Some(nap), |engine| {
                let mut driver = engine.lock();
                if driver.is_gone(peer) {
                    return Some(Err(driver.why_gone(peer)));
                }
                driver.settled(peer).then(|| {
                    engine.peers.clear_dirty(peer);
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

    /// Waits for memory of this process to become what `check` looks for, stored by a peer on either path. `check` is told
    /// whether to look thoroughly: before the thread sleeps, whenever it wakes, and now and then while it spins.
    ///
    /// With `direct`, peers can store to the memory without the driver. Senders are then asked to wake this thread while it
    /// sleeps. A store by a mere pointer, and where senders' processors cannot be made to see the request, is found
    /// by naps of 10 ms at most, and of 200 µs as long as such stores come.
    pub fn wait_for_memory<T>(
        &self,
        direct: Option<&dyn AskForWake>,
        timeout: Option<Duration>,
        mut check: impl FnMut(bool) -> Option<T>,
    ) -> Option<T> {
        let polls = is_polling_here();
        // A program that polls relies on this call to run the driver. For any other, whoever sends rings: what is there already
        // needs nothing else.
        if !polls && let Some(found) = check(false) {
            return Some(found);
        }
        // The look before the sleep is soon enough.
        let mut skips = !self.patience.spins() && !polls;
        self.wait(Caller::Program, timeout, direct, |engine, thorough| {
            let skips = core::mem::take(&mut skips) && !thorough;
            (!skips && engine.look(thorough), check(thorough))
        })
    }

    /// Runs one turn of the duty cycle, and what the program is owed after it: handlers of notifications that came, and lines
    /// of its log. Whether anything was done.
    #[inline]
    pub fn poll(&self) -> bool {
        let worked = self.look(false);
        if worked {
            // While this thread counts as one that polls, peers ring nobody else.
            self.wake_sleepers();
        }
        worked
    }

    /// The part of a thread of the host for which messages wait: hands them to their services. Sleepers may wait for what these did.
    pub(super) fn serve_host(&self) {
        let (worked, owing) = {
            let mut driver = self.lock();
            (driver.serve_host(), driver.outcomes().owes_program())
        };
        if owing {
            self.bells.wake(self.me, Wake::All);
        } else if worked {
            self.wake_sleepers();
        }
    }

    /// Takes the driver, and what `peer` has sent if anything has come: word of a revocation may be in it, which a send must not
    /// miss.
    #[inline]
    pub fn lock_with_news(&self, peer: NodeId) -> DriverGuard<'_, F> {
        let mut driver = self.lock();
        if driver.take_news_of(peer) {
            self.wake_sleepers();
        }
        driver
    }

    /// As [`poll`](Self::poll); with `thorough`, also while another thread runs a turn.
    #[inline]
    pub(super) fn look(&self, thorough: bool) -> bool {
        let held = match thorough && self.is_here() {
            true => Some(self.lock()),
            false => self.try_lock(),
        };
        let (worked, owing, notice) = match held {
            None => return false,
            Some(mut driver) => (driver.poll(), driver.outcomes().owes_program(), driver.outcomes().take_notice()),
        };
        if owing {
            self.serve_program(notice);
        }
        worked
    }

    /// The end of a wait: serves what came meanwhile and rings what is due. What the program is owed is left to the service
    /// thread.
    #[inline]
    fn end_quietly(&self, caller: Caller, ending: Ending) {
        let (owing, needs_care) = {
            let mut driver = self.lock();
            let rings_later = ending.rings_later && driver.paths().has_seen_all();
            let has_work = match rings_later {
                true => driver.has_duties(),
                false => driver.on_behalf_of(caller, |driver| driver.has_work(), Confined::has_work),
            };
            if has_work {
                driver.on_behalf_of(caller, Driver::poll, Confined::poll);
            } else if ending.fenced {
                driver.paths().ring_due_fenced();
            } else {
                driver.paths().ring_due();
            }
            if caller == Caller::FaultHandler {
                driver.on_behalf_of(caller, |_| (), Confined::acknowledge);
            }
            let owing = match caller {
                Caller::Program => driver.outcomes().owes_program(),
                Caller::FaultHandler => driver.needs_service(),
            };
            // A peer may wait for what this thread was just granted, and this thread may compute from here on.
            let needs_care = driver.is_blocked() || driver.needs_attention();
            (owing || driver.is_holding(), needs_care)
        };
        if owing {
            self.bells.wake(self.me, Wake::All);
        } else if needs_care {
            // Nobody was rung for what waits while this thread counted as one that polls.
            self.bells.ring(self.me);
        }
    }

    /// Runs handlers of the program, `first` and those that wait, and writes the lines of its log; without the driver, and
    /// never in the page-fault handler.
    #[cold]
    fn serve_program(&self, first: Option<Notice>) {
        masking::unmasked(|| self.serve_program_from(first));
    }

    fn serve_program_from(&self, first: Option<Notice>) {
        let mut next = (first, None);
        loop {
            let (notice, line) = next;
            if let Some(line) = line {
                Line::write(line);
            }
            let is_handled = notice.is_some();
            if let Some(Notice { handler, notification }) = notice {
                handler(notification);
            }
            let mut driver = self.lock();
            if is_handled {
                // The program may wait for what its handler did, and has looked for it since the packet came.
                driver.outcomes().fire_events();
            }
            if !driver.outcomes().owes_program() {
                return;
            }
            next = (driver.outcomes().take_notice(), driver.outcomes().take_line());
        }
    }

    /// Runs the duty cycle until `check`, which is called with the driver held, gives something; in the way that the
    /// strategy says, for `timeout` at most.
    ///
    /// # Errors
    /// [`DriverError::Timeout`] with what `what` says; [`DriverError::Forked`].
    pub fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        what: impl FnOnce() -> String,
        check: impl FnMut(&mut Driver<F>) -> Option<T>,
    ) -> Result<T, DriverError> {
        self.check_here()?;
        self.wait_driver(Caller::Program, timeout, check).ok_or_else(|| DriverError::Timeout {
            what: what(),
            after: timeout.unwrap_or_default(),
            waiting_for: self.states(),
        })
    }

    /// As [`wait_for`](Self::wait_for), for an answer that a program gives: rings for what was asked with the first look, while that
    /// program polls. A little later it would be at work, and its service thread would be woken for nothing. `None` when the time is over.
    pub fn wait_for_program<T>(
        &self,
        timeout: Option<Duration>,
        check: impl FnMut(&mut Driver<F>) -> Option<T>,
    ) -> Option<T> {
        self.wait_ringing(Caller::Program, timeout, 0, check)
    }

    /// As [`wait_for`](Self::wait_for), with a check that is called without the driver, and so may do anything; `None` when
    /// the time is over.
    #[inline]
    pub fn wait_until<T>(&self, timeout: Option<Duration>, mut check: impl FnMut(&Self) -> Option<T>) -> Option<T> {
        self.wait(Caller::Program, timeout, None, |engine, thorough| (engine.look(thorough), check(engine)))
    }

    /// Runs the duty cycle and `check` in one hold of the driver, until there is something or the time is over.
    #[inline]
    pub(super) fn wait_driver<T>(
        &self,
        caller: Caller,
        timeout: Option<Duration>,
        check: impl FnMut(&mut Driver<F>) -> Option<T>,
    ) -> Option<T> {
        self.wait_ringing(caller, timeout, LOOKS_BEFORE_RINGING, check)
    }

    /// As [`wait_driver`](Self::wait_driver). A thread that spins rings for what it sent after `patience` looks.
    #[inline]
    fn wait_ringing<T>(
        &self,
        caller: Caller,
        timeout: Option<Duration>,
        patience: u32,
        mut check: impl FnMut(&mut Driver<F>) -> Option<T>,
    ) -> Option<T> {
        let mut looks = 0;
        let mut skips = !self.patience.spins();
        let patience = if skips { 0 } else { patience };
        // Kept here: what is handed on from look to look is short.
        let mut found = None;
        self.wait(caller, timeout, None, |engine, sleeping| {
            if core::mem::take(&mut skips) && !sleeping {
                // The look before the sleep is soon enough.
                return (false, None);
            }
            let mut driver = match engine.try_lock() {
                Some(driver) => driver,
                // Somebody else runs the cycle. Before sleeping the check must be made all the same.
                None if sleeping => engine.lock(),
                None => return (false, None),
            };
            looks += 1;
            let spins = looks > 1 && !sleeping;
            let glances = spins && driver.paths().may_only_glance();
            if spins && !glances {
                engine.keep_polling();
            }
            let worked = if glances {
                if looks > patience {
                    driver.paths().ring_due();
                }
                false
            } else if looks > patience || sleeping {
                driver.on_behalf_of(caller, Driver::poll, Confined::poll)
            } else {
                driver.on_behalf_of(caller, Driver::turn, Confined::turn)
            };
            found = check(&mut driver);
            let owing = match caller {
                Caller::Program => driver.outcomes().owes_program(),
                Caller::FaultHandler => driver.needs_service(),
            };
            if owing {
                // What the program is owed may take long.
                driver.paths().ring_due();
            }
            let notice = match caller {
                Caller::Program => driver.outcomes().take_notice(),
                Caller::FaultHandler => None,
            };
            drop(driver);
            match caller {
                Caller::Program if owing => engine.serve_program(notice),
                // A handler of the program may do anything, as may its log, and so must not run in a signal handler: the
                // service thread runs it, and does all that may allocate. That may sleep as one that waits, in such a handler.
                Caller::FaultHandler if owing => engine.bells.wake(engine.me, Wake::All),
                _ => {}
            }
            (worked, found.is_some().then_some(()))
        });
        // A wait that is over at its first look ends without another.
        if looks == 1 {
            let is_holding = {
                let mut driver = self.lock();
                driver.paths().ring_due();
                driver.is_holding()
            };
            if is_holding {
                self.bells.wake(self.me, Wake::Service);
            }
        }
        found
    }

    /// The wait of all waits: calls `step`, which polls and checks, as the strategy says. `step` is told whether the thread
    /// sleeps if it finds nothing. Before it sleeps, whoever stores to `direct` is asked to wake it. In a forked child nothing can be
    /// waited for, and it ends at once.
    #[inline]
    fn wait<T>(
        &self,
        caller: Caller,
        timeout: Option<Duration>,
        direct: Option<&dyn AskForWake>,
        mut step: impl FnMut(&Self, bool) -> (bool, Option<T>),
    ) -> Option<T> {
        if !self.is_here() {
            return None;
        }
        // One mask for the whole wait: handlers of the program run while this thread sleeps, and between looks when one is due.
        let mut mask = self.mask();
        let is_single = timeout == Some(Duration::ZERO);
        let (worked, found) = step(self, is_single);
        if found.is_some() || is_single {
            if worked {
                // It may be for another thread, for which nobody is rung while a third one polls.
                self.wake_sleepers();
            }
            return found;
        }
        let deadline = Deadline::after(timeout);
        let mut spinner = self.patience.begin();
        if spinner.spins() && !self.leaves_far(caller) {
            self.begin_polling();
            let found = self.spin(&mut spinner, &mut mask, &deadline, &mut step);
            let ending = Ending { fenced: self.end_polling(), rings_later: false };
            if found.is_some() {
                self.patience.succeeded();
                self.end(caller, ending);
                return found;
            }
            self.patience.failed();
        }
        let mut naps = Naps::new(direct, &self.memory_nap);
        let asleep = Asleep::begin(self);
        let (found, was_rung) = loop {
            let (found, was_rung) = masking::unmasked(|| self.sleep(caller, &deadline, &mut naps, &mut step));
            if found.is_some() {
                naps.learn();
                break (found, was_rung);
            }
            if deadline.is_over() {
                break (step(self, true).1, true);
            }
        };
        let ending = Ending {
            fenced: true,
            // While the thread counts as one that polls nobody rings it.
            rings_later: !was_rung && asleep.polls == 0,
        };
        drop(asleep);
        fence(Ordering::SeqCst);
        self.end(caller, ending);
        found
    }

    /// Looks until something is found, the spin is over, or it is late. The thread counts as polling.
    #[inline]
    fn spin<T>(
        &self,
        spinner: &mut Spinner,
        mask: &mut Option<Mask>,
        deadline: &Deadline,
        step: &mut impl FnMut(&Self, bool) -> (bool, Option<T>),
    ) -> Option<T> {
        let mut looks = 0_u32;
        loop {
            let (worked, found) = step(self, looks.is_multiple_of(THOROUGH_LOOKS) && looks > 0);
            if worked {
                spinner.reset();
                self.wake_sleepers();
            }
            if found.is_some() {
                return found;
            }
            looks = looks.wrapping_add(1);
            if !spinner.spin() || looks.is_multiple_of(1024) && deadline.is_over() {
                return None;
            }
            if looks.is_multiple_of(LOOKS_BETWEEN_SIGNALS) {
                *mask = mask.take().or_else(|| self.mask());
                if mask.is_some() && masking::is_signal_due() {
                    // The handler may take long, and this thread does not poll meanwhile.
                    self.leave_polling();
                    masking::unmasked(|| ());
                    self.enter_polling();
                }
            }
        }
    }

    /// The end of a wait. What came while this thread counted as polling, or was about to look, rang nobody: looks once more,
    /// now that it does not.
    #[inline]
    fn end(&self, caller: Caller, ending: Ending) {
        self.end_quietly(caller, ending);
        self.wake_sleepers();
    }

    /// Sleeps until there may be something to do; gives what `step` found, and whether something may have come since it looked.
    fn sleep<T>(
        &self,
        caller: Caller,
        deadline: &Deadline,
        naps: &mut Naps<'_>,
        step: &mut impl FnMut(&Self, bool) -> (bool, Option<T>),
    ) -> (Option<T>, bool) {
        self.interrupts.look();
        let left = |at_ns: u64| Duration::from_nanos(at_ns.saturating_sub(now_ns()));
        let nap = {
            let mut driver = self.lock();
            if driver.is_holding() {
                drop(driver);
                // A few microseconds, which a sleep would turn into many.
                core::hint::spin_loop();
                return (step(self, true).1, true);
            }
            driver.on_behalf_of(caller, Driver::flush, Confined::flush);
            let blocked = driver.is_blocked().then_some(BLOCKED_NAP);
            let due = driver.on_behalf_of(caller, |driver| driver.next_deadline(), Confined::next_deadline).map(left);
            let far = match self.leaves_far(caller) {
                true => None,
                false => driver.paths().far_nap(),
            };
            [deadline.at_ns().map(left), blocked, due, far].into_iter().flatten().min()
        };
        let (mut found, mut was_napping) = (None, false);
        // Counted before the check: a thread that does afterwards what this one waits for sees it and rings.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let Slept { was_rung, .. } = self.bells.sleep(
            Sleeper::Waiting,
            |was_nap| {
                was_napping = was_nap;
                let (worked, this) = step(self, true);
                found = this;
                if worked {
                    self.wake_sleepers_beyond(1);
                }
                if found.is_some() {
                    return true;
                }
                let mut driver = self.lock();
                // A turn that found nothing has seen all rings. What was done may want to go on sooner than this thread would
                // look again. The page-fault handler has woken the service thread for what it may not do itself.
                let is_duty = caller == Caller::Program && driver.has_duties();
                let goes_on = is_duty
                    || self.has_far && driver.on_behalf_of(caller, |driver| driver.has_work(), Confined::has_work)
                    || worked
                        && (driver.on_behalf_of(caller, |driver| driver.has_work(), Confined::has_work)
                            || driver.is_blocked()
                            || driver
                                .on_behalf_of(caller, |driver| driver.next_deadline(), Confined::next_deadline)
                                .is_some());
                if worked && !goes_on {
                    // A peer that waits for room must see what this turn has freed: nobody else tells it while this thread sleeps.
                    driver.on_behalf_of(caller, Driver::flush, Confined::flush);
                }
                goes_on
            },
            nap,
            || naps.next(),
        );
        naps.was_napping = was_napping;
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        (found, was_rung)
    }

    /// Wakes threads of this process that sleep: what this one did may be what they wait for.
    #[inline]
    pub(super) fn wake_sleepers(&self) {
        self.wake_sleepers_beyond(0);
    }

    /// As [`wake_sleepers`](Self::wake_sleepers), where `mine` of those counted is the calling thread, about to sleep.
    #[inline]
    fn wake_sleepers_beyond(&self, mine: u32) {
        if self.sleepers.load(Ordering::SeqCst) > mine {
            self.bells.wake(self.me, Wake::Waiting);
        }
    }
}

/// What is known when a wait ends.
#[derive(Clone, Copy)]
struct Ending {
    /// This thread has made a full fence since its last packet left; one that another thread has sent meanwhile is ordered by
    /// the driver's lock, which was taken after it.
    fenced: bool,
    /// Packets that came since the last look began have rung for another thread.
    rings_later: bool,
}
