//! The shared memory of ranks that are all on one host: a segment that they map at the same address, and the processor keeps coherent.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use mapwire_driver::engine::Engine;
use mapwire_host::stderr;
use mapwire_host::waiting::Patience;
use mapwire_segment::heap::{Heap, HeapError, Leak};
use mapwire_segment::sync::{Objects, SyncError};
use mapwire_segment::{Adoption, Meeting, NAP, Segment, SegmentError, Settings, Vigil, layout};
use mapwire_transport::board::Board;
use mapwire_wire::NodeId;

use super::error::SharedError;
use crate::config::{Coherence, SharedConfig};
use crate::node::Node;

/// What the board says of the ranks: also in a forked child, which inherits its mapping.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    board: Arc<Board>,
    rank: u32,
    /// After so long a thread that waits in a barrier says who is missing.
    timeout: Duration,
    objects: Arc<OnceLock<Weak<Objects>>>,
}

impl Vigil for Ranks {
    fn gone(&self) -> Option<u32> {
        if self.board.events() == 0 {
            return None;
        }
        (0..self.board.ranks()).find(|&rank| rank != self.rank && self.board.state(rank).is_gone())
    }

    fn handle_long_wait(&self, since: Duration) {
        let is_first = since >= self.timeout && since < self.timeout + NAP;
        let objects = self.objects.get().and_then(Weak::upgrade).filter(|_| is_first);
        let waited: Vec<String> =
            objects.iter().flat_map(|objects| objects.waited_barriers()).map(|barrier| barrier.to_string()).collect();
        if !waited.is_empty() {
            let (rank, timeout, waited) = (self.rank, self.timeout, waited.join("; "));
            stderr::say(format_args!("rank {rank} has waited for {timeout:?} in the shared memory: {waited}"));
        }
    }
}

/// What a rank asks for: what is traced is the traffic of a protocol.
pub(super) fn coherence_of(node: &Node) -> Coherence {
    match node.config().shared.coherence {
        Coherence::Auto if node.engine().is_traced() => Coherence::Minipages,
        coherence => coherence,
    }
}

/// Meets the other ranks, if all are on this host and so can compare their settings; whether the processor is to keep the memory coherent
/// then depends on those.
pub(super) fn meet(node: &Node) -> Result<Option<Meeting<Ranks>>, SharedError> {
    let engine = node.engine();
    // The same in all ranks: it counts the times that all have met here.
    let round = node.openings().load(Ordering::Relaxed) + 1;
    let Some(board) = engine.board().filter(|board| board.is_of_one_host()) else {
        return Ok(None);
    };
    let SharedConfig { bytes, views, base, debug, .. } = node.config().shared;
    let settings = Settings {
        base: base.map(|base| base as usize),
        bytes,
        coherence: coherence_of(node) as u64,
        debug,
        views: views.into(),
    };
    let Some(file) = board.segment() else {
        return Ok(None);
    };
    let file = file.try_clone_to_owned().map_err(|error| {
        let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::MFILE);
        SegmentError::from(mapwire_host::memory::MemoryError::of_call("dup", 0, errno))
    })?;
    let vigil =
        Ranks { board: Arc::clone(board), rank: engine.rank(), timeout: engine.timeout(), objects: Arc::default() };
    let who = (node.rank(), node.size());
    let met = Meeting::begin(file, who, round, settings, engine.timeout(), vigil).and_then(|meeting| {
        meeting.compare(|number| Coherence::ALL.get(number as usize).map_or("unknown".into(), ToString::to_string))?;
        Ok(meeting)
    });
    met.map(Some).map_err(|error| explained(engine, error))
}

/// Says more of an error: who has come, and whether a rank is gone or has only taken its part away.
fn explained(engine: &Engine, error: SegmentError) -> SharedError {
    match error {
        SegmentError::RankGone(rank) if !engine.state(NodeId(rank as u16)).is_gone() => {
            SharedError::RankClosed(NodeId(rank as u16))
        }
        SegmentError::Late { missing, .. } => {
            let missing: Vec<NodeId> = missing.into_iter().map(|rank| NodeId(rank as u16)).collect();
            SharedError::late(engine, &missing)
        }
        error => error.into(),
    }
}

/// This rank's part of the memory.
#[derive(Debug)]
pub(super) struct OneHost {
    objects: Arc<Objects>,
    heap: Heap,
    adoption: Adoption,
    node: Node,
    /// All ranks have closed it.
    is_closed: AtomicBool,
}

impl OneHost {
    /// As [`Shared::open`](super::Shared::open), with ranks that have met.
    pub(super) fn open(node: &Node, threads: usize, meeting: &Meeting<Ranks>) -> Result<Self, SharedError> {
        let engine = node.engine();
        let strategy = node.config().driver.wait;
        let patience = || Patience::new(strategy, node.size(), core::hint::spin_loop);
        let mapped = meeting.map(patience);
        if !matches!(mapped, Err(SegmentError::Late { .. } | SegmentError::RankGone(_))) {
            // All have met, with whatever success.
            node.openings().fetch_add(1, Ordering::Relaxed);
        }
        let segment = Arc::new(mapped.map_err(|error| explained(engine, error))?);
        let threads = u32::try_from(threads).unwrap_or(u32::MAX);
        let parts = || -> Result<_, SharedError> {
            let heap = Heap::open(Arc::clone(&segment), engine.rank(), node.config().shared.debug)?;
            Ok((heap, Arc::new(Objects::new(Arc::clone(&segment), engine.rank(), engine.size(), threads)?)))
        };
        // The others would wait for this rank.
        let (heap, objects) = parts().inspect_err(|_| segment.end(engine.rank()))?;
        let _ = meeting.vigil().objects.set(Arc::downgrade(&objects));
        let adoption = Adoption::new(node.config().shared.huge);
        let memory = Self { objects, heap, adoption, node: node.clone(), is_closed: AtomicBool::new(false) };
        // All have said now how many of their threads take part in barriers.
        memory.broadcast(0, 0)?;
        Ok(memory)
    }

    pub(super) fn objects(&self) -> &Arc<Objects> {
        &self.objects
    }

    fn segment(&self) -> &Segment {
        self.objects.segment()
    }

    #[cold]
    fn failed(&self, error: SyncError) -> SharedError {
        match error {
            SyncError::Segment(error) => explained(self.node.engine(), error),
            error => error.into(),
        }
    }

    pub(super) fn barrier(&self, barrier: u32) -> Result<(), SharedError> {
        self.objects.barrier(barrier).map_err(|error| self.failed(error))?;
        self.adoption.handle_barrier(self.segment());
        Ok(())
    }

    pub(super) fn broadcast(&self, root: u16, value: u64) -> Result<u64, SharedError> {
        self.objects.broadcast(root.into(), value).map_err(|error| self.failed(error))
    }

    #[inline]
    pub(super) fn lock(&self, lock: u32) -> Result<(), SharedError> {
        self.objects.lock(lock).map_err(|error| self.failed(error))
    }

    #[inline]
    pub(super) fn unlock(&self, lock: u32) -> Result<(), SharedError> {
        self.objects.unlock(lock).map_err(|error| self.failed(error))
    }

    pub(super) fn set_threads(&self, threads: usize) -> Result<(), SharedError> {
        let threads = u32::try_from(threads).unwrap_or(u32::MAX);
        self.objects.set_participants(threads).map_err(|error| self.failed(error))
    }

    pub(super) fn heap(&self) -> &Heap {
        &self.heap
    }

    /// The address of what is at `offset` in the segment.
    pub(super) fn address(&self, offset: u64) -> u64 {
        self.segment().base() as u64 + offset
    }

    /// The offset in the segment of what is at `address`.
    ///
    /// # Errors
    /// It is not in the segment.
    pub(super) fn offset(&self, address: u64) -> Result<u64, HeapError> {
        self.segment()
            .offset_of(address as usize)
            .ok_or(HeapError::Outside { address: address as usize, data: self.segment().range() })
    }

    /// Maps the pages of these runs in this process, so that accesses find them: best effort.
    pub(super) fn populate(&self, runs: &[(u64, u64, bool)]) {
        for &(address, bytes, _) in runs {
            if let Some(offset) = self.segment().offset_of(address as usize) {
                let first = offset / 4096 * 4096;
                self.segment().populate(first, (offset + bytes).next_multiple_of(4096) - first);
            }
        }
    }

    /// Whether all these bytes can be accessed.
    pub(super) fn holds(&self, address: u64, bytes: u64) -> bool {
        let offset = self.segment().offset_of(address as usize);
        offset.is_some_and(|offset| offset >= layout::DATA_AT && self.segment().is_in_use(offset, bytes))
    }

    /// Whether the job is whole.
    pub(super) fn check(&self) -> Result<(), SharedError> {
        self.segment().check().map_err(|error| explained(self.node.engine(), error))
    }

    /// Notes that all ranks have closed it. In debug mode rank 0 says what was never freed, and what was stored beside blocks.
    pub(super) fn set_closed(&self) {
        if self.node.config().shared.debug && self.node.rank() == 0 {
            for leak in self.heap.leaks() {
                let Leak { by, blocks, bytes } = leak;
                stderr::say(format_args!("{blocks} blocks of shared memory, {bytes} bytes, were never freed{by}"));
            }
            self.heap.damage().iter().for_each(|damage| stderr::say(format_args!("shared memory: {damage}")));
        }
        self.is_closed.store(true, Ordering::Relaxed);
    }
}

impl Drop for OneHost {
    fn drop(&mut self) {
        if self.node.engine().is_here() && !self.is_closed.load(Ordering::Relaxed) {
            self.segment().end(self.node.rank() as u32);
        }
    }
}
