//! A crew of plain threads: the baseline.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::barrier::Barrier;

/// Most distinct locks of a program.
const LOCKS: usize = 512;

/// A lock in a cache line of its own.
#[repr(align(64))]
struct Lock(Mutex<()>);

/// Threads of this process, with a barrier and locks.
pub(super) struct Plain {
    barrier: Barrier,
    locks: Box<[Lock]>,
}

impl Plain {
    /// Of so many threads, which spin in barriers before they sleep, or do not.
    pub(super) fn new(threads: usize, spins: bool) -> Self {
        Self { barrier: Barrier::new(threads, spins), locks: (0..LOCKS).map(|_| Lock(Mutex::new(()))).collect() }
    }

    pub(super) fn barrier(&self) {
        self.barrier.wait();
    }

    pub(super) fn lock(&self, id: u32) -> MutexGuard<'_, ()> {
        // A panic under a lock ends the run through the barrier; the lock itself guards no data.
        self.locks[id as usize].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn give_up(&self) {
        self.barrier.give_up();
    }
}
