//! Locks and barriers of the shared memory, with several threads a rank.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mapwire::{Shared, SharedSlice};

use crate::harness::hostile::Dice;
use crate::harness::{eventually, job, refused};
use crate::sharing::{on_all, on_both, one_each};

#[test]
fn counters_under_locks_lose_no_increment_of_any_thread() {
    const THREADS: u64 = 3;
    const TURNS: u64 = 120;
    on_all(3, |rank, shared| {
        // Three counters under three locks; the third lock's counter shares a minipage with nothing.
        let counters = one_each(rank, shared, 1);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let counters = &counters;
                scope.spawn(move || {
                    for turn in 0..TURNS {
                        let which = ((turn + thread) % 3) as usize;
                        let held = shared.lock(100 + which as u32).unwrap();
                        counters[which].set(0, counters[which].get(0) + 1);
                        drop(held);
                    }
                });
            }
        });
        shared.barrier().unwrap();
        for counter in &counters {
            assert_eq!(counter.get(0), THREADS * TURNS);
        }
    });
}

#[test]
fn a_lock_that_all_want_all_get() {
    on_both(3, |rank, shared| {
        // Turns since all ranks have begun to ask, and ranks that have: who has slept at the barrier begins late.
        let all = one_each(rank, shared, 1);
        let (turns, begun) = (&all[0], &all[1]);
        let mut mine = 0;
        shared.barrier().unwrap();
        let held = shared.lock(5).unwrap();
        begun.set(0, begun.get(0) + 1);
        drop(held);
        loop {
            let held = shared.lock(5).unwrap();
            let now = turns.get(0);
            if begun.get(0) == 3 {
                turns.set(0, now + 1);
                mine += 1;
            }
            drop(held);
            if now >= 3_000 {
                break;
            }
        }
        println!("rank {} got it {mine} times", rank.number);
        // Granted in the order of asking, it goes round while all ask.
        assert!(mine > 100, "{mine} of 3000");
        shared.barrier().unwrap();
    });
}

#[test]
fn a_lock_that_nobody_else_wants_is_taken_without_a_message() {
    on_both(2, |rank, shared| {
        let number = 40 + rank.number as u32;
        drop(shared.lock(number).unwrap());
        shared.barrier().unwrap();
        let before = shared.counters();
        for _ in 0..500 {
            drop(shared.lock(number).unwrap());
        }
        let after = shared.counters();
        assert_eq!(after.lock_acquires_local - before.lock_acquires_local, 500);
        assert_eq!(after.lock_acquires_remote, before.lock_acquires_remote);
        shared.barrier().unwrap();
    });
}

#[test]
fn nobody_passes_a_barrier_before_all_threads_of_all_ranks_have_come() {
    const THREADS: usize = 3;
    const ROUNDS: u64 = 40;
    for wait in ["event", "adaptive"] {
        job(2)
            .called(wait)
            .option("--wait", wait)
            .run(|rank| {
                let node = rank.node();
                let shared = Shared::open(&node, THREADS).unwrap();
                // A slot of its own for every thread, each a minipage.
                let slots: Vec<_> = (0..THREADS)
                    .flat_map(|_| 0..rank.size)
                    .map(|root| {
                        let slot = (root == rank.number).then(|| shared.alloc::<u64>(1).unwrap());
                        shared.broadcast_slice(root, slot).unwrap()
                    })
                    .collect();
                let before = shared.counters().barriers;
                std::thread::scope(|scope| {
                    for thread in 0..THREADS {
                        let (shared, slots) = (&shared, &slots);
                        scope.spawn(move || {
                            let mine = slots[thread * rank.size + rank.number];
                            let mut dice = Dice::new((rank.number * 10 + thread) as u64);
                            for round in 1..=ROUNDS {
                                mine.set(0, round);
                                if dice.below(4) == 0 {
                                    std::thread::sleep(Duration::from_micros(dice.below(300)));
                                }
                                shared.barrier_of((round % 2) as u32).unwrap();
                                for slot in slots {
                                    // A fast one may be a round ahead, but no more.
                                    let seen = slot.get(0);
                                    assert!(seen == round || seen == round + 1, "{seen} in round {round}");
                                }
                            }
                        });
                    }
                });
                assert_eq!(shared.counters().barriers - before, ROUNDS);
                // One thread from here on.
                shared.set_threads(1).unwrap();
                shared.barrier().unwrap();
                shared.close().unwrap();
            })
            .succeeds();
    }
}

#[test]
fn a_broadcast_gives_the_roots_value_to_all_and_misuse_is_refused() {
    on_all(3, |rank, shared| {
        for round in 0..30_u64 {
            let root = round as usize % rank.size;
            let value = shared.broadcast(root, 1000 * rank.number as u64 + round).unwrap();
            assert_eq!(value, 1000 * root as u64 + round);
        }
        shared.barrier().unwrap();
        // A lock belongs to the thread that took it.
        let held = shared.lock(77 + rank.number as u32).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                refused(shared.unlock(77 + rank.number as u32), &["77", "78", "79"][rank.number..=rank.number])
            });
        });
        drop(held);
        shared.barrier().unwrap();
    });
}

#[test]
fn more_threads_than_there_is_room_for_are_told_so() {
    job(1)
        .run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            let refusals = AtomicU64::new(0);
            let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
            let before = threads();
            let gate = std::sync::Barrier::new(70);
            std::thread::scope(|scope| {
                for thread in 0..70 {
                    let (shared, refusals, gate) = (&shared, &refusals, &gate);
                    scope.spawn(move || {
                        match shared.lock(thread) {
                            Ok(held) => drop(held),
                            Err(error) => {
                                assert!(error.to_string().contains("more than 64 threads"), "{error}");
                                refusals.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        gate.wait();
                    });
                }
            });
            assert!(refusals.into_inner() >= 6);
            // Those threads are gone, and others take their place.
            for _ in 0..3 {
                // A scope ends when its threads are done, which the kernel may still know for a moment.
                eventually("all threads end", || threads() <= before);
                std::thread::scope(|scope| {
                    for thread in 0..50 {
                        let shared = &shared;
                        scope.spawn(move || drop(shared.lock(thread).unwrap()));
                    }
                });
            }
            shared.close().unwrap();
        })
        .succeeds();
}

#[test]
fn minipages_of_many_sizes_go_round_under_locks_and_are_always_whole() {
    // Each minipage holds one number, over and over; its lock guards it. Whoever holds the lock finds it whole, and puts the
    // next number. The order in which threads take them is random.
    const THREADS: u64 = 2;
    const TURNS: u64 = 150;
    on_all(3, |rank, shared| {
        const SIZES: [usize; 8] = [1, 2, 15, 16, 100, 511, 513, 3000];
        let slices: Vec<_> = SIZES
            .iter()
            .enumerate()
            .map(|(number, words)| {
                let root = number % rank.size;
                let slice = (root == rank.number).then(|| shared.alloc::<u64>(*words).unwrap());
                shared.broadcast_slice(root, slice).unwrap()
            })
            .collect();
        let done = one_each(rank, shared, SIZES.len());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let slices = &slices;
                let mine = done[rank.number];
                scope.spawn(move || {
                    let mut dice = Dice::new(17 + thread + 10 * rank.number as u64);
                    for _ in 0..TURNS {
                        let which = dice.below(SIZES.len() as u64) as usize;
                        let slice = slices[which];
                        let held = shared.lock(which as u32).unwrap();
                        let mut words = vec![0; slice.len()];
                        slice.read_into(0, &mut words).unwrap();
                        assert!(words.iter().all(|word| *word == words[0]), "minipage {which} is torn");
                        let from = dice.below(slice.len() as u64) as usize;
                        let next = words[0] + 1;
                        words.fill(next);
                        slice.write_from(from, &words[from..]).unwrap();
                        slice.write_from(0, &words[..from]).unwrap();
                        drop(held);
                        // How often this rank did so, under a lock of the rank's own.
                        let held = shared.lock(500 + rank.number as u32).unwrap();
                        mine.set(which, mine.get(which) + 1);
                        drop(held);
                    }
                });
            }
        });
        shared.barrier().unwrap();
        for (which, slice) in slices.iter().enumerate() {
            let turns: u64 = done.iter().map(|done| done.get(which)).sum();
            assert_eq!(slice.get(0), turns, "minipage {which}");
        }
        shared.barrier().unwrap();
    });
}

#[test]
fn owners_that_compute_or_sleep_serve_all_the_same() {
    // Rank 0 owns; it calls nothing of mapwire while the others fault on what it has.
    for (what, wait) in [("computes", "adaptive"), ("computes", "event"), ("sleeps", "adaptive"), ("sleeps", "event")] {
        job(2)
            .called(format!("{what} {wait}"))
            .option("--wait", wait)
            .run(|rank| {
                let node = rank.node();
                let shared = rank.shared(&node);
                let slices: Vec<_> = (0..20)
                    .map(|_| {
                        let slice = (rank.number == 0).then(|| shared.alloc::<u64>(4).unwrap());
                        shared.broadcast_slice(0, slice).unwrap()
                    })
                    .collect();
                if rank.number == 0 {
                    slices.iter().for_each(|slice| slice.set(0, 9));
                }
                shared.barrier().unwrap();
                if rank.number == 0 {
                    if what == "sleeps" {
                        rank.read("served");
                    } else {
                        let mut sum = 0_u64;
                        while !rank.has("served") {
                            for number in 0..100_000_u64 {
                                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(number));
                            }
                        }
                    }
                } else {
                    let visit = |slice: &SharedSlice<u64>| {
                        let start = Instant::now();
                        assert_eq!(slice.get(0), 9);
                        slice.set(1, 5);
                        drop(shared.lock(3).unwrap());
                        start.elapsed()
                    };
                    let mut took: Vec<_> = slices.iter().map(visit).collect();
                    took.sort();
                    // A read fault, a write fault and a lock: far below a nap each, where load beside does not make it late.
                    assert!(took[5] < Duration::from_millis(150), "{took:?}");
                    rank.note("served", "");
                }
                shared.barrier().unwrap();
                assert_eq!(slices[19].get(1), 5);
                shared.close().unwrap();
            })
            .succeeds();
    }
}
