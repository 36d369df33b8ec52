//! Mutexes, reader-writer locks and condition variables, by threads.

use core::time::Duration;
use std::collections::VecDeque;
use std::thread;
use std::time::Instant;

use mapwire_host::waiting::now_ns;

use super::*;
use crate::sync::SyncError;

const AT: u64 = 9 << 20;
const OTHER: u64 = AT + 64;
const DATA: u64 = AT + 4096;

fn soon() -> u64 {
    now_ns() + 20_000_000
}

#[test]
fn a_mutex_excludes_threads_whichever_way_they_lock() {
    let objects = alone();
    let word = objects.segment().word64(DATA).unwrap();
    thread::scope(|scope| {
        for way in 0..4 {
            let mutex = objects.mutex(AT).unwrap();
            scope.spawn(move || {
                for _ in 0..3_000 {
                    match way {
                        0 => while !mutex.try_lock().unwrap() {},
                        1 => while !mutex.lock_until(now_ns() + 10_000).unwrap() {},
                        _ => mutex.lock().unwrap(),
                    }
                    let seen = word.load(Ordering::Relaxed);
                    core::hint::spin_loop();
                    word.store(seen + 1, Ordering::Relaxed);
                    mutex.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(word.load(Ordering::Relaxed), 12_000);
}

#[test]
fn a_mutex_that_others_take_without_a_pause_is_handed_to_whoever_waits() {
    let objects = alone();
    let mutex = objects.mutex(AT).unwrap();
    let stop = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while stop.load(Ordering::Relaxed) == 0 {
                    mutex.lock().unwrap();
                    // Held nearly always.
                    (0..2_000).for_each(|_| core::hint::spin_loop());
                    mutex.unlock().unwrap();
                }
            });
        }
        // Each of these would starve without the promise.
        for _ in 0..20 {
            mutex.lock().unwrap();
            mutex.unlock().unwrap();
        }
        stop.store(1, Ordering::Relaxed);
    });
}

#[test]
fn misuse_of_a_mutex_is_named() {
    let objects = alone();
    let text = |error: SyncError| error.to_string();
    for offset in [AT + 4, BYTES - 8, u64::MAX - 7] {
        assert!(matches!(objects.mutex(offset), Err(SyncError::Misplaced { .. })));
    }
    let mutex = objects.mutex(AT).unwrap();
    let name = format!("the mutex at {:#x}", objects.segment().base() + AT as usize);
    assert!(text(mutex.unlock().unwrap_err()).contains(&format!("does not hold {name}: nobody")));
    mutex.lock().unwrap();
    assert!(!mutex.try_lock().unwrap());
    assert!(text(mutex.lock().unwrap_err()).contains(&format!("already holds {name}")));
    assert!(text(mutex.lock_until(0).unwrap_err()).contains("already holds"));
    assert!(text(mutex.destroy().unwrap_err()).contains("is locked, and cannot be destroyed"));
    let late = thread::scope(|scope| scope.spawn(|| mutex.lock_until(soon())).join().unwrap());
    assert!(!late.unwrap());
    mutex.unlock().unwrap();
    mutex.destroy().unwrap();
    for result in [mutex.lock(), mutex.unlock(), mutex.try_lock().map(drop)] {
        assert!(text(result.unwrap_err()).contains(&format!("{name} is destroyed, or its memory has been freed")));
    }
    mutex.init();
    mutex.lock().unwrap();
    mutex.unlock().unwrap();
}

#[test]
fn readers_share_and_writers_exclude() {
    let objects = alone();
    let (a, b) = (objects.segment().word64(DATA).unwrap(), objects.segment().word64(DATA + 8).unwrap());
    thread::scope(|scope| {
        for number in 0..4 {
            let lock = objects.rwlock(AT).unwrap();
            scope.spawn(move || {
                for turn in 0..2_000 {
                    if (number + turn) % 4 == 0 {
                        lock.write().unwrap();
                        let seen = a.load(Ordering::Relaxed);
                        a.store(seen + 1, Ordering::Relaxed);
                        b.store(seen + 1, Ordering::Relaxed);
                    } else {
                        lock.read().unwrap();
                        assert_eq!(a.load(Ordering::Relaxed), b.load(Ordering::Relaxed));
                    }
                    lock.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(a.load(Ordering::Relaxed), 2_000);
}

#[test]
fn a_writer_gets_a_lock_that_readers_hold_one_after_the_other() {
    let objects = alone();
    let lock = objects.rwlock(AT).unwrap();
    let stop = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while stop.load(Ordering::Relaxed) == 0 {
                    lock.read().unwrap();
                    thread::sleep(Duration::from_micros(200));
                    lock.unlock().unwrap();
                }
            });
        }
        for _ in 0..20 {
            lock.write().unwrap();
            lock.unlock().unwrap();
        }
        stop.store(1, Ordering::Relaxed);
    });
}

#[test]
fn misuse_of_a_reader_writer_lock_is_named() {
    let objects = alone();
    let lock = objects.rwlock(AT).unwrap();
    assert!(matches!(lock.unlock(), Err(SyncError::NotHeld { holder: None, .. })));
    lock.read().unwrap();
    assert!(matches!(lock.write(), Err(SyncError::Held(_))));
    assert!(!lock.try_write().unwrap() && lock.try_read().unwrap());
    lock.unlock().unwrap();
    thread::scope(|scope| {
        assert!(!scope.spawn(|| lock.try_write()).join().unwrap().unwrap());
        // While a writer waits, no reader reads again.
        let writer = scope.spawn(|| lock.write_until(now_ns() + 300_000_000));
        while lock.try_read().unwrap() {
            lock.unlock().unwrap();
        }
        assert!(matches!(lock.read(), Err(SyncError::Held(_))));
        assert!(!writer.join().unwrap().unwrap());
        assert!(lock.try_read().unwrap());
        lock.unlock().unwrap();
    });
    lock.unlock().unwrap();
    lock.destroy().unwrap();
    assert!(matches!(lock.read(), Err(SyncError::Freed(_))));
    assert!(matches!(lock.write(), Err(SyncError::Freed(_))));
}

#[test]
fn a_reader_that_has_ended_is_named_to_writers_and_to_all_that_come_later() {
    let objects = alone();
    let lock = objects.rwlock(AT).unwrap();
    let tid = thread::scope(|scope| {
        let read = || {
            lock.read().unwrap();
            rustix::thread::gettid().as_raw_nonzero()
        };
        scope.spawn(read).join().unwrap()
    });
    for result in [lock.write(), lock.write(), lock.read()] {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(&format!("is held by thread {tid} of rank 0")), "{error}");
    }
}

#[test]
fn a_thread_reads_any_number_of_locks_at_a_time() {
    let objects = alone();
    let locks: Vec<_> = (0..9).map(|nth| objects.rwlock(AT + 64 * nth).unwrap()).collect();
    locks.iter().for_each(|lock| lock.read().unwrap());
    locks.iter().for_each(|lock| assert!(!lock.try_write().unwrap()));
    locks.iter().for_each(|lock| lock.unlock().unwrap());
    locks.iter().for_each(|lock| assert!(matches!(lock.unlock(), Err(SyncError::NotHeld { .. }))));
    locks.iter().for_each(|lock| assert!(lock.try_write().unwrap()));
    locks.iter().for_each(|lock| lock.unlock().unwrap());
}

#[test]
fn what_a_thread_reads_in_any_number_is_neither_its_forked_childs_nor_another_memorys() {
    let read_all = |objects: &Objects| {
        (0..9).for_each(|nth| objects.rwlock(AT + 64 * nth).unwrap().read().unwrap());
    };
    let unlocks_none = |objects: &Objects| {
        let unlock = |nth: u64| objects.rwlock(AT + 64 * nth).unwrap().unlock();
        (0..9).all(|nth| matches!(unlock(nth), Err(SyncError::NotHeld { .. })))
    };
    let objects = alone();
    read_all(&objects);
    let mut child = super::Child::start(|| if unlocks_none(&objects) { 0 } else { 1 });
    assert_eq!(child.code(), 0);
    let base = objects.segment().base();
    drop(objects);
    // At the same addresses, read by another thread.
    let objects = ranks(&segment_at(base, Word::default()), 1, 1).remove(0);
    thread::scope(|scope| scope.spawn(|| read_all(&objects)).join().unwrap());
    assert!(unlocks_none(&objects));
}

#[test]
fn items_pass_through_a_bounded_buffer_of_a_mutex_and_two_conditions() {
    let objects = alone();
    let items = std::sync::Mutex::new(VecDeque::new());
    let (mutex, full, empty) =
        (objects.mutex(AT).unwrap(), objects.condition(OTHER).unwrap(), objects.condition(OTHER + 16).unwrap());
    let took: Vec<u64> = thread::scope(|scope| {
        for producer in 0..2_u64 {
            let items = &items;
            scope.spawn(move || {
                for item in 0..1_000 {
                    mutex.lock().unwrap();
                    while items.lock().unwrap().len() == 3 {
                        full.wait(&mutex).unwrap();
                    }
                    items.lock().unwrap().push_back(producer * 1_000 + item);
                    empty.signal().unwrap();
                    mutex.unlock().unwrap();
                }
            });
        }
        let consume = || {
            let mut took = Vec::new();
            for _ in 0..1_000 {
                mutex.lock().unwrap();
                let item = loop {
                    if let Some(item) = items.lock().unwrap().pop_front() {
                        break item;
                    }
                    empty.wait(&mutex).unwrap();
                };
                took.push(item);
                full.signal().unwrap();
                mutex.unlock().unwrap();
            }
            took
        };
        let consumers = [scope.spawn(consume), scope.spawn(consume)];
        consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect()
    });
    let mut took = took;
    took.sort_unstable();
    assert!(took.into_iter().eq(0..2_000));
}

#[test]
fn a_wait_without_the_mutex_is_refused_and_one_without_a_signal_ends_in_time() {
    let objects = alone();
    let (mutex, condition) = (objects.mutex(AT).unwrap(), objects.condition(OTHER).unwrap());
    assert!(matches!(condition.wait(&mutex), Err(SyncError::NotHeld { .. })));
    mutex.lock().unwrap();
    let begun = Instant::now();
    assert!(!condition.wait_until(&mutex, soon()).unwrap());
    assert!(begun.elapsed() >= Duration::from_millis(20));
    // It has the mutex again.
    mutex.unlock().unwrap();
    condition.destroy();
    assert!(matches!(condition.signal(), Err(SyncError::Freed(_))));
}

#[test]
fn a_wait_for_a_mutex_ends_when_a_rank_is_gone() {
    let vigil = Word::default();
    let objects = ranks(&segment_of(vigil.clone()), 1, 1).remove(0);
    let mutex = objects.mutex(AT).unwrap();
    mutex.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| mutex.lock());
        while objects.waiting_threads().is_empty() {
            thread::yield_now();
        }
        vigil.0.store(5, Ordering::Relaxed);
        assert!(matches!(waiter.join().unwrap(), Err(SyncError::Segment(SegmentError::RankGone(4)))));
    });
}
