//! Semaphores, flags, barriers, reductions, queues and what is done once, by threads.

use std::sync::atomic::AtomicU64;
use std::thread;

use mapwire_host::waiting::now_ns;

use super::*;
use crate::sync::{Reduce, SEMAPHORE_MAX, Steal, SyncError};

const AT: u64 = 9 << 20;
const DATA: u64 = AT + 4096;

fn soon() -> u64 {
    now_ns() + 20_000_000
}

#[test]
fn a_semaphore_lets_through_as_many_as_were_posted() {
    let objects = alone();
    let semaphore = objects.semaphore(AT).unwrap();
    semaphore.init(3).unwrap();
    let taken = AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..3 {
            let taken = &taken;
            scope.spawn(move || {
                for _ in 0..1_000 {
                    match number {
                        0 => while !semaphore.take_until(soon()).unwrap() {},
                        _ => semaphore.take().unwrap(),
                    }
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        (0..999).for_each(|_| semaphore.post(3).unwrap());
    });
    assert_eq!((taken.load(Ordering::Relaxed), semaphore.value().unwrap()), (3_000, 0));
    assert!(!semaphore.try_take().unwrap() && !semaphore.take_until(soon()).unwrap());
    semaphore.post(SEMAPHORE_MAX).unwrap();
    let error = semaphore.post(1).unwrap_err().to_string();
    assert!(error.contains("would exceed 2147483647, its highest value"), "{error}");
    semaphore.destroy();
    assert!(matches!(semaphore.take(), Err(SyncError::Freed(_))));
}

#[test]
fn a_flag_shows_what_was_stored_before_it_was_set() {
    let objects = alone();
    let (there, back) = (objects.flag(AT).unwrap(), objects.flag(AT + 64).unwrap());
    let data = objects.segment().word64(DATA).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=2_000 {
                data.store(turn, Ordering::Relaxed);
                there.set(turn);
                assert!(back.wait(turn).unwrap() >= turn);
            }
        });
        for turn in 1..=2_000 {
            assert_eq!(there.wait(turn).unwrap(), turn);
            assert_eq!(data.load(Ordering::Relaxed), turn);
            assert_eq!(back.add(1), turn - 1);
        }
    });
    assert_eq!(there.wait_until(2_001, soon()).unwrap(), None);
    there.set(0);
    assert_eq!((there.value(), there.wait(0).unwrap()), (0, 0));
    there.destroy();
    assert!(matches!(there.wait(9), Err(SyncError::Freed(_))));
}

#[test]
fn a_barrier_of_some_threads_has_one_last_in_each_round() {
    let objects = alone();
    let barrier = objects.barrier_at(AT).unwrap();
    assert!(matches!(barrier.wait(), Err(SyncError::Damaged(_))));
    assert!(matches!(barrier.init(0), Err(SyncError::BadSize { .. })));
    barrier.init(3).unwrap();
    let (begun, last) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for round in 1..=500 {
                    begun.fetch_add(1, Ordering::Relaxed);
                    if barrier.wait().unwrap() {
                        last.fetch_add(1, Ordering::Relaxed);
                    }
                    assert!(begun.load(Ordering::Relaxed) >= 3 * round);
                }
            });
        }
    });
    assert_eq!(last.load(Ordering::Relaxed), 500);
}

/// Calls `meet` in 4 threads for each of the numbers from 1 to `calls`, an even one, so that two can always meet.
fn by_four_threads(calls: u64, meet: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(1);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number > calls {
                        break;
                    }
                    meet(number);
                }
            });
        }
    });
}

#[test]
fn of_more_threads_than_a_barrier_counts_as_many_pass_in_each_round_as_it_counts() {
    let objects = alone();
    let barrier = objects.barrier_at(AT).unwrap();
    barrier.init(2).unwrap();
    let (begun, passed, last) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    by_four_threads(20_000, |_| {
        begun.fetch_add(1, Ordering::SeqCst);
        last.fetch_add(barrier.wait().unwrap().into(), Ordering::SeqCst);
        let passed = passed.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(begun.load(Ordering::SeqCst) >= passed.next_multiple_of(2));
    });
    assert_eq!(last.into_inner(), 10_000);
}

#[test]
fn of_more_threads_than_a_reduction_counts_each_gets_what_is_made_in_its_round() {
    const CALLS: u64 = 20_000;
    let objects = alone();
    let reduction = objects.reduction(AT).unwrap();
    reduction.init(2).unwrap();
    let partners: Vec<_> = (0..=CALLS).map(|_| AtomicU64::new(0)).collect();
    by_four_threads(CALLS, |number| {
        let partner = reduction.reduce(Reduce::Sum, number).unwrap() - number;
        partners[number as usize].store(partner, Ordering::Relaxed);
    });
    for number in 1..=CALLS {
        let partner = partners[number as usize].load(Ordering::Relaxed);
        assert!((1..=CALLS).contains(&partner) && partner != number, "{number} met {partner}");
        assert_eq!(partners[partner as usize].load(Ordering::Relaxed), number);
    }
}

#[test]
fn reductions_give_all_threads_what_a_loop_would() {
    let objects = alone();
    let reduction = objects.reduction(AT).unwrap();
    reduction.init(4).unwrap();
    let value = |thread: i64, round: i64| (thread * 7919 + round * 104_729) % 1_000 - 500;
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for round in 0..200 {
                    let all = (0..4).map(|thread| value(thread, round));
                    let mine = value(thread, round);
                    let floats = all.clone().map(|value| value as f64 / 4.0);
                    assert_eq!(reduction.reduce(Reduce::Sum, mine).unwrap(), all.clone().sum());
                    assert_eq!(reduction.reduce(Reduce::Min, mine).unwrap(), all.clone().min().unwrap());
                    assert_eq!(
                        reduction.reduce(Reduce::Max, mine as u64).unwrap(),
                        all.map(|v| v as u64).max().unwrap()
                    );
                    let mine = mine as f64 / 4.0;
                    assert_eq!(reduction.reduce(Reduce::Sum, mine).unwrap(), floats.clone().sum());
                    assert_eq!(reduction.reduce(Reduce::Min, mine).unwrap(), floats.clone().fold(f64::MAX, f64::min));
                    assert_eq!(reduction.reduce(Reduce::Max, mine).unwrap(), floats.fold(f64::MIN, f64::max));
                }
            });
        }
    });
}

#[test]
fn another_reduction_in_the_same_round_is_refused() {
    let objects = alone();
    let reduction = objects.reduction(AT).unwrap();
    reduction.init(2).unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| reduction.reduce(Reduce::Sum, 1_u64));
        while objects.segment().word32(AT).unwrap().load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        assert!(matches!(reduction.reduce(Reduce::Min, 1_u64), Err(SyncError::OtherReduction(_))));
        assert!(matches!(reduction.reduce(Reduce::Sum, 1.0), Err(SyncError::OtherReduction(_))));
        assert_eq!(reduction.reduce(Reduce::Sum, 2_u64).unwrap(), 3);
        assert_eq!(first.join().unwrap().unwrap(), 3);
    });
}

#[test]
fn what_is_done_once_is_done_once_and_waited_for() {
    let objects = alone();
    let once = objects.once(AT).unwrap();
    let done = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                if once.begin().unwrap() {
                    assert!(matches!(once.begin(), Err(SyncError::Held(_))));
                    thread::sleep(core::time::Duration::from_millis(5));
                    done.fetch_add(1, Ordering::Relaxed);
                    once.end(done.load(Ordering::Relaxed) > 1).unwrap();
                    // Not done yet: another begins it.
                    if done.load(Ordering::Relaxed) == 1 && once.begin().unwrap() {
                        done.fetch_add(1, Ordering::Relaxed);
                        once.end(true).unwrap();
                    }
                }
                assert!(once.is_done() && done.load(Ordering::Relaxed) == 2);
            });
        }
    });
    assert!(matches!(once.end(true), Err(SyncError::NotHeld { holder: None, .. })));
}

#[test]
fn one_that_ends_while_it_does_what_is_done_once_is_named_to_those_that_wait() {
    let objects = alone();
    let once = objects.once(AT).unwrap();
    thread::scope(|scope| scope.spawn(|| once.begin()).join().unwrap()).unwrap();
    assert!(matches!(once.begin(), Err(SyncError::HolderEnded { .. })));
}

#[test]
fn each_value_of_a_queue_is_taken_once_by_its_owner_or_a_thief() {
    let objects = alone();
    let queue = objects.queue(AT).unwrap();
    for capacity in [0, 3, 1 << 40, 1 << 31] {
        assert!(queue.init(capacity).is_err());
    }
    queue.init(64).unwrap();
    let (left, values) = (AtomicU32::new(20_000), 20_000_u64);
    let taken: Vec<u64> = thread::scope(|scope| {
        let steal = || {
            let mut taken = Vec::new();
            while left.load(Ordering::Relaxed) > 0 {
                if let Steal::Taken(value) = queue.steal().unwrap() {
                    taken.push(value);
                    left.fetch_sub(1, Ordering::Relaxed);
                }
            }
            taken
        };
        let thieves = [scope.spawn(steal), scope.spawn(steal)];
        let mut taken = Vec::new();
        for value in 0..values {
            while !queue.push(value).unwrap() {
                taken.extend(queue.pop().unwrap());
            }
            if value % 3 == 0 {
                taken.extend(queue.pop().unwrap());
            }
        }
        while let Some(value) = queue.pop().unwrap() {
            taken.push(value);
        }
        left.fetch_sub(taken.len() as u32, Ordering::Relaxed);
        taken.extend(thieves.into_iter().flat_map(|thief| thief.join().unwrap()));
        taken
    });
    let mut taken = taken;
    taken.sort_unstable();
    assert!(taken.into_iter().eq(0..values));
}

#[test]
fn only_the_owner_of_a_queue_pushes_and_pops_until_it_ends() {
    let objects = alone();
    let queue = objects.queue(AT).unwrap();
    assert!(matches!(queue.push(1), Err(SyncError::Damaged(_))));
    queue.init(4).unwrap();
    thread::scope(|scope| {
        let owner = || {
            assert!(queue.push(1).unwrap() && queue.push(2).unwrap());
            thread::scope(|scope| {
                let stranger = scope.spawn(|| queue.pop()).join().unwrap();
                assert!(matches!(stranger, Err(SyncError::NotHeld { holder: Some(_), .. })));
            });
        };
        scope.spawn(owner).join().unwrap();
    });
    assert_eq!(queue.pop().unwrap(), Some(2));
    assert_eq!(queue.steal().unwrap(), Steal::Taken(1));
    assert_eq!((queue.steal().unwrap(), queue.pop().unwrap()), (Steal::Empty, None));
    assert!((0..4).all(|value| queue.push(value).unwrap()) && !queue.push(4).unwrap());
    queue.destroy();
    assert!(matches!(queue.steal(), Err(SyncError::Freed(_))));
}
