//! Model checks: every interleaving that the memory model allows, of the ring's protocol and of the doorbell rule.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p mapwire-transport --lib loom`. The cursors are the very
//! code that runs over shared memory; only the words are loom's. A payload is a loom cell, so a slot that is read
//! before it is published, or overwritten before it is released, is reported as a data race.

use core::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::cursor::{BULK_ALIGN_BYTES, ConsumerCursor, ProducerCursor, RESTARTED, RingWords, Shape};

/// Two slots, and a bulk area of two units.
const SHAPE: Shape = Shape { slots: 2, bulk_bytes: 2 * BULK_ALIGN_BYTES, near_bytes: BULK_ALIGN_BYTES };
const UNIT: u32 = BULK_ALIGN_BYTES as u32;
/// A bulk area of four units, of which two are near: a payload of two units that would begin at the second restarts at the first.
const WIDE_SHAPE: Shape = Shape { slots: 2, bulk_bytes: 4 * BULK_ALIGN_BYTES, near_bytes: 2 * BULK_ALIGN_BYTES };

struct Ring {
    slots: [AtomicU64; 2],
    released: AtomicU32,
    inline: [UnsafeCell<u64>; 2],
    bulk: [UnsafeCell<u64>; 4],
}

// SAFETY: loom's cells report any unsynchronised access; that none happens is what the models check.
unsafe impl Sync for Ring {}
// SAFETY: as above.
unsafe impl Send for Ring {}

impl RingWords for Ring {
    fn load_slot(&self, index: usize, order: Ordering) -> u64 {
        self.slots[index].load(order)
    }
    fn store_slot(&self, index: usize, word: u64, order: Ordering) {
        self.slots[index].store(word, order);
    }
    fn load_released(&self, order: Ordering) -> u32 {
        self.released.load(order)
    }
    fn store_released(&self, count: u32, order: Ordering) {
        self.released.store(count, order);
    }
}

impl Ring {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slots: [AtomicU64::new(0), AtomicU64::new(0)],
            released: AtomicU32::new(0),
            inline: [UnsafeCell::new(0), UnsafeCell::new(0)],
            bulk: [(); 4].map(|()| UnsafeCell::new(0)),
        })
    }

    fn try_push(&self, cursor: &mut ProducerCursor, value: u64, bulk_bytes: u32) -> bool {
        let Some(reserved) = cursor.reserve(self, bulk_bytes).unwrap() else {
            return false;
        };
        for cell in self.cells(reserved.slot, reserved.bulk_offset, bulk_bytes) {
            // SAFETY: the place was reserved; loom reports it if the consumer still reads there.
            cell.with_mut(|data| unsafe { *data = value });
        }
        cursor.publish(self, reserved, bulk_bytes);
        true
    }

    fn try_pop(&self, cursor: &mut ConsumerCursor) -> Option<u64> {
        let Some((slot, payload)) = cursor.ready(self) else {
            if cursor.unannounced() {
                cursor.announce(self);
            }
            return None;
        };
        let (bulk_bytes, restarted) = (payload & !RESTARTED, payload & RESTARTED != 0);
        let (bulk_offset, bulk_end) = cursor.place(bulk_bytes, restarted);
        let mut values = self
            .cells(slot, bulk_offset, bulk_bytes)
            .iter()
            // SAFETY: the slot is published; loom reports it if the producer still writes there.
            .map(|cell| cell.with(|data| unsafe { *data }));
        let value = values.next();
        assert!(values.all(|other| Some(other) == value));
        cursor.release(self, bulk_end);
        value
    }

    /// Where a payload of `bulk_bytes` lies; of 0 in its slot.
    fn cells(&self, slot: usize, bulk_offset: usize, bulk_bytes: u32) -> &[UnsafeCell<u64>] {
        match bulk_bytes {
            0 => &self.inline[slot..=slot],
            _ => &self.bulk[bulk_offset / UNIT as usize..][..bulk_bytes.div_ceil(UNIT) as usize],
        }
    }
}

/// The producer sends packets of these sizes, the consumer takes them all; each is full and wraps on the way.
fn exchange(shape: Shape, sizes: &'static [u32]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let ring = Ring::new();
        let theirs = Arc::clone(&ring);
        let producer = thread::spawn(move || {
            let mut cursor = ProducerCursor::new(shape);
            for (number, &size) in sizes.iter().enumerate() {
                while !theirs.try_push(&mut cursor, 100 + number as u64, size) {
                    thread::yield_now();
                }
            }
        });
        let mut cursor = ConsumerCursor::new(shape);
        for number in 0..sizes.len() {
            loop {
                if let Some(value) = ring.try_pop(&mut cursor) {
                    assert_eq!(value, 100 + number as u64);
                    break;
                }
                thread::yield_now();
            }
        }
        assert_eq!(ring.try_pop(&mut cursor), None);
        producer.join().unwrap();
    });
}

#[test]
fn loom_packets_in_slots_arrive_in_order_through_a_full_ring_that_wraps() {
    exchange(SHAPE, &[0, 0, 0, 0]);
}

#[test]
fn loom_packets_in_the_bulk_area_are_never_overwritten_before_release() {
    exchange(SHAPE, &[UNIT, UNIT, UNIT, UNIT]);
}

#[test]
fn loom_slots_and_bulk_area_mix() {
    exchange(SHAPE, &[UNIT, 0, UNIT, 0]);
}

#[test]
fn loom_a_bulk_area_restarts_where_nothing_is_overwritten_before_release() {
    exchange(WIDE_SHAPE, &[UNIT, 2 * UNIT, UNIT, 2 * UNIT]);
}

#[test]
fn loom_payloads_of_several_units_leave_out_the_end_of_the_bulk_area_and_wait_for_room() {
    const FAR_SHAPE: Shape = Shape { near_bytes: WIDE_SHAPE.bulk_bytes, ..WIDE_SHAPE };
    // The third does not fit behind the second, and takes the place of the first; the fourth waits for it.
    exchange(FAR_SHAPE, &[2 * UNIT, UNIT, 2 * UNIT, 2 * UNIT]);
}

/// Marks of a bell, as in [`bells`](crate::bells).
const MARKS: u32 = 3;
const ASLEEP: u32 = 1;
const RUNG: u32 = 2;
const RING: u32 = 4;

/// A bell, and what a futex does with it.
struct Bell {
    word: AtomicU32,
    queue: Mutex<()>,
    wake: Condvar,
}

impl Bell {
    fn new() -> Self {
        Self { word: AtomicU32::new(0), queue: Mutex::new(()), wake: Condvar::new() }
    }

    fn mark(&self, mark: u32) -> u32 {
        let marked = |seen: u32| Some(seen & !MARKS | mark);
        let (set, fetch) = (Ordering::SeqCst, Ordering::Relaxed);
        self.word.fetch_update(set, fetch, marked).unwrap() & !MARKS | mark
    }

    /// The mark that was there; with [`ASLEEP`] one thread was woken.
    fn ring(&self) -> u32 {
        let rung = |seen: u32| (seen & MARKS == ASLEEP).then(|| (seen ^ ASLEEP ^ RUNG) + RING);
        let (set, fetch) = (Ordering::SeqCst, Ordering::Relaxed);
        match self.word.fetch_update(set, fetch, rung) {
            Ok(seen) => {
                let _held = self.queue.lock().unwrap();
                self.wake.notify_one();
                seen & MARKS
            }
            Err(seen) => seen & MARKS,
        }
    }

    /// Wakes whoever sleeps here, marked or not.
    fn wake(&self) {
        let _held = self.queue.lock().unwrap();
        self.word.fetch_add(RING, Ordering::SeqCst);
        self.wake.notify_all();
    }

    /// Sleeps while the bell is `old`, as a futex does: compared and queued in one step, and woken by a ring alone.
    fn wait(&self, old: u32) {
        let held = self.queue.lock().unwrap();
        if self.word.load(Ordering::Acquire) == old {
            drop(self.wake.wait(held).unwrap());
        }
    }
}

/// The words of one rank's line on the board. The order of steps is that of [`Board::ring`](crate::board::Board::ring),
/// `leave_polling` and `sleep`.
struct Rank {
    /// Threads that poll, a count of the process's own.
    pollers: AtomicU32,
    polling: AtomicU32,
    waiting: Bell,
    service: Bell,
}

impl Rank {
    /// A rank in which one thread polls.
    fn polling() -> Arc<Self> {
        Arc::new(Self {
            pollers: AtomicU32::new(1),
            polling: AtomicU32::new(1),
            waiting: Bell::new(),
            service: Bell::new(),
        })
    }

    fn enter(&self) {
        if self.pollers.fetch_add(1, Ordering::AcqRel) == 0 {
            self.polling.store(1, Ordering::Release);
        }
    }

    fn leave(&self) {
        if self.pollers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.polling.store(0, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }

    /// After publishing: wakes a thread of the rank unless somebody there polls.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.polling.load(Ordering::Relaxed) == 0 && self.waiting.ring() == 0 {
            self.service.ring();
        }
    }

    /// Sleeps on `bell` until `look` says so; it is called once more after the mark.
    fn sleep(bell: &Bell, mut look: impl FnMut() -> bool) {
        loop {
            let seen = bell.mark(ASLEEP);
            fence(Ordering::SeqCst);
            if look() {
                break;
            }
            bell.wait(seen);
        }
        bell.mark(0);
    }
}

#[test]
fn loom_a_sleeper_never_misses_a_packet() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Ring::new();
        let rank = Rank::polling();
        let (their_ring, their_rank) = (Arc::clone(&ring), Arc::clone(&rank));
        let sender = thread::spawn(move || {
            let mut cursor = ProducerCursor::new(SHAPE);
            for number in 0..2 {
                assert!(their_ring.try_push(&mut cursor, number, 0));
                their_rank.ring();
            }
        });
        // A lost wake-up would leave this loop asleep for ever, which loom reports as a deadlock.
        let mut cursor = ConsumerCursor::new(SHAPE);
        for number in 0..2 {
            loop {
                if let Some(value) = ring.try_pop(&mut cursor) {
                    assert_eq!(value, number);
                    break;
                }
                rank.leave();
                Rank::sleep(&rank.waiting, || cursor.ready(&*ring).is_some());
                rank.enter();
            }
        }
        sender.join().unwrap();
    });
}

/// Two packets, of which a thread that waits takes the first and goes on, while the service thread sleeps.
#[test]
fn loom_what_a_thread_leaves_that_goes_on_wakes_the_service_thread() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let sent = Arc::new(AtomicU32::new(0));
        let taken = Arc::new(AtomicU32::new(0));
        let rank = Arc::new(Rank {
            pollers: AtomicU32::new(0),
            polling: AtomicU32::new(0),
            waiting: Bell::new(),
            service: Bell::new(),
        });
        let take = |sent: &AtomicU32, taken: &AtomicU32| {
            let seen = sent.load(Ordering::SeqCst);
            taken.fetch_max(seen, Ordering::SeqCst);
            seen
        };
        let (their_sent, their_rank) = (Arc::clone(&sent), Arc::clone(&rank));
        let sender = thread::spawn(move || {
            for _ in 0..2 {
                their_sent.fetch_add(1, Ordering::SeqCst);
                their_rank.ring();
            }
        });
        let (my_sent, my_taken, my_rank) = (Arc::clone(&sent), Arc::clone(&taken), Arc::clone(&rank));
        let waiter = thread::spawn(move || {
            Rank::sleep(&my_rank.waiting, || take(&my_sent, &my_taken) > 0);
            // The end of a wait: polls, leaves, and looks once more.
            my_rank.enter();
            my_rank.leave();
            if take(&my_sent, &my_taken) == 2 {
                // Nothing is left to serve; only this model's thread must end.
                my_rank.service.wake();
            }
        });
        // The service thread: asleep for ever, which loom reports, if both packets were sent and nobody took the second.
        Rank::sleep(&rank.service, || take(&sent, &taken) == 2 || taken.load(Ordering::SeqCst) == 2);
        sender.join().unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn loom_what_is_published_while_two_threads_begin_and_end_to_poll_is_seen_or_rings() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let full = Arc::new(AtomicBool::new(false));
        let rank = Rank::polling();
        rank.service.mark(ASLEEP);
        let (their_full, their_rank) = (Arc::clone(&full), Arc::clone(&rank));
        let sender = thread::spawn(move || {
            their_full.store(true, Ordering::Release);
            their_rank.ring();
        });
        let (other_full, other_rank) = (Arc::clone(&full), Arc::clone(&rank));
        let other = thread::spawn(move || {
            other_rank.enter();
            other_rank.leave();
            other_full.load(Ordering::Acquire)
        });
        rank.leave();
        let seen = full.load(Ordering::Acquire);
        let seen = other.join().unwrap() || seen;
        sender.join().unwrap();
        let rung = rank.service.word.load(Ordering::Acquire) & MARKS == RUNG;
        drop((full, rank));
        if !seen && !rung {
            panic!("nobody looks");
        }
    });
}

/// Without a sender, as loom's fences forget the order of stores that a third thread has read.
#[test]
fn loom_the_mark_of_polling_never_outlasts_the_threads_that_poll() {
    loom::model(|| {
        let rank = Rank::polling();
        let other_rank = Arc::clone(&rank);
        let other = thread::spawn(move || {
            other_rank.enter();
            other_rank.leave();
        });
        rank.leave();
        other.join().unwrap();
        let marked = rank.polling.load(Ordering::Acquire) != 0;
        drop(rank);
        if marked {
            panic!("nobody polls, and nobody is rung");
        }
    });
}

/// The rule without its second look at the rings; panics in an execution that nobody would wake.
#[test]
#[should_panic(expected = "asleep for ever")]
fn loom_finds_the_lost_wake_up_of_a_sleeper_that_does_not_check_again() {
    loom::model(|| {
        let full = Arc::new(AtomicBool::new(false));
        let rank = Rank::polling();
        let (their_full, their_rank) = (Arc::clone(&full), Arc::clone(&rank));
        let sender = thread::spawn(move || {
            their_full.store(true, Ordering::Release);
            their_rank.ring();
        });
        let seen = full.load(Ordering::Acquire);
        if !seen {
            rank.leave();
            rank.waiting.mark(ASLEEP);
        }
        sender.join().unwrap();
        let rung = rank.waiting.word.load(Ordering::Acquire) & MARKS == RUNG;
        // Not an assertion on the spot: loom must first be rid of its objects.
        drop((full, rank));
        if !seen && !rung {
            panic!("asleep for ever");
        }
    });
}
