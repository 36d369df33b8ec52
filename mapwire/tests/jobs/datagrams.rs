//! Ranks that reach each other by datagrams only, as ranks of different hosts do.

use mapwire::Rights;

use crate::harness::denials::outlive_sigterm;
use crate::harness::job;

const BYTES: usize = 3 << 20;

#[test]
fn messages_of_all_lengths_arrive_whole_and_in_order_over_udp_sealed_or_not() {
    for (label, insecure) in [("sealed", "false"), ("plain", "true")] {
        job(3)
            .called(label)
            .option("--transport", "udp")
            .with("MAPWIRE_INSECURE", insecure)
            .run(|rank| {
                let node = rank.node();
                let (next, before) = ((rank.number + 1) % 3, (rank.number + 2) % 3);
                let buffer = node.alloc(BYTES + 64).unwrap();
                let export = node.export_buffer(&buffer).name("ring").start().unwrap();
                let import = (node.import(next, "ring")).rights(Rights::ALL).start().unwrap();
                assert!(!import.is_direct());
                let lengths = [1, 8, 127, 129, 4096, 65_536, 65_537, 1 << 20, BYTES];
                for (turn, length) in lengths.into_iter().enumerate() {
                    let number = turn as u64 + 1;
                    let byte = |at: usize, of: usize| (at as u64 * 7 + number + of as u64) as u8;
                    let data: Vec<u8> = (0..length).map(|at| byte(at, rank.number)).collect();
                    (import.put_signal(&data, 0, BYTES as u64, number)).unwrap();
                    export.wait_signal(BYTES as u64, number).unwrap();
                    let mut got = vec![0; length];
                    export.read(0, &mut got).unwrap();
                    let wrong = (0..length).find(|&at| got[at] != byte(at, before));
                    assert_eq!(wrong, None, "of {length} bytes");
                    // What was sent can be fetched from where it is, once its owner has looked at it.
                    node.barrier().unwrap();
                    let mut back = vec![0; length];
                    import.fetch(0, &mut back).unwrap();
                    assert!(back == data, "{length} bytes fetched");
                    node.barrier().unwrap();
                }
            })
            .succeeds();
    }
}

#[test]
fn a_rank_that_dies_over_udp_is_named_to_those_that_wait_for_it() {
    let done = job(2).option("--transport", "udp").run(|rank| {
        let node = rank.node();
        let buffer = node.alloc(4096).unwrap();
        let export = node.export_buffer(&buffer).name("here").start().unwrap();
        let peer = 1 - rank.number;
        let import = node.import(peer, "here").start().unwrap();
        import.send(&[1], 0).unwrap();
        outlive_sigterm();
        rank.meet("sent");
        if rank.number == 1 {
            std::process::abort();
        }
        let error = export.wait_signal(8, 1).unwrap_err();
        eprintln!("survivor: {error}");
        std::process::exit(7);
    });
    done.code(128 + 6).says("survivor: ").says("rank 1").soon();
}

#[test]
fn what_a_rank_gives_back_before_it_computes_comes_to_others_at_once_over_udp() {
    a_lock_comes_at_once_over("udp");
}

/// However ranks wait, a lock that its holder gives back before it computes comes to the other while it does.
pub(crate) fn a_lock_comes_at_once_over(transport: &str) {
    use std::time::{Duration, Instant};
    for wait in ["poll", "event", "adaptive"] {
        job(2)
            .called(wait)
            .option("--transport", transport)
            .option("--wait", wait)
            .run(|rank| {
                let node = rank.node();
                let shared = mapwire::Shared::open(&node, 1).unwrap();
                for turn in 0..2 {
                    shared.barrier().unwrap();
                    if rank.number == 1 {
                        drop(shared.lock(0).unwrap());
                    }
                    shared.barrier().unwrap();
                    if rank.number == 1 {
                        // It has the lock from here on, and calls nothing once it has given it back.
                        let held = shared.lock(0).unwrap();
                        rank.meet(&format!("held {turn}"));
                        std::thread::sleep(Duration::from_millis(200));
                        drop(held);
                        let end = Instant::now() + Duration::from_secs(60);
                        while !rank.has(&format!("got {turn}")) {
                            assert!(Instant::now() < end, "the other waits for a call");
                            (0..10_000).for_each(|_| std::hint::spin_loop());
                        }
                    } else {
                        rank.meet(&format!("held {turn}"));
                        drop(shared.lock(0).unwrap());
                        rank.note(&format!("got {turn}"), "");
                    }
                }
                shared.barrier().unwrap();
                shared.close().unwrap();
            })
            .succeeds();
    }
}

#[test]
fn ranks_that_meet_late_while_others_talk_or_sleep_meet_at_once_over_udp() {
    use std::time::{Duration, Instant};
    for wait in ["event", "adaptive"] {
        job(4)
            .called(wait)
            .option("--transport", "udp")
            .option("--wait", wait)
            .run(|rank| {
                let node = rank.node();
                let buffer = node.alloc(4096).unwrap();
                let export = node.export_buffer(&buffer).name("box").start().unwrap();
                // 0 and 2 talk, and 1 and 3.
                let peer = node.import(rank.number ^ 2, "box").rights(Rights::ALL);
                let peer = peer.start().unwrap();
                let talk = || {
                    for turn in 1..=500 {
                        std::thread::sleep(Duration::from_millis(1));
                        if rank.number < 2 {
                            peer.put_signal(&[], 0, 0, turn).unwrap();
                        }
                        export.wait_signal(0, turn).unwrap();
                        if rank.number >= 2 {
                            peer.put_signal(&[], 0, 0, turn).unwrap();
                        }
                    }
                };
                let meet = |other| {
                    std::thread::sleep(Duration::from_millis(300));
                    let start = Instant::now();
                    node.import(other, "box").start().unwrap();
                    let took = start.elapsed();
                    assert!(took < Duration::from_secs(20), "met {other} after {took:?}");
                };
                std::thread::scope(|scope| {
                    if rank.number == 0 {
                        scope.spawn(|| meet(1));
                    }
                    talk();
                });
                rank.meet("talked");
                // Whoever sleeps has the service thread to answer.
                if rank.number == 3 {
                    meet(2);
                }
                rank.meet("met");
            })
            .succeeds();
    }
}
