//! Operations of the program's threads on services: begun with the driver held and then waited for, also in the page-fault handler.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use mapwire_host::processes::Forked;
use mapwire_host::{exiting, masking};
use mapwire_transport::bells::Wake;
use mapwire_transport::fabric::{Doorbells, Fabric};

use super::Engine;
use super::noting::{Noted, TracedCall};
use crate::driver::Driver;
use crate::driver::confined::{Caller, Confined};
use crate::threads::TooManyThreads;

impl<F: Fabric> Engine<F> {
    /// The addresses whose page faults this process serves itself, while there are any: code that holds the driver touches none of them.
    #[inline]
    #[must_use]
    pub fn faulting_range(&self) -> Option<Range<usize>> {
        let start = self.faults_start.load(Ordering::Acquire);
        (start != 0).then(|| start..self.faults_end.load(Ordering::Acquire))
    }

    /// Page faults at these addresses are served from here on, by the thread that faults, which may then be in a handler of a signal.
    pub fn begin_faults(&self, range: &Range<usize>) {
        self.interrupts.open();
        self.faults_end.store(range.end, Ordering::Release);
        self.faults_start.store(range.start, Ordering::Release);
    }

    /// No faults are served any more. Waits until no service needs its memory for a peer on another host; false if one still does.
    pub fn end_faults(&self) -> bool {
        self.faults_start.store(0, Ordering::Release);
        let is_over = |driver: &mut Driver<F>| (!driver.is_storing_for_services()).then_some(());
        let is_over = self.wait_driver(Caller::Program, Some(self.timeout), is_over).is_some();
        self.interrupts.close();
        is_over
    }

    /// An operation of the calling thread: `begin` gives its outcome, or `None` while `take` does not give it yet; both are told the thread's
    /// number. When nothing has come for as long as `limit`, `late` says for how long to go on, or why not.
    /// `note` says what a trace tells of it. In the page-fault handler all this allocates and frees nothing, and there is no timeout.
    ///
    /// # Errors
    /// What these give; a forked child; as many threads as there may be have operations under way.
    #[inline]
    pub fn operate<T, E: From<Forked> + From<TooManyThreads>>(
        &self,
        (caller, limit): (Caller, Duration),
        begin: impl FnOnce(&mut Driver<F>, u16) -> Result<Option<T>, E>,
        take: impl Fn(&mut Driver<F>, u16) -> Option<Result<T, E>>,
        late: impl FnMut(&Self, u16) -> Result<Option<Duration>, E>,
        note: impl FnOnce(&mut Driver<F>, Option<&T>) -> Option<TracedCall>,
    ) -> Result<T, E> {
        self.check_here()?;
        let _mask = self.mask();
        let operation = self.threads.begin()?;
        let thread = operation.number();
        let noted = self.processor_times.as_ref().map(|times| times.begin(thread, operation.is_borrowed()));
        let outcome = self.run_operation((caller, limit), thread, noted, begin, take, late);
        if let Some(noted) = noted {
            // Also of a call that fails: the others have met this thread.
            let mut driver = self.lock();
            let call = note(&mut driver, outcome.as_ref().ok());
            drop(driver);
            self.end_noting(noted, call.as_slice());
        }
        outcome
    }

    #[inline]
    fn run_operation<T, E: From<Forked>>(
        &self,
        (caller, limit): (Caller, Duration),
        thread: u16,
        noted: Option<Noted>,
        begin: impl FnOnce(&mut Driver<F>, u16) -> Result<Option<T>, E>,
        take: impl Fn(&mut Driver<F>, u16) -> Option<Result<T, E>>,
        mut late: impl FnMut(&Self, u16) -> Result<Option<Duration>, E>,
    ) -> Result<T, E> {
        let (over, owing) = {
            let mut driver = self.lock();
            if let Some(noted) = noted {
                driver.note_computing(noted);
            }
            let begun = begin(&mut driver, thread);
            // What began may have ended a hold, also when it is refused.
            driver.on_behalf_of(caller, Driver::carry_out, Confined::carry_out);
            let over = begun.transpose().or_else(|| take(&mut driver, thread));
            if over.is_some() {
                driver.paths().ring_due();
            }
            (over, caller == Caller::FaultHandler && driver.needs_service())
        };
        if owing {
            self.bells.wake(self.me, Wake::All);
        }
        // What this thread did may have ended the wait of others here.
        self.wake_sleepers();
        if let Some(over) = over {
            return over;
        }
        let _waits = self.leaves_far(caller).then(|| FarFault::begin(&self.far_faults));
        let mut limit = (caller == Caller::Program).then_some(limit);
        loop {
            if let Some(outcome) = self.wait_driver(caller, limit, |driver| take(driver, thread)) {
                return outcome;
            }
            // Without a timeout the wait ends only with an outcome, but in a forked child.
            self.check_here()?;
            limit = late(self, thread)?;
        }
    }

    /// A command of the calling thread, which is told its number, that never waits. `calls` is what a trace says of it.
    ///
    /// # Errors
    /// What `command` gives; a forked child; as many threads as there may be have a number.
    #[inline]
    pub fn command<T, E: From<Forked> + From<TooManyThreads>>(
        &self,
        calls: &[TracedCall],
        command: impl FnOnce(&mut Driver<F>, u16) -> Result<T, E>,
    ) -> Result<T, E> {
        self.check_here()?;
        let thread = self.threads.current()?;
        let noted = self.processor_times.as_ref().map(|times| times.begin(thread, false));
        let done = {
            let mut driver = self.lock();
            if let Some(noted) = noted {
                driver.note_computing(noted);
            }
            let done = command(&mut driver, thread);
            driver.carry_out();
            driver.paths().ring_due();
            done?
        };
        self.wake_sleepers();
        if let Some(noted) = noted {
            self.end_noting(noted, calls);
        }
        Ok(done)
    }

    /// The call of a thread is over: its computing ends here, and the next begins.
    #[cold]
    fn end_noting(&self, noted: Noted, calls: &[TracedCall]) {
        let mut driver = self.lock();
        calls.iter().for_each(|call| driver.note_call(noted.thread, *call));
        drop(driver);
        if let Some(times) = &self.processor_times {
            times.end(noted.thread);
        }
    }

    /// The number of the calling thread.
    ///
    /// # Errors
    /// As many threads as there may be have one.
    pub fn thread(&self) -> Result<u16, TooManyThreads> {
        self.threads.current()
    }

    /// Whether the calling thread must leave packets of far peers to the service thread. That itself interrupts nothing.
    pub(super) fn leaves_far(&self, caller: Caller) -> bool {
        self.has_far && caller == Caller::FaultHandler && !masking::is_library_thread()
    }

    /// Whether a thread in the page-fault handler waits for packets that only other threads may take.
    pub(super) fn has_far_faults(&self) -> bool {
        self.far_faults.load(Ordering::SeqCst) > 0
    }

    /// Whether another thread has this process exit. After the timeout no more: the exit may wait for this thread. A forked child has only
    /// a copy of what its parent notes of its exit.
    #[must_use]
    pub fn ends_soon(&self) -> bool {
        let since = exiting::exits_elsewhere_since();
        self.is_here() && since.is_some_and(|since| since.elapsed() < self.timeout)
    }

    /// Says something on standard error. May run in a signal handler: the text is made on the stack.
    pub fn say(&self, what: core::fmt::Arguments<'_>) {
        use std::io::Write;
        let mut text = [0_u8; 512];
        let mut left = &mut text[..];
        // A text that does not fit is cut; that is no error here.
        let _ = writeln!(left, "mapwire: rank {}: {what}", self.rank());
        let used = 512 - left.len();
        let _ = rustix::io::write(rustix::stdio::stderr(), &text[..used]);
    }
}

/// A thread in the page-fault handler waits for packets that only other threads may take, until this is dropped.
struct FarFault<'a>(&'a AtomicU32);

impl<'a> FarFault<'a> {
    fn begin(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for FarFault<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
