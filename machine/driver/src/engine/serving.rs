//! The rounds of the service thread, which serves while no thread of the program waits.

use core::sync::atomic::Ordering;
use core::time::Duration;

use mapwire_host::waiting::{Spinner, now_ns};
use mapwire_transport::bells::Sleeper;
use mapwire_transport::board::NAP;
use mapwire_transport::fabric::{Doorbells, Fabric};

use super::Engine;
use super::deadline::BLOCKED_NAP;
use crate::config::DriverMode;
use crate::paths::ATTENTIVE_NAP;

/// How long the service thread sleeps at most before it looks whether anything is left to do.
const LONGEST_SERVICE_NAP: Duration = Duration::from_secs(1);

/// The same in a job whose broker can end without a word: as long as that stays unknown.
const LONGEST_OPEN_NAP: Duration = Duration::from_millis(200);

/// Least time between two publications of figures, by a service thread that is awake.
const PUBLISH_NS: u64 = 100_000_000;
/// Turns of a service thread that does not sleep between two looks at the time.
const TURNS_TO_PUBLISH: u32 = 1 << 10;

/// How often the service thread rests between two rounds, for what nobody else does.
const MOST_RESTS: u32 = 50;

impl<F: Fabric> Engine<F> {
    /// Serves misses that the NIC has left to this thread, the packets that waited for them, and what the page-fault handler has
    /// left. Whether there were any.
    fn serve_left(&self, is_polled: bool) -> bool {
        let held = match is_polled && !self.owes_look.load(Ordering::Relaxed) {
            true => self.try_lock(),
            false => Some(self.lock()),
        };
        // What is left for this thread nobody else does: it may not rest before it has looked.
        self.owes_look.store(held.is_none(), Ordering::Relaxed);
        let Some(mut driver) = held else {
            return false;
        };
        if !driver.has_left() {
            return false;
        }
        driver.poll();
        true
    }

    /// Lets the service thread rest for a moment where another thread polls, who would have to wait for it, and nobody has asked for it
    /// since its last round. Whether it has rested.
    fn rest(&self) -> bool {
        let is_asked =
            || self.bells.service_rings() != self.served_rings.load(Ordering::Relaxed) || self.has_far_faults();
        let is_needed = || self.stop.load(Ordering::Acquire) || is_asked() || !self.bells.is_polling();
        if is_needed() || self.rests.fetch_add(1, Ordering::Relaxed) >= MOST_RESTS {
            return false;
        }
        let recheck = |_| is_needed();
        (self.bells).sleep(Sleeper::Service, recheck, Some(ATTENTIVE_NAP), || NAP);
        true
    }

    /// Publishes figures if the last ones are old.
    fn publish_now_and_then(&self) {
        let now_ns = now_ns();
        if now_ns.saturating_sub(self.published_at_ns.load(Ordering::Relaxed)) >= PUBLISH_NS {
            self.publish(now_ns);
        }
    }

    /// Shows what this process has counted to whoever looks.
    pub(super) fn publish(&self, now_ns: u64) {
        self.published_at_ns.store(now_ns, Ordering::Relaxed);
        let figures = self.lock().figures(now_ns, self.size);
        self.bells.publish(&figures);
    }

    /// One round of the service thread. False when it should end.
    pub(super) fn serve_once(&self) -> bool {
        if self.stop.load(Ordering::Acquire) {
            return false;
        }
        let owes_look = self.owes_look.load(Ordering::Relaxed);
        if self.mode == DriverMode::Inline && !owes_look && self.rest() {
            return true;
        }
        self.rests.store(0, Ordering::Relaxed);
        self.served_rings.store(self.bells.service_rings(), Ordering::Relaxed);
        // Where other threads run the cycle, how they wait is none of this thread's business.
        let is_alone = self.mode == DriverMode::Thread || self.has_far_faults();
        let mut spinner = is_alone.then(|| self.patience.begin());
        let is_polled = self.bells.is_polling();
        self.begin_polling();
        let mut turns = 0_u32;
        loop {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(TURNS_TO_PUBLISH) {
                self.publish_now_and_then();
            }
            if self.serve_left(is_polled) || self.look(false) {
                if let Some(spinner) = &mut spinner {
                    spinner.reset();
                }
                self.wake_sleepers();
            } else if self.try_lock().is_some_and(|driver| driver.is_holding()) {
                // A few microseconds, which a sleep would turn into many.
                core::hint::spin_loop();
            } else if !spinner.as_mut().is_some_and(Spinner::spin) || self.stop.load(Ordering::Acquire) {
                break;
            }
            self.notice_rings(false);
        }
        self.end_polling();
        if self.stop.load(Ordering::Acquire) {
            return false;
        }
        self.interrupts.look_now_and_then();
        self.publish_now_and_then();
        let longest = match self.is_open {
            true => LONGEST_OPEN_NAP,
            false => LONGEST_SERVICE_NAP,
        };
        let (nap, was_blocked) = {
            let mut driver = self.lock();
            if self.is_open {
                driver.paths().fabric_mut().look_for_end();
            }
            driver.reclaim();
            driver.flush();
            let blocked = driver.is_blocked().then_some(BLOCKED_NAP);
            // A thread that polls sees to what is due.
            let due = match self.bells.is_polling() {
                true => None,
                false => driver.next_deadline(),
            };
            let due = due.map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(now_ns())));
            let nap = blocked.into_iter().chain(due).fold(longest, Duration::min);
            let is_awaited = self.has_far_faults();
            (driver.paths().begin_service_nap(nap, is_awaited), blocked.is_some())
        };
        self.bells.sleep(
            Sleeper::Service,
            |was_nap| {
                self.notice_rings(was_nap);
                let mut driver = self.lock();
                self.stop.load(Ordering::Acquire)
                    || driver.has_work()
                    || driver.has_left()
                    || driver.is_holding()
                    || driver.needs_attention()
                    // Packets have begun to wait for room since the nap was chosen, or while this thread sleeps.
                    || !was_blocked && driver.is_blocked()
            },
            Some(nap),
            || NAP,
        );
        true
    }
}
