//! The shared memory by a protocol: each rank has its own copy of a minipage, and page faults fetch it (Millipage).

use core::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use mapwire_driver::engine::{Engine, TracedCall};
use mapwire_driver::exports::{DirectMemory, ExportRequest};
use mapwire_driver::service_memory::ServiceMemory;
use mapwire_driver::threads::MAX_THREADS;
use mapwire_dsm::{
    Access, AllocOptions, Config as ModelConfig, Counters, Dsm, ObjectCall, Outcome, Progress,
    Protocol as ModelProtocol, Race,
};
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
use super::freed::{Freed, HEAD_BYTES, Head, block_bytes};
use super::seeing::{self, Counting};
use crate::config::Coherence;
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
pub(crate) struct Protocol {
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
        let ranks = u16::try_from(node.size()).unwrap_or(u16::MAX);
        let is_lazy = settings.coherence == Coherence::Hlrc;
        let pages = u32::try_from(settings.bytes.div_ceil(PAGE_BYTES as u64)).unwrap_or(u32::MAX);
        let mut model = ModelConfig::new(node.rank() as u16, ranks, MAX_THREADS as u16, pages, settings.views);
        model.participants = u16::try_from(threads).unwrap_or(u16::MAX);
        let mut spare_pages = 0;
        if is_lazy {
            model.protocol = ModelProtocol::Hlrc;
            model.finds_races = settings.races;
            // Twins lie behind what is shared.
            spare_pages = model.twins as usize;
        }
        let bytes = (pages as usize + spare_pages) * PAGE_BYTES;
        let layout = ViewLayout::new(base, bytes, usize::from(settings.views)).map_err(SharedError::from)?;
        let views = Arc::new(MultiView::new("mapwire-shared", layout).map_err(SharedError::from)?);
        let protection = match settings.faults {
            Some(backend) => PageProtection::new(backend, Arc::clone(&views)),
            None => PageProtection::best(Arc::clone(&views)),
        }
        .map_err(SharedError::from)?;
        let backend = protection.backend();
        let dsm = Dsm::new(model).map_err(SharedError::from)?;
        let counting = seeing::begin(node, if is_lazy { Coherence::Hlrc } else { Coherence::Minipages });
        let calls = Box::new(Calls::new(engine, &views, counting.map(|it| Counting(Arc::clone(it)))));
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

    /// The address of `bytes` zeroed bytes.
    pub(super) fn alloc(&self, bytes: u64, options: AllocOptions) -> Result<u64> {
        self.allocated(bytes, |dsm, thread| dsm.alloc_with(thread, bytes, options))
    }

    /// The address of the first of several rows.
    pub(super) fn alloc_rows(&self, rows: u64, row_bytes: u64, options: AllocOptions) -> Result<u64> {
        let bytes = rows.saturating_mul(row_bytes);
        self.allocated(bytes, |dsm, thread| dsm.alloc_rows(thread, rows, row_bytes, options))
    }

    /// A command that never waits, and of which a trace says nothing.
    pub(super) fn command<T>(
        &self,
        command: impl FnOnce(&mut Dsm, u16) -> Result<T, mapwire_dsm::Error>,
    ) -> Result<T, SharedError> {
        self.calls.command(&[], command)
    }

    fn allocated(
        &self,
        bytes: u64,
        begin: impl FnOnce(&mut Dsm, u16) -> Result<(), mapwire_dsm::Error>,
    ) -> Result<u64> {
        match self.operate(call(TraceOp::Allocate, 0, bytes), begin)? {
            Some(Outcome::Allocated(at)) => {
                Ok((self.layout().view_range(usize::from(at.view)).start as u64) + at.offset_bytes)
            }
            other => Err(unexpected(other)),
        }
    }

    /// A block of `bytes`, perhaps one that was used before. A head before it says how long it is, for whoever frees it.
    pub(super) fn malloc(&self, bytes: u64) -> Result<u64> {
        self.block(bytes, HEAD_BYTES)
    }

    pub(super) fn calloc(&self, bytes: u64) -> Result<u64> {
        let address = self.malloc(bytes)?;
        for at in (0..bytes).step_by(8) {
            // SAFETY: within a block of so many bytes, in steps of 16 whole, which nobody else uses now.
            unsafe { raw::store((address + at) as *mut u64, 0) };
        }
        Ok(address)
    }

    /// Up to a page, which is what minipages are aligned to at most.
    pub(super) fn aligned_alloc(&self, align: u64, bytes: u64) -> Result<u64> {
        if !align.is_power_of_two() || align > PAGE_BYTES as u64 {
            return Err(SharedError::Heap(HeapError::Align { align }).into());
        }
        self.block(bytes, align.max(HEAD_BYTES))
    }

    pub(super) fn realloc(&self, address: u64, bytes: u64) -> Result<u64> {
        let before = self.usable_bytes(address)?;
        if bytes <= before && bytes > before / 2 {
            return Ok(address);
        }
        let moved = self.malloc(bytes)?;
        for at in (0..before.min(bytes)).step_by(8) {
            // SAFETY: both are blocks of so many bytes, in steps of 16 whole.
            unsafe { raw::store((moved + at) as *mut u64, raw::load((address + at) as *const u64)) };
        }
        self.free(address)?;
        Ok(moved)
    }

    pub(super) fn free(&self, address: u64) -> Result<()> {
        let head = self.head(address)?;
        self.set_head(address, Head { is_freed: true, ..head });
        self.freed.keep(head.start(address), head.bytes);
        Ok(())
    }

    pub(super) fn usable_bytes(&self, address: u64) -> Result<u64> {
        let head = self.head(address)?;
        Ok(head.bytes - (address - head.start(address)))
    }

    /// A block whose user's part begins `offset` bytes behind its start.
    fn block(&self, bytes: u64, offset: u64) -> Result<u64> {
        let too_long = || SharedError::Heap(HeapError::TooLong { count: 1, bytes });
        let all = block_bytes(bytes.checked_add(offset).ok_or_else(too_long)?);
        // A block of a page or more begins on a page; so do shorter ones that must.
        let all = if offset > 64 { all.max(PAGE_BYTES as u64) } else { all.max(64) };
        let start = self.freed.take(all).map_or_else(|| self.alloc(all, AllocOptions::default()), Ok)?;
        let address = start + offset;
        self.set_head(address, Head { bytes: all, offset, is_freed: false });
        Ok(address)
    }

    fn set_head(&self, address: u64, head: Head) {
        let [first, second] = head.words(address);
        // SAFETY: the head lies before each block, in memory of the heap's own.
        unsafe {
            raw::store((address - HEAD_BYTES) as *mut u64, first);
            raw::store((address - HEAD_BYTES + 8) as *mut u64, second);
        }
    }

    /// Calls a synchronisation object. `None`: that cannot be granted at once, or was not by `deadline_ns`.
    pub(crate) fn call_object(&self, call: ObjectCall, deadline_ns: Option<u64>) -> Result<Option<u64>, SharedError> {
        self.calls.call_object(call, deadline_ns)
    }

    /// The calling thread among those of all ranks.
    pub(crate) fn identity(&self) -> Result<u64, SharedError> {
        self.calls.identity()
    }

    /// Whether `bytes` at `address` lie within one view.
    pub(crate) fn holds(&self, address: u64, bytes: u64) -> bool {
        let layout = self.layout();
        let located = layout.locate(address as usize);
        located.is_some_and(|(_, offset)| bytes <= layout.bytes.saturating_sub(offset) as u64)
    }

    /// The word at `address`, aligned to 8; `None`: nothing is allocated there.
    pub(crate) fn load(&self, address: u64) -> Result<Option<u64>, SharedError> {
        let is_there = self.is_allocated(address)?;
        // SAFETY: mapped, aligned, within what is allocated.
        Ok(is_there.then(|| unsafe { raw::load(address as *const u64) }))
    }

    /// Stores a word at `address`, aligned to 8; false: nothing is allocated there.
    pub(crate) fn store(&self, address: u64, value: u64) -> Result<bool, SharedError> {
        let is_there = self.is_allocated(address)?;
        if is_there {
            // SAFETY: as in `load`.
            unsafe { raw::store(address as *mut u64, value) };
        }
        Ok(is_there)
    }

    /// Whether the word at `address`, aligned to 8, is of an allocation. Without this, a load elsewhere would end the rank.
    fn is_allocated(&self, address: u64) -> Result<bool, SharedError> {
        let Some((view, offset)) = self.layout().locate(address as usize).filter(|_| address.is_multiple_of(8)) else {
            return Ok(false);
        };
        let page = (offset / PAGE_BYTES) as u64;
        let fetch = TracedCall::of(TraceOp::ReadFault, address);
        let found = self
            .calls
            .operate(fetch, |dsm, thread| dsm.handle_fault(now_ns(), thread, view as u16, page, Access::Read))?;
        Ok(!matches!(found, Some(Outcome::Failed(_))))
    }

    /// The head of the block at `address`, which any rank may have written: all of it is checked.
    fn head(&self, address: u64) -> Result<Head> {
        let layout = *self.layout();
        let not_allocated = || SharedError::Heap(HeapError::NotAllocated { address: address as usize });
        let outside = || HeapError::Outside { address: address as usize, data: layout.views_range() };
        let located = layout.locate(address as usize).filter(|_| address.is_multiple_of(16));
        let (_, offset) = located.ok_or_else(outside).map_err(SharedError::Heap)?;
        if offset < HEAD_BYTES as usize {
            return Err(not_allocated().into());
        }
        if !self.is_allocated(address - HEAD_BYTES)? {
            return Err(not_allocated().into());
        }
        // SAFETY: mapped, within what is allocated.
        let words = unsafe {
            [raw::load((address - HEAD_BYTES) as *const u64), raw::load((address - HEAD_BYTES + 8) as *const u64)]
        };
        let room = (layout.bytes - offset) as u64;
        match Head::of(address, words).filter(|head| head.bytes - head.offset <= room && head.offset <= offset as u64) {
            Some(head) if !head.is_freed => Ok(head),
            Some(_) => {
                let by = mapwire_segment::heap::Allocated { rank: None, location: 0 };
                Err(SharedError::Heap(HeapError::FreedTwice { address: address as usize, by }).into())
            }
            None => Err(not_allocated().into()),
        }
    }

    /// Whether the memory can still be used.
    pub(crate) fn check(&self) -> Result<(), SharedError> {
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

    /// Says that all bytes of these runs, which lie within a view each, are overwritten next.
    pub(super) fn overwrite(&self, runs: &[(u64, u64)]) -> Result<()> {
        let layout = *self.layout();
        let pages = runs.iter().flat_map(|&(address, bytes)| {
            let (view, offset) = layout.locate(address as usize).unwrap_or_default();
            let page_bytes = PAGE_BYTES as u64;
            let (start, end) = ((offset as u64).div_ceil(page_bytes), (offset as u64 + bytes) / page_bytes);
            // A layout has at most 512 views.
            (start..end).map(move |page| (view as u16, page))
        });
        let mut pages = pages.peekable();
        while pages.peek().is_some() {
            self.calls.command(&[], |dsm, thread| {
                let mut some = pages.by_ref().take(MINIPAGES_AT_A_TIME);
                some.try_for_each(|(view, page)| dsm.overwrite(now_ns(), thread, view, page))
            })?;
        }
        Ok(())
    }

    pub(super) fn barrier(&self, barrier: u32) -> Result<()> {
        let begin = |dsm: &mut Dsm, thread| dsm.barrier(thread, barrier);
        let call = TracedCall::of(TraceOp::Barrier, barrier.into());
        match self.operate(call, begin)? {
            Some(Outcome::Passed) => {
                self.name_races();
                Ok(())
            }
            other => Err(unexpected(other)),
        }
    }

    /// Says on standard error which bytes this rank and another have changed without synchronising.
    fn name_races(&self) {
        if !self.node.config().shared.races {
            return;
        }
        while let Ok(Some(Race { ranks: [one, other], offset_bytes, length_bytes, .. })) =
            self.calls.command(&[], |dsm, _| Ok(dsm.poll_race()))
        {
            let first = self.layout().view_range(0).start as u64 + offset_bytes;
            mapwire_host::stderr::say(format_args!(
                "ranks {one} and {other} have both changed bytes {first:#x} to {:#x} of shared memory without a lock or barrier between",
                first + length_bytes - 1
            ));
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

    pub(crate) fn layout(&self) -> &ViewLayout {
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
        let coherence = self.node.config().shared.coherence;
        // Lengths have 47 bits.
        let told = self.broadcast(0, our_bytes | (coherence as u64) << 56)?;
        let (bytes, theirs) = (told & ((1 << 56) - 1), told >> 56);
        let (name, ours, first) = if (coherence == Coherence::Hlrc) != (theirs == Coherence::Hlrc as u64) {
            let theirs = Coherence::ALL.get(theirs as usize).map_or("another".to_owned(), ToString::to_string);
            ("MAPWIRE_COHERENCE", coherence.to_string(), theirs)
        } else if bytes != our_bytes {
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
