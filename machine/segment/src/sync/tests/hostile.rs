//! Words that anybody may have stored to.

use core::time::Duration;
use std::thread;

use mapwire_host::waiting::now_ns;

use super::processes::Random;
use super::*;
use crate::layout::{NUMBERED_AT, THREADS_AT};
use crate::sync::{FREED, Reduce};

const AT: u64 = 9 << 20;

/// Uses every kind of object once, whatever comes of it.
fn use_all(objects: &Objects, kind: u64) {
    let soon = now_ns() + 2_000_000;
    let place = |nth: u64| AT + 256 * nth;
    let mutex = objects.mutex(place(0)).unwrap();
    match kind {
        0 => drop(mutex.lock()),
        1 => drop(mutex.lock_until(soon)),
        2 => drop(mutex.unlock()),
        3 => drop(mutex.try_lock()),
        4 => drop(objects.condition(place(1)).unwrap().wait_until(&mutex, soon)),
        5 => drop(objects.condition(place(1)).unwrap().broadcast()),
        6 => drop(objects.rwlock(place(2)).unwrap().write_until(soon)),
        7 => drop(objects.rwlock(place(2)).unwrap().read()),
        8 => drop(objects.rwlock(place(2)).unwrap().unlock()),
        9 => drop(objects.semaphore(place(3)).unwrap().take_until(soon)),
        10 => drop(objects.semaphore(place(3)).unwrap().post(2)),
        11 => drop(objects.flag(place(4)).unwrap().wait_until(9, soon)),
        12 => objects.flag(place(4)).unwrap().set(9),
        13 => drop(objects.barrier_at(place(5)).unwrap().wait()),
        14 => drop(objects.once(place(6)).unwrap().begin()),
        15 => drop(objects.once(place(6)).unwrap().end(false)),
        16 => drop(objects.reduction(place(7)).unwrap().reduce(Reduce::Min, -1_i64)),
        17 => drop(objects.queue(place(8)).unwrap().push(3)),
        18 => drop(objects.queue(place(8)).unwrap().pop()),
        19 => drop(objects.queue(place(8)).unwrap().steal()),
        20 => drop(objects.lock(0)),
        21 => drop(objects.unlock(0)),
        22 => drop(objects.barrier(0)),
        23 => drop(objects.broadcast(0, 1)),
        24 => drop(objects.set_participants(2)),
        25 => drop(objects.waited_barriers()),
        26 => drop(objects.waiting_threads()),
        _ => drop(mutex.destroy()),
    }
}

#[test]
fn random_stores_into_objects_that_are_used_cost_errors_and_waits_that_end_with_the_job() {
    let vigil = Word::default();
    let segment = segment_of(vigil.clone());
    let objects = &ranks(&segment, 2, 1);
    let stop = &AtomicU32::new(0);
    let seeds: Vec<_> = (0..5).map(|_| Random::new()).collect();
    thread::scope(|scope| {
        for (number, mut random) in seeds.into_iter().enumerate() {
            let segment = &segment;
            scope.spawn(move || {
                while stop.load(Ordering::Relaxed) == 0 {
                    if number > 0 {
                        use_all(&objects[number % 2], random.below(28));
                        continue;
                    }
                    let start = [AT, AT, NUMBERED_AT, NUMBERED_AT + (256 << 10), THREADS_AT][random.below(5) as usize];
                    let bytes = if start == AT { 256 * 9 } else { 1024 };
                    let value = match random.below(4) {
                        0 => 0,
                        1 => FREED,
                        2 => 1 << random.below(32),
                        _ => random.next() as u32,
                    };
                    segment.word32(start + 4 * random.below(bytes / 4)).unwrap().store(value, Ordering::Relaxed);
                }
            });
        }
        // Some wait for what never comes.
        thread::sleep(Duration::from_millis(1_500));
        vigil.0.store(2, Ordering::Relaxed);
        stop.store(1, Ordering::Relaxed);
    });
}
