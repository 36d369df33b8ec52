//! A crew of plain threads: the baseline.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::barrier::Barrier;

/// Most distinct locks of a program.
const LOCKS: usize = 8;

/// Threads of this process, with a barrier and locks.
pub struct Plain {
    threads: usize,
    barrier: Barrier,
    locks: [Mutex<()>; LOCKS],
}

impl Plain {
    /// A crew of `threads` workers; 1 for the sequential run.
    pub fn new(threads: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::waiting(threads, threads <= processors)
    }

    /// As [`new`](Self::new), with workers that sleep at once in barriers (by futexes).
    pub fn sleeping(threads: usize) -> Self {
        Self::waiting(threads, false)
    }

    fn waiting(threads: usize, spins: bool) -> Self {
        Self { threads, barrier: Barrier::new(threads, spins), locks: [const { Mutex::new(()) }; LOCKS] }
    }

    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    pub(super) fn barrier(&self) {
        self.barrier.wait();
    }

    pub(super) fn lock(&self, id: u32) -> MutexGuard<'_, ()> {
        // A panic under a lock ends the run through the barrier; the lock itself guards no data.
        self.locks[id as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn give_up(&self) {
        self.barrier.give_up();
    }
}
