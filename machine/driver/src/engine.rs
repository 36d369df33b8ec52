//! Who runs the duty cycle, and how threads wait.
//!
//! A thread that waits in mapwire runs the cycle itself, so that nothing is handed from thread to thread and finished work is
//! seen on the core that did it. While no thread waits, a service thread sleeps until a peer rings; it then serves what came
//! and sleeps again (event-driven rather than polled, Millipage §3.3). In [`DriverMode::Thread`] the service thread polls all
//! the time, and other threads only write commands and watch completion words.

use core::ops::Range;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use mapwire_dsm::{Dsm, Error as ModelError, Outcome, Progress};
use mapwire_host::faults::{FaultInfo, Resolution};
use mapwire_host::waiting::{Spinner, WaitStrategy, now_ns};
use mapwire_transport::board::{Board, RankState};
use mapwire_wire::{CommandRepr, NodeId};

use crate::completions::CompletionWords;
use crate::config::{DriverConfig, DriverMode};
use crate::driver::{Driver, peer_flags};
use crate::error::DriverError;
use crate::job::Job;
use crate::notices::Notice;
use crate::shared::{MAX_THREADS, SharedError, SharedPort};
use crate::spin::{SpinGuard, SpinLock};
use crate::threads::Threads;

/// How long a thread sleeps while packets wait for room at a peer, which does not ring when there is room again.
const BLOCKED_NAP: Duration = Duration::from_micros(50);

/// How long a thread sleeps that waits for memory which a peer stores into directly.
const MEMORY_NAP: Duration = Duration::from_micros(200);

fn as_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The driver of a process, shared by its threads.
#[derive(Debug)]
pub struct Engine {
    driver: SpinLock<Driver>,
    board: Arc<Board>,
    rank: u32,
    size: u32,
    mode: DriverMode,
    wait: WaitStrategy,
    timeout: Duration,
    /// There are more ranks than processors: who is waited for may need the processor that spins.
    crowded: bool,
    words: Arc<CompletionWords>,
    peers: Arc<[AtomicU32]>,
    threads: Threads,
    stop: AtomicBool,
    service: Mutex<Option<JoinHandle<()>>>,
    /// Threads of this process that sleep on its bell, the service thread left out.
    sleepers: AtomicU32,
    /// The shared memory's application views; 0 while it is not open.
    shared_start: AtomicUsize,
    shared_end: AtomicUsize,
}

/// Where a thread is that works on the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a call of the program.
    Program,
    /// In the page-fault handler: no allocation, and no handler of the program.
    FaultHandler,
}

/// The driver, held.
#[derive(Debug)]
pub struct DriverGuard<'a>(SpinGuard<'a, Driver>);

impl core::ops::Deref for DriverGuard<'_> {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        &self.0
    }
}

impl core::ops::DerefMut for DriverGuard<'_> {
    fn deref_mut(&mut self) -> &mut Driver {
        &mut self.0
    }
}

impl Engine {
    /// Starts the driver of this process in `job`.
    ///
    /// # Errors
    /// When a part cannot be made, or the service thread not started.
    pub fn start(config: &DriverConfig, job: Job) -> Result<Arc<Self>, DriverError> {
        let board = Arc::clone(job.board());
        let (rank, size) = (job.rank(), job.size());
        let words = Arc::new(CompletionWords::new());
        let peers: Arc<[AtomicU32]> = (0..size).map(|_| AtomicU32::new(0)).collect();
        let driver = Driver::new(
            config,
            job,
            Arc::clone(&board),
            Arc::clone(&peers),
            Arc::clone(&words),
        )?;
        let engine = Arc::new(Self {
            driver: SpinLock::new(driver),
            board,
            rank,
            size,
            mode: config.mode,
            wait: config.wait,
            timeout: config.timeout,
            crowded: size as usize > mapwire_host::limits::processors(),
            words,
            peers,
            threads: Threads::new(),
            stop: AtomicBool::new(false),
            service: Mutex::new(None),
            sleepers: AtomicU32::new(0),
            shared_start: AtomicUsize::new(0),
            shared_end: AtomicUsize::new(0),
        });
        // The thread holds no share of the engine: dropping the last share is what stops it.
        let weak = Arc::downgrade(&engine);
        let thread = std::thread::Builder::new()
            .name("mapwire-service".to_owned())
            .spawn(move || {
                let serve = || {
                    while let Some(engine) = weak.upgrade() {
                        if !engine.serve_once() {
                            return;
                        }
                    }
                };
                // A handler of the program panicked, and has said so. Without this thread the rank would serve nobody.
                if std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve)).is_err() {
                    crate::mover::exit(EXIT_PANIC);
                }
            })
            .map_err(DriverError::Thread)?;
        *engine
            .service
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(engine)
    }

    /// This process's rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Ranks in the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The timeout of set-up steps.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How threads wait.
    #[must_use]
    pub fn wait_strategy(&self) -> WaitStrategy {
        self.wait
    }

    /// Who runs the duty cycle.
    #[must_use]
    pub fn mode(&self) -> DriverMode {
        self.mode
    }

    /// The completion words.
    #[must_use]
    pub fn words(&self) -> &CompletionWords {
        &self.words
    }

    /// The driver. Hold it briefly, and touch no memory meanwhile that may fault.
    #[inline]
    pub fn lock(&self) -> DriverGuard<'_> {
        DriverGuard(self.driver.lock())
    }

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

    /// Whether a direct store to `peer` may go ahead: nothing sent before is still under way, and the peer is there.
    #[inline]
    #[must_use]
    pub fn is_clear(&self, peer: NodeId) -> bool {
        self.peers[usize::from(peer.0)].load(Ordering::Acquire) == 0
    }

    /// Notes that something is under way to `peer` that a direct store must not overtake. To be called with the driver held,
    /// together with what it is for: [`settle`](Self::settle) takes the note back when it finds nothing under way.
    #[inline]
    pub fn mark_dirty(&self, _held: &Driver, peer: NodeId) {
        let flags = &self.peers[usize::from(peer.0)];
        if flags.load(Ordering::Relaxed) & peer_flags::RING_DIRTY == 0 {
            flags.fetch_or(peer_flags::RING_DIRTY, Ordering::Relaxed);
        }
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

    /// Writes a command towards `to` to the process's queue; false when it is full. In [`DriverMode::Inline`] the caller's thread serves
    /// it at once.
    ///
    /// # Errors
    /// A command that cannot be written.
    #[inline]
    pub fn submit(
        &self,
        to: NodeId,
        command: &CommandRepr,
        data: &[u8],
    ) -> Result<bool, DriverError> {
        let mut driver = self.driver.lock();
        self.mark_dirty(&driver, to);
        if self.mode == DriverMode::Inline {
            return driver.submit(command, data);
        }
        let submitted = driver.enqueue(command, data)?;
        drop(driver);
        self.board.ring(self.rank);
        Ok(submitted)
    }

    /// The addresses of the shared memory's application views, while it is open.
    #[inline]
    #[must_use]
    pub fn shared_range(&self) -> Option<Range<usize>> {
        let start = self.shared_start.load(Ordering::Acquire);
        (start != 0).then(|| start..self.shared_end.load(Ordering::Acquire))
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

    /// Runs one turn of the duty cycle, and the handlers of notifications that came. Whether anything was done.
    #[inline]
    pub fn poll(&self) -> bool {
        let (worked, notice) = match self.driver.try_lock() {
            None => return false,
            Some(mut driver) => (driver.poll(), driver.notices.pop_front()),
        };
        if let Some(notice) = notice {
            self.run_notices(notice);
        }
        worked
    }

    /// One turn of the duty cycle, without handlers of the program: those that came are left to the service thread.
    #[inline]
    fn poll_quietly(&self) {
        let waiting = match self.driver.try_lock() {
            None => return,
            Some(mut driver) => {
                driver.poll();
                !driver.notices.is_empty()
            }
        };
        if waiting {
            self.board.wake(self.rank);
        }
    }

    #[cold]
    fn run_notices(&self, first: Notice) {
        let mut next = Some(first);
        while let Some(Notice {
            handler,
            notification,
        }) = next
        {
            handler(notification);
            next = self.driver.lock().notices.pop_front();
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
    fn wait_driver<T>(
        &self,
        place: Place,
        timeout: Option<Duration>,
        mut check: impl FnMut(&mut Driver) -> Option<T>,
    ) -> Option<T> {
        self.wait(timeout, |engine, sleeping| {
            let mut driver = match engine.driver.try_lock() {
                Some(driver) => driver,
                // Somebody else runs the cycle. Before sleeping the check must be made all the same.
                None if sleeping => engine.driver.lock(),
                None => return (false, None),
            };
            let worked = driver.poll();
            let found = check(&mut driver);
            let notice = match place {
                Place::Program => driver.notices.pop_front(),
                Place::FaultHandler => None,
            };
            let waiting = !driver.notices.is_empty();
            drop(driver);
            if let Some(notice) = notice {
                engine.run_notices(notice);
            } else if waiting {
                // A handler of the program may do anything, and so must not run in a signal handler: the service thread
                // runs it.
                engine.board.wake(engine.rank);
            }
            (worked, found)
        })
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
        self.board.leave_polling(self.rank);
        // What came while this thread counted as polling rang nobody: look once more, now that it does not.
        self.poll_quietly();
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
    fn wake_sleepers(&self) {
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            self.board.wake(self.rank);
        }
    }

    /// One round of the service thread. False when it should end.
    fn serve_once(&self) -> bool {
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
            if self.poll() {
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
            driver.flush();
            let blocked = driver.is_blocked().then_some(BLOCKED_NAP);
            let due = driver
                .next_deadline()
                .map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(now_ns())));
            blocked.into_iter().chain(due).min()
        };
        self.board.sleep(
            self.rank,
            || self.stop.load(Ordering::Acquire) || self.driver.lock().has_work(),
            Some(nap.unwrap_or(Duration::from_secs(1))),
        );
        true
    }

    /// Whether a rank is known to have failed, rather than left.
    #[must_use]
    pub fn has_died(&self, rank: NodeId) -> bool {
        self.board.state(u32::from(rank.0)) == RankState::Dead
    }

    /// Whether there were other ranks and all of them are gone.
    #[must_use]
    pub fn is_deserted(&self) -> bool {
        let mut others = (0..self.size).filter(|&rank| rank != self.rank).peekable();
        others.peek().is_some() && others.all(|rank| self.board.state(rank).is_gone())
    }

    /// The ranks by state, for messages about waits that take too long.
    #[must_use]
    pub fn states(&self) -> String {
        let mut text = String::from("ranks:");
        for rank in 0..self.size.min(64) {
            text.push_str(&format!(" {rank} {:?}", self.board.state(rank)));
        }
        text
    }

    /// Begins an operation of the calling thread on the shared memory, and waits for its outcome; `Ok(None)` when it was
    /// over at once. Allocates nothing: it runs in the page-fault handler.
    ///
    /// # Errors
    /// The model's refusal, or that the shared memory is at its end.
    #[inline]
    pub fn shared_operation(
        &self,
        place: Place,
        begin: impl FnOnce(&mut SharedPort, u16) -> Result<Progress, ModelError>,
    ) -> Result<Option<Outcome>, SharedError> {
        let thread = self
            .threads
            .current()
            .ok_or(SharedError::TooManyThreads(MAX_THREADS))?;
        {
            let mut driver = self.driver.lock();
            let port = driver.shared.as_mut().ok_or(SharedError::NotOpen)?;
            port.check()?;
            let progress = begin(port, thread)?;
            driver.serve_shared();
            if progress == Progress::Done {
                return Ok(None);
            }
            if let Some(outcome) = driver
                .shared
                .as_mut()
                .and_then(|port| port.take_outcome(thread))
            {
                return outcome.map(Some);
            }
        }
        let waited = self.wait_driver(place, None, |driver| match &mut driver.shared {
            Some(port) => port.take_outcome(thread),
            None => Some(Err(SharedError::NotOpen)),
        });
        // Without a timeout the wait ends only with an outcome.
        waited.unwrap_or(Err(SharedError::NotOpen)).map(Some)
    }

    /// A command on the shared memory that never waits.
    ///
    /// # Errors
    /// The model's refusal, or that the shared memory is not open.
    #[inline]
    pub fn shared_command<T>(
        &self,
        command: impl FnOnce(&mut Dsm, u16) -> Result<T, ModelError>,
    ) -> Result<T, SharedError> {
        let thread = self
            .threads
            .current()
            .ok_or(SharedError::TooManyThreads(MAX_THREADS))?;
        let done = {
            let mut driver = self.driver.lock();
            let port = driver.shared.as_mut().ok_or(SharedError::NotOpen)?;
            let done = command(port.dsm_mut(), thread)?;
            driver.serve_shared();
            done
        };
        self.wake_sleepers();
        Ok(done)
    }

    /// Puts the shared memory in place.
    ///
    /// # Errors
    /// [`SharedError::Open`] when there is one.
    pub fn open_shared(&self, port: SharedPort) -> Result<(), SharedError> {
        let mut driver = self.driver.lock();
        if driver.shared.is_some() {
            return Err(SharedError::Open);
        }
        let range = port.views().layout().views_range();
        driver.shared = Some(Box::new(port));
        self.shared_end.store(range.end, Ordering::Release);
        self.shared_start.store(range.start, Ordering::Release);
        Ok(())
    }

    /// Takes the shared memory away.
    pub fn close_shared(&self) -> Option<Box<SharedPort>> {
        self.shared_start.store(0, Ordering::Release);
        self.driver.lock().shared.take()
    }

    /// Serves a page fault in the shared memory's views, in the thread that faulted.
    pub fn handle_fault(&self, info: &FaultInfo) -> Resolution {
        let outcome = self.shared_operation(Place::FaultHandler, |port, thread| {
            let Some((view, offset)) = port.views().locate(info.address) else {
                return Err(ModelError::NotShared {
                    view: u16::MAX,
                    page: 0,
                });
            };
            // A layout has at most 512 views.
            let (view, page) = (
                view as u16,
                (offset / mapwire_translation::PAGE_BYTES) as u64,
            );
            let wanted = port.wanted(view, page, info.kind);
            port.dsm_mut()
                .handle_fault(now_ns(), thread, view, page, wanted)
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
            Err(error) => {
                self.report(info.address, &error);
                // The memory is lost and the access cannot go on: the process ends as a failed rank, not as a crash.
                exit_now();
            }
        }
    }

    /// The access is allowed already: another thread was faster, or the kernel, short of memory, dropped the page's entry.
    /// Sets the protection once more, for the latter case.
    fn reopen(&self, address: usize) {
        if let Some(port) = &mut self.driver.lock().shared {
            port.reopen(address);
        }
    }

    /// Says on standard error why an access cannot be served. Runs in a signal handler: the text is made on the stack.
    fn report(&self, address: usize, error: &dyn core::fmt::Display) {
        use std::io::Write;
        let mut text = [0_u8; 512];
        let mut left = &mut text[..];
        // A text that does not fit is cut; that is no error here.
        let _ = writeln!(
            left,
            "mapwire: rank {}: access to shared memory at {address:#x}: {error}",
            self.rank
        );
        let used = 512 - left.len();
        let _ = rustix::io::write(rustix::stdio::stderr(), &text[..used]);
    }

    /// Stops the service thread and leaves the job. Idempotent.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.board.wake(self.rank);
        let thread = self
            .service
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
        let mut driver = self.driver.lock();
        driver.leave();
    }
}

/// Exit status of a rank of which a thread panicked that it cannot do without: as of a Rust program that panics.
const EXIT_PANIC: i32 = 101;

/// Exit status of a rank whose shared memory was lost under it: `EX_SOFTWARE` of sysexits.
const EXIT_LOST: i32 = 70;

#[cold]
fn exit_now() -> ! {
    crate::mover::exit(EXIT_LOST)
}
