//! What one process sends to another arrives in order, by whichever path and from whichever thread it goes.

use std::time::{Duration, Instant};

use crate::harness::job;

/// Bytes that each thread has on either path: its number's word, then room for the long sends.
const SHARE: u64 = 16_384;

/// Each of several threads counts by turns on the ring and on the direct path: ring, direct, ring, direct. A watcher at the
/// receiver must never see the direct count ahead of the ring's, nor more than one behind.
fn counts_keep_their_order(threads: u64, turns: u64, driver: &str) {
    job(2)
        .called(driver)
        .with("MAPWIRE_DRIVER", driver)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let bytes = (SHARE * threads) as usize;
                let (direct, ring) = (node.alloc(bytes).unwrap(), node.alloc(bytes).unwrap());
                let _direct = node.export_buffer(&direct).name("direct").start().unwrap();
                let ring_export = node.export_buffer(&ring).ring_only().name("ring");
                let _ring = ring_export.start().unwrap();
                let end = Instant::now() + Duration::from_secs(60);
                let mut left: Vec<u64> = (0..threads).collect();
                while !left.is_empty() {
                    left.retain(|thread| {
                        let at = (SHARE * thread) as usize;
                        // The later of the two is read first.
                        let by_direct = direct.load_u64(at).unwrap();
                        let by_ring = ring.load_u64(at).unwrap();
                        assert!(
                            by_ring >= by_direct,
                            "thread {thread}: {by_direct} was stored directly before {by_ring} by the ring"
                        );
                        let by_direct = direct.load_u64(at).unwrap();
                        assert!(
                            by_direct + 1 >= by_ring,
                            "thread {thread}: {by_ring} came by the ring before {by_direct} directly"
                        );
                        by_direct < turns
                    });
                    assert!(Instant::now() < end, "threads {left:?} do not end");
                }
                rank.meet("end");
            } else {
                let direct = node.import(0, "direct").start().unwrap();
                let ring = node.import(0, "ring").start().unwrap();
                assert!(direct.is_direct() && !ring.is_direct());
                std::thread::scope(|scope| {
                    for thread in 0..threads {
                        let (direct, ring) = (&direct, &ring);
                        scope.spawn(move || {
                            let at = SHARE * thread;
                            for turn in 1..=turns {
                                match turn % 7 {
                                    // A long one on the way, which is not waited for.
                                    0 => {
                                        let data = vec![turn as u8; 9000];
                                        let sending = ring.send_async(data, at + 8).unwrap();
                                        ring.put_signal(&[], at, at, turn).unwrap();
                                        direct.put_signal(&[], at, at, turn).unwrap();
                                        sending.wait().unwrap();
                                        continue;
                                    }
                                    1 => ring.put_signal(&[7; 5000], at + 8, at, turn).unwrap(),
                                    _ => ring.put_signal(&[], at, at, turn).unwrap(),
                                }
                                direct.put_signal(&[], at, at, turn).unwrap();
                            }
                        });
                    }
                });
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn ring_and_direct_stores_of_one_thread_keep_their_order() {
    for driver in ["inline", "thread"] {
        counts_keep_their_order(1, 1500, driver);
    }
}

#[test]
fn ring_and_direct_stores_of_many_threads_keep_their_order() {
    for driver in ["inline", "thread"] {
        counts_keep_their_order(4, 700, driver);
    }
}

#[test]
fn a_message_to_a_full_queue_waits_and_none_is_lost() {
    // Both ranks flood each other, so that both queues are full at times, and neither may wait for the other for ever.
    const MESSAGES: u64 = 3000;
    job(2)
        .run(|rank| {
            let node = rank.node();
            let buffer = node.alloc(300_000).unwrap();
            let export = node.export_buffer(&buffer).ring_only().name("flood");
            let export = export.start().unwrap();
            let import = node.import(1 - rank.number, "flood").start().unwrap();
            let long = vec![3; 250_000];
            for message in 1..=MESSAGES {
                let length = match message % 100 {
                    0 => 250_000,
                    50 => 4096,
                    _ => (message % 128) as usize,
                };
                import.put_signal(&long[..length], 8, 0, message).unwrap();
            }
            export.wait_signal(0, MESSAGES).unwrap();
            rank.meet("end");
            // Each message came once: a signal that overtook another would have put the count back.
            assert_eq!(export.signal(0).unwrap(), MESSAGES);
            // Packets carry chunks of at most a page.
            assert!(node.nic_counters().packets_received >= MESSAGES);
        })
        .succeeds();
}
