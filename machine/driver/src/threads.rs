//! Numbers for the threads of this process that use the shared memory: small, reused when a thread is gone, and found without
//! allocating, since a thread's first use may be a page fault.

use core::cell::Cell;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::shared::MAX_THREADS;

static NEXT_TABLE: AtomicU32 = AtomicU32::new(1);

thread_local! {
    /// The table that this thread asked last, its number there, and its thread id.
    static LAST: Cell<(u32, u16)> = const { Cell::new((0, 0)) };
}

/// The threads of one engine.
#[derive(Debug)]
pub(crate) struct Threads {
    table: u32,
    /// The kernel's thread id of each number; 0 when free.
    owners: [AtomicI32; MAX_THREADS],
}

impl Threads {
    pub(crate) fn new() -> Self {
        Self {
            table: NEXT_TABLE.fetch_add(1, Ordering::Relaxed),
            owners: [const { AtomicI32::new(0) }; MAX_THREADS],
        }
    }

    /// The calling thread's number; `None` when as many live threads have one already.
    #[inline]
    pub(crate) fn current(&self) -> Option<u16> {
        let (table, number) = LAST.get();
        if table == self.table {
            Some(number)
        } else {
            self.assign()
        }
    }

    #[cold]
    fn assign(&self) -> Option<u16> {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let number = self.find(tid).or_else(|| self.take(tid)).or_else(|| {
            self.free_dead();
            self.take(tid)
        })?;
        LAST.set((self.table, number));
        Some(number)
    }

    fn find(&self, tid: i32) -> Option<u16> {
        // There are at most `MAX_THREADS`.
        self.owners
            .iter()
            .position(|owner| owner.load(Ordering::Relaxed) == tid)
            .map(|index| index as u16)
    }

    fn take(&self, tid: i32) -> Option<u16> {
        self.owners
            .iter()
            .position(|owner| {
                owner
                    .compare_exchange(0, tid, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            })
            .map(|index| index as u16)
    }

    /// Frees the numbers of threads that have ended.
    fn free_dead(&self) {
        for owner in &self.owners {
            let tid = owner.load(Ordering::Relaxed);
            if tid != 0 && !crate::mover::thread_lives(tid) {
                let _ = owner.compare_exchange(tid, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_numbers_of_their_own_and_keep_them() {
        let threads = Threads::new();
        let mine = threads.current();
        assert_eq!(threads.current(), mine);
        let other = std::thread::scope(|scope| scope.spawn(|| threads.current()).join().unwrap());
        assert_ne!(mine, other);
        assert!(mine.is_some() && other.is_some());
    }

    #[test]
    fn numbers_of_threads_that_are_gone_are_given_again() {
        let threads = Threads::new();
        for _ in 0..3 * MAX_THREADS {
            let number =
                std::thread::scope(|scope| scope.spawn(|| threads.current()).join().unwrap());
            assert!(number.is_some());
        }
    }
}
