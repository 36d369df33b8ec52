//! Memory that all ranks share (Millipage).

#[deny(unsafe_code)]
mod calls;
#[deny(unsafe_code)]
pub(crate) mod error;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use mapwire_driver::DriverError;
use mapwire_driver::engine::{Engine, TracedCall};
use mapwire_driver::exports::{DirectMemory, ExportRequest};
use mapwire_driver::service_memory::ServiceMemory;
use mapwire_driver::threads::MAX_THREADS;
use mapwire_dsm::{Access, Config as ModelConfig, Counters, Dsm, Outcome, Progress};
use mapwire_host::faults::{FaultBackend, FaultInfo, PageProtection, Resolution, Watch, WatchError, watch};
use mapwire_host::views::{MultiView, ViewLayout};
use mapwire_host::waiting::now_ns;
use mapwire_translation::PAGE_BYTES;
use mapwire_vmmc::Importers;
use mapwire_wire::{ExportId, Rights, TraceOp};

use self::calls::{Calls, HANDLER, call};
pub use self::error::SharedError;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::opening::{Open, Opening};
use crate::slice::{Sharable, SharedSlice};

/// The name under which ranks export their privileged views to each other.
const SEGMENT_NAME: &str = "mapwire.shared.segment";

/// Ranks of a job in which all meet when they open the memory. In larger ones two ranks meet when one of them first has something to say
/// to the other: that all meet takes time, channels and mappings by the square of their number.
const ALL_MEET: usize = 16;

/// Minipages that are asked for in one hold of the driver.
const MINIPAGES_AT_A_TIME: usize = 64;

/// Memory that all ranks of the job share, at the same addresses.
///
/// Every allocation is a *minipage*: it moves between ranks as a whole and alone, however many share its page (Millipage
/// §2.1). One rank at a time may store to it, or many may read; the memory is sequentially consistent. Nothing needs to be
/// called for that: an access that is not allowed yet faults, and the fault handler fetches the minipage.
///
/// Cheap to clone. [`open`](Self::open) and [`close`](Self::close) are collective. System calls do not fault: hand them
/// private memory, or touch shared memory before.
///
/// A signal handler may load and store shared memory, on any thread of the program. It must return (no `longjmp`), and it calls
/// nothing of this crate. Install handlers before the memory is opened: while it is open and there are handlers, calls that work
/// on it block signals for a moment, at the price of two system calls. After installing a handler later, call
/// [`notice_handlers`](Self::notice_handlers). Otherwise it is noticed after some calls, and until then the process may end with
/// a message when that handler touches shared memory in the middle of a call.
///
/// A child by `fork` does not have the memory: it dies of SIGSEGV where it touches it, after a line on standard error that says why.
#[derive(Clone, Debug)]
pub struct Shared {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    calls: Box<Calls>,
    node: Node,
    backend: FaultBackend,
    /// Ended before anything is taken away.
    open: Open,
    /// Taken at the end, first of all: no fault is served after that.
    watch: Mutex<Option<Watch>>,
    export: ExportId,
}

/// Serves a fault for those whose address the watch carries.
fn serve_fault(info: &FaultInfo) -> Resolution {
    // SAFETY: the address is that of the `Calls` that `Inner` holds in a box; `Inner` drops the watch, which waits for faults being
    // served, before it lets them go.
    let calls = unsafe { &*(info.context as *const Calls) };
    calls.handle_fault(info)
}

impl Shared {
    /// Opens the shared memory, for the first time or after it was closed, with `threads` threads of this rank taking part in
    /// barriers (usually 1). All ranks of the job call it. Settings come from the node's configuration and must agree.
    ///
    /// # Errors
    /// It is open already; addresses, mappings or faults are refused (the error names the setting); a rank does not
    /// come.
    pub fn open(node: &Node, threads: usize) -> Result<Self> {
        node.check_process()?;
        let engine = node.engine();
        if engine.faulting_range().is_some() {
            return Err(SharedError::Open.into());
        }
        // Its handlers of SIGSEGV and SIGBUS would stand in the way of this process's.
        if let Some(provider) = engine.provider().filter(|name| name == "shm") {
            return Err(SharedError::Provider(provider).into());
        }
        let settings = &node.config().shared;
        let layout = ViewLayout::new(settings.base as usize, settings.bytes as usize, usize::from(settings.views))
            .map_err(SharedError::from)?;
        let views = Arc::new(MultiView::new("mapwire-shared", layout).map_err(SharedError::from)?);
        let protection = match settings.faults {
            Some(backend) => PageProtection::new(backend, Arc::clone(&views)),
            None => PageProtection::best(Arc::clone(&views)),
        }
        .map_err(SharedError::from)?;
        let backend = protection.backend();
        let pages = u32::try_from(layout.pages()).unwrap_or(u32::MAX);
        let ranks = u16::try_from(node.size()).unwrap_or(u16::MAX);
        let mut model = ModelConfig::new(node.rank() as u16, ranks, MAX_THREADS as u16, pages, settings.views);
        model.participants = u16::try_from(threads).unwrap_or(u16::MAX);
        let dsm = Dsm::new(model).map_err(SharedError::from)?;
        let calls = Box::new(Calls::new(engine, &views));
        let context = core::ptr::from_ref(&*calls) as usize;
        let watched = watch(layout.views_range(), backend.signal(), context, serve_fault).map_err(SharedError::from)?;
        let open = Opening::begin().ok_or(SharedError::Watch(WatchError::TooMany))?;
        // The model is in place before the segment is offered: whoever has imported it may send at once.
        // The round is the same in all ranks: it counts the times that all have met here. A rank that is still closing offers another name.
        let round = node.openings().load(Ordering::Relaxed);
        let name = format!("{SEGMENT_NAME}.{round}");
        let memory = ServiceMemory::of_views(ranks, name.clone(), Arc::clone(&views), protection);
        calls.open(dsm, memory)?;
        let request = ExportRequest {
            name,
            address: views.privileged(0, layout.bytes).map_err(SharedError::from)? as u64,
            length: layout.bytes as u64,
            rights: Rights::ALL,
            importers: Importers::Job,
            direct: Some(DirectMemory::Views(HANDLER, views)),
            handler: None,
        };
        let export = match engine.lock().export(request) {
            Ok(export) => export,
            Err(error) => {
                drop(watched);
                calls.close();
                return Err(error.into());
            }
        };
        let inner = Inner { calls, node: node.clone(), backend, open, watch: Mutex::new(Some(watched)), export };
        if node.size() <= ALL_MEET {
            inner.calls.meet_all()?;
        }
        let shared = Self { inner: Arc::new(inner) };
        shared.inner.check_layout(&layout)?;
        Ok(shared)
    }

    /// Says that the program has installed handlers of signals since the memory was opened, and that they may touch it. Takes
    /// about 20 microseconds.
    pub fn notice_handlers(&self) {
        self.engine().notice_handlers();
    }

    /// Allocates `length` zeroed values as a minipage of their own. This rank may store to it at once; others learn its
    /// address by [`broadcast`](Self::broadcast) or through other shared memory.
    ///
    /// # Errors
    /// No bytes, or more than is left; values that must be aligned to more than a page.
    pub fn alloc<T: Sharable>(&self, length: usize) -> Result<SharedSlice<T>> {
        let bytes = (length as u64).saturating_mul(size_of::<T>() as u64);
        let align = align_of::<T>();
        if align > PAGE_BYTES {
            let (address, align) = (PAGE_BYTES as u64, align as u64);
            return Err(Error::Misplaced { address, align });
        }
        // What is longer is aligned to more.
        let least = match align {
            ..=16 => 1,
            17..=64 => 64,
            _ => 4096,
        };
        let address = self.alloc_bytes(if bytes == 0 { 0 } else { bytes.max(least) })?;
        SharedSlice::checked(self, address, length)
    }

    /// Allocates `bytes` zeroed bytes as a minipage of their own: aligned to 16 bytes, from 64 on to 64, from a page on to
    /// pages. Gives the address, which is the same in every rank.
    ///
    /// # Errors
    /// No bytes, or more than is left.
    pub fn alloc_bytes(&self, bytes: u64) -> Result<u64> {
        let begin = |dsm: &mut Dsm, thread| dsm.alloc(thread, bytes);
        match self.inner.operate(call(TraceOp::Allocate, 0, bytes), begin)? {
            Some(Outcome::Allocated(at)) => {
                Ok((self.layout().view_range(usize::from(at.view)).start as u64) + at.offset_bytes)
            }
            other => Err(unexpected(other)),
        }
    }

    /// Fetches what of `slice` is not here while this thread goes on. It is a hint: at most 16 minipages are on their way at a
    /// time, faults fetch the rest, and another rank may take one away before it is used.
    ///
    /// # Errors
    /// The memory is closed, or the shared memory is at its end.
    pub fn prefetch<T: Sharable>(&self, slice: &SharedSlice<T>) -> Result<()> {
        slice.check_open()?;
        self.prefetch_all(&[(slice.address(), bytes_of(slice), false)])
    }

    /// As [`prefetch`](Self::prefetch), to store there: no other rank keeps a copy.
    ///
    /// # Errors
    /// As [`prefetch`](Self::prefetch).
    pub fn prefetch_to_write<T: Sharable>(&self, slice: &SharedSlice<T>) -> Result<()> {
        slice.check_open()?;
        self.prefetch_all(&[(slice.address(), bytes_of(slice), true)])
    }

    /// As [`prefetch`](Self::prefetch), for several runs of bytes: the address of each, how many bytes it has, and whether to store
    /// there, as [`prefetch_to_write`](Self::prefetch_to_write). One call wakes another rank once.
    ///
    /// # Errors
    /// As [`prefetch`](Self::prefetch), and bytes that are not within one view of the shared memory.
    pub fn prefetch_all(&self, runs: &[(u64, u64, bool)]) -> Result<()> {
        self.node().check_process()?;
        self.inner.calls.check()?;
        let layout = *self.layout();
        for &(address, bytes, _) in runs {
            self.check_address(address, bytes)?;
        }
        let mut calls = if self.engine().is_traced() { runs.iter().map(prefetch_call).collect() } else { Vec::new() };
        let mut runs = runs.iter().map(|&(address, bytes, writes)| {
            let access = if writes { Access::Write } else { Access::Read };
            let (view, offset) = layout.locate(address as usize).unwrap_or_default();
            let (start, page_bytes) = (offset as u64, PAGE_BYTES as u64);
            let end = match bytes {
                0 => start / page_bytes,
                _ => (start + bytes).div_ceil(page_bytes),
            };
            // A layout has at most 512 views.
            (view as u16, start / page_bytes..end, access)
        });
        let mut run = runs.next();
        let mut is_over = false;
        while !is_over {
            // All runs are told of together.
            let calls = core::mem::take(&mut calls);
            is_over = self.inner.calls.command(&calls, |dsm, thread| {
                let now_ns = now_ns();
                for _ in 0..MINIPAGES_AT_A_TIME {
                    let Some((view, pages, access)) = &mut run else { return Ok(true) };
                    if pages.is_empty() {
                        run = runs.next();
                        continue;
                    }
                    if !dsm.prefetch(now_ns, thread, *view, pages.start, *access)? {
                        return Ok(true);
                    }
                    let known = dsm.minipage_at(*view, pages.start);
                    pages.start =
                        known.map_or(pages.start + 1, |(minipage, _)| minipage.first_page() + minipage.pages());
                }
                Ok(false)
            })?;
        }
        Ok(())
    }

    /// Waits until every rank has got here, and all its threads that take part. A rank that ends after it must close the memory
    /// first: the last rank to get here passes while the others still learn of it.
    ///
    /// # Errors
    /// A rank is gone.
    pub fn barrier(&self) -> Result<()> {
        self.barrier_of(0)
    }

    /// As [`barrier`](Self::barrier), for one of several independent barriers.
    ///
    /// # Errors
    /// A rank is gone; a number beyond the 256 there are.
    pub fn barrier_of(&self, barrier: u32) -> Result<()> {
        let begin = |dsm: &mut Dsm, thread| dsm.barrier(thread, barrier);
        let call = TracedCall::of(TraceOp::Barrier, barrier.into());
        match self.inner.operate(call, begin)? {
            Some(Outcome::Passed) => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Gives `value` of rank `root` to all ranks. One thread of each rank calls it.
    ///
    /// # Errors
    /// A rank is gone; a root outside the job.
    pub fn broadcast(&self, root: usize, value: u64) -> Result<u64> {
        let root = u16::try_from(root).unwrap_or(u16::MAX);
        self.inner.broadcast(root, value)
    }

    /// Gives a slice that `root` allocated to all ranks. Other ranks' `slice` is ignored.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast); what `root` gives is not within one view of the shared memory, or not aligned for `T`.
    pub fn broadcast_slice<T: Sharable>(&self, root: usize, slice: Option<SharedSlice<T>>) -> Result<SharedSlice<T>> {
        let address = self.broadcast(root, slice.map_or(0, |slice| slice.address()))?;
        let length = self.broadcast(root, slice.map_or(0, |slice| slice.len() as u64))?;
        SharedSlice::checked(self, address, length as usize)
    }

    /// Takes a lock: one of 4096, the same in every rank. It is granted in the order of asking, and stays with the rank that
    /// had it last, which takes it again without a message.
    ///
    /// # Errors
    /// A rank is gone; a number beyond the last; a lock that this thread holds.
    #[inline]
    pub fn lock(&self, lock: u32) -> Result<LockGuard<'_>> {
        let call = TracedCall::of(TraceOp::Lock, lock.into());
        let outcome = self.inner.calls.operate(call, |dsm, thread| dsm.lock(thread, lock))?;
        match outcome {
            None | Some(Outcome::Locked) => Ok(LockGuard { shared: self, lock }),
            other => Err(unexpected(other)),
        }
    }

    /// Gives a lock back; [`LockGuard`] does it when dropped. For bindings to languages without guards.
    ///
    /// # Errors
    /// A lock that this thread does not hold.
    #[inline]
    pub fn unlock(&self, lock: u32) -> Result<()> {
        let call = TracedCall::of(TraceOp::Unlock, lock.into());
        Ok(self.inner.calls.command(&[call], |dsm, thread| dsm.unlock(thread, lock))?)
    }

    /// Changes how many threads of this rank take part in barriers.
    ///
    /// # Errors
    /// None, more than 64, or while threads wait in a barrier.
    pub fn set_threads(&self, threads: usize) -> Result<()> {
        let threads = u16::try_from(threads).unwrap_or(u16::MAX);
        let call = call(TraceOp::ShapeShared, self.layout().views as u64, threads.into());
        Ok(self.inner.calls.command(&[call], |dsm, _| dsm.set_participants(threads))?)
    }

    /// What this rank did so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.inner.calls.counters()
    }

    /// How faults are caught.
    #[must_use]
    pub fn faults(&self) -> FaultBackend {
        self.inner.backend
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.inner.node
    }

    /// Waits until every rank closes, and gives the memory back. All ranks call it; slices know afterwards that it is closed, and
    /// say so when they are used.
    ///
    /// Dropping the last clone gives the memory back without waiting: ranks that use it still are told so. That is the right
    /// thing after an error, which the others must not wait for, and at no other time.
    ///
    /// # Errors
    /// A rank has died.
    pub fn close(self) -> Result<()> {
        match self.inner.broadcast(0, 0) {
            // It passed this very meeting, so all have come, or it waits for nobody: there is nothing to wait for here.
            Err(Error::Shared(SharedError::RankGone(rank) | SharedError::RankClosed(rank)))
                if !self.engine().has_died(rank) =>
            {
                Ok(())
            }
            outcome => outcome.map(drop),
        }
    }

    /// Whether `bytes` at `address` lie within one application view.
    fn check_address(&self, address: u64, bytes: u64) -> Result<()> {
        self.node().check_process()?;
        let layout = self.layout();
        match layout.locate(address as usize) {
            Some((_, offset)) if bytes <= layout.bytes.saturating_sub(offset) as u64 => Ok(()),
            _ => Err(Error::Driver(DriverError::NotMapped { address, length: bytes, access: "share" })),
        }
    }

    fn layout(&self) -> &ViewLayout {
        self.inner.calls.layout()
    }

    #[inline]
    fn engine(&self) -> &Engine {
        self.inner.node.engine()
    }
}

impl Inner {
    /// All ranks must have as much of it, at the same addresses. Waits for them all.
    fn check_layout(&self, layout: &ViewLayout) -> Result<()> {
        // Addresses have 47 bits.
        let (views, base) = (|word: u64| word & 0xffff, |word: u64| word >> 16);
        let ours = layout.views as u64 | (layout.base as u64) << 16;
        let first = self.first_broadcast(ours)?;
        self.node.openings().fetch_add(1, Ordering::Relaxed);
        let our_bytes = layout.bytes as u64;
        let bytes = self.broadcast(0, our_bytes)?;
        let (name, ours, first) = if bytes != our_bytes {
            ("MAPWIRE_SHARED", our_bytes.to_string(), format!("{bytes} bytes"))
        } else if views(first) != views(ours) {
            let text = |word| views(word).to_string();
            ("MAPWIRE_VIEWS", text(ours), text(first))
        } else if base(first) != base(ours) {
            let text = |word| format!("{:#x}", base(word));
            ("MAPWIRE_SHARED_BASE", text(ours), text(first))
        } else {
            return Ok(());
        };
        Err(crate::config::ConfigError {
            name: name.to_owned(),
            value: ours,
            why: format!("rank 0 has {first}; give all ranks the same"),
        }
        .into())
    }

    /// An operation of the calling thread on the model; waits for its outcome.
    fn operate(
        &self,
        call: TracedCall,
        begin: impl FnOnce(&mut Dsm, u16) -> Result<(), mapwire_dsm::Error>,
    ) -> Result<Option<Outcome>> {
        Ok(self.calls.operate(call, |dsm, thread| {
            begin(dsm, thread)?;
            Ok(Progress::Pending)
        })?)
    }

    /// As [`broadcast`](Self::broadcast) of a value of rank 0, for the meeting in which ranks learn that all have opened the memory.
    fn first_broadcast(&self, value: u64) -> Result<u64> {
        let openings = self.node.openings().load(Ordering::Relaxed) + 1;
        let call = TracedCall::of(TraceOp::Broadcast, 0);
        let met = self.calls.meet_first(openings, call, |dsm, thread| {
            dsm.broadcast(thread, 0, value)?;
            Ok(Progress::Pending)
        })?;
        match met {
            Some(Outcome::Value(value)) => Ok(value),
            other => Err(unexpected(other)),
        }
    }

    /// A meeting of one thread of each rank, however many take part in barriers, which gives the value of rank `root` to all.
    fn broadcast(&self, root: u16, value: u64) -> Result<u64> {
        let begin = |dsm: &mut Dsm, thread| dsm.broadcast(thread, root, value);
        let call = TracedCall::of(TraceOp::Broadcast, root.into());
        match self.operate(call, begin)? {
            Some(Outcome::Value(value)) => Ok(value),
            other => Err(unexpected(other)),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.open.end();
        let engine = self.node.engine();
        if !engine.is_here() {
            return;
        }
        drop(self.watch.lock().unwrap_or_else(PoisonError::into_inner).take());
        let memory = self.calls.close();
        let mut driver = engine.lock();
        let _ = driver.unexport(self.export);
        for (id, grant) in memory.iter().flat_map(|memory| memory.peers().imports()) {
            driver.release_import(id, &grant);
        }
        drop(driver);
        drop(memory);
    }
}

impl<T: Sharable> SharedSlice<T> {
    /// The slice of `length` values at `address`, if that lies within one view and is aligned for `T`.
    fn checked(shared: &Shared, address: u64, length: usize) -> Result<Self> {
        let bytes = (length as u64).saturating_mul(size_of::<T>() as u64);
        shared.check_address(address, bytes)?;
        let align = align_of::<T>() as u64;
        if !address.is_multiple_of(align) {
            return Err(Error::Misplaced { address, align });
        }
        Ok(Self::new(shared.inner.open.opening(), address, length))
    }

    /// The slice of `length` values at `address`, which another rank got from [`Shared::alloc`] and told this one.
    ///
    /// # Safety
    /// `address` and `length` are those of an allocation of `shared`, or lie within one.
    ///
    /// # Errors
    /// An address that is not within one view of the shared memory, or not aligned for `T`.
    pub unsafe fn from_address(shared: &Shared, address: u64, length: usize) -> Result<Self> {
        Self::checked(shared, address, length)
    }
}

fn bytes_of<T: Sharable>(slice: &SharedSlice<T>) -> u64 {
    (slice.len() * size_of::<T>()) as u64
}

/// What a trace says of a run of bytes that is asked for.
fn prefetch_call(&(address, bytes, writes): &(u64, u64, bool)) -> TracedCall {
    call(if writes { TraceOp::PrefetchWrite } else { TraceOp::Prefetch }, address, bytes)
}

fn unexpected(outcome: Option<Outcome>) -> Error {
    match outcome {
        Some(Outcome::Failed(error)) => SharedError::Model(error).into(),
        // The model answers each operation with the outcome of its kind.
        _ => SharedError::NotOpen.into(),
    }
}

/// A lock, held until this is dropped.
#[derive(Debug)]
pub struct LockGuard<'a> {
    shared: &'a Shared,
    lock: u32,
}

impl Drop for LockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.shared.engine().is_here()
            && let Err(error) = self.shared.unlock(self.lock)
        {
            tracing::error!(lock = self.lock, %error, "a lock could not be given back");
        }
    }
}
