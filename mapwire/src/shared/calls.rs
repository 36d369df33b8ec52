//! Calls of the shared memory's model, which is a service of the node: operations and commands of the program's threads, and the page
//! faults of its views.

use core::cell::Cell;
use core::time::Duration;
use std::sync::Arc;

use mapwire_driver::breach::Breach;
use mapwire_driver::driver::confined::Caller;
use mapwire_driver::engine::{Engine, TracedCall, exit_lost};
use mapwire_driver::service_memory::ServiceMemory;
use mapwire_driver::{Driver, DriverError};
use mapwire_dsm::{Access, Counters, Dsm, Error as ModelError, ObjectCall, Outcome, Progress, Protection};
use mapwire_host::faults::{self, FaultInfo, FaultKind, Resolution};
use mapwire_host::masking;
use mapwire_host::views::{MultiView, ViewLayout};
use mapwire_host::waiting::now_ns;
use mapwire_node::{RegisterError, SharedEnd, SharedMemory, Watcher};
use mapwire_translation::PAGE_BYTES;
use mapwire_transport::board::{NAP, RankState};
use mapwire_wire::{HandlerId, NodeId, TraceOp};

use super::error::SharedError;
use super::seeing::Counting;

/// Handler of the shared memory's messages.
pub(super) const HANDLER: HandlerId = HandlerId(1);

/// What the threads of this process reach the shared memory by, while it is open.
#[derive(Debug)]
pub(super) struct Calls {
    engine: Arc<Engine>,
    views: Arc<MultiView>,
    counting: Option<Arc<Counting>>,
}

impl Calls {
    pub(super) fn new(engine: &Arc<Engine>, views: &Arc<MultiView>, counting: Option<Counting>) -> Self {
        Self { engine: Arc::clone(engine), views: Arc::clone(views), counting: counting.map(Arc::new) }
    }

    pub(super) fn layout(&self) -> &ViewLayout {
        self.views.layout()
    }

    /// Puts the model and its memory in place. A trace says so, with the threads of this process in its barriers.
    pub(super) fn open(&self, dsm: Dsm, memory: ServiceMemory) -> Result<(), SharedError> {
        let (layout, participants) = (*self.layout(), dsm.config().participants);
        let thread = self.engine.thread().unwrap_or(0);
        let mut driver = self.engine.lock();
        let watcher = self.counting.clone().map(|counting| counting as Arc<dyn Watcher>);
        let model = Box::new(SharedMemory::new(dsm, 1).with_meetings().watched_by(watcher));
        driver.register_service(HANDLER, model, Some(memory)).map_err(|error| match error {
            // Another thread was first.
            DriverError::Register(RegisterError::Taken(_)) => SharedError::Open,
            error => error.into(),
        })?;
        if driver.is_traced() {
            let (first, views) = (layout.views_range().start as u64, layout.views as u64);
            driver.note_call(thread, call(TraceOp::OpenShared, first, layout.bytes as u64));
            driver.note_call(thread, call(TraceOp::ShapeShared, views, participants.into()));
        }
        drop(driver);
        self.engine.begin_faults(&layout.views_range());
        Ok(())
    }

    /// Takes the model and its memory away, as soon as no peer on another host needs its bytes any more.
    pub(super) fn close(&self) -> Option<ServiceMemory> {
        let is_over = self.engine.end_faults();
        let (model, memory) = self.engine.lock().deregister_service(HANDLER);
        if !is_over {
            // The NIC may still read what it could not deliver.
            core::mem::forget(Arc::clone(&self.views));
        }
        drop(model);
        memory
    }

    /// Imports the memory of every other rank.
    ///
    /// # Errors
    /// The shared memory is at its end; [`SharedError::Late`], when one has not opened it within the timeout.
    pub(super) fn meet_all(&self) -> Result<(), SharedError> {
        let peers = ranks(&self.engine).filter(|peer| u32::from(peer.0) != self.engine.rank());
        peers.clone().for_each(|peer| self.engine.lock().meet(HANDLER, peer));
        for peer in peers {
            let late = || SharedError::late(&self.engine, &[peer]);
            let has_met = |driver: &mut Driver| match check(driver) {
                Err(error) => Some(Err(error)),
                Ok(()) => driver.service_memory(HANDLER)?.has_peer(peer).then_some(Ok(())),
            };
            let met = self.engine.wait_for(Some(self.engine.timeout()), String::new, has_met);
            met.map_err(|_| late())??;
        }
        Ok(())
    }

    /// Whether the shared memory is at its end.
    pub(super) fn check(&self) -> Result<(), SharedError> {
        check(&mut self.engine.lock())
    }

    /// What this rank did so far; nothing in a forked child.
    pub(super) fn counters(&self) -> Counters {
        let counters = || self.engine.lock().ask_service(HANDLER, |memory: &mut SharedMemory| memory.dsm().counters());
        if self.engine.is_here() { counters().unwrap_or_default() } else { Counters::default() }
    }

    /// Begins an operation of the calling thread, and waits for its outcome; `Ok(None)` when it was over at once. `call` is what a trace
    /// says of it.
    #[inline]
    pub(super) fn operate(
        &self,
        call: TracedCall,
        begin: impl FnOnce(&mut Dsm, u16) -> Result<Progress, ModelError>,
    ) -> Result<Option<Outcome>, SharedError> {
        let mut is_said = false;
        self.operate_at(
            Caller::Program,
            begin,
            || call,
            |thread| {
                if !core::mem::replace(&mut is_said, true) {
                    self.say_who_is_late(thread);
                }
                Ok(None)
            },
        )
        .map_err(|error| self.with_holdings(error))
    }

    /// Says what a rank that is gone held, of the objects that this one keeps.
    #[cold]
    fn with_holdings(&self, error: SharedError) -> SharedError {
        const NAMED: usize = 8;
        let SharedError::RankGone(rank) = error else { return error };
        let held = self.engine.lock().ask_service(HANDLER, |memory: &mut SharedMemory| {
            let held = memory.dsm().objects_held_by(rank.0).map(|(object, kind)| format!("the {kind} at {object:#x}"));
            held.collect::<Vec<_>>()
        });
        let held = held.unwrap_or_default();
        let others = held.len().saturating_sub(NAMED);
        let named = held[..held.len() - others].join(", ");
        match (held.len(), others) {
            (0, _) => error,
            (_, 0) => SharedError::HolderGone { peer: rank, held: named },
            _ => SharedError::HolderGone { peer: rank, held: format!("{named} and {others} more") },
        }
    }

    /// As [`operate`](Self::operate), for the first meeting of all ranks, which have opened the memory `openings` times then. Gives up when
    /// within the timeout no rank has come any more.
    pub(super) fn meet_first(
        &self,
        openings: u32,
        call: TracedCall,
        begin: impl FnOnce(&mut Dsm, u16) -> Result<Progress, ModelError>,
    ) -> Result<Option<Outcome>, SharedError> {
        let engine = &self.engine;
        engine.show_openings(openings);
        let is_there = |rank: &NodeId| engine.openings(*rank).is_none_or(|n| n >= openings);
        let has_joined = |rank: &NodeId| engine.state(*rank) != RankState::Absent;
        let progress = || ranks(engine).filter(has_joined).count() + ranks(engine).filter(is_there).count();
        let mut before = progress();
        self.operate_at(
            Caller::Program,
            begin,
            || call,
            |_| {
                let now = progress();
                if core::mem::replace(&mut before, now) == now {
                    let missing: Vec<NodeId> = ranks(engine).filter(|rank| !is_there(rank)).collect();
                    return Err(SharedError::late(engine, &missing));
                }
                Ok(Some(engine.timeout()))
            },
        )
    }

    /// In the page-fault handler this allocates and frees nothing.
    #[inline]
    fn operate_at(
        &self,
        caller: Caller,
        begin: impl FnOnce(&mut Dsm, u16) -> Result<Progress, ModelError>,
        call: impl FnOnce() -> TracedCall,
        mut late: impl FnMut(u16) -> Result<Option<Duration>, SharedError>,
    ) -> Result<Option<Outcome>, SharedError> {
        let begin = |driver: &mut Driver, thread| match ask(driver, |memory| begin(memory.dsm_mut(), thread))?? {
            Progress::Done => Ok(Some(None)),
            Progress::Pending => Ok(None),
        };
        let late = |_: &Engine, thread| late(thread);
        let note = |driver: &mut Driver, outcome: Option<&Option<Outcome>>| {
            self.noted(driver, call(), outcome.copied().flatten())
        };
        self.engine.operate((caller, self.engine.timeout()), begin, take_outcome, late, note)
    }

    /// What a trace says of a call that is over.
    #[cold]
    fn noted(&self, driver: &mut Driver, call: TracedCall, outcome: Option<Outcome>) -> Option<TracedCall> {
        let TracedCall { op, mut address, mut bytes } = call;
        match (op, outcome) {
            (TraceOp::Allocate, Some(Outcome::Allocated(at))) => {
                address = self.layout().view_range(usize::from(at.view)).start as u64 + at.offset_bytes;
            }
            // Without room nothing is allocated.
            (TraceOp::Allocate, _) => return None,
            (TraceOp::ReadFault | TraceOp::WriteFault, _) => {
                let (view, page) = self.locate(address as usize)?;
                let minipage = driver.ask_service(HANDLER, |it: &mut SharedMemory| it.dsm().minipage_at(view, page))?;
                if let Some((minipage, _)) = minipage {
                    bytes = minipage.length_bytes;
                }
            }
            _ => {}
        }
        Some(TracedCall { op, address, bytes })
    }

    /// Says on standard error where a thread of this rank waits for others, if it does so in a barrier. That may take as long as they
    /// compute, and so is no error.
    #[cold]
    fn say_who_is_late(&self, thread: u16) {
        let waited = self.engine.lock().ask_service(HANDLER, |memory: &mut SharedMemory| {
            let dsm = Some(memory.dsm()).filter(|dsm| dsm.is_in_barrier(thread));
            dsm.map_or_else(Vec::new, Dsm::waited_barriers)
        });
        let waited: Vec<String> = waited.iter().flatten().map(ToString::to_string).collect();
        if !waited.is_empty() {
            let (rank, timeout, waited) = (self.engine.rank(), self.engine.timeout(), waited.join("; "));
            mapwire_host::stderr::say(format_args!(
                "rank {rank} has waited for {timeout:?} in the shared memory: {waited}"
            ));
        }
    }

    /// Calls a synchronisation object. `None`: that cannot be granted at once, or was not by `deadline_ns`.
    pub(super) fn call_object(&self, object: ObjectCall, deadline_ns: Option<u64>) -> Result<Option<u64>, SharedError> {
        let timeout = self.engine.timeout();
        let left = || deadline_ns.map_or(timeout, |at| Duration::from_nanos(at.saturating_sub(now_ns())).min(timeout));
        let begin = |driver: &mut Driver, thread| {
            ask(driver, |memory| memory.dsm_mut().call_object(thread, object))??;
            Ok(None)
        };
        let mut is_said = deadline_ns.is_some();
        let late = |engine: &Engine, thread| {
            if !core::mem::replace(&mut is_said, true) {
                let (rank, ObjectCall { kind, object, .. }) = (engine.rank(), object);
                mapwire_host::stderr::say(format_args!(
                    "rank {rank} has waited for {timeout:?} in the shared memory: the {kind} at {object:#x}"
                ));
            }
            if !left().is_zero() {
                return Ok(Some(left()));
            }
            engine.command(&[], |driver, _| ask(driver, |memory| memory.dsm_mut().cancel_call(thread)))?;
            Ok(Some(NAP))
        };
        let limit = (Caller::Program, left());
        let called = self.engine.operate(limit, begin, take_outcome, late, |_, _| None);
        match called.map_err(|error| self.with_holdings(error))? {
            Some(Outcome::Value(value)) => Ok(Some(value)),
            Some(Outcome::NotNow) => Ok(None),
            Some(Outcome::Failed(error)) => Err(error.into()),
            // The model answers each operation with the outcome of its kind.
            _ => Err(SharedError::NotOpen),
        }
    }

    /// The number of the calling thread, as other ranks see it.
    pub(super) fn identity(&self) -> Result<u64, SharedError> {
        Ok(u64::from(self.engine.rank()) << 16 | u64::from(self.engine.thread()?))
    }

    /// A command that never waits. `calls` is what a trace says of it.
    #[inline]
    pub(super) fn command<T>(
        &self,
        calls: &[TracedCall],
        command: impl FnOnce(&mut Dsm, u16) -> Result<T, ModelError>,
    ) -> Result<T, SharedError> {
        self.engine.command(calls, |driver, thread| {
            let done = driver.ask_service(HANDLER, |memory: &mut SharedMemory| command(memory.dsm_mut(), thread));
            Ok(done.ok_or(SharedError::NotOpen)??)
        })
    }

    /// Serves a page fault in the views, in the thread that faulted.
    pub(super) fn handle_fault(&self, info: &FaultInfo) -> Resolution {
        let _masked = masking::in_fault_handler();
        // What the fault wants is found with the driver held.
        let op = Cell::new(TraceOp::ReadFault);
        let begin = |dsm: &mut Dsm, thread| {
            let Some((view, page)) = self.locate(info.address) else {
                return Err(ModelError::NotShared { view: u16::MAX, page: 0 });
            };
            let wanted = wanted(dsm, view, page, info.kind);
            if wanted == Access::Write {
                op.set(TraceOp::WriteFault);
            }
            let progress = dsm.handle_fault(now_ns(), thread, view, page, wanted)?;
            if let (Some(counting), Progress::Pending) = (&self.counting, progress) {
                counting.handle_fault(self.layout(), dsm, info.address, wanted);
            }
            Ok(progress)
        };
        let call = || TracedCall::of(op.get(), info.address as u64);
        match self.operate_at(Caller::FaultHandler, begin, call, |_| Ok(None)) {
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
            Err(_) if self.engine.ends_soon() => {
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

    /// The access is allowed already: another thread was faster, or the kernel, short of memory, dropped the page's entry.
    /// Sets the protection once more, for the latter case.
    fn reopen(&self, address: usize) {
        let Some((view, page)) = self.locate(address) else { return };
        let mut driver = self.engine.lock();
        let minipage = driver.ask_service(HANDLER, |memory: &mut SharedMemory| memory.dsm().minipage_at(view, page));
        let access = match minipage.flatten() {
            Some((_, Protection::Read)) => faults::Access::Read,
            Some((_, Protection::Write)) => faults::Access::Write,
            _ => return,
        };
        if let Some(memory) = driver.service_memory(HANDLER) {
            memory.reopen(view, page, access);
        }
    }

    /// The view and the page that an address of the application lies in.
    fn locate(&self, address: usize) -> Option<(u16, u64)> {
        let (view, offset) = self.views.locate(address)?;
        // A layout has at most 512 views.
        Some((view as u16, (offset / PAGE_BYTES) as u64))
    }

    /// Says on standard error why an access cannot be served.
    fn report(&self, address: usize, error: &dyn core::fmt::Display) {
        self.engine.say(format_args!("access to shared memory at {address:#x}: {error}"));
    }
}

/// What a trace says of a call.
pub(super) const fn call(op: TraceOp, address: u64, bytes: u64) -> TracedCall {
    TracedCall { op, address, bytes }
}

fn ranks(engine: &Engine) -> impl Iterator<Item = NodeId> + Clone + use<> {
    (0..engine.size()).map(|rank| NodeId(rank as u16))
}

/// Asks the model something, if the shared memory is not at its end.
#[inline]
fn ask<T>(driver: &mut Driver, ask: impl FnOnce(&mut SharedMemory) -> T) -> Result<T, SharedError> {
    check_memory(driver)?;
    let asked = driver.ask_service(HANDLER, |memory: &mut SharedMemory| match memory.end() {
        None => Ok(ask(memory)),
        Some(end) => Err(end),
    });
    asked.ok_or(SharedError::NotOpen)?.map_err(|end| ended(driver, end))
}

fn check(driver: &mut Driver) -> Result<(), SharedError> {
    ask(driver, |_| ())
}

/// What this computer has found wrong says more than what follows from it.
#[inline]
fn check_memory(driver: &mut Driver) -> Result<(), SharedError> {
    let memory = driver.service_memory(HANDLER).ok_or(SharedError::NotOpen)?;
    memory.fault().map_or(Ok(()), |fault| Err(fault.into()))
}

/// How a thread's operation ended, once; or why it never will.
#[inline]
fn take_outcome(driver: &mut Driver, thread: u16) -> Option<Result<Option<Outcome>, SharedError>> {
    match driver.ask_service(HANDLER, |memory: &mut SharedMemory| memory.take_outcome(thread)) {
        None => Some(Err(SharedError::NotOpen)),
        Some(None) => check_memory(driver).err().map(Err),
        Some(Some(Ok(outcome))) => Some(Ok(Some(outcome))),
        Some(Some(Err(end))) => Some(check_memory(driver).and_then(|()| Err(ended(driver, end)))),
    }
}

#[cold]
fn ended(driver: &Driver, end: SharedEnd) -> SharedError {
    match end {
        SharedEnd::Gone(node) => gone(node, driver.breach_of(node)),
        SharedEnd::Lost(node) if driver.is_gone(node) => gone(node, driver.breach_of(node)),
        SharedEnd::Lost(node) => gone(node, Some(mapwire_node::Breach::Overfull.into())),
        SharedEnd::Peer(error) => SharedError::Peer(error),
        SharedEnd::Garbled(from) => SharedError::Garbled(from.node),
    }
}

fn gone(node: NodeId, breach: Option<Breach>) -> SharedError {
    match breach {
        Some(breach) => SharedError::RankBroken { peer: node, breach },
        None => SharedError::RankGone(node),
    }
}

/// What a fault at a page wants, also when the processor does not say.
fn wanted(dsm: &Dsm, view: u16, page: u64, kind: FaultKind) -> Access {
    match kind {
        FaultKind::Read => Access::Read,
        FaultKind::Write => Access::Write,
        FaultKind::Unknown => match dsm.minipage_at(view, page) {
            Some((_, Protection::Read)) => Access::Write,
            _ => Access::Read,
        },
    }
}
