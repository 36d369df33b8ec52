//! Numbers for the threads of this process that call services: small, reused when a thread is gone, and found without
//! allocating, since a thread's first use may be a page fault.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// Threads of a process that may call services.
pub const MAX_THREADS: usize = 64;

static NEXT_TABLE: AtomicU32 = AtomicU32::new(1);

thread_local! {
    /// The table that this thread asked last, its number there, and its thread id.
    static LAST: Cell<(u32, u16)> = const { Cell::new((0, 0)) };
}

/// As many threads of the process as may have numbers have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyThreads;

/// The threads of one engine.
#[derive(Debug)]
pub(crate) struct Threads {
    table: u32,
    /// The kernel's thread id of each number; 0 when free; below 0 while a signal handler uses the number.
    owners: [AtomicI32; MAX_THREADS],
    /// Whether the thread of each number is in an operation. Only that thread reads and writes it.
    busy: [AtomicBool; MAX_THREADS],
}

/// An operation of the calling thread, under a number that no other operation has until this is dropped.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    threads: &'a Threads,
    number: u16,
    /// Whether the number was taken for this operation alone.
    is_borrowed: bool,
}

impl Operation<'_> {
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Whether it interrupts another operation of its thread.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.is_borrowed
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        let number = usize::from(self.number);
        if self.is_borrowed {
            self.threads.owners[number].store(0, Ordering::Release);
        } else {
            self.threads.busy[number].store(false, Ordering::Relaxed);
        }
    }
}

impl Threads {
    pub(crate) fn new() -> Self {
        Self {
            table: NEXT_TABLE.fetch_add(1, Ordering::Relaxed),
            owners: [const { AtomicI32::new(0) }; MAX_THREADS],
            busy: [const { AtomicBool::new(false) }; MAX_THREADS],
        }
    }

    /// Begins an operation of the calling thread. One that interrupts another of this thread, since a signal handler faulted,
    /// borrows a number.
    #[inline]
    pub(crate) fn begin(&self) -> Result<Operation<'_>, TooManyThreads> {
        let number = self.current()?;
        let is_borrowed = self.busy[usize::from(number)].swap(true, Ordering::Relaxed);
        let number = if is_borrowed { self.borrow().ok_or(TooManyThreads)? } else { number };
        Ok(Operation { threads: self, number, is_borrowed })
    }

    #[cold]
    fn borrow(&self) -> Option<u16> {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        self.take_or_free(-tid)
    }

    /// The calling thread's number.
    #[inline]
    pub(crate) fn current(&self) -> Result<u16, TooManyThreads> {
        let (table, number) = LAST.get();
        if table == self.table { Ok(number) } else { self.assign().ok_or(TooManyThreads) }
    }

    #[cold]
    fn assign(&self) -> Option<u16> {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let number = match self.find(tid) {
            Some(number) => number,
            None => {
                let number = self.take_or_free(tid)?;
                // The thread that had it before may have ended in an operation.
                self.busy[usize::from(number)].store(false, Ordering::Relaxed);
                number
            }
        };
        LAST.set((self.table, number));
        Some(number)
    }

    fn take_or_free(&self, owner: i32) -> Option<u16> {
        self.take(owner).or_else(|| {
            self.free_dead();
            self.take(owner)
        })
    }

    fn find(&self, tid: i32) -> Option<u16> {
        // There are at most `MAX_THREADS`.
        self.owners.iter().position(|owner| owner.load(Ordering::Relaxed) == tid).map(|index| index as u16)
    }

    fn take(&self, tid: i32) -> Option<u16> {
        self.owners
            .iter()
            .position(|owner| owner.compare_exchange(0, tid, Ordering::AcqRel, Ordering::Relaxed).is_ok())
            .map(|index| index as u16)
    }

    /// Frees the numbers of threads that have ended.
    fn free_dead(&self) {
        for owner in &self.owners {
            let tid = owner.load(Ordering::Relaxed);
            if tid > 0 && !crate::mover::thread_lives(tid) {
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
        assert!(mine.is_ok() && other.is_ok());
    }

    #[test]
    fn an_operation_that_interrupts_another_of_its_thread_has_a_number_of_its_own() {
        let threads = Threads::new();
        let outer = threads.begin().unwrap();
        assert_eq!(Ok(outer.number()), threads.current());
        for _ in 0..3 * MAX_THREADS {
            let inner = threads.begin().unwrap();
            assert_ne!(inner.number(), outer.number());
        }
        let own = outer.number();
        drop(outer);
        assert_eq!(threads.begin().unwrap().number(), own);
    }

    #[test]
    fn numbers_of_threads_that_are_gone_are_given_again() {
        let threads = Threads::new();
        for _ in 0..3 * MAX_THREADS {
            let number = std::thread::scope(|scope| scope.spawn(|| threads.current()).join().unwrap());
            assert!(number.is_ok());
        }
    }
}
