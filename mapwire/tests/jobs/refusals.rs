//! What is asked for and may not be had: a clear error, and nothing written.

use std::time::{Duration, Instant};

use mapwire::{Importers, Key, Rights};

use crate::harness::{job, refused};

#[test]
fn a_range_outside_the_export_is_refused_on_both_paths_and_nothing_is_written() {
    const LENGTH: u64 = 5000;
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                // Both exports have memory of this process before and behind them.
                let mut heap = vec![0xa5_u8; 3 * 4096 + LENGTH as usize];
                let start = heap.as_mut_ptr().wrapping_add(4096 + 33);
                // SAFETY: the memory outlives the export and is read when that is over.
                let ring = unsafe { node.export_range(start, LENGTH as usize) };
                let ring = ring.ring_only().name("ring").start().unwrap();
                let mut other = vec![0xa5_u8; 3 * 4096 + LENGTH as usize];
                let start = other.as_mut_ptr().wrapping_add(4096 + 33);
                // SAFETY: as above.
                let part = unsafe { node.export_range(start, LENGTH as usize) };
                let part = part.name("part").start().unwrap();
                let buffer = node.alloc(LENGTH as usize).unwrap();
                buffer.write(0, &[0xa5; LENGTH as usize]).unwrap();
                let direct = node.export_buffer(&buffer).name("direct").start().unwrap();
                rank.meet("end");
                let mut found = vec![0; LENGTH as usize];
                direct.read(0, &mut found).unwrap();
                assert!(found.iter().all(|byte| *byte == 0xa5));
                drop((ring, part, direct));
                assert!(heap.iter().chain(&other).all(|byte| *byte == 0xa5));
            } else {
                for name in ["ring", "part", "direct"] {
                    let import = node.import(0, name).rights(Rights::ALL).start().unwrap();
                    assert_eq!(import.is_direct(), name == "direct");
                    let parts = ["pass the end", "5000"];
                    for (offset, length) in [
                        (LENGTH, 1),
                        (LENGTH - 1, 2),
                        (0, LENGTH as usize + 1),
                        (LENGTH + 1, 0),
                        (u64::MAX, 1),
                        (u64::MAX, 0),
                        (u64::MAX - 100, 101),
                        (1 << 40, 8),
                        (0, 1 << 20),
                    ] {
                        let mut data = vec![1; length];
                        refused(import.send(&data, offset), &parts);
                        refused(import.send_notify(&data, offset), &parts);
                        refused(import.put_signal(&data, offset, 0, 1), &parts);
                        refused(import.fetch(offset, &mut data), &parts);
                        refused(import.send_async(data, offset).map(drop), &parts);
                    }
                    for (signal, part) in [
                        (LENGTH - LENGTH % 8, "pass the end"),
                        (LENGTH + 8 - LENGTH % 8, "pass the end"),
                        (u64::MAX - 7, "pass the end"),
                        (4, "multiple of 8"),
                        (LENGTH - 9, "multiple of 8"),
                    ] {
                        refused(import.put_signal(&[1; 10], 16, signal, 1), &[part]);
                        refused(import.put_signal(&[1; 1000], 16, signal, 1), &[part]);
                    }
                }
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn zero_bytes_are_sent_anywhere_within_and_mean_nothing() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                refused(node.alloc(0).map(drop), &["0 bytes"]);
                refused(node.alloc(usize::MAX).map(drop), &["bytes"]);
                refused(node.alloc(1 << 60).map(drop), &["bytes"]);
                let buffer = node.alloc(100).unwrap();
                let empty = node.export_buffer(&buffer).range(50, 0).unwrap().name("empty");
                refused(empty.start().map(drop), &["0 bytes", "at least 1"]);
                refused(node.export_buffer(&buffer).range(50, 51).map(drop), &["pass the end"]);
                let huge = node.export_buffer(&buffer).range(u64::MAX, 2);
                refused(huge.map(drop), &["pass the end"]);
                let ring = node.export_buffer(&buffer).ring_only().name("ring").start().unwrap();
                let direct = node.export_buffer(&buffer).name("direct").start().unwrap();
                rank.meet("end");
                let mut found = [1; 100];
                buffer.read(0, &mut found).unwrap();
                assert_eq!(found, [0; 100]);
                drop((ring, direct));
            } else {
                for name in ["ring", "direct"] {
                    let import = node.import(0, name).rights(Rights::ALL).start().unwrap();
                    for offset in [0, 1, 99, 100] {
                        import.send(&[], offset).unwrap();
                        import.send_notify(&[], offset).unwrap();
                        import.fetch(offset, &mut []).unwrap();
                        let back = import.send_async(Vec::new(), offset).unwrap();
                        assert!(back.wait().unwrap().is_empty());
                    }
                }
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn a_right_that_was_not_granted_cannot_be_used() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let buffer = node.alloc(8192).unwrap();
                let exports: Vec<_> = [
                    ("store", Rights::STORE, false),
                    ("fetch", Rights::FETCH, true),
                    ("fetch-direct", Rights::FETCH, false),
                    ("all", Rights::ALL, true),
                ]
                .into_iter()
                .map(|(name, rights, ring)| {
                    let mut export = node.export_buffer(&buffer).name(name).rights(rights);
                    if ring {
                        export = export.ring_only();
                    }
                    export.start().unwrap()
                })
                .collect();
                let none = Rights::from_bits(0).unwrap();
                let useless = node.export_buffer(&buffer).name("none").rights(none).start();
                refused(useless.map(drop), &["without rights"]);
                rank.meet("end");
                assert_eq!(buffer.load_u64(0).unwrap(), 0);
                drop(exports);
            } else {
                for (name, asked) in [
                    ("store", Rights::FETCH),
                    ("store", Rights::ALL),
                    ("fetch", Rights::STORE),
                    ("fetch-direct", Rights::ALL),
                ] {
                    let outcome = node.import(0, name).rights(asked).start();
                    refused(outcome.map(drop), &["0", name, "right"]);
                }
                let mut word = [0; 8];
                let store = node.import(0, "store").start().unwrap();
                assert!(!store.is_direct(), "what can be mapped for stores can be read");
                refused(store.fetch(0, &mut word), &["store", "fetch"]);
                for name in ["fetch", "fetch-direct"] {
                    let fetch = node.import(0, name).rights(Rights::FETCH).start().unwrap();
                    assert_eq!(fetch.is_direct(), name == "fetch-direct");
                    refused(fetch.send(&word, 0), &["store", "fetch"]);
                    refused(fetch.send_notify(&word, 0), &["store", "fetch"]);
                    refused(fetch.put_signal(&[], 0, 0, 1), &["store", "fetch"]);
                    fetch.fetch(0, &mut word).unwrap();
                }
                // An import has the rights that it asked for, not those that it could have had.
                let modest = node.import(0, "all").rights(Rights::STORE).start().unwrap();
                refused(modest.fetch(0, &mut word), &["fetch"]);
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn an_import_has_the_rights_that_it_asks_for_or_else_all_of_the_export_on_every_path() {
    for (label, options) in
        [("direct", ["--path", "direct"]), ("ring", ["--path", "ring"]), ("udp", ["--transport", "udp"])]
    {
        job(2)
            .called(label)
            .option(options[0], options[1])
            .run(|rank| {
                let node = rank.node();
                let gives = [Rights::ALL, Rights::STORE, Rights::FETCH];
                if rank.number == 0 {
                    let buffers = [(); 3].map(|()| node.alloc(4096).unwrap());
                    let exports = buffers.iter().zip(gives).map(|(buffer, rights)| {
                        let export = node.export_buffer(buffer).rights(rights);
                        export.name(rights.to_string()).start().unwrap()
                    });
                    let _exports: Vec<_> = exports.collect();
                    rank.meet("end");
                    return;
                }
                let mut word = [0; 8];
                for rights in gives {
                    let import = node.import(0, &rights.to_string()).start().unwrap();
                    assert_eq!(import.rights(), rights);
                    let (stores, fetches) = (import.send(&word, 0), import.fetch(0, &mut word));
                    assert_eq!(stores.is_ok(), rights.contains(Rights::STORE), "{stores:?}");
                    assert_eq!(fetches.is_ok(), rights.contains(Rights::FETCH), "{fetches:?}");
                }
                let all = Rights::ALL.to_string();
                let modest = node.import(0, &all).rights(Rights::STORE).start().unwrap();
                assert_eq!(modest.rights(), Rights::STORE);
                refused(modest.fetch(0, &mut word), &["fetch"]);
                modest.send(&word, 0).unwrap();
                rank.meet("end");
            })
            .succeeds();
    }
}

#[test]
fn memory_mapped_for_fetches_only_cannot_be_written_through() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let buffer = node.alloc(3 * 4096).unwrap();
                let export = node.export_buffer(&buffer).name("read").rights(Rights::FETCH);
                let _export = export.start().unwrap();
                rank.meet("end");
            } else {
                let import = node.import(0, "read").rights(Rights::FETCH).start().unwrap();
                assert!(import.is_direct());
                let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
                let mine: Vec<&str> = maps.lines().filter(|line| line.contains("mapwire-alloc")).collect();
                assert!(!mine.is_empty(), "{maps}");
                for line in mine {
                    assert!(line.split_whitespace().nth(1).unwrap().starts_with("r--"), "{line}");
                }
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn an_import_that_nobody_exports_times_out_and_names_it() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 1 {
                let start = Instant::now();
                let short = Duration::from_millis(150);
                let outcome = node.import(0, "no-such-thing").timeout(short).start();
                refused(outcome.map(drop), &["no-such-thing", "0", "150 ms"]);
                // Far from the timeout of the job.
                assert!(start.elapsed() >= short && start.elapsed() < Duration::from_secs(20));
                refused(node.import(2, "inbox").start().map(drop), &["rank 2", "2 ranks"]);
                refused(node.import(usize::MAX, "inbox").start().map(drop), &["2 ranks"]);
                refused(node.import(0, "").start().map(drop), &["1 to 255 bytes"]);
                let long = "n".repeat(256);
                refused(node.import(0, &long).start().map(drop), &["1 to 255 bytes", "256"]);
                // It comes late, but in time.
                rank.note("waiting", "");
                node.import(0, &long[1..]).start().unwrap();
                rank.meet("end");
            } else {
                let buffer = node.alloc(10).unwrap();
                rank.read("waiting");
                std::thread::sleep(Duration::from_millis(50));
                let long = "n".repeat(256);
                refused(node.export_buffer(&buffer).name(&long).start().map(drop), &["255"]);
                refused(node.export_buffer(&buffer).start().map(drop), &["1 to 255 bytes"]);
                let _export = node.export_buffer(&buffer).name(&long[1..]).start().unwrap();
                let again = node.export_buffer(&buffer).name(&long[1..]).start();
                refused(again.map(drop), &["exported by this process already", "choose another name"]);
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn only_those_whom_the_exporter_names_may_import() {
    let (token, other) = (Key([7; 16]), Key([8; 16]));
    job(3)
        .run(|rank| {
            let node = rank.node();
            let me = rustix::process::getuid().as_raw();
            if rank.number == 0 {
                let buffer = node.alloc(10).unwrap();
                let second = Importers::Nodes(vec![mapwire_wire::NodeId(2)]);
                let _exports: Vec<_> = [
                    ("second", second),
                    ("token", Importers::Token(token)),
                    ("mine", Importers::User(me)),
                    ("others", Importers::User(me + 1)),
                ]
                .into_iter()
                .map(|(name, importers)| {
                    let export = node.export_buffer(&buffer).name(name);
                    export.importers(importers).start().unwrap()
                })
                .collect();
                rank.meet("end");
            } else {
                let parts = &["does not let this importer in"];
                let second = node.import(0, "second").start();
                if rank.number == 2 {
                    second.unwrap();
                } else {
                    refused(second.map(drop), parts);
                }
                node.import(0, "token").token(token).start().unwrap();
                node.import(0, "mine").start().unwrap();
                refused(node.import(0, "token").start().map(drop), parts);
                refused(node.import(0, "token").token(other).start().map(drop), parts);
                refused(node.import(0, "others").start().map(drop), parts);
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn memory_that_is_not_this_processs_to_lend_is_refused() {
    static CONSTANT: [u8; 4096] = [3; 4096];
    job(1)
        .run(|rank| {
            let node = rank.node();
            let nowhere = std::ptr::without_provenance_mut::<u8>(0x1000);
            // SAFETY: nothing is exported; that is what is tested.
            let exports = unsafe {
                [
                    node.export_range(nowhere, 100),
                    node.export_range(CONSTANT.as_ptr().cast_mut(), 4096),
                    node.export_range(CONSTANT.as_ptr().cast_mut(), usize::MAX),
                    node.export_range(std::ptr::null_mut(), 1),
                ]
            };
            for export in exports {
                refused(export.name("bad").start().map(drop), &["not all memory that this process may read and write"]);
            }
            let shared = rank.shared(&node);
            let slice = shared.alloc::<u64>(100).unwrap();
            // SAFETY: as above.
            let export = unsafe { node.export_range(slice.as_ptr().cast(), 800) };
            refused(export.name("shared").start().map(drop), &["shared memory", "memory of this process"]);
            shared.close().unwrap();
        })
        .succeeds();
}
