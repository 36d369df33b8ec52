//! How threads take the driver.
//!
//! A signal handler of the program that touches shared memory may fault, and its fault needs the driver. So while shared
//! memory is open and the program has handlers, a thread blocks signals before it takes the driver: no handler then
//! interrupts the thread that holds it. A program without handlers pays nothing. Handlers installed after the memory was
//! opened are looked for now and then, and when the program says that there are some.

use mapwire_host::masking::Mask;
use mapwire_transport::fabric::Fabric;

use super::Engine;
use super::ending::exit_lost;
use super::interrupts::DriverGuard;
use crate::driver::Driver;
use crate::spin::SpinGuard;

impl<F: Fabric> Engine<F> {
    /// The driver. Hold it briefly, and touch no memory meanwhile that may fault. Ends a forked child: ask [`check_here`](Self::check_here)
    /// before.
    #[inline]
    pub fn lock(&self) -> DriverGuard<'_, F> {
        if !self.is_here() {
            self.end_child();
        }
        let mask = self.mask();
        let driver = match self.driver.try_lock() {
            Some(driver) => driver,
            None => self.lock_busy(),
        };
        if mask.is_none() && self.interrupts.wants_mask() {
            drop(driver);
            return self.lock();
        }
        DriverGuard::new(driver, mask)
    }

    /// The driver, if no other thread holds it, and in no forked child.
    #[inline]
    pub(super) fn try_lock(&self) -> Option<DriverGuard<'_, F>> {
        if !self.is_here() {
            return None;
        }
        let mask = self.mask();
        let driver = self.driver.try_lock()?;
        if mask.is_none() && self.interrupts.wants_mask() {
            return None;
        }
        Some(DriverGuard::new(driver, mask))
    }

    /// Notices handlers of signals that the program has installed since shared memory was opened.
    pub fn notice_handlers(&self) {
        if !self.is_here() {
            return;
        }
        self.interrupts.look_at_all();
        // Whoever holds the driver has taken it without a mask; whoever takes it later sees that it needs one.
        drop(self.lock());
    }

    /// Keeps handlers off the calling thread while it does more than hold the driver once.
    #[inline]
    pub(super) fn mask(&self) -> Option<Mask> {
        self.interrupts.mask()
    }

    #[cold]
    fn lock_busy(&self) -> SpinGuard<'_, Driver<F>> {
        if self.driver.is_mine() {
            // A handler that was not known has interrupted this thread, and touched shared memory.
            self.say(format_args!(
                "a signal handler touched shared memory on a thread that was inside mapwire: install handlers before the \
                 shared memory is opened, or call notice_handlers after installing them"
            ));
            exit_lost();
        }
        self.driver.lock()
    }
}
