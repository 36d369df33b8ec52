//! A lock for the driver's state that may be taken in a page-fault handler: it allocates nothing, and never sleeps for long
//! since whoever holds it runs a bounded turn of the duty cycle.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering;

use crate::sync::{AtomicBool, AtomicUsize, spin_loop, yield_now};

/// Spins before the processor is given away: the holder may be a thread that this one displaced.
const SPINS_BEFORE_YIELD: u32 = 40;

thread_local! {
    /// Its address tells threads apart, for less than a thread id costs.
    static ME: u8 = const { 0 };
}

/// A number of the calling thread that no other live thread has. Never 0.
#[inline]
fn me() -> usize {
    ME.with(|me| core::ptr::from_ref(me).addr())
}

/// A spin lock. Not re-entrant. Threads that try again and again let those pass that wait.
#[derive(Debug, Default)]
pub(crate) struct SpinLock<T> {
    /// The thread that holds it; 0 when it is free.
    owner: AtomicUsize,
    /// A thread waits for it. Who tries to take it takes this back, and fails once: a thread that is not running does not keep it.
    is_wanted: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, and `owner` lets one guard exist at a time; handing the value from
// thread to thread in turn needs `T: Send`, as with a mutex.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { owner: AtomicUsize::new(0), is_wanted: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the lock if it is free and nobody waits for it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        if self.is_wanted.load(Ordering::Relaxed) {
            self.is_wanted.store(false, Ordering::Relaxed);
            return None;
        }
        self.take()
    }

    #[inline]
    fn take(&self) -> Option<SpinGuard<'_, T>> {
        let is_free = self.owner.load(Ordering::Relaxed) == 0
            && self.owner.compare_exchange(0, me(), Ordering::Acquire, Ordering::Relaxed).is_ok();
        is_free.then(|| SpinGuard { lock: self })
    }

    /// Whether the calling thread holds the lock: it would wait for itself.
    pub(crate) fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == me()
    }

    /// Takes the lock, waiting for it.
    #[inline]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        let mut spins = 0;
        loop {
            if let Some(guard) = self.take() {
                return guard;
            }
            self.is_wanted.store(true, Ordering::Relaxed);
            spins += 1;
            if spins < SPINS_BEFORE_YIELD {
                spin_loop();
            } else {
                spins = 0;
                yield_now();
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one: `owner` was 0 when it was made and is this thread until it is dropped.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference through the guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.owner.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_holds_the_lock() {
        let lock = SpinLock::new(0_u64);
        let turns = if cfg!(miri) { 20 } else { 10_000 };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..turns {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 4 * turns);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.is_mine());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!lock.is_mine()));
        });
        drop(held);
        assert!(!lock.is_mine());
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn who_tries_again_and_again_lets_those_pass_that_wait() {
        let lock = SpinLock::new(());
        let held = lock.lock();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(lock.lock()));
            while !lock.is_wanted.load(Ordering::Relaxed) {
                core::hint::spin_loop();
            }
            drop(held);
            waiter.join().unwrap();
        });
        // One that no longer waits costs a failure, and no more.
        lock.is_wanted.store(true, Ordering::Relaxed);
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_some());
    }
}
