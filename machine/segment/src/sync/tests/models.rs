//! Model checks: every interleaving of a few threads that the memory model allows.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p mapwire-segment --lib loom`. The objects are the very code that runs in a segment; only
//! words and sleeping are loom's. A wake-up that is lost leaves a thread asleep for ever, which loom reports; so naps are left out.

use core::sync::atomic::Ordering;

use loom::cell::Cell;
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex as LoomMutex};
use loom::thread;

use crate::sync::barrier::Barrier;
use crate::sync::bell::Bell;
use crate::sync::condition::Condition;
use crate::sync::deque::{self, DequeWords, Steal, Word64};
use crate::sync::error::{Object, SyncError, Who};
use crate::sync::mutex::{Mutex, MutexWords};
use crate::sync::once::Once;
use crate::sync::reduction::{Reduce, Reduction};
use crate::sync::round::Round;
use crate::sync::rwlock::RwLock;
use crate::sync::semaphore::Semaphore;
use crate::sync::words::{Look, Waits, Word};
use crate::waiting::Waited;

/// A word, and those that sleep on it.
struct LoomWord {
    value: AtomicU32,
    sleepers: LoomMutex<()>,
    woken: Condvar,
}

impl LoomWord {
    fn new(value: u32) -> Self {
        Self { value: AtomicU32::new(value), sleepers: LoomMutex::new(()), woken: Condvar::new() }
    }
}

impl Word for LoomWord {
    fn load(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }
    fn load_in_order(&self) -> u32 {
        // Loom has no order of sequentially consistent loads, but has one of fences.
        fence(Ordering::SeqCst);
        self.value.load(Ordering::Acquire)
    }
    fn store(&self, value: u32) {
        self.value.store(value, Ordering::Release);
    }
    fn swap(&self, value: u32) -> u32 {
        let before = self.value.swap(value, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        before
    }
    fn replace(&self, old: u32, new: u32) -> Result<(), u32> {
        let replaced = self.value.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
        fence(Ordering::SeqCst);
        replaced.map(drop)
    }
    fn add(&self, by: u32) -> u32 {
        let before = self.value.fetch_add(by, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        before
    }
    fn sub(&self, by: u32) -> u32 {
        let before = self.value.fetch_sub(by, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        before
    }
}

/// Whether waiters are patient, or take the turn as soon as they were woken in vain.
struct Loom {
    is_late: bool,
    times: std::sync::atomic::AtomicU64,
}

impl Loom {
    fn new(is_late: bool) -> Self {
        Self { is_late, times: std::sync::atomic::AtomicU64::new(0) }
    }
}

impl Waits for Loom {
    type Word = LoomWord;

    fn spin(&self, _: impl FnMut() -> bool) -> bool {
        false
    }

    fn sleep(
        &self,
        word: &LoomWord,
        unchanged: u32,
        deadline_ns: Option<u64>,
        _: Look<'_>,
    ) -> Result<Waited, SyncError> {
        let guard = word.sleepers.lock().unwrap();
        // The kernel looks at the word in the order of all exchanges.
        fence(Ordering::SeqCst);
        if word.value.load(Ordering::Acquire) == unchanged {
            if deadline_ns.is_some() {
                drop(guard);
                thread::yield_now();
                let is_unchanged = word.value.load(Ordering::Acquire) == unchanged;
                return Ok(if is_unchanged { Waited::TimedOut } else { Waited::Changed });
            }
            drop(word.woken.wait(guard).unwrap());
        }
        Ok(Waited::Changed)
    }

    fn wake(&self, word: &LoomWord, sleepers: u32) {
        let _guard = word.sleepers.lock().unwrap();
        if sleepers == 1 { word.woken.notify_one() } else { word.woken.notify_all() }
    }

    fn now_ns(&self) -> u64 {
        let step = if self.is_late { 2_000_000 } else { 0 };
        self.times.fetch_add(step, Ordering::Relaxed)
    }

    fn check(&self) -> Result<(), SyncError> {
        Ok(())
    }

    fn ended(&self, _: u32) -> Option<Who> {
        None
    }

    fn who(&self, _: u32) -> Who {
        Who { rank: 0, pid: 0, tid: 0 }
    }
}

const NAME: Object = Object::Lock(0);

/// Words of all objects, and a value that they protect.
struct Shared {
    waits: Loom,
    words: [LoomWord; 9],
    words64: [Ordered; 5],
    /// Of threads that meet.
    pair: LoomWord,
    /// What the model counts for itself: loom sees no accesses to it.
    seen: [std::sync::atomic::AtomicU32; 3],
    protected: Cell<u32>,
}

// SAFETY: loom reports accesses to the cell that nothing orders; that there are none is what the models check.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new(is_late: bool) -> Arc<Self> {
        Arc::new(Self {
            waits: Loom::new(is_late),
            words: [(); 9].map(|()| LoomWord::new(0)),
            words64: [(); 5].map(|()| Ordered(AtomicU64::new(0))),
            pair: LoomWord::new(2),
            seen: Default::default(),
            protected: Cell::new(0),
        })
    }

    fn mutex(&self) -> Mutex<'_, Loom> {
        let [state, turn, calls, a, b, c, ..] = &self.words;
        Mutex { waits: &self.waits, words: MutexWords { state, turn, calls, lost: [a, b, c] }, object: NAME }
    }

    fn condition(&self) -> Condition<'_, Loom> {
        let [.., signals, waiters] = &self.words;
        Condition { waits: &self.waits, signals, waiters, object: NAME }
    }

    fn semaphore(&self) -> Semaphore<'_, Loom> {
        let [value, waiters, ..] = &self.words;
        Semaphore { waits: &self.waits, value, waiters, object: NAME }
    }

    fn rwlock(&self) -> RwLock<'_, Loom> {
        RwLock { mutex: self.mutex(), readers: &self.words[6] }
    }

    /// Of two threads.
    fn barrier(&self) -> Barrier<'_, Loom, Ordered> {
        let bell = Bell { waits: &self.waits, word: &self.words[0] };
        Barrier { state: &self.words64[0], bell, count: &self.pair, object: NAME }
    }

    /// Of two threads.
    fn reduction(&self) -> Reduction<'_, Loom, Ordered> {
        let Barrier { state, bell, count, object } = self.barrier();
        let [_, value, ended, odd, even] = &self.words64;
        let [_, _, arrived, a, b, ..] = &self.words;
        Reduction { entered: state, bell, count, value, arrived, ended, results: [odd, even], takers: [a, b], object }
    }

    fn count(&self) {
        self.protected.set(self.protected.get() + 1);
    }
}

/// Runs `body` in `threads` threads, numbered from 1, in all orders; then `end`.
fn check(
    threads: u32,
    is_late: bool,
    preemptions: usize,
    body: impl Fn(&Shared, u32) + Send + Sync + Clone + 'static,
    end: impl Fn(&Shared) + Send + Sync + 'static,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let shared = Shared::new(is_late);
        let others: Vec<_> = (2..=threads)
            .map(|me| {
                let (shared, body) = (Arc::clone(&shared), body.clone());
                thread::spawn(move || body(&shared, me))
            })
            .collect();
        body(&shared, 1);
        for other in others {
            other.join().unwrap();
        }
        end(&shared);
    });
}

#[test]
fn loom_a_mutex_excludes_and_wakes_all_that_wait() {
    for is_late in [false, true] {
        let body = |shared: &Shared, me| {
            shared.mutex().lock(me).unwrap();
            shared.count();
            shared.mutex().unlock(me).unwrap();
        };
        check(3, is_late, 3, body, |shared| assert_eq!(shared.protected.get(), 3));
    }
}

#[test]
fn loom_a_mutex_is_handed_to_whoever_has_the_turn() {
    let body = |shared: &Shared, me| {
        for _ in 0..2 {
            shared.mutex().lock(me).unwrap();
            shared.count();
            shared.mutex().unlock(me).unwrap();
        }
    };
    check(2, true, 7, body, |shared| assert_eq!(shared.protected.get(), 4));
    check(3, true, 2, body, |shared| assert_eq!(shared.protected.get(), 6));
}

#[test]
fn loom_one_that_gives_up_waiting_for_a_mutex_leaves_nobody_asleep() {
    for is_late in [false, true] {
        let body = |shared: &Shared, me| {
            let locked = match me {
                3 => shared.mutex().lock_until(me, 1).unwrap(),
                _ => shared.mutex().lock(me).map(|()| true).unwrap(),
            };
            if locked {
                shared.count();
                shared.mutex().unlock(me).unwrap();
            }
        };
        check(3, is_late, 3, body, |shared| assert!(shared.protected.get() >= 2));
    }
}

#[test]
fn loom_one_that_gives_up_with_the_turn_is_handed_the_mutex_or_leaves_it() {
    let body = |shared: &Shared, me| {
        for round in 0..2 {
            let locked = match me {
                2 if round == 1 => shared.mutex().lock_until(me, 1).unwrap(),
                _ => shared.mutex().lock(me).map(|()| true).unwrap(),
            };
            if locked {
                shared.count();
                shared.mutex().unlock(me).unwrap();
            }
        }
    };
    check(2, true, 6, body, |shared| assert!(shared.protected.get() >= 3));
}

#[test]
fn loom_a_signal_wakes_one_that_waits() {
    let body = |shared: &Shared, me| {
        let mutex = shared.mutex();
        mutex.lock(me).unwrap();
        if me == 1 {
            shared.protected.set(1);
            mutex.unlock(me).unwrap();
            shared.condition().signal(1).unwrap();
        } else {
            while shared.protected.get() == 0 {
                shared.condition().wait(&mutex, me, None).unwrap();
            }
            mutex.unlock(me).unwrap();
        }
    };
    check(2, false, 7, body, |_| {});
}

#[test]
fn loom_a_broadcast_wakes_all_that_wait() {
    let body = |shared: &Shared, me| {
        let mutex = shared.mutex();
        mutex.lock(me).unwrap();
        if me == 1 {
            shared.protected.set(1);
            shared.condition().signal(u32::MAX).unwrap();
        } else {
            while shared.protected.get() == 0 {
                shared.condition().wait(&mutex, me, None).unwrap();
            }
        }
        mutex.unlock(me).unwrap();
    };
    check(3, false, 2, body, |_| {});
}

#[test]
fn loom_each_post_of_a_semaphore_lets_one_through() {
    let body = |shared: &Shared, me| match me {
        1 => (0..2).for_each(|_| shared.semaphore().post(1).unwrap()),
        _ => assert!(shared.semaphore().take(None).unwrap()),
    };
    check(3, false, 2, body, |shared| assert_eq!(shared.semaphore().value().unwrap(), 0));
}

#[test]
fn loom_a_reader_writer_lock_excludes_writers_from_all() {
    let body = |shared: &Shared, me| {
        let lock = shared.rwlock();
        if me == 1 {
            assert!(lock.try_read().unwrap() || lock.read_in_turn(me, None, || {}).unwrap());
            // A writer at the same time would be a data race.
            shared.protected.get();
            lock.unlock_read().unwrap();
        } else {
            assert!(lock.write(me, None, &|| None).unwrap());
            shared.count();
            lock.unlock_write(me).unwrap();
        }
    };
    check(2, false, 7, body, |shared| assert_eq!(shared.protected.get(), 1));
    check(3, false, 2, body, |shared| assert_eq!(shared.protected.get(), 2));
}

/// A word of 8 bytes whose exchanges and ordered loads are in one order.
struct Ordered(AtomicU64);

impl Word64 for Ordered {
    fn load(&self, order: Ordering) -> u64 {
        if order == Ordering::SeqCst {
            fence(order);
        }
        self.0.load(Ordering::Acquire)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn replace(&self, old: u64, new: u64) -> bool {
        let replaced = self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
        fence(Ordering::SeqCst);
        replaced.is_ok()
    }
    fn full_fence() {
        fence(Ordering::SeqCst);
    }
    fn release_fence() {
        fence(Ordering::Release);
    }
}

#[test]
fn loom_threads_meet_in_a_barrier_again_and_again() {
    let body = |shared: &Shared, me: u32| {
        let barrier = shared.barrier();
        for turn in 1..=2 {
            // Without the barrier these would race.
            if turn % 2 == me % 2 {
                shared.count();
            }
            barrier.wait().unwrap();
        }
    };
    check(2, false, 4, body, |shared| assert_eq!(shared.protected.get(), 2));
}

#[test]
fn loom_of_more_threads_than_a_barrier_counts_all_pass_in_rounds_of_as_many() {
    let body = |shared: &Shared, _| {
        let [begun, passed, last] = &shared.seen;
        begun.fetch_add(1, Ordering::SeqCst);
        let is_last = shared.barrier().wait().unwrap();
        last.fetch_add(is_last.into(), Ordering::SeqCst);
        let passed = passed.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(begun.load(Ordering::SeqCst) >= passed.next_multiple_of(2));
    };
    check(4, false, 1, body, |shared| assert_eq!(shared.seen[2].load(Ordering::SeqCst), 2));
}

#[test]
fn loom_of_more_threads_than_a_reduction_counts_each_gets_the_sum_of_its_round() {
    // Three threads meet six times: if one is late to take its result, the others are two rounds ahead.
    let body = |shared: &Shared, _| {
        loop {
            let nth = shared.seen[0].fetch_add(1, Ordering::SeqCst);
            if nth >= 6 {
                break;
            }
            let number = 1_u64 << nth;
            let partner = shared.reduction().reduce(Reduce::Sum, number).unwrap() - number;
            assert!(partner.is_power_of_two() && partner != number);
            shared.seen[1].fetch_add(partner as u32, Ordering::SeqCst);
        }
    };
    // Each is the partner of one.
    check(3, false, 1, body, |shared| assert_eq!(shared.seen[1].load(Ordering::SeqCst), (1 << 6) - 1));
}

#[test]
fn loom_a_thread_that_takes_its_result_at_once_is_counted_among_those_that_have() {
    // The third round is where the first left its count.
    let body = |shared: &Shared, me: u32| {
        for round in 0..3 {
            let sum = shared.reduction().reduce(Reduce::Sum, u64::from(me) << (8 * round)).unwrap();
            assert_eq!(sum, 3 << (8 * round));
        }
    };
    check(2, false, 2, body, |_| {});
}

#[test]
fn loom_who_waits_for_a_round_is_woken_at_its_end() {
    let body = |shared: &Shared, me: u32| {
        let [word, arrived, ..] = &shared.words;
        let round = Round { waits: &shared.waits, word };
        let now = round.now();
        if me == 1 {
            shared.count();
        }
        if arrived.add(1) == 2 {
            round.end(now);
        } else {
            assert!(round.wait(now, None).unwrap());
        }
        assert_eq!(shared.protected.get(), 1);
    };
    check(3, false, 3, body, |_| {});
}

#[test]
fn loom_one_thread_does_what_is_done_once_and_the_others_see_it() {
    let body = |shared: &Shared, me| {
        let [state, bell, ..] = &shared.words;
        let once = Once { state, bell: Bell { waits: &shared.waits, word: bell }, object: NAME };
        if once.begin(me).unwrap() {
            shared.count();
            once.end(me, true).unwrap();
        }
        assert_eq!(shared.protected.get(), 1);
    };
    check(3, false, 3, body, |_| {});
}

/// A queue of two values.
struct Queue {
    top: AtomicU64,
    bottom: AtomicU64,
    slots: [AtomicU64; 2],
}

impl Word64 for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
    fn replace(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
    fn full_fence() {
        fence(Ordering::SeqCst);
    }
    fn release_fence() {
        fence(Ordering::Release);
    }
}

impl DequeWords for Queue {
    type Word = AtomicU64;
    fn top(&self) -> &AtomicU64 {
        &self.top
    }
    fn bottom(&self) -> &AtomicU64 {
        &self.bottom
    }
    fn capacity(&self) -> u64 {
        2
    }
    fn slot(&self, number: u64) -> Option<&AtomicU64> {
        self.slots.get(number as usize % 2)
    }
}

#[test]
fn loom_each_value_of_a_queue_is_taken_once() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let word = || AtomicU64::new(0);
        let queue = Arc::new(Queue { top: word(), bottom: word(), slots: [word(), word()] });
        let thieves: Vec<_> = (0..2)
            .map(|_| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || match deque::steal(&*queue).unwrap() {
                    Steal::Taken(value) => value,
                    _ => 0,
                })
            })
            .collect();
        let mut taken = 0;
        let mut take = |value: Option<u64>| {
            let value = value.unwrap_or(0);
            assert_eq!(taken & value, 0);
            taken |= value;
        };
        assert!(deque::push(&*queue, 1).unwrap());
        assert!(deque::push(&*queue, 2).unwrap());
        take(deque::pop(&*queue).unwrap());
        if deque::push(&*queue, 4).unwrap() {
            take(deque::pop(&*queue).unwrap());
        }
        for thief in thieves {
            take(Some(thief.join().unwrap()));
        }
        while let Some(value) = deque::pop(&*queue).unwrap() {
            take(Some(value));
        }
        assert!(taken == 7 || taken == 3);
    });
}
