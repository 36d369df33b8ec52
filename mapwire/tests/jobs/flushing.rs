//! What a sender knows of what it has sent: flushes, revocations that cross sends, sends that fail half-way.

use std::time::{Duration, Instant};

use mapwire::{Error, ErrorKind, Import, Rights};

use crate::harness::{eventually, job, refused};

/// The designs of the ring path: one that pins ahead, one that stalls on a miss, one that drops what misses.
const DESIGNS: [&str; 3] = ["hierarchical", "interrupt", "dynamic-handle"];

#[test]
fn what_is_flushed_is_in_place_on_both_paths_and_with_every_design() {
    const LENGTH: usize = 300_000;
    for design in DESIGNS {
        job(2)
            .called(design)
            .option("--translation", design)
            .run(|rank| {
                let node = rank.node();
                if rank.number == 0 {
                    let exports = ["direct", "ring", "store"].map(|name| {
                        let buffer = node.alloc(LENGTH).unwrap();
                        let mut export = node.export_buffer(&buffer).name(name);
                        if name == "ring" {
                            export = export.ring_only();
                        }
                        if name == "store" {
                            export = export.rights(Rights::STORE);
                        }
                        (export.start().unwrap(), buffer)
                    });
                    rank.meet("exported");
                    rank.read("flushed");
                    for (_, buffer) in &exports {
                        let mut found = vec![0; LENGTH];
                        buffer.read(0, &mut found).unwrap();
                        assert!(found.iter().all(|byte| *byte == 7));
                    }
                    rank.meet("end");
                } else {
                    rank.meet("exported");
                    for name in ["direct", "ring", "store"] {
                        let import = node.import(0, name).start().unwrap();
                        import.flush().unwrap();
                        import.send(&vec![7; LENGTH - 1000], 0).unwrap();
                        for offset in (LENGTH - 1000..LENGTH).step_by(8) {
                            import.send(&[7; 8], offset as u64).unwrap();
                        }
                        import.flush().unwrap();
                    }
                    assert_eq!(node.refused_stores(), 0);
                    rank.note("flushed", "");
                    rank.meet("end");
                }
            })
            .succeeds();
    }
}

#[test]
fn once_an_importer_is_told_of_a_revocation_no_send_succeeds() {
    for name in ["direct", "ring"] {
        job(2)
            .called(name)
            .run(|rank| {
                let node = rank.node();
                let turns = 20;
                if rank.number == 0 {
                    let buffer = node.alloc(8192).unwrap();
                    for turn in 0..turns {
                        let mut export = node.export_buffer(&buffer).name(name);
                        if name == "ring" {
                            export = export.ring_only();
                        }
                        let export = export.start().unwrap();
                        rank.meet(&format!("imported{turn}"));
                        export.revoke().unwrap();
                        rank.note(&format!("revoked{turn}"), "");
                        rank.meet(&format!("over{turn}"));
                    }
                } else {
                    for turn in 0..turns {
                        let import = node.import(0, name).start().unwrap();
                        import.send(&[1; 8], 0).unwrap();
                        rank.meet(&format!("imported{turn}"));
                        rank.read(&format!("revoked{turn}"));
                        for _ in 0..600 {
                            let error = import.send(&[2; 8], 0).unwrap_err();
                            assert_eq!(error.kind(), ErrorKind::Revoked, "{error}");
                        }
                        let error = import.send(&[2; 5000], 0).unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::Revoked, "{error}");
                        rank.meet(&format!("over{turn}"));
                    }
                }
            })
            .succeeds();
    }
}

/// Sends words 1, 2, ... to their places until a send is refused; how many went.
fn send_words(import: &Import, most: u64) -> u64 {
    let end = Instant::now() + Duration::from_secs(30);
    for word in 0..most {
        match import.send(&(word + 1).to_le_bytes(), 8 * word) {
            Ok(()) => assert!(Instant::now() < end),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Revoked, "{error}");
                return word;
            }
        }
    }
    panic!("the export was not revoked in time");
}

#[test]
fn a_flush_after_a_revocation_counts_exactly_what_was_not_stored() {
    const WORDS: u64 = 1 << 22;
    for design in DESIGNS {
        job(2)
            .called(design)
            .option("--translation", design)
            .run(|rank| {
                let node = rank.node();
                if rank.number == 0 {
                    let buffer = node.alloc(8 * WORDS as usize).unwrap();
                    let export = node.export_buffer(&buffer).ring_only().name("words");
                    let export = export.start().unwrap();
                    rank.meet("exported");
                    export.wait_signal(8 * 500, 1).unwrap();
                    export.revoke().unwrap();
                    let stored =
                        (0..WORDS).take_while(|word| buffer.load_u64(8 * *word as usize).unwrap() != 0).count();
                    rank.note("stored", &stored.to_string());
                    rank.meet("end");
                } else {
                    rank.meet("exported");
                    let import = node.import(0, "words").start().unwrap();
                    let sent = send_words(&import, WORDS);
                    let stored: u64 = rank.read("stored").parse().unwrap();
                    match import.flush() {
                        Ok(()) => assert_eq!(sent, stored),
                        Err(Error::NotStored { count, first, .. }) => {
                            assert_eq!(sent - count, stored, "{sent} sent, {count} refused");
                            assert_eq!(first, Some((8 * stored, 8)));
                            assert!(node.refused_stores() <= count);
                        }
                        Err(error) => panic!("{error}"),
                    }
                    // Each is reported once.
                    import.flush().unwrap();
                    refused(import.send(&[1], 0), &["revoked", "words"]);
                    rank.meet("end");
                }
            })
            .succeeds();
    }
}

#[test]
fn a_flush_of_a_revoked_direct_import_says_that_nothing_is_known() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let buffer = node.alloc(4096).unwrap();
                let export = node.export_buffer(&buffer).name("inbox").start().unwrap();
                rank.meet("sent");
                export.revoke().unwrap();
                rank.meet("revoked");
                rank.meet("end");
            } else {
                let import = node.import(0, "inbox").start().unwrap();
                assert!(import.is_direct());
                import.send(&[1; 8], 0).unwrap();
                import.flush().unwrap();
                rank.meet("sent");
                rank.meet("revoked");
                let error = import.flush().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Revoked);
                let text = error.to_string();
                assert!(text.contains("inbox") && text.contains("may not have been stored"), "{text}");
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn a_send_that_fails_half_way_says_how_much_may_be_there() {
    const LENGTH: usize = 16 << 20;
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let buffer = node.alloc(LENGTH).unwrap();
                let export = node.export_buffer(&buffer).ring_only().name("long");
                let export = export.start().unwrap();
                rank.meet("exported");
                export.wait_signal(64 * 1024, 1).unwrap();
                export.revoke().unwrap();
                let mut found = vec![0; LENGTH];
                buffer.read(0, &mut found).unwrap();
                let stored = found.iter().filter(|byte| **byte != 0).count();
                rank.note("stored", &stored.to_string());
                rank.meet("end");
            } else {
                rank.meet("exported");
                let import = node.import(0, "long").start().unwrap();
                let error = import.send(&vec![9; LENGTH], 0).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Revoked, "{error}");
                let text = error.to_string();
                assert!(text.contains("may have been stored"), "{text}");
                let Error::Partial { sent_bytes, length, .. } = error else {
                    panic!("{error}");
                };
                let stored: u64 = rank.read("stored").parse().unwrap();
                assert!(stored > 64 * 1024 && stored <= sent_bytes, "{stored} of {sent_bytes}");
                assert!(sent_bytes < length && length == LENGTH as u64, "{sent_bytes}");
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn a_flush_to_a_rank_that_is_gone_names_it() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let exports = ["direct", "ring"].map(|name| {
                    let buffer = node.alloc(4096).unwrap();
                    let mut export = node.export_buffer(&buffer).name(name);
                    if name == "ring" {
                        export = export.ring_only();
                    }
                    export.start().unwrap()
                });
                rank.meet("imported");
                std::mem::forget((exports, node));
                std::process::exit(0);
            }
            let imports = ["direct", "ring"].map(|name| node.import(0, name).start().unwrap());
            rank.meet("imported");
            for import in imports {
                eventually("the flush fails", || {
                    node.poll();
                    import.flush().is_err()
                });
                refused(import.flush(), &["rank 0"]);
            }
        })
        .succeeds();
}

/// Memory of the kernel's choice, and its address.
fn mapped(bytes: usize) -> *mut u8 {
    use rustix::mm::{MapFlags, ProtFlags};
    // SAFETY: memory at a new place, which nothing else uses.
    unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }
    .unwrap()
    .cast()
}

#[test]
fn memory_that_was_sent_unmapped_and_sent_again_is_refused_by_address() {
    const BYTES: usize = 3 * 4096;
    for pinner in ["mlock", "io_uring"] {
        job(1)
            .called(pinner)
            .option("--pinner", pinner)
            .run(|rank| {
                let node = rank.node();
                let buffer = node.alloc(BYTES).unwrap();
                let export = node.export_buffer(&buffer).ring_only().name("inbox");
                let _export = export.start().unwrap();
                let import = node.import(0, "inbox").rights(Rights::ALL).start().unwrap();
                let memory = mapped(BYTES);
                // SAFETY: as a C program may: the memory is there at first, and then is not. Nothing but the library looks at it.
                let (from, into) = unsafe {
                    (std::slice::from_raw_parts(memory, BYTES), std::slice::from_raw_parts_mut(memory, BYTES))
                };
                import.send(from, 0).unwrap();
                import.fetch(0, into).unwrap();
                // SAFETY: the pages are this test's.
                unsafe { rustix::mm::munmap(memory.add(4096).cast(), 4096) }.unwrap();
                let at = format!("{:#x} is not mapped", memory as usize + 4096);
                for _ in 0..3 {
                    refused(import.send(from, 0), &[&at]);
                    refused(import.put_signal(from, 0, 0, 1), &[&at]);
                    refused(import.send_async(from, 0).map(drop), &[&at]);
                    refused(import.send(&from[4096..4200], 0), &[&at]);
                    refused(import.fetch(0, into), &[&at]);
                }
                import.send(&from[..4096], 0).unwrap();
                import.flush().unwrap();
            })
            .succeeds();
    }
}

#[test]
fn an_export_that_is_revoked_as_soon_as_it_is_granted_takes_no_sends_for_long() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            let mut granted = 0;
            for round in 0..20 {
                let name = format!("brief-{round}");
                rank.meet(&format!("round-{round}"));
                if rank.number == 0 {
                    let memory = node.alloc(4096).unwrap();
                    let brief = node.export_buffer(&memory).ring_only().name(&name);
                    // The other rank waits for it already, unless it is slow.
                    std::thread::sleep(Duration::from_millis(10));
                    brief.start().unwrap().revoke().unwrap();
                    continue;
                }
                let import = node.import(0, &name).timeout(Duration::from_millis(300));
                if let Ok(import) = import.start() {
                    granted += 1;
                    eventually("a send that fails", || import.send(&[1], 0).is_err());
                }
            }
            assert!(rank.number == 0 || granted > 0, "none was granted");
            rank.meet("end");
        })
        .succeeds();
}
