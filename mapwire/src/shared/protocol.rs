//! The shared memory by a protocol: each rank has its own copy of a minipage, and page faults fetch it (Millipage).

use core::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use mapwire_driver::engine::{Engine, TracedCall};
use mapwire_driver::exports::{DirectMemory, ExportRequest};
use mapwire_driver::service_memory::ServiceMemory;
use mapwire_driver::threads::MAX_THREADS;
use mapwire_dsm::{Access, Config as ModelConfig, Counters, Dsm, Outcome, Progress};
use mapwire_host::faults::{FaultBackend, FaultInfo, PageProtection, Resolution, Watch, watch};
use mapwire_host::memory::raw;
use mapwire_host::views::{DEFAULT_BASE, MultiView, ViewLayout};
use mapwire_host::waiting::now_ns;
use mapwire_segment::heap::HeapError;
use mapwire_translation::PAGE_BYTES;
use mapwire_vmmc::Importers;
use mapwire_wire::{ExportId, Rights, TraceOp};

use super::calls::{Calls, HANDLER, call};
use super::error::SharedError;
use super::freed::{Freed, block_bytes};
use crate::error::{Error, Result};
use crate::node::Node;

/// The name under which ranks export their privileged views to each other.
const SEGMENT_NAME: &str = "mapwire.shared.segment";

/// Ranks of a job in which all meet when they open the memory. In larger ones two ranks meet when one of them first has something to say
/// to the other: that all meet takes time, channels and mappings by the square of their number.
const ALL_MEET: usize = 16;

/// Minipages that are asked for in one hold of the driver.
const MINIPAGES_AT_A_TIME: usize = 64;

/// This rank's part of the memory.
#[derive(Debug)]
pub(super) struct Protocol {
    calls: Box<Calls>,
    freed: Freed,
    node: Node,
    backend: FaultBackend,
    /// Taken at the end, first of all: no fault is served after that.
    watch: Mutex<Option<Watch>>,
    export: ExportId,
}

/// Serves a fault for those whose address the watch carries.
fn serve_fault(info: &FaultInfo) -> Resolution {
    // SAFETY: the address is that of the `Calls` that `Protocol` holds in a box; `Protocol` drops the watch, which waits for faults being
    // served, before it lets them go.
    let calls = unsafe { &*(info.context as *const Calls) };
    calls.handle_fault(info)
}

impl Protocol {
    /// As [`Shared::open`](super::Shared::open).
    pub(super) fn open(node: &Node, threads: usize) -> Result<Self> {
        let engine = node.engine();
        // Its handlers of SIGSEGV and SIGBUS would stand in the way of this process's.
        if let Some(provider) = engine.provider().filter(|name| name == "shm") {
            return Err(SharedError::Provider(provider).into());
        }
        let settings = &node.config().shared;
        let base = settings.base.map_or(DEFAULT_BASE, |base| base as usize);
        let layout =
            ViewLayout::new(base, settings.bytes as usize, usize::from(settings.views)).map_err(SharedError::from)?;
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
        let protocol = Self {
            calls,
            freed: Freed::default(),
            node: node.clone(),
            backend,
            watch: Mutex::new(Some(watched)),
            export,
        };
        if node.size() <= ALL_MEET {
            protocol.calls.meet_all()?;
        }
        protocol.check_layout(&layout)?;
        Ok(protocol)
    }

    /// The address of `bytes` zeroed bytes, a minipage of their own.
    pub(super) fn alloc(&self, bytes: u64) -> Result<u64> {
        let begin = |dsm: &mut Dsm, thread| dsm.alloc(thread, bytes);
        match self.operate(call(TraceOp::Allocate, 0, bytes), begin)? {
            Some(Outcome::Allocated(at)) => {
                Ok((self.layout().view_range(usize::from(at.view)).start as u64) + at.offset_bytes)
            }
            other => Err(unexpected(other)),
        }
    }

    /// As [`alloc`](Self::alloc), perhaps of what was used before.
    pub(super) fn malloc(&self, bytes: u64) -> Result<u64> {
        let bytes = block_bytes(bytes);
        self.freed.take(bytes).map_or_else(|| self.alloc(bytes), Ok)
    }

    pub(super) fn calloc(&self, bytes: u64) -> Result<u64> {
        let bytes = block_bytes(bytes);
        let Some(address) = self.freed.take(bytes) else { return self.alloc(bytes) };
        for at in (0..bytes).step_by(8) {
            // SAFETY: within a minipage of so many bytes, a multiple of 16, which nobody else uses now.
            unsafe { raw::store((address + at) as *mut u64, 0) };
        }
        Ok(address)
    }

    pub(super) fn aligned_alloc(&self, align: u64, bytes: u64) -> Result<u64> {
        // Longer minipages are aligned to more.
        let least = match align {
            1..=16 => 1,
            17..=64 => 64,
            65..=4096 => 4096,
            _ => 0,
        };
        if least == 0 || !align.is_power_of_two() {
            return Err(Error::Misplaced { address: PAGE_BYTES as u64, align });
        }
        self.malloc(bytes.max(least))
    }

    pub(super) fn realloc(&self, address: u64, bytes: u64) -> Result<u64> {
        let before = self.usable_bytes(address)?;
        if block_bytes(bytes) == before {
            return Ok(address);
        }
        let moved = self.malloc(bytes)?;
        for at in (0..before.min(block_bytes(bytes))).step_by(8) {
            // SAFETY: both are minipages of this length at least, or, at the end of one from `alloc`, within its last page.
            unsafe { raw::store((moved + at) as *mut u64, raw::load((address + at) as *const u64)) };
        }
        self.free(address)?;
        Ok(moved)
    }

    pub(super) fn free(&self, address: u64) -> Result<()> {
        let bytes = self.usable_bytes(address)?;
        match self.freed.keep(address, bytes) {
            true => Ok(()),
            false => Err(SharedError::Heap(HeapError::NotAllocated { address: address as usize }).into()),
        }
    }

    /// The bytes of the minipage that begins at `address`.
    pub(super) fn usable_bytes(&self, address: u64) -> Result<u64> {
        let layout = *self.layout();
        let outside = || HeapError::Outside { address: address as usize, data: layout.views_range() };
        let (view, offset) = layout.locate(address as usize).ok_or_else(outside).map_err(SharedError::Heap)?;
        let page = (offset / PAGE_BYTES) as u64;
        let known = |dsm: &mut Dsm, _| Ok(dsm.minipage_at(view as u16, page));
        let mut found = self.calls.command(&[], known)?;
        if found.is_none() {
            // Another rank has made it, if any has: this one learns of it by fetching it.
            let fetch = TracedCall::of(TraceOp::ReadFault, address);
            self.calls
                .operate(fetch, |dsm, thread| dsm.handle_fault(now_ns(), thread, view as u16, page, Access::Read))?;
            found = self.calls.command(&[], known)?;
        }
        match found {
            Some((minipage, _)) if minipage.offset_bytes == offset as u64 => Ok(minipage.length_bytes),
            Some((minipage, _)) => {
                let block = address as usize - offset + minipage.offset_bytes as usize;
                Err(SharedError::Heap(HeapError::Inside { address: address as usize, block }).into())
            }
            None => Err(SharedError::Heap(HeapError::NotAllocated { address: address as usize }).into()),
        }
    }

    /// Whether the memory can still be used.
    pub(super) fn check(&self) -> Result<(), SharedError> {
        self.calls.check()
    }

    /// Asks for runs of bytes that lie within a view each.
    pub(super) fn prefetch(&self, runs: &[(u64, u64, bool)]) -> Result<()> {
        let layout = *self.layout();
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
            is_over = self.calls.command(&calls, |dsm, thread| {
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

    pub(super) fn barrier(&self, barrier: u32) -> Result<()> {
        let begin = |dsm: &mut Dsm, thread| dsm.barrier(thread, barrier);
        let call = TracedCall::of(TraceOp::Barrier, barrier.into());
        match self.operate(call, begin)? {
            Some(Outcome::Passed) => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    #[inline]
    pub(super) fn lock(&self, lock: u32) -> Result<()> {
        let call = TracedCall::of(TraceOp::Lock, lock.into());
        match self.calls.operate(call, |dsm, thread| dsm.lock(thread, lock))? {
            None | Some(Outcome::Locked) => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    #[inline]
    pub(super) fn unlock(&self, lock: u32) -> Result<()> {
        let call = TracedCall::of(TraceOp::Unlock, lock.into());
        Ok(self.calls.command(&[call], |dsm, thread| dsm.unlock(thread, lock))?)
    }

    pub(super) fn set_threads(&self, threads: u16) -> Result<()> {
        let call = call(TraceOp::ShapeShared, self.layout().views as u64, threads.into());
        Ok(self.calls.command(&[call], |dsm, _| dsm.set_participants(threads))?)
    }

    pub(super) fn counters(&self) -> Counters {
        self.calls.counters()
    }

    pub(super) fn faults(&self) -> FaultBackend {
        self.backend
    }

    pub(super) fn layout(&self) -> &ViewLayout {
        self.calls.layout()
    }

    #[inline]
    fn engine(&self) -> &Engine {
        self.node.engine()
    }

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
    pub(super) fn broadcast(&self, root: u16, value: u64) -> Result<u64> {
        let begin = |dsm: &mut Dsm, thread| dsm.broadcast(thread, root, value);
        let call = TracedCall::of(TraceOp::Broadcast, root.into());
        match self.operate(call, begin)? {
            Some(Outcome::Value(value)) => Ok(value),
            other => Err(unexpected(other)),
        }
    }
}

impl Drop for Protocol {
    fn drop(&mut self) {
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
