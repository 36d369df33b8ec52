//! Sends from buffers: what is sent arrives as it was when it was sent.

use mapwire::{Buffer, Export, Import, Node, Rights};

use crate::harness::{Rank, eventually, job, pattern, refused};

const LENGTH: usize = 6 * 4096;

/// An inbox that is never mapped, so that what comes takes the ring.
fn inbox(node: &Node, buffer: &Buffer) -> Export {
    node.export_buffer(buffer).name("inbox").ring_only().start().unwrap()
}

fn to(node: &Node, rank: usize) -> Import {
    node.import(rank, "inbox").rights(Rights::ALL).start().unwrap()
}

/// Sends of many lengths and places, the source changed after each; rank 1 answers each when it has looked.
fn exchange(rank: &Rank) {
    let node = rank.node();
    let buffer = node.alloc(LENGTH + 8).unwrap();
    let export = inbox(&node, &buffer);
    let import = to(&node, 1 - rank.number);
    let signal = LENGTH as u64;
    let cases: Vec<(usize, usize)> = [1, 1023, 1024, 1025, 4096, 5000, 3 * 4096, LENGTH - 100]
        .into_iter()
        .flat_map(|length| [0, 1, 100].map(|offset| (offset, length)))
        .collect();
    let turns = || (1_u64..).zip(&cases);
    if rank.number == 0 {
        let source = node.alloc(LENGTH + 4096).unwrap();
        for (turn, &(offset, length)) in turns() {
            source.write(offset, &pattern(turn, length)).unwrap();
            let data = offset..offset + length;
            if turn % 2 == 0 {
                import.put_signal_from(&source, data, offset as u64, signal, turn).unwrap();
            } else {
                import.send_from(&source, data, offset as u64).unwrap();
                source.write(0, &[0xee; LENGTH]).unwrap();
                import.put_signal(&[], 0, signal, turn).unwrap();
            }
            // From here on the source is this process's own again.
            source.write(0, &[0xee; LENGTH]).unwrap();
            assert_eq!(export.wait_signal(signal, turn).unwrap(), turn);
        }
    } else {
        for (turn, &(offset, length)) in turns() {
            assert_eq!(export.wait_signal(signal, turn).unwrap(), turn);
            let mut found = vec![0; length];
            buffer.read(offset, &mut found).unwrap();
            assert!(found == pattern(turn, length), "{length} bytes at {offset}");
            import.put_signal(&[], 0, signal, turn).unwrap();
        }
    }
    rank.meet("end");
}

#[test]
fn what_is_sent_from_a_buffer_arrives_as_it_was_in_every_mode() {
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
fn a_range_outside_a_buffer_is_refused_before_anything_is_sent() {
    job(1)
        .run(|rank| {
            let node = rank.node();
            let buffer = node.alloc(LENGTH).unwrap();
            let export = inbox(&node, &buffer);
            let import = to(&node, 0);
            let source = node.alloc(100).unwrap();
            let backwards = core::ops::Range { start: 9, end: 3 };
            for range in [0..101, 100..101, 101..101, usize::MAX - 1..usize::MAX, backwards] {
                refused(import.send_from(&source, range.clone(), 0), &[&range.start.to_string(), "100"]);
                assert!(import.put_signal_from(&source, range, 0, 0, 1).is_err());
            }
            import.send_from(&source, 100..100, 0).unwrap();
            import.put_signal_from(&source, 0..100, 0, 104, 5).unwrap();
            assert_eq!(export.wait_signal(104, 5).unwrap(), 5);
        })
        .succeeds();
}
