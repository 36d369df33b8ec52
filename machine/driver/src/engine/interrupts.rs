//! Whether signal handlers of the program may want the driver, and the driver held without them.

use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use mapwire_host::masking::{self, Mask};
use mapwire_host::waiting::now_ns;
use mapwire_transport::fabric::Fabric;
use mapwire_transport::job::JobFabric;

use crate::driver::Driver;
use crate::spin::SpinGuard;

/// Holds of the driver between two looks for a handler of one signal: the system call then costs a few nanoseconds a hold.
const HOLDS_A_LOOK: u32 = 64;

/// Signals looked at before a thread sleeps.
const LOOKS_A_SLEEP: u32 = 2;

/// The service thread looks for handlers of all signals this often, in nanoseconds: that takes about 20 microseconds.
const THOROUGH_LOOK_NS: u64 = 20_000_000;

/// No shared memory is open, so no handler can fault on it.
const CLOSED: u8 = 0;
/// Shared memory is open; no handler is known.
const WATCHING: u8 = 1;
/// Shared memory is open, and the program has handlers.
const MASKING: u8 = 2;

/// Whether signal handlers may want the driver.
#[derive(Debug)]
pub(super) struct Interrupts {
    state: AtomicU8,
    holds: AtomicU32,
    /// When the service thread looked last.
    looked_ns: AtomicU64,
}

impl Interrupts {
    pub(super) const fn new() -> Self {
        Self { state: AtomicU8::new(CLOSED), holds: AtomicU32::new(0), looked_ns: AtomicU64::new(0) }
    }

    /// Shared memory is about to be opened.
    pub(super) fn open(&self) {
        self.state.store(WATCHING, Ordering::Release);
        self.look_at_all();
    }

    /// Looks for handlers that were installed since.
    pub(super) fn look_at_all(&self) {
        if self.state.load(Ordering::Relaxed) == WATCHING && masking::any_handler() {
            self.found();
        }
    }

    /// As [`look_at_all`](Self::look_at_all), now and then; for the service thread.
    pub(super) fn look_now_and_then(&self) {
        if self.state.load(Ordering::Relaxed) != WATCHING {
            return;
        }
        let now_ns = now_ns();
        if now_ns.saturating_sub(self.looked_ns.load(Ordering::Relaxed)) > THOROUGH_LOOK_NS {
            self.looked_ns.store(now_ns, Ordering::Relaxed);
            self.look_at_all();
        }
    }

    /// As [`look_at_all`](Self::look_at_all) for a few signals, where a thread is about to sleep.
    pub(super) fn look(&self) {
        if self.state.load(Ordering::Relaxed) == WATCHING && (0..LOOKS_A_SLEEP).any(|_| masking::next_handler()) {
            self.found();
        }
    }

    fn found(&self) -> bool {
        let found = self.state.compare_exchange(WATCHING, MASKING, Ordering::AcqRel, Ordering::Relaxed);
        found.is_ok()
    }

    pub(super) fn close(&self) {
        self.state.store(CLOSED, Ordering::Release);
    }

    /// Keeps handlers off the calling thread if any may want the driver.
    #[inline]
    pub(super) fn mask(&self) -> Option<Mask> {
        match self.state.load(Ordering::Relaxed) {
            CLOSED => None,
            WATCHING => self.watch(),
            _ => Some(masking::mask()),
        }
    }

    /// Whether a thread that has taken the driver without a mask must let it go: handlers were found meanwhile.
    #[inline]
    pub(super) fn wants_mask(&self) -> bool {
        self.state.load(Ordering::Relaxed) == MASKING
    }

    fn watch(&self) -> Option<Mask> {
        // Counts of several threads may be lost: they are counts of about.
        let holds = self.holds.load(Ordering::Relaxed).wrapping_add(1);
        self.holds.store(holds, Ordering::Relaxed);
        if !holds.is_multiple_of(HOLDS_A_LOOK) || !masking::next_handler() {
            return None;
        }
        self.found().then(masking::mask)
    }
}

/// The driver, held. Handlers that may want it are kept off this thread until it has been let go.
#[derive(Debug)]
pub struct DriverGuard<'a, F: Fabric = JobFabric> {
    // Dropped in this order.
    driver: SpinGuard<'a, Driver<F>>,
    _mask: Option<Mask>,
}

impl<'a, F: Fabric> DriverGuard<'a, F> {
    pub(super) fn new(driver: SpinGuard<'a, Driver<F>>, mask: Option<Mask>) -> Self {
        Self { driver, _mask: mask }
    }
}

impl<F: Fabric> Deref for DriverGuard<'_, F> {
    type Target = Driver<F>;

    #[inline]
    fn deref(&self) -> &Driver<F> {
        &self.driver
    }
}

impl<F: Fabric> DerefMut for DriverGuard<'_, F> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Driver<F> {
        &mut self.driver
    }
}
