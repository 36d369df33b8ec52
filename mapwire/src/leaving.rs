//! How a process leaves its job: when the last of a node goes, or when the process exits before.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mapwire_driver::engine::Engine;
use mapwire_host::exiting;
use mapwire_launch::Membership;

/// Exit code of a rank that could not deliver what it had sent, and would have exited with 0.
const EXIT_LOST: i32 = 70;

/// What leaving may take besides the job's timeout, in which what was sent arrives: peers hear of it.
const FAREWELL: Duration = Duration::from_secs(5);

/// The nodes of this process that leave at its exit, by the process that made them: a forked child inherits the list.
static NODES: Mutex<Vec<(u32, Weak<Departure>)>> = Mutex::new(Vec::new());

/// What a rank sent did not arrive.
static HAS_LOST: AtomicBool = AtomicBool::new(false);

/// What leaves: the parts of a node that others know of.
#[derive(Debug)]
pub(crate) struct Departure {
    engine: Arc<Engine>,
    /// In a job that another launcher than `mapwire run` started. Taken as the rank leaves the launcher.
    membership: Mutex<Option<Membership>>,
    timeout: Duration,
    /// Held while the rank leaves the job, and then whether it has.
    has_left: Mutex<bool>,
    delivered: (Mutex<bool>, Condvar),
    /// The program, not a library for itself, sends by this node, and is told what did not arrive.
    is_programs: AtomicBool,
}

impl Departure {
    pub(crate) fn new(engine: Arc<Engine>, membership: Option<Membership>, timeout: Duration) -> Self {
        Self {
            engine,
            membership: Mutex::new(membership),
            timeout,
            has_left: Mutex::new(false),
            delivered: <_>::default(),
            is_programs: AtomicBool::new(false),
        }
    }

    /// Whether the launcher says that rank 0 has failed, or that the job ends.
    pub(crate) fn has_lost_first(&self) -> bool {
        let membership = self.membership.try_lock();
        membership.is_ok_and(|held| held.as_ref().is_some_and(Membership::has_lost_first))
    }

    /// Leaves the job once what was sent has arrived, and then the launcher; says what did not arrive. Does so once.
    pub(crate) fn leave(&self) {
        self.end(true);
    }

    /// As [`leave`](Self::leave), or delivers and takes leave of nobody: so that a rank which fails counts as failed.
    fn end(&self, leaves: bool) {
        // A child of its own namespace may have its parent's number.
        if !self.engine.is_here() {
            return;
        }
        let mut has_left = lock(&self.has_left);
        if core::mem::replace(&mut *has_left, true) {
            return;
        }
        let undelivered = if leaves { self.engine.stop() } else { self.engine.deliver() };
        for undelivered in undelivered {
            self.say_lost(&undelivered);
        }
        *lock(&self.delivered.0) = true;
        self.delivered.1.notify_all();
        if !leaves {
            return;
        }
        let membership = lock(&self.membership).take();
        if let Some(Err(error)) = membership.map(|membership| membership.finish(self.timeout)) {
            tracing::warn!("{error}");
        }
    }

    /// Waits until peers have got what was sent, or cannot, for longer than that may take. False: whoever sees to it makes no progress.
    fn await_delivery(&self) -> bool {
        let limit = self.timeout.saturating_add(FAREWELL);
        let waits = |delivered: &mut bool| !*delivered;
        let held = lock(&self.delivered.0);
        let waited = self.delivered.1.wait_timeout_while(held, limit, waits);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn say_lost(&self, what: &dyn core::fmt::Display) {
        if self.is_programs.load(Ordering::Relaxed) {
            HAS_LOST.store(true, Ordering::Release);
            mapwire_host::stderr::say(format_args!("rank {}: {what}", self.engine.rank()));
        }
    }
}

/// Has a node leave when the process exits, if it is still there then.
pub(crate) fn leave_at_exit(departure: &Arc<Departure>) {
    departure.is_programs.store(true, Ordering::Relaxed);
    let mut nodes = lock(&NODES);
    nodes.retain(|(_, node)| node.strong_count() > 0);
    nodes.push((std::process::id(), Arc::downgrade(departure)));
    exiting::register(at_exit);
}

/// Leaves with all nodes that are still there, or fails with them, and gives the code to exit with.
fn at_exit(code: i32) -> i32 {
    let nodes = core::mem::take(&mut *lock(&NODES));
    let own = std::process::id();
    let nodes = nodes.iter().filter(|(process, _)| *process == own).filter_map(|(_, node)| node.upgrade());
    for departure in nodes.filter(|departure| departure.engine.is_here()) {
        end_on_a_thread(&departure, code == 0);
    }
    match code {
        0 if HAS_LOST.load(Ordering::Acquire) => EXIT_LOST,
        code => code,
    }
}

/// Ends on a thread of its own: this one has lost its thread-local values, and may be anywhere in a call that it will not finish.
fn end_on_a_thread(departure: &Arc<Departure>, leaves: bool) {
    if departure.engine.is_held_here() {
        departure.say_lost(
            &"what was sent last may be lost: the process exits in the middle of a call of mapwire; let signal handlers, services and \
              choosers of victims set a flag instead of calling exit()",
        );
        return;
    }
    let leaving = Arc::clone(departure);
    let thread = std::thread::Builder::new().name("mapwire-leave".to_owned()).spawn(move || leaving.end(leaves));
    let Ok(thread) = thread else {
        departure.say_lost(&"what was sent last may be lost: no thread can be started to leave the job");
        return;
    };
    if departure.await_delivery() {
        // The launcher has limits of its own. Who serves the ranks of this host waits for them.
        let _ = thread.join();
    } else {
        departure.say_lost(&format_args!(
            "what was sent last may be lost: a thread of the program keeps mapwire busy for {:?} and more, in a handler, a service or \
             a debugger",
            departure.timeout
        ));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
