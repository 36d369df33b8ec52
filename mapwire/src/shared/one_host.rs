//! The shared memory of ranks that are all on one host: a segment that they map at the same address, and the processor keeps coherent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mapwire_host::waiting::Patience;
use mapwire_segment::{Meeting, Segment, SegmentError, Settings, Vigil, layout};
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
}

impl Vigil for Ranks {
    fn gone(&self) -> Option<u32> {
        if self.board.events() == 0 {
            return None;
        }
        (0..self.board.ranks()).find(|&rank| rank != self.rank && self.board.state(rank).is_gone())
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
    let SharedConfig { bytes, views, base, coherence, .. } = node.config().shared;
    let settings =
        Settings { base: base.map(|base| base as usize), bytes, coherence: coherence as u64, views: views.into() };
    let Some(file) = board.segment() else {
        return Ok(None);
    };
    let file = file.try_clone_to_owned().map_err(|error| {
        let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::MFILE);
        SegmentError::from(mapwire_host::memory::MemoryError::of_call("dup", 0, errno))
    })?;
    let vigil = Ranks { board: Arc::clone(board), rank: node.rank() as u32 };
    let who = (node.rank(), node.size());
    let meeting = Meeting::begin(file, who, round, settings, engine.timeout(), vigil)?;
    meeting.compare(|number| Coherence::ALL.get(number as usize).map_or("unknown".into(), ToString::to_string))?;
    Ok(Some(meeting))
}

/// This rank's part of the memory.
#[derive(Debug)]
pub(super) struct OneHost {
    segment: Arc<Segment>,
    node: Node,
    board: Arc<Board>,
    threads: std::sync::atomic::AtomicU64,
    /// All ranks have closed it.
    is_closed: AtomicBool,
}

impl OneHost {
    /// As [`Shared::open`](super::Shared::open), with ranks that have met.
    pub(super) fn open(node: &Node, threads: usize, meeting: &Meeting<Ranks>) -> Result<Self, SharedError> {
        let strategy = node.config().driver.wait;
        let segment = Arc::new(meeting.map(|| Patience::new(strategy, node.size(), core::hint::spin_loop))?);
        node.openings().fetch_add(1, Ordering::Relaxed);
        let board = meeting.vigil().board.clone();
        let memory =
            Self { segment, node: node.clone(), board, threads: Default::default(), is_closed: AtomicBool::new(false) };
        memory.set_threads(threads)?;
        Ok(memory)
    }

    pub(super) fn alloc(&self, bytes: u64) -> Result<u64, SharedError> {
        let next = self.word(2048);
        let align = if bytes >= 4096 {
            4096
        } else if bytes >= 64 {
            64
        } else {
            16
        };
        let at = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| {
            Some(at.max(layout::DATA_AT).next_multiple_of(align) + bytes)
        });
        let at = at.unwrap().max(layout::DATA_AT).next_multiple_of(align);
        self.segment.grow_to(at + bytes)?;
        Ok(self.segment.base() as u64 + at)
    }

    fn word(&self, at: u64) -> &std::sync::atomic::AtomicU64 {
        self.segment.word64(layout::NUMBERED_AT + at).unwrap()
    }

    fn meet(&self, line: u64, count: u64) -> Result<(), SharedError> {
        let arrived = self.word(line);
        let round = self.segment.word32(layout::NUMBERED_AT + line + 8).unwrap();
        let seen = round.load(Ordering::Acquire);
        if arrived.fetch_add(1, Ordering::AcqRel) + 1 == count {
            arrived.store(0, Ordering::Relaxed);
            round.store(seen.wrapping_add(1), Ordering::Release);
            mapwire_host::waiting::futex_wake(round, u32::MAX);
        } else {
            self.segment.wait_while(round, seen, None, || Ok(())).map_err(|e| self.explained(e))?;
        }
        Ok(())
    }

    pub(super) fn barrier(&self, barrier: u32) -> Result<(), SharedError> {
        self.meet(4096 + u64::from(barrier) * 64, self.word(0).load(Ordering::Relaxed))
    }

    pub(super) fn broadcast(&self, root: u16, value: u64) -> Result<u64, SharedError> {
        let round = self.segment.word32(layout::NUMBERED_AT + 72).unwrap().load(Ordering::Acquire);
        let slot = self.word(128 + 8 * u64::from(round & 1));
        if usize::from(root) == self.node.rank() {
            slot.store(value, Ordering::Relaxed);
        }
        self.meet(64, self.node.size() as u64)?;
        Ok(slot.load(Ordering::Relaxed))
    }

    pub(super) fn lock(&self, lock: u32) -> Result<(), SharedError> {
        let word = self.segment.word32(layout::NUMBERED_AT + 32768 + 64 * u64::from(lock)).unwrap();
        while word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.segment.wait_while(word, 1, None, || Ok(())).map_err(|e| self.explained(e))?;
        }
        Ok(())
    }

    pub(super) fn unlock(&self, lock: u32) -> Result<(), SharedError> {
        let word = self.segment.word32(layout::NUMBERED_AT + 32768 + 64 * u64::from(lock)).unwrap();
        word.store(0, Ordering::Release);
        mapwire_host::waiting::futex_wake(word, 1);
        Ok(())
    }

    pub(super) fn set_threads(&self, threads: usize) -> Result<(), SharedError> {
        let before = self.threads.swap(threads as u64, Ordering::Relaxed);
        self.word(0).fetch_add((threads as u64).wrapping_sub(before), Ordering::Relaxed);
        Ok(())
    }

    /// Maps the pages of these runs in this process, so that accesses find them: best effort.
    pub(super) fn populate(&self, runs: &[(u64, u64, bool)]) {
        for &(address, bytes, _) in runs {
            if let Some(offset) = self.segment.offset_of(address as usize) {
                let first = offset / 4096 * 4096;
                self.segment.populate(first, (offset + bytes).next_multiple_of(4096) - first);
            }
        }
    }

    /// Whether all these bytes can be accessed.
    pub(super) fn holds(&self, address: u64, bytes: u64) -> bool {
        let offset = self.segment.offset_of(address as usize);
        offset.is_some_and(|offset| offset >= layout::DATA_AT && self.segment.is_in_use(offset, bytes))
    }

    /// Whether the job is whole.
    pub(super) fn check(&self) -> Result<(), SharedError> {
        self.segment.check().map_err(|error| self.explained(error))
    }

    pub(super) fn set_closed(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Tells a rank that is gone from one that has only taken its part away.
    fn explained(&self, error: SegmentError) -> SharedError {
        match error {
            SegmentError::RankGone(rank) if !self.board.state(rank).is_gone() => {
                SharedError::RankClosed(NodeId(rank as u16))
            }
            error => error.into(),
        }
    }
}

impl Drop for OneHost {
    fn drop(&mut self) {
        if self.node.engine().is_here() && !self.is_closed.load(Ordering::Relaxed) {
            self.segment.end(self.node.rank() as u32);
        }
    }
}
