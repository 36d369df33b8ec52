//! Waits by default: they leave the processors to others, and end when what they wait for is there.

use std::time::{Duration, Instant};

use mapwire::Rights;
use rustix::time::{ClockId, clock_gettime};

use crate::harness::{Rank, is_rank, job};

/// Time of `clock` in seconds.
fn seconds(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

#[test]
fn a_rank_that_waits_for_a_signal_takes_less_than_one_percent_of_a_processor() {
    job(2).run(idle).succeeds();
}

fn idle(rank: &Rank) {
    let node = rank.node();
    if rank.number == 0 {
        let memory = node.alloc(4096).unwrap();
        let export = node.export_buffer(&memory).name("idle").start().unwrap();
        export.wait_signal(0, 1).unwrap();
        let before = seconds(ClockId::ProcessCPUTime);
        export.wait_signal(0, 2).unwrap();
        let used = seconds(ClockId::ProcessCPUTime) - before;
        assert!(used < 0.02, "{used} s of processor time in 2 s of waiting");
    } else {
        let import = node.import(0, "idle").start().unwrap();
        import.put_signal(&[], 0, 0, 1).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        import.put_signal(&[], 0, 0, 2).unwrap();
    }
}

#[test]
fn a_put_on_the_direct_path_wakes_a_rank_that_sleeps_in_a_wait_for_it() {
    job(2).run(woken).succeeds();
}

fn woken(rank: &Rank) {
    let node = rank.node();
    let memory = node.alloc(4096).unwrap();
    let export = node.export_buffer(&memory).name("woken").start().unwrap();
    let import = node.import(1 - rank.number, "woken").rights(Rights::ALL).start().unwrap();
    assert!(import.is_direct());
    let mut late = Vec::new();
    for turn in 1..=21 {
        if rank.number == 0 {
            // The naps of a wait that nobody ends grow to 10 ms meanwhile.
            std::thread::sleep(Duration::from_millis(40));
            let sent = (seconds(ClockId::Monotonic) * 1e9) as u64;
            if turn % 2 == 0 {
                import.put_signal(&sent.to_ne_bytes(), 8, 0, turn).unwrap();
            } else {
                import.send(&sent.to_ne_bytes(), 8).unwrap();
                import.send(&turn.to_ne_bytes(), 0).unwrap();
            }
            export.wait_signal(0, turn).unwrap();
        } else {
            export.wait_signal(0, turn).unwrap();
            late.push(seconds(ClockId::Monotonic) - memory.load_u64(8).unwrap() as f64 / 1e9);
            import.put_signal(&[], 0, 0, turn).unwrap();
        }
    }
    late.sort_by(f64::total_cmp);
    // Naps would make a quarter of them later than this; load beside makes some late.
    if let Some(early) = late.get(late.len() / 5) {
        assert!(*early < 0.002, "seconds from put to wake-up: {late:?}");
    }
}

#[test]
fn ranks_that_share_a_queue_of_tasks_end_by_default_about_as_soon_as_when_they_always_sleep() {
    let timed = |wait: &str, trial| {
        let start = Instant::now();
        let job = job(4).called(format!("{wait}-{trial}"));
        let job = job.option("--wait", wait);
        job.run(share_tasks).succeeds();
        start.elapsed()
    };
    // Load beside may slow one of the two.
    for trial in 0..4 {
        let took = ["event", "adaptive"].map(|wait| timed(wait, trial));
        let is_soon = took[1] < took[0] * 3 + Duration::from_secs(2);
        // A rank of a later trial comes here too, and goes on.
        if is_soon && !is_rank() {
            break;
        }
        assert!(trial < 3, "event and adaptive: {took:?}");
    }
}

/// Tasks behind a lock; who finds none spins on a shared word, as programs do that were written for threads.
fn share_tasks(rank: &Rank) {
    let node = rank.node();
    let shared = rank.shared(&node);
    let mine = (rank.number == 0).then(|| shared.alloc::<u64>(2).unwrap());
    let queue = shared.broadcast_slice(0, mine).unwrap();
    let mine = (rank.number == 0).then(|| shared.alloc::<u64>(1).unwrap());
    let batch = shared.broadcast_slice(0, mine).unwrap();
    for number in 1..=20_u64 {
        if rank.number == 0 {
            let _held = shared.lock(1).unwrap();
            queue.set(0, 40);
            batch.set(0, number);
        }
        while batch.get(0) < number {
            std::hint::spin_loop();
        }
        loop {
            {
                let _held = shared.lock(1).unwrap();
                let left = queue.get(0);
                if left == 0 {
                    break;
                }
                queue.set(0, left - 1);
            }
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(20) {}
        }
        shared.barrier().unwrap();
    }
    shared.close().unwrap();
}

#[test]
fn what_waits_for_room_leaves_while_its_sender_does_something_else() {
    const SENDS: u64 = 400;
    for wait in ["event", "adaptive"] {
        job(2)
            .called(wait)
            .option("--wait", wait)
            .run(|rank| {
                let node = rank.node();
                if rank.number == 0 {
                    let buffer = node.alloc(64).unwrap();
                    let words = node.export_buffer(&buffer).ring_only().name("words");
                    let words = words.start().unwrap();
                    let round = |round: u64| {
                        words.wait_signal(0, round * SENDS - SENDS + 1).unwrap();
                        let begun = Instant::now();
                        words.wait_signal(0, round * SENDS).unwrap();
                        let took = begun.elapsed();
                        rank.meet(&format!("round{round}"));
                        took
                    };
                    let mut took: Vec<_> = (1..=5).map(round).collect();
                    took.sort();
                    // Each would wait for a nap of a second; load beside makes some late.
                    assert!(took[1] < Duration::from_millis(700), "{took:?}");
                } else {
                    let words = node.import(0, "words").start().unwrap();
                    for round in 0..5 {
                        for send in 1..=SENDS {
                            words.put_signal(&[], 0, 0, round * SENDS + send).unwrap();
                        }
                        // No call of the library from here on.
                        rank.meet(&format!("round{}", round + 1));
                    }
                }
            })
            .succeeds();
    }
}
