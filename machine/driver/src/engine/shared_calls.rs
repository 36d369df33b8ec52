//! Calls of the shared memory: operations and commands of the program's threads, and the page faults of its views.

use core::cell::Cell;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use mapwire_dsm::{Access, Dsm, Error as ModelError, Outcome, Progress};
use mapwire_host::exiting;
use mapwire_host::faults::{FaultInfo, Resolution};
use mapwire_host::masking;
use mapwire_host::waiting::now_ns;
use mapwire_transport::bells::Wake;
use mapwire_transport::board::{NAP, RankState};

use super::Engine;
use super::calls::{Noted, SharedCall};
use super::ending::exit_lost;
use crate::driver::Driver;
use crate::driver::confined::Confined;
use crate::error::SharedError;
use crate::place::Place;
use crate::shared::SharedPort;
use crate::threads::MAX_THREADS;
use mapwire_node::SharedMemory;
use mapwire_transport::fabric::{Doorbells, Fabric};
use mapwire_wire::{NodeId, TraceOp};

impl<F: Fabric> Engine<F> {
    /// The addresses of the shared memory's application views, while it is open.
    #[inline]
    #[must_use]
    pub fn shared_range(&self) -> Option<Range<usize>> {
        let start = self.shared_start.load(Ordering::Acquire);
        (start != 0).then(|| start..self.shared_end.load(Ordering::Acquire))
    }

    /// Begins an operation of the calling thread on the shared memory, and waits for its outcome; `Ok(None)` when it was over at once.
    /// `call` is what a trace says of it.
    ///
    /// # Errors
    /// The model's refusal, or that the shared memory is at its end.
    #[inline]
    pub fn shared_operation(
        &self,
        call: SharedCall,
        begin: impl FnOnce(&mut Dsm, u16) -> Result<Progress, ModelError>,
    ) -> Result<Option<Outcome>, SharedError> {
        self.operate(Place::Program, None, || call, |memory, _, thread| begin(memory.dsm_mut(), thread))
    }

    /// As [`shared_operation`](Self::shared_operation), for the first meeting of all ranks, which have opened the memory `openings` times
    /// then. Gives up when within the timeout no rank has come any more.
    ///
    /// # Errors
    /// As there, and [`SharedError::Late`], which says who has not come.
    pub fn first_meeting(
        &self,
        openings: u32,
        call: SharedCall,
        begin: impl FnOnce(&mut Dsm, u16) -> Result<Progress, ModelError>,
    ) -> Result<Option<Outcome>, SharedError> {
        self.bells.show_openings(openings);
        self.operate(Place::Program, Some(openings), || call, |memory, _, thread| begin(memory.dsm_mut(), thread))
    }

    /// Meets every other rank.
    ///
    /// # Errors
    /// The shared memory is at its end; [`SharedError::Late`], when one has not opened it within the timeout.
    pub fn meet_all(&self) -> Result<(), SharedError> {
        let peers = (0..self.size).map(|rank| NodeId(rank as u16));
        let peers = peers.filter(|peer| *peer != self.me);
        peers.clone().for_each(|peer| self.lock().meet_sharer(peer));
        for peer in peers {
            let met = |driver: &mut Driver<F>| driver.has_met(peer);
            match self.wait_driver(Place::Program, Some(self.timeout), met) {
                Some(met) => met?,
                None => return Err(self.late(&[peer])),
            }
        }
        Ok(())
    }

    fn late(&self, missing: &[NodeId]) -> SharedError {
        SharedError::Late { missing: missing_text(missing), after: self.timeout, states: self.states() }
    }

    /// Waits for the end of a thread's operation in the first meeting of all ranks.
    fn await_all(&self, thread: u16, openings: u32) -> Result<Outcome, SharedError> {
        let ranks = || (0..self.size).map(|rank| NodeId(rank as u16));
        let is_there = |rank: &NodeId| self.bells.openings(*rank).is_none_or(|n| n >= openings);
        let has_joined = |rank: &NodeId| self.bells.state(*rank) != RankState::Absent;
        let progress = || ranks().filter(has_joined).count() + ranks().filter(is_there).count();
        let mut before = progress();
        loop {
            let take = |driver: &mut Driver<F>| driver.take_outcome(thread);
            if let Some(outcome) = self.wait_driver(Place::Program, Some(self.timeout), take) {
                return outcome;
            }
            let now = progress();
            if core::mem::replace(&mut before, now) == now {
                let missing: Vec<NodeId> = ranks().filter(|rank| !is_there(rank)).collect();
                return Err(self.late(&missing));
            }
        }
    }

    /// As [`shared_operation`](Self::shared_operation), at any place. In the page-fault handler it allocates and frees nothing.
    #[inline]
    fn operate(
        &self,
        place: Place,
        openings: Option<u32>,
        call: impl FnOnce() -> SharedCall,
        begin: impl FnOnce(&mut SharedMemory, &SharedPort, u16) -> Result<Progress, ModelError>,
    ) -> Result<Option<Outcome>, SharedError> {
        self.check_here()?;
        let _mask = self.mask();
        let operation = self.threads.begin().ok_or(SharedError::TooManyThreads(MAX_THREADS))?;
        let thread = operation.number();
        let noted = self.begin_noting(thread, operation.is_borrowed());
        let outcome = self.run_operation(place, openings, thread, noted, begin);
        if let Some(noted) = noted {
            // Also of a call that fails: the others have met this thread.
            let outcome = outcome.as_ref().ok().copied().flatten();
            self.end_noting(noted, call(), outcome);
        }
        outcome
    }

    #[inline]
    fn run_operation(
        &self,
        place: Place,
        openings: Option<u32>,
        thread: u16,
        noted: Option<Noted>,
        begin: impl FnOnce(&mut SharedMemory, &SharedPort, u16) -> Result<Progress, ModelError>,
    ) -> Result<Option<Outcome>, SharedError> {
        let (over, owing) = {
            let mut driver = self.lock();
            if let Some(noted) = noted {
                driver.note_computing(noted.thread, noted.began_ns, noted.computed_ns);
            }
            let begun = driver.begin_shared(|memory, port| begin(memory, port, thread))?;
            // What began may have ended a hold, also when it is refused.
            driver.at(place, Driver::serve_shared, Confined::serve_shared);
            if begun.is_err() {
                driver.paths().ring_due();
            }
            let over = match begun? {
                Progress::Done => Some(Ok(None)),
                Progress::Pending => driver.take_outcome(thread).map(|outcome| outcome.map(Some)),
            };
            if over.is_some() {
                driver.paths().ring_due();
            }
            let owing = place == Place::FaultHandler && driver.needs_service();
            (over, owing)
        };
        if owing {
            self.bells.wake(self.me, Wake::All);
        }
        // What this thread did may have ended the wait of others here.
        self.wake_sleepers();
        if let Some(over) = over {
            return over;
        }
        if let Some(openings) = openings {
            return self.await_all(thread, openings).map(Some);
        }
        let leaves = self.leaves_far(place);
        let _waits = leaves.then(|| FarFault::begin(&self.far_faults));
        let outcome = |driver: &mut Driver<F>| driver.take_outcome(thread);
        let limit = (place == Place::Program).then_some(self.timeout);
        let waited = self.wait_driver(place, limit, outcome).or_else(|| {
            self.say_who_is_late(thread);
            self.wait_driver(place, None, outcome)
        });
        // Without a timeout the wait ends only with an outcome.
        waited.unwrap_or(Err(SharedError::NotOpen)).map(Some)
    }

    /// Says on standard error where a thread of this rank waits for others, if it does so in a barrier. That may take as long as they
    /// compute, and so is no error.
    #[cold]
    fn say_who_is_late(&self, thread: u16) {
        let waited = {
            let driver = self.lock();
            let dsm = driver.shared_memory().map(SharedMemory::dsm);
            let dsm = dsm.filter(|dsm| dsm.is_in_barrier(thread));
            dsm.map_or_else(Vec::new, Dsm::waited_barriers)
        };
        if !waited.is_empty() {
            let waited: Vec<String> = waited.iter().map(ToString::to_string).collect();
            let (rank, timeout, waited) = (self.rank(), self.timeout, waited.join("; "));
            mapwire_host::stderr::say(format_args!(
                "rank {rank} has waited for {timeout:?} in the shared memory: {waited}"
            ));
        }
    }

    /// Whether the calling thread must leave packets of far peers to the service thread. That itself interrupts nothing.
    pub(super) fn leaves_far(&self, place: Place) -> bool {
        self.has_far && place == Place::FaultHandler && !masking::is_library_thread()
    }

    /// Whether a thread in the page-fault handler waits for packets that only other threads may take.
    pub(super) fn has_far_faults(&self) -> bool {
        self.far_faults.load(Ordering::SeqCst) > 0
    }

    /// A command on the shared memory that never waits. `calls` is what a trace says of it.
    ///
    /// # Errors
    /// The model's refusal, or that the shared memory is not open.
    #[inline]
    pub fn shared_command<T>(
        &self,
        calls: &[SharedCall],
        command: impl FnOnce(&mut Dsm, u16) -> Result<T, ModelError>,
    ) -> Result<T, SharedError> {
        self.check_here()?;
        let thread = self.threads.current().ok_or(SharedError::TooManyThreads(MAX_THREADS))?;
        let noted = self.begin_noting(thread, false);
        let done = {
            let mut driver = self.lock();
            if let Some(noted) = noted {
                driver.note_computing(noted.thread, noted.began_ns, noted.computed_ns);
            }
            let done = driver.call_shared(|memory| command(memory.dsm_mut(), thread)).ok_or(SharedError::NotOpen)?;
            driver.serve_shared();
            driver.paths().ring_due();
            done?
        };
        self.wake_sleepers();
        if let Some(noted) = noted {
            for call in calls {
                self.end_noting(noted, *call, None);
            }
            self.leave_noting(noted);
        }
        Ok(done)
    }

    /// Puts the shared memory in place.
    ///
    /// # Errors
    /// [`SharedError::Open`] when there is one.
    pub fn open_shared(&self, dsm: Dsm, port: SharedPort) -> Result<(), SharedError> {
        self.check_here()?;
        let mut driver = self.lock();
        if driver.shared().is_some() {
            return Err(SharedError::Open);
        }
        let range = port.views().layout().views_range();
        let participants = dsm.config().participants;
        driver.open_shared(dsm, port)?;
        if self.processor_times.is_some() {
            Self::note_open_shared(&mut driver, self.threads.current().unwrap_or(0), participants);
        }
        self.interrupts.open();
        self.shared_end.store(range.end, Ordering::Release);
        self.shared_start.store(range.start, Ordering::Release);
        Ok(())
    }

    /// Takes the shared memory away, as soon as no peer on another host needs its bytes any more. A forked child has none.
    pub fn close_shared(&self) -> Option<Box<SharedPort>> {
        if !self.is_here() {
            return None;
        }
        self.shared_start.store(0, Ordering::Release);
        let is_over = self.wait_driver(Place::Program, Some(self.timeout), |driver| {
            (!driver.is_storing_for_services()).then_some(())
        });
        let (port, memory) = self.lock().close_shared();
        if let (None, Some(port)) = (is_over, &port) {
            // The NIC may still read what it could not deliver.
            core::mem::forget(Arc::clone(port.views()));
        }
        drop(memory);
        self.interrupts.close();
        port
    }

    /// Serves a page fault in the shared memory's views, in the thread that faulted.
    pub fn handle_fault(&self, info: &FaultInfo) -> Resolution {
        let _masked = masking::in_fault_handler();
        // What the fault wants is found with the driver held.
        let op = Cell::new(TraceOp::ReadFault);
        let call = || SharedCall::of(op.get(), info.address as u64);
        let outcome = self.operate(Place::FaultHandler, None, call, |memory, port, thread| {
            let Some((view, page)) = port.locate(info.address) else {
                return Err(ModelError::NotShared { view: u16::MAX, page: 0 });
            };
            let dsm = memory.dsm_mut();
            let wanted = crate::shared::wanted(dsm, view, page, info.kind);
            if wanted == Access::Write {
                op.set(TraceOp::WriteFault);
            }
            dsm.handle_fault(now_ns(), thread, view, page, wanted)
        });
        match outcome {
            Ok(None) => {
                self.reopen(info.address);
                Resolution::Retry
            }
            Ok(Some(Outcome::Served(_))) => Resolution::Retry,
            Ok(Some(Outcome::Failed(error))) => {
                self.report(info.address, &error);
                Resolution::Refuse
            }
            Ok(Some(_)) => Resolution::Refuse,
            Err(_) if self.ends_soon() => {
                // This thread goes no further, and the process ends with the code that it exits with.
                std::thread::sleep(NAP);
                Resolution::Retry
            }
            Err(error) => {
                self.report(info.address, &error);
                // The memory is lost and the access cannot go on: the process ends as a failed rank, not as a crash.
                exit_lost();
            }
        }
    }

    /// Whether another thread has this process exit. After the timeout no more: the exit may wait for this thread. A forked child has only
    /// a copy of what its parent notes of its exit.
    fn ends_soon(&self) -> bool {
        let since = exiting::exits_elsewhere_since();
        self.is_here() && since.is_some_and(|since| since.elapsed() < self.timeout)
    }

    /// The access is allowed already: another thread was faster, or the kernel, short of memory, dropped the page's entry.
    /// Sets the protection once more, for the latter case.
    fn reopen(&self, address: usize) {
        self.lock().reopen(address);
    }

    /// Says on standard error why an access cannot be served.
    fn report(&self, address: usize, error: &dyn core::fmt::Display) {
        self.say(format_args!("access to shared memory at {address:#x}: {error}"));
    }

    /// Says something on standard error. May run in a signal handler: the text is made on the stack.
    pub(super) fn say(&self, what: core::fmt::Arguments<'_>) {
        use std::io::Write;
        let mut text = [0_u8; 512];
        let mut left = &mut text[..];
        // A text that does not fit is cut; that is no error here.
        let _ = writeln!(left, "mapwire: rank {}: {what}", self.rank());
        let used = 512 - left.len();
        let _ = rustix::io::write(rustix::stdio::stderr(), &text[..used]);
    }
}

/// Who has not come, as the subject of a sentence.
fn missing_text(ranks: &[NodeId]) -> String {
    const NAMED: usize = 8;
    let named: Vec<String> = ranks.iter().take(NAMED).map(|rank| rank.0.to_string()).collect();
    match ranks.len() {
        0 => "a rank on another host has".into(),
        1 => format!("rank {} has", named[0]),
        2..=NAMED => format!("ranks {} have", named.join(", ")),
        all => format!("ranks {} and {} more have", named.join(", "), all - NAMED),
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
