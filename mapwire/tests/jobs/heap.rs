//! Exports of memory that the program has: its whole pages are mapped by importers, its edges go by the ring.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mapwire::{Error, Import, Node, Rights};

use crate::harness::{job, pattern, refused};

const PAGE: usize = 4096;
/// Eight whole pages wherever it begins, and edges wherever that is not on a page.
const LENGTH: usize = 9 * PAGE;

/// Heap memory, and in it `LENGTH` bytes that begin `skip` bytes behind a page boundary.
struct Heap {
    memory: Vec<u8>,
    skip: usize,
}

impl Heap {
    fn new(skip: usize) -> Self {
        let memory = vec![0xa5; LENGTH + 3 * PAGE];
        let skip = memory.as_ptr().align_offset(PAGE) + skip;
        Self { memory, skip }
    }

    fn start(&mut self) -> *mut u8 {
        self.memory.as_mut_ptr().wrapping_add(self.skip)
    }

    fn export(&mut self, node: &Node, name: &str) -> mapwire::Export {
        let start = self.start();
        // SAFETY: the memory outlives the export, and is read through it.
        let export = unsafe { node.export_range(start, LENGTH) };
        export.name(name).start().unwrap()
    }

    /// What the export left, when it is over.
    fn bytes(&self) -> &[u8] {
        let (before, rest) = self.memory.split_at(self.skip);
        let (bytes, behind) = rest.split_at(LENGTH);
        assert!(before.iter().chain(behind).all(|byte| *byte == 0xa5));
        bytes
    }
}

fn import(node: &Node, name: &str) -> Import {
    node.import(0, name).rights(Rights::ALL).start().unwrap()
}

/// Whether the page at `address` is mapped so that other processes can share it.
fn is_shared(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        (number(start)..number(end)).contains(&address)
    });
    line.unwrap().split(' ').nth(1).unwrap().ends_with('s')
}

#[test]
fn whole_pages_are_mapped_and_private_again_after_the_export() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            for skip in [0, 16, 4088] {
                let name = format!("heap{skip}");
                if rank.number == 0 {
                    let mut heap = Heap::new(skip);
                    let inside = heap.start().addr() + 2 * PAGE;
                    let export = heap.export(&node, &name);
                    assert!(is_shared(inside));
                    rank.meet(&format!("stored{skip}"));
                    let mut found = vec![0; LENGTH];
                    export.read(0, &mut found).unwrap();
                    assert!(found == pattern(1, LENGTH));
                    export.revoke().unwrap();
                    assert!(!is_shared(inside));
                    rank.meet(&format!("revoked{skip}"));
                    rank.meet(&format!("refused{skip}"));
                    assert!(heap.bytes() == pattern(1, LENGTH));
                } else {
                    let import = import(&node, &name);
                    let first = (PAGE - skip) % PAGE;
                    let whole = (LENGTH - first) / PAGE * PAGE;
                    let mapped = first as u64..(first + whole) as u64;
                    assert_eq!(import.direct_range(), mapped);
                    assert_eq!(import.is_direct(), skip == 0);
                    import.send(&pattern(1, LENGTH), 0).unwrap();
                    import.flush().unwrap();
                    rank.meet(&format!("stored{skip}"));
                    rank.meet(&format!("revoked{skip}"));
                    for (offset, length) in [(0, 1), (first, 8), (LENGTH - 1, 1), (0, LENGTH)] {
                        refused(import.send(&vec![9; length], offset as u64), &["revoked"]);
                    }
                    rank.meet(&format!("refused{skip}"));
                }
            }
        })
        .succeeds();
}

#[test]
fn whoever_sees_a_signal_sees_the_data_wherever_either_lies() {
    const ROUNDS: u64 = 200;
    // Data across both edges, in one of them, within; signals at both edges and within.
    const DATA: [(usize, usize); 5] = [(8, LENGTH - 16), (8, 200), (PAGE, PAGE), (LENGTH - 300, 200), (8, PAGE + 8)];
    const SIGNALS: [usize; 3] = [0, 5 * PAGE, LENGTH - 8];
    for wait in ["poll", "event"] {
        job(2)
            .called(wait)
            .option("--wait", wait)
            .run(|rank| {
                let node = rank.node();
                if rank.number == 0 {
                    let mut heap = Heap::new(16);
                    heap.memory.fill(0);
                    let export = heap.export(&node, "heap");
                    // Where there is a signal in one round there may be data in another.
                    let clear = || {
                        for signal in SIGNALS {
                            export.write(signal as u64, &[0; 8]).unwrap();
                        }
                    };
                    let reply = node.import(1, "back").rights(Rights::ALL).start().unwrap();
                    for round in 1..=ROUNDS {
                        for (offset, length) in DATA {
                            for signal in SIGNALS {
                                if (offset..offset + length).contains(&signal) {
                                    continue;
                                }
                                export.wait_signal(signal as u64, round).unwrap();
                                let mut found = vec![0; length];
                                export.read(offset as u64, &mut found).unwrap();
                                let expected = round as u8;
                                assert!(
                                    found.iter().all(|byte| *byte == expected),
                                    "round {round}: {length} bytes at {offset}, signal at {signal}"
                                );
                                clear();
                                reply.put_signal(&[], 0, 0, round).unwrap();
                            }
                        }
                    }
                } else {
                    let own = node.alloc(8).unwrap();
                    let back = node.export_buffer(&own).name("back").start().unwrap();
                    let import = import(&node, "heap");
                    assert!(!import.is_direct() && !import.direct_range().is_empty());
                    for round in 1..=ROUNDS {
                        for (offset, length) in DATA {
                            for signal in SIGNALS {
                                if (offset..offset + length).contains(&signal) {
                                    continue;
                                }
                                let data = vec![round as u8; length];
                                import.put_signal(&data, offset as u64, signal as u64, round).unwrap();
                                back.wait_signal(0, round).unwrap();
                                own.store_u64(0, 0).unwrap();
                            }
                        }
                    }
                }
            })
            .succeeds();
    }
}

#[test]
fn threads_of_the_exporter_go_on_storing_while_exports_come_and_go() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 1 {
                for round in 0..60 {
                    let import = import(&node, &format!("words{round}"));
                    import.send(&[7; 8], LENGTH as u64 - 8).unwrap();
                    rank.meet(&format!("round{round}"));
                }
                return;
            }
            let words: Vec<AtomicU64> = (0..LENGTH as u64 / 8).map(|_| AtomicU64::new(0)).collect();
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let counting = scope.spawn(|| {
                    let mut count = 0;
                    while !over.load(Ordering::Relaxed) {
                        count += 1;
                        for word in &words[..words.len() - 1] {
                            assert_eq!(word.load(Ordering::Relaxed), count - 1);
                            word.store(count, Ordering::Relaxed);
                        }
                    }
                    count
                });
                for round in 0..60 {
                    let start = words.as_ptr().cast_mut().cast();
                    // SAFETY: the memory outlives the export and is reached by atomics.
                    let export = unsafe { node.export_range(start, LENGTH) };
                    let export = export.name(format!("words{round}")).start().unwrap();
                    rank.meet(&format!("round{round}"));
                    drop(export);
                }
                over.store(true, Ordering::Relaxed);
                let count = counting.join().unwrap();
                assert!(words[..words.len() - 1].iter().all(|word| word.load(Ordering::Relaxed) == count));
                let told = u64::from_ne_bytes([7; 8]);
                assert_eq!(words.last().unwrap().load(Ordering::Relaxed), told);
            });
        })
        .succeeds();
}

#[test]
fn memory_that_is_exported_twice_or_in_overlapping_parts_shows_the_same_bytes() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let mut heap = Heap::new(8);
                let start = heap.start();
                let whole = heap.export(&node, "whole");
                let again = heap.export(&node, "again");
                // SAFETY: as in `export`.
                let part = unsafe { node.export_range(start.wrapping_add(3 * PAGE), 4 * PAGE) };
                let part = part.name("part").start().unwrap();
                rank.meet("imported");
                // The one that is mapped goes first: the others go on.
                whole.revoke().unwrap();
                rank.meet("revoked");
                rank.meet("stored");
                let mut found = [0; 3];
                again.read(3 * PAGE as u64, &mut found).unwrap();
                assert_eq!(found, [4, 5, 6]);
                drop((again, part));
                assert_eq!(heap.bytes()[3 * PAGE..3 * PAGE + 3], [4, 5, 6]);
            } else {
                let [whole, again, part] = ["whole", "again", "part"].map(|name| import(&node, name));
                assert!(!whole.direct_range().is_empty());
                assert!(again.direct_range().is_empty() && part.direct_range().is_empty());
                whole.send(&[1, 2, 3], 3 * PAGE as u64).unwrap();
                let mut found = [0; 3];
                part.fetch(0, &mut found).unwrap();
                assert_eq!(found, [1, 2, 3]);
                rank.meet("imported");
                rank.meet("revoked");
                again.fetch(3 * PAGE as u64, &mut found).unwrap();
                assert_eq!(found, [1, 2, 3]);
                part.send(&[4, 5, 6], 0).unwrap();
                part.flush().unwrap();
                rank.meet("stored");
            }
        })
        .succeeds();
}

#[test]
fn importers_that_may_only_fetch_cannot_store_and_those_that_may_only_store_map_nothing() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let (mut read, mut write) = (Heap::new(0), Heap::new(0));
                let export = |heap: &mut Heap, name: &str, rights| {
                    let start = heap.start();
                    // SAFETY: as in `Heap::export`.
                    let export = unsafe { node.export_range(start, LENGTH) };
                    export.name(name).rights(rights).start().unwrap()
                };
                let fetches = export(&mut read, "fetches", Rights::FETCH);
                let stores = export(&mut write, "stores", Rights::STORE);
                // The exporter itself goes on storing.
                fetches.write(5, &[9]).unwrap();
                rank.meet("written");
                rank.meet("end");
                drop((fetches, stores));
                assert_eq!(read.bytes()[4..7], [0xa5, 9, 0xa5]);
                assert!(write.bytes().iter().all(|byte| *byte == 3));
            } else {
                let fetches = node.import(0, "fetches").rights(Rights::FETCH);
                let fetches = fetches.start().unwrap();
                assert!(fetches.is_direct());
                refused(fetches.send(&[1], 0), &["right"]);
                rank.meet("written");
                let mut found = [0; 3];
                fetches.fetch(4, &mut found).unwrap();
                assert_eq!(found, [0xa5, 9, 0xa5]);
                let stores = node.import(0, "stores").start().unwrap();
                assert!(stores.direct_range().is_empty());
                stores.send(&[3; LENGTH], 0).unwrap();
                stores.flush().unwrap();
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn a_rank_that_is_killed_takes_nothing_of_its_peers_memory_with_it() {
    for victim in [0, 1] {
        job(2)
            .called(victim.to_string())
            .run(|rank| {
                let node = rank.node();
                if rank.number == 0 {
                    let mut heap = Heap::new(40);
                    let export = heap.export(&node, "heap");
                    rank.meet("sending");
                    if victim == 0 {
                        std::thread::sleep(Duration::from_millis(20));
                        std::process::abort();
                    }
                    let outcome = export.wait_signal(0, u64::MAX);
                    assert!(matches!(outcome, Err(Error::Deserted { .. })), "{outcome:?}");
                    drop(export);
                    assert_eq!(heap.bytes().len(), LENGTH);
                } else {
                    let import = import(&node, "heap");
                    rank.meet("sending");
                    let begun = std::time::Instant::now();
                    while begun.elapsed() < Duration::from_millis(40) || victim == 0 {
                        if let Err(error) = import.send(&[1; LENGTH - 8], 8) {
                            assert_eq!(victim, 0, "{error}");
                            assert!(error.to_string().contains("rank 0"), "{error}");
                            break;
                        }
                        assert!(begun.elapsed() < Duration::from_secs(20), "no error");
                    }
                    std::process::abort();
                }
            })
            .code(134);
    }
}

#[test]
fn a_child_of_the_exporter_stores_into_its_own_memory() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let mut heap = Heap::new(0);
                let export = heap.export(&node, "heap");
                rank.meet("imported");
                let start = heap.start();
                // SAFETY: the child stores to its memory and ends.
                let status = unsafe {
                    let pid = libc::fork();
                    if pid == 0 {
                        let page = std::slice::from_raw_parts_mut(start, PAGE);
                        let sees = page.iter().all(|byte| *byte == 0xa5);
                        page.fill(1);
                        libc::_exit(i32::from(!sees));
                    }
                    let mut status = 0;
                    libc::waitpid(pid, &raw mut status, 0);
                    status
                };
                assert_eq!(status, 0);
                rank.meet("forked");
                rank.meet("end");
                drop(export);
                assert_eq!(heap.bytes()[..4], [0xa5, 0xa5, 3, 3]);
            } else {
                let import = import(&node, "heap");
                rank.meet("imported");
                rank.meet("forked");
                let mut found = vec![0; PAGE];
                import.fetch(0, &mut found).unwrap();
                assert!(found.iter().all(|byte| *byte == 0xa5));
                import.send(&[3, 3], 2).unwrap();
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn exports_beyond_the_share_of_descriptors_take_the_ring() {
    const EXPORTS: usize = 40;
    job(2)
        .run(|rank| {
            if rank.number == 0 {
                crate::harness::denials::lower_limit(rustix::process::Resource::Nofile, 128);
                let node = rank.node();
                let mut memory = vec![0_u8; (EXPORTS + 1) * PAGE];
                let skip = memory.as_ptr().align_offset(PAGE);
                let exports: Vec<_> = (0..EXPORTS)
                    .map(|number| {
                        let start = memory.as_mut_ptr().wrapping_add(skip + number * PAGE);
                        // SAFETY: the memory outlives the exports.
                        let export = unsafe { node.export_range(start, PAGE) };
                        export.name(format!("page{number}")).start().unwrap()
                    })
                    .collect();
                rank.meet("end");
                drop(exports);
                let pages = memory[skip..].chunks_exact(PAGE).take(EXPORTS);
                assert!(pages.enumerate().all(|(number, page)| page[7] == number as u8));
            } else {
                let node = rank.node();
                let mut direct = 0;
                for number in 0..EXPORTS {
                    let import = import(&node, &format!("page{number}"));
                    direct += usize::from(import.is_direct());
                    import.send(&[number as u8], 7).unwrap();
                    import.flush().unwrap();
                }
                assert_eq!(direct, 128 / 8);
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn an_export_stands_however_few_descriptors_are_left_for_it() {
    job(1)
        .run(|rank| {
            let node = rank.node();
            let mut heap = Heap::new(0);
            let mut all = Vec::new();
            crate::harness::denials::lower_limit(rustix::process::Resource::Nofile, 256);
            while let Ok(file) = std::fs::File::open("/dev/null") {
                all.push(file);
            }
            let mut directs = Vec::new();
            for left in 0..6 {
                let export = heap.export(&node, "heap");
                // One more for the next, and for a look at this one.
                all.pop();
                directs.push(is_shared(heap.start().addr()));
                export.write(0, &[left; LENGTH]).unwrap();
                export.revoke().unwrap();
                assert!(heap.bytes().iter().all(|byte| *byte == left));
            }
            assert!(!directs[0] && directs[5], "{directs:?}");
        })
        .succeeds();
}
