//! Waits for any of several signals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mapwire::{Awaited, ErrorKind, Export, Import, Importers, Node, NodeId};

use crate::harness::{Rank, job, refused};

/// Exports on each path, two of them with one buffer.
const NAMES: [&str; 4] = ["direct", "ring", "other", "part"];

fn exports(node: &Node) -> Vec<Export> {
    let (one, two) = (node.alloc(4096).unwrap(), node.alloc(4096).unwrap());
    vec![
        node.export_buffer(&one).name("direct").start().unwrap(),
        node.export_buffer(&two).ring_only().name("ring").start().unwrap(),
        node.export_buffer(&two).name("other").start().unwrap(),
        node.export_buffer(&one).range(1024, 64).unwrap().name("part").start().unwrap(),
    ]
}

/// A signal of each export, each at its own offset and due at `value`.
fn all(exports: &[Export], value: u64) -> Vec<Awaited<'_>> {
    let awaited = |(number, export)| Awaited { export, offset: 8 * number as u64, value };
    exports.iter().enumerate().map(awaited).collect()
}

#[test]
fn whichever_signal_comes_ends_the_wait_of_a_rank_that_sleeps_for_all() {
    for wait in ["event", "adaptive", "poll"] {
        job(2).called(wait).option("--wait", wait).run(one_of).succeeds();
    }
}

fn one_of(rank: &Rank) {
    let node = rank.node();
    let mine = exports(&node);
    let theirs: Vec<_> = NAMES.iter().map(|name| node.import(1 - rank.number, name).start().unwrap()).collect();
    // Load beside makes rank 1 late at times; a wake-up that is lost makes it late every time.
    for trial in 0.. {
        let late = in_turn(rank, &node, &mine, &theirs, 10 * trial);
        if let Some(quartile) = late.get(10) {
            let is_quick = *quartile < Duration::from_millis(4);
            rank.note(&format!("trial-{trial}"), &is_quick.to_string());
            assert!(is_quick || trial < 20, "there and back: {late:?}");
        }
        if rank.read(&format!("trial-{trial}")) == "true" {
            break;
        }
    }
    rank.meet("end");
}

/// Forty signals there and back, whose values follow `past`. How long they took, sorted; nothing in rank 1.
fn in_turn(rank: &Rank, node: &Node, mine: &[Export], theirs: &[Import], past: u64) -> Vec<Duration> {
    let mut late = Vec::new();
    for turn in 0..40_usize {
        let (which, value) = ([2, 0, 3, 1][turn % 4], past + turn as u64 / 4 + 1);
        let awaited = all(mine, value);
        // Those that have come in this round of four are waited for no more.
        let rest: Vec<_> = (0..4).filter(|number| ![2, 0, 3, 1][..turn % 4].contains(number)).collect();
        let signals: Vec<_> = rest.iter().map(|&number| awaited[number]).collect();
        if rank.number == 0 {
            std::thread::sleep(Duration::from_millis(15));
            let begun = Instant::now();
            theirs[which].put_signal(&[], 0, 8 * which as u64, value).unwrap();
            let found = node.wait_any(&signals, None).unwrap().unwrap();
            late.push(begun.elapsed());
            assert_eq!(rest[found], which);
        } else {
            let found = node.wait_any(&signals, None).unwrap().unwrap();
            assert_eq!(rest[found], which);
            theirs[which].put_signal(&[], 0, 8 * which as u64, value).unwrap();
        }
    }
    late.sort();
    late
}

/// How a thread of rank 0 takes what comes for another one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Taking {
    Polling,
    /// Sends, while a third thread counts as polling and does not look.
    Sending,
}

#[test]
fn a_thread_that_sleeps_is_woken_by_the_one_that_takes_what_came_for_it() {
    for taking in [Taking::Polling, Taking::Sending] {
        job(2)
            .called(format!("{taking:?}"))
            .option("--wait", "event")
            .run(|rank| {
                let node = rank.node();
                let mine = exports(&node);
                let theirs = node.import(1 - rank.number, "ring").start().unwrap();
                if rank.number == 1 {
                    for turn in 1..=20 {
                        rank.read(&format!("waits-{turn}"));
                        std::thread::sleep(Duration::from_millis(20));
                        theirs.put_signal(&[], 0, 8, turn).unwrap();
                    }
                    rank.meet("end");
                    return;
                }
                let over = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let _polling = node.polling();
                        while !over.load(Ordering::Relaxed) {
                            match taking {
                                Taking::Polling => _ = node.poll(),
                                Taking::Sending => std::thread::yield_now(),
                            }
                        }
                    });
                    scope.spawn(|| {
                        while taking == Taking::Sending && !over.load(Ordering::Relaxed) {
                            std::thread::sleep(Duration::from_millis(1));
                            theirs.send(&[1], 64).unwrap();
                        }
                    });
                    let mut late = Vec::new();
                    for turn in 1..=20 {
                        std::thread::sleep(Duration::from_millis(5));
                        rank.note(&format!("waits-{turn}"), "");
                        let begun = Instant::now();
                        node.wait_any(&all(&mine, turn)[1..2], None).unwrap();
                        late.push(begun.elapsed());
                    }
                    over.store(true, Ordering::Relaxed);
                    late.sort();
                    // By itself it looks after 200 ms.
                    assert!(late[5] < Duration::from_millis(100), "{late:?}");
                });
                rank.meet("end");
            })
            .succeeds();
    }
}

#[test]
fn a_wait_for_any_ends_in_time_and_names_the_lowest_signal_that_has_come() {
    job(1)
        .run(|rank| {
            let node = rank.node();
            let mine = exports(&node);
            let begun = Instant::now();
            let limit = Duration::from_millis(60);
            assert_eq!(node.wait_any(&all(&mine, 1), Some(limit)).unwrap(), None);
            assert!(begun.elapsed() >= limit);
            assert_eq!(node.wait_any(&all(&mine, 1), Some(Duration::ZERO)).unwrap(), None);
            mine[3].write(24, &1_u64.to_ne_bytes()).unwrap();
            mine[1].write(8, &5_u64.to_ne_bytes()).unwrap();
            assert_eq!(node.wait_any(&all(&mine, 1), None).unwrap(), Some(1));
            assert_eq!(node.wait_any(&all(&mine, 6), Some(Duration::ZERO)).unwrap(), None);
            // The same signal many times over.
            let many = vec![all(&mine, 1)[3]; 10_000];
            assert_eq!(node.wait_any(&many, None).unwrap(), Some(0));

            let none = node.wait_any(&[], None).unwrap_err();
            assert_eq!(none.kind(), ErrorKind::Argument);
            refused(Err::<(), _>(none), &["no signals"]);
            let mut bad = all(&mine, 1);
            bad[2].offset = 4090;
            refused(node.wait_any(&bad, None), &["8 bytes at 4090", "4096"]);
            bad[2].offset = 4084;
            refused(node.wait_any(&bad, None), &["multiple of 8"]);
            bad[2].offset = u64::MAX;
            refused(node.wait_any(&bad, None), &["pass the end"]);
        })
        .succeeds();
}

#[test]
fn a_wait_for_any_goes_on_while_one_may_come_and_fails_when_none_can() {
    job(3)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let buffers = [(); 2].map(|()| node.alloc(4096).unwrap());
                let of = |rank: u16| Importers::Nodes(vec![NodeId(rank)]);
                let mine = [1, 2].map(|from| {
                    let export = node.export_buffer(&buffers[usize::from(from) - 1]);
                    let name = format!("from-{from}");
                    export.name(name).importers(of(from)).start().unwrap()
                });
                rank.read("leaving-1");
                let awaited = all(&mine, 1);
                assert_eq!(node.wait_any(&awaited, None).unwrap(), Some(1));
                rank.note("go", "");
                let awaited = all(&mine, 2);
                let error = node.wait_any(&awaited, None).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Gone);
                refused(Err::<(), _>(error), &["offset 0 of `from-1` will not come"]);
            } else if rank.number == 1 {
                rank.note("leaving-1", "");
            } else {
                let import = node.import(0, "from-2").start().unwrap();
                // Rank 1 has left by then, and rank 0 waits.
                std::thread::sleep(Duration::from_millis(300));
                import.put_signal(&[], 0, 8, 1).unwrap();
                rank.read("go");
            }
        })
        .succeeds();
}
