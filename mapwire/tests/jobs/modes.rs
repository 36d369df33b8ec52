//! Who runs the driver, and how threads wait: the same program in every mode.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mapwire::{DriverMode, Rights, WaitStrategy};

use crate::harness::{Rank, job, pattern};

/// A little of everything.
fn everything(rank: &Rank) {
    let node = rank.node();
    let config = &node.config().driver;
    assert_eq!(config.mode.to_string(), std::env::var("MAPWIRE_DRIVER").unwrap());
    assert_eq!(config.wait.to_string(), std::env::var("MAPWIRE_WAIT").unwrap());
    assert!(config.mode == DriverMode::Inline || config.mode == DriverMode::Thread);
    assert!(config.wait != WaitStrategy::Adaptive { spin_ns: Some(0) });

    let other = 1 - rank.number;
    for name in ["direct", "ring"] {
        let buffer = node.alloc(100_000).unwrap();
        let told = Arc::new(AtomicU64::new(0));
        let count = told.clone();
        let mut export = node.export_buffer(&buffer).name(name).on_notify(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        if name == "ring" {
            export = export.ring_only();
        }
        let export = export.start().unwrap();
        let import = node.import(other, name).rights(Rights::ALL).start().unwrap();
        // Ping-pong, short and long.
        for turn in 1..=30_u64 {
            let length = if turn % 10 == 0 { 50_000 } else { 30 };
            if rank.number == 0 {
                import.put_signal(&pattern(turn, length), 1001, 0, turn).unwrap();
                export.wait_signal(0, turn).unwrap();
            } else {
                export.wait_signal(0, turn).unwrap();
                let mut found = vec![0; length];
                export.read(1001, &mut found).unwrap();
                assert!(found == pattern(turn, length), "turn {turn} by {name}");
                import.put_signal(&[], 0, 0, turn).unwrap();
            }
        }
        rank.meet(&format!("{name}-filled"));
        if rank.number == 1 {
            // What rank 1 has is the last long message.
            import.send_notify(&pattern(9, 5000), 60_000).unwrap();
        } else {
            let mut found = vec![0; 50_000];
            import.fetch(1001, &mut found).unwrap();
            assert!(found == pattern(30, 50_000), "fetched by {name}");
            node.wait_until(None, || (told.load(Ordering::Relaxed) == 1).then_some(()));
        }
        rank.meet(&format!("{name}-done"));
    }

    let shared = rank.shared(&node);
    let count = (rank.number == 0).then(|| shared.alloc::<u64>(1).unwrap());
    let count = shared.broadcast_slice(0, count).unwrap();
    for _ in 0..50 {
        let held = shared.lock(1).unwrap();
        count.set(0, count.get(0) + 1);
        drop(held);
    }
    shared.barrier().unwrap();
    assert_eq!(count.get(0), 100);
    shared.close().unwrap();
}

#[test]
fn everything_works_with_the_driver_in_the_callers_thread_however_it_waits() {
    for wait in ["poll", "event", "adaptive", "adaptive:500"] {
        let name = wait.replace(':', "-");
        let job = job(2).called(name).with("MAPWIRE_DRIVER", "inline");
        job.option("--wait", wait).run(everything).succeeds();
    }
}

#[test]
fn everything_works_without_any_privilege() {
    let job = job(2).unprivileged().with("MAPWIRE_DRIVER", "inline");
    job.option("--wait", "adaptive").run(everything).succeeds();
}

#[test]
fn everything_works_with_the_driver_in_a_thread_of_its_own_however_it_waits() {
    for wait in ["poll", "event", "adaptive"] {
        let job = job(2).called(wait).with("MAPWIRE_DRIVER", "thread");
        job.option("--wait", wait).run(everything).succeeds();
    }
}

#[test]
fn a_wait_that_panics_while_its_thread_polls_leaves_a_node_that_works() {
    job(2)
        .option("--wait", "event")
        .run(|rank| {
            let node = rank.node();
            let memory = node.alloc(4096).unwrap();
            let inbox = node.export_buffer(&memory).ring_only().name("inbox");
            let inbox = inbox.start().unwrap();
            let wait = || {
                let _polling = node.polling();
                let check = || -> Option<()> { std::panic::resume_unwind(Box::new(())) };
                node.wait_until(None, check);
            };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait)).is_err());
            let next = node.import(1 - rank.number, "inbox").start().unwrap();
            let turn = |number| {
                let start = std::time::Instant::now();
                next.put_signal(&[], 0, 0, number).unwrap();
                inbox.wait_signal(0, number).unwrap();
                start.elapsed()
            };
            let mut took: Vec<_> = (1..=20).map(turn).collect();
            took.sort();
            // Who is not rung looks after 200 ms.
            assert!(took[5].as_millis() < 100, "nobody is rung: {took:?}");
            rank.meet("end");
        })
        .succeeds();
}
