//! Lent buffers: what is sent from them arrives as it was when it was sent, whoever reads it when.

use std::time::Duration;

use mapwire::{Buffer, Export, Import, Node, Rights};
use rustix::process::Signal;

use crate::harness::denials::outlive_sigterm;
use crate::harness::{Rank, eventually, job, pattern, refused};

const LENGTH: usize = 6 * 4096;

/// An inbox that is never mapped, so that what comes takes the ring.
fn inbox(node: &Node, buffer: &Buffer) -> Export {
    node.export_buffer(buffer)
        .name("inbox")
        .ring_only()
        .start()
        .unwrap()
}

fn to(node: &Node, rank: usize) -> Import {
    node.import(rank, "inbox")
        .rights(Rights::ALL)
        .start()
        .unwrap()
}

/// Mappings of others' buffers in this process, which are for reading only. (A page each: the status of imports is not counted.)
fn borrowed() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("mapwire-alloc") && line.contains(" r--s "))
        .count()
}

/// Sends of many lengths and places, the source changed after each; rank 1 answers each when it has looked.
fn exchange(rank: &Rank) {
    let node = rank.node();
    let buffer = node.alloc(LENGTH + 8).unwrap();
    let export = inbox(&node, &buffer);
    let import = to(&node, 1 - rank.number);
    let signal = LENGTH as u64;
    // The descriptor comes by the launcher, at its leisure: what is sent before is copied. So twice over, the second time when
    // it is there.
    let cases: Vec<(usize, usize)> = [1, 1023, 1024, 1025, 4096, 5000, 3 * 4096, LENGTH - 100]
        .into_iter()
        .flat_map(|length| [0, 1, 100].map(|offset| (offset, length)))
        .collect();
    let first_round = cases.len() as u64;
    let turns = || (1..).zip(cases.iter().chain(&cases));
    if rank.number == 0 {
        let source = node.alloc(LENGTH + 4096).unwrap();
        let lent = node.lend(&source).unwrap();
        for (turn, &(offset, length)) in turns() {
            source.write(offset, &pattern(turn, length)).unwrap();
            let data = offset..offset + length;
            if turn % 2 == 0 {
                import
                    .put_signal_from(&source, data, offset as u64, signal, turn)
                    .unwrap();
            } else {
                import.send_from(&source, data, offset as u64).unwrap();
                source.write(0, &[0xee; LENGTH]).unwrap();
                import.put_signal(&[], 0, signal, turn).unwrap();
            }
            // From here on the source is this process's own again.
            source.write(0, &[0xee; LENGTH]).unwrap();
            assert_eq!(export.wait_signal(signal, turn).unwrap(), turn);
        }
        drop(lent);
        rank.note("taken back", "");
        rank.read("given back");
    } else {
        for (turn, &(offset, length)) in turns() {
            assert_eq!(export.wait_signal(signal, turn).unwrap(), turn);
            let mut found = vec![0; length];
            buffer.read(offset, &mut found).unwrap();
            assert!(found == pattern(turn, length), "{length} bytes at {offset}");
            if turn == first_round {
                eventually("the source is mapped", || {
                    node.poll();
                    borrowed() == 1
                });
            }
            import.put_signal(&[], 0, signal, turn).unwrap();
        }
        rank.read("taken back");
        eventually("it is unmapped", || {
            node.poll();
            borrowed() == 0
        });
        rank.note("given back", "");
    }
    rank.meet("end");
}

#[test]
fn what_is_sent_from_lent_memory_arrives_as_it_was_in_every_mode() {
    for driver in ["inline", "thread"] {
        for wait in ["poll", "event", "adaptive"] {
            job(2)
                .called(format!("{driver} {wait}"))
                .with("MAPWIRE_DRIVER", driver)
                .with("MAPWIRE_WAIT", wait)
                .run(exchange)
                .succeeds();
        }
    }
}

#[test]
fn a_receiver_that_makes_no_calls_is_no_obstacle() {
    job(2)
        .with("MAPWIRE_WAIT", "event")
        .run(|rank| {
            let node = rank.node();
            let buffer = node.alloc(LENGTH).unwrap();
            let export = inbox(&node, &buffer);
            if rank.number == 0 {
                let source = node.alloc(LENGTH).unwrap();
                source.write(0, &pattern(1, LENGTH)).unwrap();
                let _lent = node.lend(&source).unwrap();
                let import = to(&node, 1);
                for _ in 0..50 {
                    import.send_from(&source, 0..LENGTH, 0).unwrap();
                }
                rank.note("sent", "");
            } else {
                rank.read("sent");
                eventually("the service thread has stored it", || {
                    let mut found = vec![0; LENGTH];
                    buffer.read(0, &mut found).unwrap();
                    found == pattern(1, LENGTH)
                });
            }
            rank.meet("end");
            drop(export);
        })
        .succeeds();
}

#[test]
fn more_buffers_than_can_be_lent_are_copied_and_numbers_come_free_again() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            let buffer = node.alloc(4096 + 8).unwrap();
            let export = inbox(&node, &buffer);
            let import = to(&node, 1 - rank.number);
            for round in 0..3_u64 {
                let mut held = Vec::new();
                for number in 0..70_u64 {
                    let turn = 100 * round + number + 1;
                    if rank.number == 0 {
                        let source = node.alloc(4096).unwrap();
                        source.write(0, &pattern(turn, 4096)).unwrap();
                        let lent = node.lend(&source).unwrap();
                        // Twice: the first brings the memory there, the second may be read from it.
                        for _ in 0..2 {
                            import.send_from(&source, 0..4096, 0).unwrap();
                        }
                        import
                            .put_signal_from(&source, 0..4096, 0, 4096, turn)
                            .unwrap();
                        assert_eq!(export.wait_signal(4096, turn).unwrap(), turn);
                        held.push((source, lent));
                    } else {
                        assert_eq!(export.wait_signal(4096, turn).unwrap(), turn);
                        let mut found = vec![0; 4096];
                        buffer.read(0, &mut found).unwrap();
                        assert!(found == pattern(turn, 4096), "turn {turn}");
                        import.put_signal(&[], 0, 4096, turn).unwrap();
                    }
                }
            }
            rank.meet("end");
        })
        .succeeds();
}

#[test]
fn a_lent_buffer_whose_export_is_revoked_sends_what_it_holds_then() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            let buffer = node.alloc(LENGTH + 8).unwrap();
            let signal = LENGTH as u64;
            if rank.number == 0 {
                let source = node.alloc(LENGTH).unwrap();
                let _lent = node.lend(&source).unwrap();
                let mapped = node.export_buffer(&source).name("source").start().unwrap();
                let import = to(&node, 1);
                source.write(0, &pattern(1, LENGTH)).unwrap();
                import
                    .put_signal_from(&source, 0..LENGTH, 0, signal, 1)
                    .unwrap();
                rank.read("mapped");
                // The buffer moves onto other pages; the peer has the old ones mapped twice.
                drop(mapped);
                source.write(0, &pattern(2, LENGTH)).unwrap();
                import
                    .put_signal_from(&source, 0..LENGTH, 0, signal, 2)
                    .unwrap();
                rank.meet("end");
            } else {
                let export = inbox(&node, &buffer);
                let source = node
                    .import(0, "source")
                    .rights(Rights::ALL)
                    .start()
                    .unwrap();
                for turn in 1..=2 {
                    assert_eq!(export.wait_signal(signal, turn).unwrap(), turn);
                    let mut found = vec![0; LENGTH];
                    buffer.read(0, &mut found).unwrap();
                    assert!(found == pattern(turn, LENGTH), "turn {turn}");
                    rank.note("mapped", "");
                }
                drop(source);
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn a_reader_that_dies_ends_the_sends_that_wait_for_it() {
    for (signal, code) in [(Signal::KILL, 137), (Signal::STOP, 128 + 19)] {
        job(2)
            .called(format!("{signal:?}"))
            .option("--stop-grace", "0.2")
            .run(move |rank| {
                let node = rank.node();
                let buffer = node.alloc(LENGTH).unwrap();
                let export = inbox(&node, &buffer);
                if rank.number == 0 {
                    outlive_sigterm();
                    let source = node.alloc(LENGTH).unwrap();
                    let _lent = node.lend(&source).unwrap();
                    let import = to(&node, 1);
                    let error = (0_u64..).find_map(|turn| {
                        if turn == 100 {
                            rank.note("at it", "");
                        }
                        import.send_from(&source, 0..LENGTH, 0).err()
                    });
                    eprintln!("sender: {}", error.expect("it is gone"));
                    std::process::exit(7);
                }
                rank.read("at it");
                std::thread::sleep(Duration::from_millis(20));
                rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
                std::thread::sleep(Duration::from_secs(60));
                drop(export);
            })
            .soon()
            .code(code)
            .says(if code == 137 {
                "sender: rank 1 is gone"
            } else {
                "SIGSTOP"
            });
    }
}

#[test]
fn a_range_outside_a_buffer_is_refused_before_anything_is_sent() {
    job(1)
        .run(|rank| {
            let node = rank.node();
            let buffer = node.alloc(LENGTH).unwrap();
            let export = inbox(&node, &buffer);
            let import = to(&node, 0);
            let source = node.alloc(100).unwrap();
            let _lent = node.lend(&source).unwrap();
            let backwards = core::ops::Range { start: 9, end: 3 };
            for range in [
                0..101,
                100..101,
                101..101,
                usize::MAX - 1..usize::MAX,
                backwards,
            ] {
                refused(
                    import.send_from(&source, range.clone(), 0),
                    &[&range.start.to_string(), "100"],
                );
                assert!(import.put_signal_from(&source, range, 0, 0, 1).is_err());
            }
            import.send_from(&source, 100..100, 0).unwrap();
            import.put_signal_from(&source, 0..100, 0, 104, 5).unwrap();
            assert_eq!(export.wait_signal(104, 5).unwrap(), 5);
        })
        .succeeds();
}
