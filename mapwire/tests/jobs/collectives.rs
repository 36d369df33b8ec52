//! Calls of all ranks together: barrier, broadcast, gather, reduce.

use std::time::Duration;

use mapwire::{Error, ErrorKind, Node, Reduction};

use crate::harness::denials::outlive_sigterm;
use crate::harness::{Rank, eventually, job, pattern, refused};

/// Around the bytes that a step moves.
const LENGTHS: [usize; 7] = [0, 1, 8, 1023, 1024, 1025, 5000];

fn all_calls(rank: &Rank) {
    let node = rank.node();
    let (me, size) = (rank.number, rank.size);
    for length in LENGTHS {
        let of = |rank: usize| pattern(100 * rank as u64 + length as u64, length);
        for root in [0, size - 1, size / 2] {
            let mut data = of(me);
            node.broadcast(root, &mut data).unwrap();
            assert!(data == of(root));
            let gathered = node.gather(root, &of(me)).unwrap();
            assert_eq!(gathered.is_some(), me == root);
            if let Some(all) = gathered {
                assert!(all == (0..size).map(of).collect::<Vec<_>>());
            }
        }
        let all = node.all_gather(&of(me)).unwrap();
        assert!(all == (0..size).map(of).collect::<Vec<_>>());
    }
    for count in [0, 1, 300] {
        let (n, me) = (size as i64, me as i64);
        let mut sums: Vec<i64> = (0..count).map(|i| me - i).collect();
        node.reduce(Reduction::Sum, &mut sums).unwrap();
        assert!((0..count).all(|i| sums[i as usize] == n * (n - 1) / 2 - n * i));
        let mut least: Vec<i64> = (0..count).map(|i| i - me).collect();
        node.reduce(Reduction::Min, &mut least).unwrap();
        assert!((0..count).all(|i| least[i as usize] == i - (n - 1)));
        let mut most: Vec<u64> = (0..count as u64).map(|i| i * 10 + me as u64).collect();
        node.reduce(Reduction::Max, &mut most).unwrap();
        assert!((0..count as u64).all(|i| most[i as usize] == i * 10 + n as u64 - 1));
        let mut floats: Vec<f64> = (0..count).map(|i| 0.1 * (me + i) as f64).collect();
        node.reduce(Reduction::Sum, &mut floats).unwrap();
        let bytes: Vec<u8> = floats.iter().flat_map(|f| f.to_ne_bytes()).collect();
        let all = node.all_gather(&bytes).unwrap();
        assert!(all.iter().all(|other| *other == bytes), "the same in all");
    }
    let mut wrapped = [u64::MAX];
    node.reduce(Reduction::Sum, &mut wrapped).unwrap();
    assert_eq!(wrapped[0], 0_u64.wrapping_sub(size as u64));
}

#[test]
fn all_calls_give_what_they_say_with_any_number_of_ranks_and_back_to_back() {
    for ranks in [1, 2, 3, 7] {
        for path in ["direct", "ring"] {
            job(ranks).called(format!("{ranks} {path}")).option("--path", path).run(all_calls).succeeds();
        }
    }
}

#[test]
fn sixty_four_ranks_add_up_and_meet() {
    // Over UDP all of them greet rank 0 at once, and wait for each other's processors.
    for transport in ["shm", "udp"] {
        job(64)
            .called(transport)
            .option("--transport", transport)
            .run(|rank| {
                let node = rank.node();
                for turn in 0..3 {
                    let mut sum = [rank.number as u64 + turn];
                    node.reduce(Reduction::Sum, &mut sum).unwrap();
                    assert_eq!(sum[0], 64 * 63 / 2 + 64 * turn);
                }
                let all = node.all_gather(&[rank.number as u8]).unwrap();
                assert!(all.iter().enumerate().all(|(rank, bytes)| *bytes == [rank as u8]));
            })
            .succeeds()
            .soon();
    }
}

#[test]
fn no_rank_passes_a_barrier_before_all_have_come() {
    for wait in ["event", "adaptive"] {
        job(3)
            .called(wait)
            .option("--wait", wait)
            .run(|rank| {
                let node = rank.node();
                for turn in 0..200 {
                    if turn % 50 == 0 {
                        std::thread::sleep(Duration::from_millis(5 * rank.number as u64));
                    }
                    if turn % 20 == 0 {
                        rank.note(&format!("{turn}-{}", rank.number), "");
                    }
                    node.barrier().unwrap();
                    if turn % 20 == 0 {
                        assert!((0..3).all(|other| rank.has(&format!("{turn}-{other}"))));
                    }
                }
            })
            .succeeds();
    }
}

#[test]
fn calls_that_differ_are_refused_in_all_ranks_by_both_names_and_the_ranks_go_on() {
    job(3)
        .run(|rank| {
            let node = rank.node();
            let me = rank.number;
            for _ in 0..3 {
                let mut data = vec![me as u8; if me == 2 { 9 } else { 8 }];
                let error = node.broadcast(1, &mut data).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Argument);
                refused(
                    Err::<(), _>(error),
                    &["rank 2 makes a broadcast of 9 B from rank 1", "rank 0 a broadcast of 8 B from rank 1"],
                );
                assert!(data.iter().all(|byte| *byte == me as u8), "untouched");
                let outcome = match me {
                    1 => node.barrier(),
                    _ => node.reduce(Reduction::Max, &mut [1.5]),
                };
                refused(outcome, &["rank 1 makes a barrier", "rank 0 a maximum of 1 f64"]);
                let outcome = match me {
                    0 => node.gather(0, &[0; 4000]).map(drop),
                    _ => node.all_gather(&[0; 40]).map(drop),
                };
                refused(outcome, &["rank 1 makes an all-gather of 40 B", "rank 0 a gather of 4000 B to rank 0"]);
                refused(node.gather(me, &[1]).map(drop), &["rank 1", "to rank 0", "to rank 1"]);
                refused(node.broadcast(3, &mut [1; 3000]), &["rank 3", "3 ranks"]);
                refused(node.gather(usize::MAX, &[1]).map(drop), &["rank 4294967295"]);
                node.barrier().unwrap();
            }
        })
        .succeeds();
}

/// Calls until one fails.
fn until_it_fails(node: &Node) -> Error {
    loop {
        let outcome = node
            .barrier()
            .and_then(|()| node.all_gather(&[1; 3000]).map(drop))
            .and_then(|()| node.reduce(Reduction::Sum, &mut [1_u64]));
        if let Err(error) = outcome {
            return error;
        }
    }
}

#[test]
fn a_rank_that_leaves_or_dies_is_named_in_all_others_and_none_hangs() {
    for (victim, late, way) in [
        (0, true, "leaves"),
        (0, false, "leaves"),
        (0, true, "dies"),
        (2, true, "leaves"),
        (2, false, "leaves"),
        (2, true, "dies"),
    ] {
        let done = job(4).called(format!("{victim} {late} {way}")).option("--stop-grace", "0.5").run(|rank| {
            let node = rank.node();
            outlive_sigterm();
            if rank.number == victim {
                for _ in 0..if late { 30 } else { 0 } {
                    node.barrier().unwrap();
                    node.all_gather(&[1; 3000]).unwrap();
                    node.reduce(Reduction::Sum, &mut [1_u64]).unwrap();
                }
                if way == "dies" {
                    std::process::exit(9);
                }
                return;
            }
            let error = until_it_fails(&node);
            assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
            let text = error.to_string();
            let ranks = [format!("rank {victim} "), format!("node {victim} ")];
            assert!(ranks.iter().any(|name| text.contains(name)), "{text}");
            // It stays so.
            assert_eq!(until_it_fails(&node).kind(), ErrorKind::Gone);
        });
        if way == "dies" {
            done.code(9).soon();
        } else {
            done.succeeds();
        }
    }
}

#[test]
fn a_rank_that_left_before_another_joined_is_named_there_too() {
    job(2)
        .run(|rank| {
            if rank.number == 1 {
                drop(rank.node());
                rank.note("left", &std::process::id().to_string());
                return;
            }
            let process = format!("/proc/{}", rank.read("left"));
            eventually("the launcher has seen rank 1 end", || !std::path::Path::new(&process).exists());
            let error = rank.node().barrier().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
        })
        .succeeds();
}

#[test]
fn names_of_mapwire_are_refused_to_programs() {
    job(1)
        .run(|rank| {
            let node = rank.node();
            let buffer = node.alloc(4096).unwrap();
            node.barrier().unwrap();
            for name in ["mapwire.collective", "mapwire.", "mapwire.shared.segment.0"] {
                let error = node.export_buffer(&buffer).name(name).start().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Argument);
                refused(Err::<(), _>(error), &[name, "reserved"]);
                refused(node.import(0, name).start().map(drop), &[name, "reserved"]);
            }
            let _export = node.export_buffer(&buffer).name("mapwire").start().unwrap();
        })
        .succeeds();
}

#[test]
fn a_second_thread_in_such_a_call_is_refused() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 1 {
                rank.read("refused");
                node.barrier().unwrap();
                return;
            }
            std::thread::scope(|scope| {
                let first = scope.spawn(|| node.barrier());
                let second = scope.spawn(|| node.barrier());
                while !first.is_finished() && !second.is_finished() {
                    std::thread::yield_now();
                }
                rank.note("refused", "");
                let outcomes = [first.join().unwrap(), second.join().unwrap()];
                let (passed, refusals): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
                assert_eq!(passed.len(), 1);
                for refusal in refusals {
                    let error = refusal.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::State);
                    refused(Err::<(), _>(error), &["one thread at a time"]);
                }
            });
        })
        .succeeds();
}

#[test]
fn a_call_that_takes_longer_than_the_timeout_says_who_waits_where_and_goes_on() {
    for late in [2, 0] {
        let job = job(3).called(format!("{late}")).with("MAPWIRE_TIMEOUT", "3");
        let done = job.run(|rank| {
            let node = rank.node();
            rank.meet("begin");
            if rank.number == late {
                std::thread::sleep(Duration::from_secs(9));
            }
            node.barrier().unwrap();
            rank.meet("end");
        });
        let unanswered = "in a barrier: rank 0, which counts who has come, has not answered";
        let done = done.succeeds().says(&format!("rank 1 has waited for 3s {unanswered}"));
        match late {
            2 => done.says("rank 0 has waited for 3s in a barrier: ranks 0 1 have come, rank 2 has not"),
            _ => done.says(&format!("rank 2 has waited for 3s {unanswered}")),
        };
    }
}
