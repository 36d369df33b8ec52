//! Atomic operations on words of another rank, and signals that are added to or have bits set.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mapwire::{Export, Import, Node, Rights};

use crate::harness::{Rank, job, refused};

const PAGE: u64 = 4096;
const LENGTH: usize = 3 * PAGE as usize;
const DESIGNS: [&str; 5] = ["hierarchical", "per-process", "shared-cache", "interrupt", "dynamic-handle"];

/// Exports of rank 0: on the direct path, by the ring, and heap memory that is mapped in part.
fn exports(node: &Node) -> Vec<Export> {
    let buffers = [node.alloc(LENGTH).unwrap(), node.alloc(LENGTH).unwrap()];
    let mut exports = vec![
        node.export_buffer(&buffers[0]).name("direct").start().unwrap(),
        node.export_buffer(&buffers[1]).name("ring").ring_only().start().unwrap(),
    ];
    let heap: &'static mut [u64] = vec![0; LENGTH / 8].leak();
    // SAFETY: leaked, and reached through the export.
    let export = unsafe { node.export_range(heap.as_mut_ptr().cast(), LENGTH) };
    exports.push(export.name("heap").start().unwrap());
    exports
}

fn import(node: &Node, name: &str) -> Import {
    node.import(0, name).rights(Rights::ALL).start().unwrap()
}

#[test]
fn additions_of_all_ranks_by_all_paths_are_all_counted() {
    const ROUNDS: u64 = 300;
    job(4)
        .run(|rank| {
            let node = rank.node();
            let exports = (rank.number == 0).then(|| exports(&node));
            for (at, name) in ["direct", "ring", "heap"].into_iter().enumerate() {
                let import = import(&node, name);
                let mut last = (None, None);
                for round in 0..ROUNDS {
                    // The first and the last word of the export are on its edges.
                    for word in [0, PAGE, LENGTH as u64 - 8] {
                        let old = import.fetch_add_u64(word, 1 << 32 | 1).unwrap();
                        if word == PAGE {
                            assert!(last.0 < Some(old), "{old} after {last:?}");
                            last.0 = Some(old);
                        }
                    }
                    // Its upper half is another word.
                    let old = import.fetch_add_u32(64, u32::MAX).unwrap();
                    // Down from 2^32.
                    let falls = last.1.is_none_or(|last| last == 0 || old < last);
                    assert!(falls, "{old} after {last:?} in round {round}");
                    last.1 = Some(old);
                }
                rank.meet(name);
                if let Some(exports) = &exports {
                    let all = ROUNDS * rank.size as u64;
                    let export = &exports[at];
                    for word in [0, PAGE, LENGTH as u64 - 8] {
                        assert_eq!(export.signal(word).unwrap(), all << 32 | all);
                    }
                    let word = u64::from(0_u32.wrapping_sub(all as u32));
                    assert_eq!(export.signal(64).unwrap(), word);
                }
            }
            rank.meet("end");
        })
        .succeeds();
}

#[test]
fn the_owner_and_importers_of_both_paths_add_to_one_word() {
    const ROUNDS: u64 = 20_000;
    job(3)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let buffer = node.alloc(4096).unwrap();
                // Of two exports of a buffer one is mapped.
                let exports = ["direct", "ring"].map(|name| node.export_buffer(&buffer).name(name).start().unwrap());
                rank.meet("imported");
                // SAFETY: an aligned word of the buffer, which outlives this, reached by atomics alone.
                let word = unsafe { AtomicU64::from_ptr(buffer.as_ptr().cast::<u64>().add(3)) };
                for _ in 0..ROUNDS {
                    word.fetch_add(1 << 32, Ordering::Relaxed);
                }
                rank.meet("end");
                assert_eq!(exports[0].signal(24).unwrap(), (ROUNDS << 32) + 2 * ROUNDS);
                return;
            }
            let import = import(&node, ["direct", "ring"][rank.number - 1]);
            assert_eq!(import.is_direct(), rank.number == 1);
            rank.meet("imported");
            for _ in 0..ROUNDS {
                import.fetch_add_u64(24, 1).unwrap();
            }
            rank.meet("end");
        })
        .succeeds();
}

#[test]
fn what_an_atomic_operation_answers_is_in_the_memory_when_the_export_is_revoked() {
    for name in ["direct", "ring", "heap", "edge"] {
        for round in 0..4 {
            job(3).called(format!("{name}-{round}")).run(|rank| revoked_amid(rank, name, round)).succeeds();
        }
    }
}

fn revoked_amid(rank: &Rank, name: &str, round: u64) {
    let node = rank.node();
    // The first words of heap memory are on its edge.
    let at = if name == "heap" { PAGE } else { 64 };
    if rank.number == 0 {
        let buffer = node.alloc(LENGTH).unwrap();
        let heap: &'static mut [u64] = vec![0; LENGTH / 8].leak();
        let (memory, export) = match name {
            "direct" => (buffer.as_ptr(), node.export_buffer(&buffer)),
            "ring" => (buffer.as_ptr(), node.export_buffer(&buffer).ring_only()),
            _ => {
                let memory = heap.as_mut_ptr().cast();
                // SAFETY: leaked, and read as atomics.
                (memory, unsafe { node.export_range(memory, LENGTH) })
            }
        };
        let export = export.name("it").start().unwrap();
        rank.meet("imported");
        let end = Instant::now() + Duration::from_millis(1 + 3 * round);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        export.revoke().unwrap();
        let told = [1, 2].map(|other| rank.read(&format!("told-{other}")));
        let told: u64 = told.iter().map(|text| text.parse::<u64>().unwrap()).sum();
        // SAFETY: an aligned word of memory that outlives this.
        let found = unsafe { AtomicU64::from_ptr(memory.wrapping_add(at as usize).cast()) };
        let found = found.load(Ordering::SeqCst);
        // Of each that got the error one may have been carried out.
        assert!((told..=told + 2).contains(&found), "{told} told, {found} there");
        rank.meet("end");
        return;
    }
    let import = import(&node, "it");
    rank.meet("imported");
    let mut told = 0;
    let error = loop {
        match import.fetch_add_u64(at, 1) {
            Ok(_) => told += 1,
            Err(error) => break error,
        }
    };
    refused(Err::<(), _>(error), &["rank 0", "revoked"]);
    refused(import.fetch_add_u64(at, 1), &["revoked"]);
    rank.note(&format!("told-{}", rank.number), &told.to_string());
    rank.meet("end");
}

#[test]
fn a_lock_of_swaps_and_compare_and_swaps_keeps_ranks_apart() {
    const ROUNDS: u32 = 100;
    for name in ["direct", "ring"] {
        job(3)
            .called(name)
            .run(|rank| {
                let node = rank.node();
                let exports = (rank.number == 0).then(|| exports(&node));
                let import = import(&node, name);
                let me = rank.number as u32 + 1;
                for _ in 0..ROUNDS {
                    while import.compare_swap_u32(8, 0, me).unwrap() != 0 {}
                    // Nobody else is here: what is read and written in two steps is not torn.
                    let mut count = [0; 8];
                    import.fetch(16, &mut count).unwrap();
                    let count = u64::from_le_bytes(count) + 1;
                    import.send(&count.to_le_bytes(), 16).unwrap();
                    assert_eq!(import.swap_u32(8, 0).unwrap(), me);
                }
                rank.meet("done");
                if let Some(exports) = &exports {
                    let export = &exports[usize::from(name == "ring")];
                    assert_eq!(export.signal(16).unwrap(), u64::from(3 * ROUNDS));
                }
                assert_eq!(import.compare_swap_u64(24, 5, 9).unwrap(), 0);
                assert_eq!(import.swap_u64(32 + 8 * u64::from(me), 1).unwrap(), 0);
                rank.meet("end");
            })
            .succeeds();
    }
}

#[test]
fn signals_of_several_senders_add_up_in_one_word() {
    const ROUNDS: u64 = 200;
    for wait in ["poll", "event"] {
        job(4)
            .called(wait)
            .option("--wait", wait)
            .run(|rank| {
                let node = rank.node();
                if rank.number == 0 {
                    for (export, name) in exports(&node).iter().zip(["direct", "ring", "heap"]) {
                        let senders = rank.size as u64 - 1;
                        export.wait_signal(8, senders * ROUNDS).unwrap();
                        assert_eq!(export.signal(8).unwrap(), senders * ROUNDS);
                        for sender in 1..rank.size as u64 {
                            assert_eq!(export.signal(2048 + 8 * sender).unwrap(), ROUNDS);
                        }
                        export.wait_signal(16, 0b1110).unwrap();
                        rank.meet(name);
                    }
                } else {
                    for name in ["direct", "ring", "heap"] {
                        let import = import(&node, name);
                        let own = 2048 + 8 * rank.number as u64;
                        for round in 1..=ROUNDS {
                            let data = round.to_le_bytes();
                            import.put_signal_add(&data, own, 8, 1).unwrap();
                        }
                        import.put_signal_or(&[], 0, 16, 1 << rank.number).unwrap();
                        rank.meet(name);
                    }
                }
            })
            .succeeds();
    }
}

#[test]
fn all_designs_carry_atomic_operations_out_once_and_in_order() {
    for design in DESIGNS {
        for mode in ["inline", "thread"] {
            job(2)
                .called(format!("{design}-{mode}"))
                .option("--translation", design)
                .option("--path", "ring")
                .with("MAPWIRE_DRIVER", mode)
                .run(|rank| {
                    let node = rank.node();
                    if rank.number == 0 {
                        let exports = exports(&node);
                        rank.meet("end");
                        assert_eq!(exports[0].signal(PAGE).unwrap(), 3 * 200);
                        assert!(node.nic_counters().atomics_served >= 200);
                    } else {
                        let import = import(&node, "direct");
                        for round in 0..200_u64 {
                            import.send(&(3 * round).to_le_bytes(), PAGE).unwrap();
                            // Behind the send, and itself once.
                            assert_eq!(import.fetch_add_u64(PAGE, 3).unwrap(), 3 * round);
                        }
                        rank.meet("end");
                    }
                })
                .succeeds();
        }
    }
}

#[test]
fn words_that_are_unaligned_outside_or_not_to_be_changed_are_refused_and_stay() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let exports = exports(&node);
                let buffer = node.alloc(64).unwrap();
                let fetches = node.export_buffer(&buffer).name("fetches");
                let fetches = fetches.rights(Rights::FETCH).start().unwrap();
                let gone = node.alloc(64).unwrap();
                let gone = node.export_buffer(&gone).name("gone").ring_only();
                let gone = gone.start().unwrap();
                let mut odd = [0_u64; 3];
                // SAFETY: the memory outlives the export and is read when that is over.
                let shifted = unsafe { node.export_range(odd.as_mut_ptr().cast::<u8>().wrapping_add(4), 16) };
                let shifted = shifted.name("shifted").start().unwrap();
                rank.meet("imported");
                gone.revoke().unwrap();
                rank.meet("revoked");
                rank.meet("end");
                for export in &exports {
                    assert_eq!(export.signal(0).unwrap(), 0);
                }
                drop((fetches, shifted));
                assert_eq!(odd, [0; 3]);
            } else {
                let gone = import(&node, "gone");
                let shifted = import(&node, "shifted");
                rank.meet("imported");
                rank.meet("revoked");
                for name in ["direct", "ring", "heap"] {
                    let import = import(&node, name);
                    let end = LENGTH as u64;
                    for offset in [1, 4, 7, PAGE - 4, end - 4] {
                        refused(import.fetch_add_u64(offset, 1), &["8 bytes", "multiple"]);
                    }
                    for offset in [2, PAGE - 1] {
                        refused(import.swap_u32(offset, 1), &["4 bytes", "multiple"]);
                    }
                    for offset in [end, end + 8, u64::MAX - 7] {
                        refused(import.fetch_add_u64(offset, 1), &["pass the end"]);
                        refused(import.compare_swap_u32(offset, 0, 1), &["pass the end"]);
                    }
                    refused(import.put_signal_add(&[], 0, 4, 1), &["multiple of 8"]);
                    refused(import.put_signal_or(&[], 0, end, 1), &["pass the end"]);
                }
                let fetches = node.import(0, "fetches").rights(Rights::FETCH);
                let fetches = fetches.start().unwrap();
                refused(fetches.fetch_add_u64(0, 1), &["right", "store"]);
                refused(gone.fetch_add_u64(0, 1), &["revoked"]);
                refused(shifted.fetch_add_u64(0, 1), &["passes the end"]);
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn an_exporter_that_is_killed_amid_atomic_operations_ends_them_with_an_error() {
    for name in ["direct", "ring"] {
        job(2)
            .called(name)
            .run(|rank| {
                let node = rank.node();
                if rank.number == 0 {
                    let _exports = exports(&node);
                    rank.meet("begun");
                    std::thread::sleep(Duration::from_millis(20));
                    std::process::abort();
                }
                let import = import(&node, name);
                rank.meet("begun");
                let begun = std::time::Instant::now();
                let mut before = None;
                loop {
                    match import.fetch_add_u64(8, 1) {
                        Ok(old) => {
                            assert_eq!(Some(old), before.map_or(Some(0), |old: u64| old.checked_add(1)));
                            before = Some(old);
                        }
                        Err(error) => {
                            let text = error.to_string();
                            break assert!(text.contains("rank 0") || text.contains("node 0"), "{text}");
                        }
                    }
                    assert!(begun.elapsed() < Duration::from_secs(20), "no error");
                }
                std::process::abort();
            })
            .code(134);
    }
}
