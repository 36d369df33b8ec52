//! A crew of all ranks of a mapwire job.

use std::time::Duration;

use mapwire::{LockGuard, Node, Shared, SharedSlice};

use super::traffic::{TRAFFIC_FIELDS, Traffic};
use crate::error::{Failure, while_doing};

/// Interval at which a rank that waits for rank 0 alone checks. It sleeps in between, to leave the processors free.
const NAP: Duration = Duration::from_millis(2);

/// Guards [`Joined::turn`]. Programs have locks of smaller numbers.
const TURN_LOCK: u32 = 1 << 10;

/// Value of [`Joined::turn`] once rank 0 has failed.
const FAILED: u64 = u64::MAX;

/// The memory that the ranks of a job share.
pub(super) struct Joined {
    shared: Shared,
    rank: usize,
    /// Number of times that rank 0 has finished alone.
    turn: SharedSlice<u64>,
    /// A slice for each rank, to show its [`Traffic`] to rank 0.
    shown: Vec<SharedSlice<u64>>,
}

impl Joined {
    /// Opens the memory of the job, with `threads` workers in each rank. Collective.
    pub(super) fn new(node: &Node, threads: usize) -> Result<Self, Failure> {
        let shared = Shared::open(node, threads).map_err(while_doing("opening shared memory"))?;
        let slice_of = |root: usize, length| {
            let mine = (root == node.rank()).then(|| shared.alloc::<u64>(length)).transpose()?;
            shared.broadcast_slice(root, mine)
        };
        let all = || -> Result<_, mapwire::Error> {
            let turn = slice_of(0, 1)?;
            let shown = (0..node.size()).map(|root| slice_of(root, TRAFFIC_FIELDS));
            Ok((turn, shown.collect::<Result<Vec<_>, _>>()?))
        };
        let (turn, shown) = all().map_err(while_doing("allocating shared memory"))?;
        Ok(Self { rank: node.rank(), shared, turn, shown })
    }

    /// Size of the shared memory, in bytes.
    pub(super) fn room(&self) -> u64 {
        self.shared.node().config().shared.bytes
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(super) fn barrier(&self) -> Result<(), Failure> {
        self.shared.barrier().map_err(while_doing("waiting in a barrier"))
    }

    pub(super) fn lock(&self, id: u32) -> Result<LockGuard<'_>, Failure> {
        self.shared.lock(id).map_err(while_doing("taking a lock"))
    }

    pub(super) fn alone<R>(&self, alone: impl FnOnce() -> Result<R, Failure>) -> Result<Option<R>, Failure> {
        let seen = self.turn(None)?;
        self.meet()?;
        if self.rank == 0 {
            let result = alone();
            let turn = if result.is_ok() { seen + 1 } else { FAILED };
            self.turn(Some(turn))?;
            return result.map(Some);
        }
        loop {
            match self.turn(None)? {
                FAILED => return Err(Failure::Elsewhere),
                turn if turn != seen => return Ok(None),
                _ => std::thread::sleep(NAP),
            }
        }
    }

    /// The turn, or a new one: under a lock, since lazy coherence shows a rank what others wrote when it synchronises with them.
    fn turn(&self, new: Option<u64>) -> Result<u64, Failure> {
        let _held = self.lock(TURN_LOCK)?;
        if let Some(turn) = new {
            self.turn.set(0, turn);
        }
        Ok(self.turn.get(0))
    }

    pub(super) fn traffic(&self) -> Traffic {
        let counters = self.shared.counters();
        Traffic {
            read_faults: counters.read_faults,
            write_faults: counters.write_faults,
            prefetches: counters.prefetches,
            messages: counters.messages_sent,
            bytes: counters.bytes_moved(),
            must_move_bytes: 0,
        }
    }

    pub(super) fn gather(&self, mine: Traffic) -> Result<Vec<Traffic>, Failure> {
        for (index, value) in mine.fields().into_iter().enumerate() {
            self.shown[self.rank].set(index, value);
        }
        self.meet()?;
        let traffic = match self.rank {
            0 => self.shown.iter().map(|shown| Traffic::from_fields(std::array::from_fn(|at| shown.get(at)))).collect(),
            _ => Vec::new(),
        };
        // No rank shows its next traffic before rank 0 has read this one.
        self.meet()?;
        Ok(traffic)
    }

    /// Leaves the job, once all ranks do.
    pub(super) fn leave(self) -> Result<(), Failure> {
        self.shared.close().map_err(while_doing("leaving the job"))
    }

    /// A barrier of ranks, one thread of each.
    fn meet(&self) -> Result<(), Failure> {
        let met = self.shared.broadcast(0, 0);
        met.map(|_| ()).map_err(while_doing("meeting the other ranks"))
    }
}
