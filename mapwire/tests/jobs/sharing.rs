//! Shared memory: minipages, both ways of catching faults.

use mapwire::{AllocOptions, Coherence, Shared, SharedBox, SharedSlice, Unit};

use crate::harness::{Job, Rank, job, pattern, refusal, refused};

/// Where the views lie, usually.
const BASE: u64 = 0x3000_0000_0000;

const BACKENDS: [&str; 2] = ["userfaultfd", "sigsegv"];

/// Runs `body` as `ranks` ranks with each backend, with shared memory open.
pub(crate) fn on_both(ranks: u32, body: fn(&Rank, &Shared)) {
    on_both_over("", ranks, body);
}

/// As [`on_both`], and with memory that the processor keeps coherent.
pub(crate) fn on_all(ranks: u32, body: fn(&Rank, &Shared)) {
    on_both(ranks, body);
    job(ranks)
        .called("one host")
        .option("--coherence", "auto")
        .option("--shared", "256M")
        .run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            assert_eq!((shared.coherence(), shared.faults()), (Coherence::Auto, None));
            body(rank, &shared);
            shared.close().unwrap();
        })
        .succeeds();
}

/// As [`on_both`], over a transport that is named, if it is.
pub(crate) fn on_both_over(transport: &str, ranks: u32, body: fn(&Rank, &Shared)) {
    for faults in BACKENDS {
        let mut job = job(ranks);
        if !transport.is_empty() {
            job = job.option("--transport", transport);
        }
        job.called(faults)
            .option("--faults", faults)
            .option("--shared", "256M")
            .run(|rank| {
                let node = rank.node();
                let shared = rank.shared(&node);
                assert_eq!(shared.faults().unwrap().to_string(), faults);
                body(rank, &shared);
                shared.close().unwrap();
            })
            .succeeds();
    }
}

/// Each rank allocates `length` words, and learns where the others' are.
pub(crate) fn one_each(rank: &Rank, shared: &Shared, length: usize) -> Vec<SharedSlice<u64>> {
    let own = shared.alloc::<u64>(length).unwrap();
    (0..rank.size).map(|root| shared.broadcast_slice(root, (root == rank.number).then_some(own)).unwrap()).collect()
}

#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C, align(32))]
struct Vector([u64; 4]);

#[test]
fn values_that_need_more_alignment_than_others_get_it() {
    on_all(1, |_, shared| {
        for _ in 0..4 {
            shared.alloc::<u8>(16).unwrap();
            let vector = shared.alloc::<Vector>(1).unwrap();
            assert!(vector.as_ptr().is_aligned(), "{vector:?}");
            vector.set(0, Vector([7; 4]));
            assert_eq!(vector.get(0).0, [7; 4]);
        }
    });
}

#[test]
fn ranks_that_write_neighbours_on_one_page_do_not_disturb_each_other() {
    on_all(3, |rank, shared| {
        // Rank 0 allocates all, so that they share pages: 30 minipages of 128 bytes.
        let slices: Vec<SharedSlice<u64>> = (0..30)
            .map(|_| {
                let slice = (rank.number == 0).then(|| shared.alloc::<u64>(16).unwrap());
                shared.broadcast_slice(0, slice).unwrap()
            })
            .collect();
        // A view of 256 MiB, then a hole of 2 MiB.
        let page = |slice: &SharedSlice<u64>| (slice.address() - BASE) % (258 << 20) / 4096;
        assert!(slices.iter().all(|slice| page(slice) == page(&slices[0])), "they are on one page");
        let own = || slices.iter().skip(rank.number).step_by(rank.size);
        for slice in own() {
            slice.set(0, 0);
        }
        shared.barrier().unwrap();
        let before = shared.counters();
        for turn in 0..2000 {
            for slice in own() {
                for index in [0, 7, 15] {
                    slice.set(index, slice.get(index) + turn);
                }
            }
        }
        let after = shared.counters();
        assert_eq!(after.read_faults, before.read_faults);
        assert_eq!(after.write_faults, before.write_faults);
        assert_eq!(after.spurious_faults, before.spurious_faults);
        assert_eq!(after.invalidations + after.downgrades, before.invalidations + before.downgrades);
        shared.barrier().unwrap();
        let sum = 2000 * 1999 / 2;
        assert!(slices.iter().all(|slice| slice.get(0) == sum && slice.get(15) == sum && slice.get(8) == 0));
    });
}

#[test]
fn a_minipage_moves_as_a_whole_whatever_its_size() {
    const SIZES: [usize; 7] = [1, 100, 4095, 4096, 4097, 65_536 + 3, 1 << 20];
    on_both(3, |rank, shared| {
        let slices: Vec<SharedSlice<u8>> = SIZES
            .iter()
            .map(|size| {
                let options = AllocOptions::new().unit(Unit::Whole);
                let slice = (rank.number == 0).then(|| shared.alloc_with::<u8>(*size, &options).unwrap());
                shared.broadcast_slice(0, slice).unwrap()
            })
            .collect();
        for (slice, size) in slices.iter().zip(SIZES) {
            let mut found = vec![1; size];
            slice.read_into(0, &mut found).unwrap();
            assert!(found.iter().all(|byte| *byte == 0), "fresh memory is zero");
        }
        shared.barrier().unwrap();
        for turn in 0..4 {
            let writer = turn % rank.size;
            for (slice, size) in slices.iter().zip(SIZES) {
                if rank.number == writer {
                    slice.write_from(0, &pattern((turn * size) as u64, size)).unwrap();
                }
            }
            shared.barrier().unwrap();
            let before = shared.counters();
            for (slice, size) in slices.iter().zip(SIZES) {
                let mut found = vec![0; size];
                slice.read_into(0, &mut found).unwrap();
                assert!(found == pattern((turn * size) as u64, size), "{size} bytes in turn {turn}");
            }
            let after = shared.counters();
            let faults = after.read_faults - before.read_faults;
            if rank.number == writer {
                assert_eq!(faults, 0, "the writer has it all");
            } else {
                // Strides of faults may have brought some ahead.
                assert!((1..=SIZES.len() as u64).contains(&faults), "one fault fetches a minipage, however long");
            }
            shared.barrier().unwrap();
        }
    });
}

#[test]
fn what_is_asked_for_ahead_is_there_without_a_fault() {
    on_both(2, |rank, shared| {
        let slices: Vec<SharedSlice<u64>> = (0..8)
            .map(|_| {
                let options = AllocOptions::new().unit(Unit::Whole);
                let slice = (rank.number == 0).then(|| shared.alloc_with::<u64>(1024, &options).unwrap());
                shared.broadcast_slice(0, slice).unwrap()
            })
            .collect();
        for (number, slice) in slices.iter().enumerate().filter(|_| rank.number == 0) {
            slice.set(1023, number as u64);
        }
        shared.barrier().unwrap();
        let before = shared.counters();
        for (number, slice) in slices.iter().enumerate().filter(|_| rank.number == 1) {
            if number % 2 == 0 {
                shared.prefetch(slice).unwrap();
            } else {
                shared.prefetch_to_write(&slice.part(600, 10).unwrap()).unwrap();
            }
            shared.prefetch(&slice.part(0, 0).unwrap()).unwrap();
        }
        // A barrier releases the last rank ahead of its arrival; by the second, rank 0 has answered.
        shared.barrier().unwrap();
        shared.barrier().unwrap();
        if rank.number == 1 {
            for (number, slice) in slices.iter().enumerate() {
                assert_eq!(slice.get(1023), number as u64);
                if number % 2 == 1 {
                    slice.set(0, 7);
                }
            }
            let after = shared.counters();
            assert_eq!(after.prefetches - before.prefetches, 8);
            assert_eq!(after.read_faults, before.read_faults);
            assert_eq!(after.write_faults, before.write_faults);
        }
        shared.barrier().unwrap();
        assert_eq!(slices[1].get(0), 7);
    });
}

#[test]
fn a_rank_that_tells_others_of_a_slice_beyond_the_memory_is_not_believed() {
    on_all(2, |rank, shared| {
        let slice = shared.alloc::<u64>(8).unwrap();
        for length in [u64::MAX, u64::MAX / 8, 1 << 60, 1 << 40] {
            if rank.number == 0 {
                shared.broadcast(0, slice.address()).unwrap();
                shared.broadcast(0, length).unwrap();
            } else {
                let told = shared.broadcast_slice::<u64>(0, None);
                assert!(told.is_err(), "{told:?} of {length} words");
            }
            let bytes = length.saturating_mul(8);
            let runs = [(slice.address(), 8, false), (slice.address(), bytes, true)];
            assert!(shared.prefetch_all(&runs).is_err());
        }
    });
}

#[test]
fn all_ranks_and_threads_allocate_at_once_and_no_two_get_the_same() {
    on_all(3, |rank, shared| {
        const EACH: usize = 60;
        let mut own: Vec<SharedSlice<u64>> = Vec::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2_usize)
                .map(|thread| {
                    scope.spawn(move || {
                        (0..EACH)
                            .map(|number| {
                                let words = [1, 8, 30, 600][(number + thread) % 4];
                                let slice = shared.alloc::<u64>(words).unwrap();
                                let stamp = stamp(rank.number, thread, number);
                                assert_eq!((slice.get(0), slice.get(words - 1)), (0, 0));
                                slice.set(0, stamp);
                                slice.set(words - 1, stamp);
                                slice
                            })
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            own = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        });
        // A table of them all, in shared memory itself: address, words.
        let tables = one_each(rank, shared, 2 * 2 * EACH);
        for (at, slice) in own.iter().enumerate() {
            tables[rank.number].set(2 * at, slice.address());
            tables[rank.number].set(2 * at + 1, slice.len() as u64);
        }
        shared.barrier().unwrap();
        let mut ranges = Vec::new();
        for (owner, table) in tables.iter().enumerate() {
            for at in 0..2 * EACH {
                let (address, words) = (table.get(2 * at), table.get(2 * at + 1) as usize);
                // SAFETY: the owner allocated it and wrote address and length into its table before the barrier.
                let slice = unsafe { SharedSlice::<u64>::from_address(shared, address, words) }.unwrap();
                let stamp = stamp(owner, at / EACH, at % EACH);
                assert_eq!((slice.get(0), slice.get(words - 1)), (stamp, stamp));
                ranges.push((address, address + 8 * words as u64));
            }
        }
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|two| two[0].1 <= two[1].0), "two overlap");
        shared.barrier().unwrap();
    });
}

fn stamp(rank: usize, thread: usize, number: usize) -> u64 {
    (rank * 1_000_000 + thread * 1000 + number + 1) as u64
}

#[test]
fn what_cannot_be_allocated_or_named_is_refused() {
    job(2)
        .option("--shared", "1M")
        .option("--views", "2")
        .run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            refused(shared.alloc::<u64>(0).map(drop), &["0 bytes", "at least 1"]);
            refused(shared.alloc::<u64>(1 << 40).map(drop), &["shared memory is full", "larger segment"]);
            refused(shared.alloc::<u64>(usize::MAX).map(drop), &["shared memory is full"]);
            refused(shared.lock(4096).map(drop), &["4096"]);
            refused(shared.barrier_of(256), &["256"]);
            refused(shared.broadcast(2, 1).map(drop), &["rank 2", "2 ranks"]);
            refused(shared.set_threads(0), &["between 1 and 64"]);
            refused(shared.set_threads(65), &["between 1 and 64"]);
            refused(shared.unlock(7), &["7"]);
            let held = shared.lock(7).unwrap();
            if rank.number == 0 {
                refused(shared.lock(7).map(drop), &["7"]);
            }
            drop(held);
            // Both fill it up to the last page.
            let mut pages = 0;
            let full = loop {
                match shared.alloc_bytes(4096) {
                    Ok(_) => pages += 1,
                    Err(error) => break error.to_string(),
                }
            };
            assert!(full.contains("shared memory is full"), "{full}");
            let slice = shared.alloc::<u64>(1).map(|slice| slice.set(0, 1));
            assert!(slice.is_ok() || refusal(slice).contains("full"));
            println!("{pages} pages");
            for (address, words, part) in [
                (BASE, 1, "not all memory"),
                (BASE, usize::MAX, "not all memory"),
                (0, 1, "not all memory"),
                (u64::MAX - 7, 1, "not all memory"),
                (shared.alloc_bytes(1).unwrap_or(1), 1 << 30, "not all memory"),
            ] {
                // SAFETY: what is refused is not used.
                let slice = unsafe { SharedSlice::<u64>::from_address(&shared, address, words) };
                refused(slice.map(drop), &[part]);
            }
            shared.barrier().unwrap();
            shared.close().unwrap();
        })
        .succeeds();
}

#[test]
fn a_wild_pointer_into_the_shared_memory_is_reported_and_ends_the_rank_as_any_other() {
    for (faults, code) in [("userfaultfd", 128 + 7), ("sigsegv", 128 + 11)] {
        job(2)
            .called(faults)
            .option("--faults", faults)
            .run(|rank| {
                let node = rank.node();
                let shared = rank.shared(&node);
                let own = shared.alloc::<u64>(8).unwrap();
                shared.barrier().unwrap();
                if rank.number == 1 {
                    let wild = std::ptr::with_exposed_provenance::<u64>(own.address() as usize + (64 << 20));
                    // SAFETY: a page of the shared memory that nobody allocated: it faults, which is what is tested.
                    println!("read {}", unsafe { wild.read_volatile() });
                }
                let _ = shared.barrier();
            })
            .code(code)
            .soon()
            .says("mapwire: rank 1: access to shared memory at 0x")
            .says("no allocation covers page")
            .prints("read", 0);
    }
}

#[test]
fn a_rank_that_drops_the_memory_without_waiting_is_named_to_those_who_still_use_it() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            if rank.number == 0 {
                drop(shared);
                rank.read("told");
                // It can be opened again once all have given it up.
                rank.meet("again");
                rank.shared(&node).close().unwrap();
            } else {
                refused(shared.barrier(), &["rank 0", "taken its part of the shared memory away"]);
                refused(shared.alloc_bytes(8), &["rank 0"]);
                refused(shared.prefetch_all(&[]), &["rank 0"]);
                drop(shared);
                rank.note("told", "");
                rank.meet("again");
                rank.shared(&node).close().unwrap();
            }
        })
        .succeeds();
}

#[test]
fn memory_that_all_have_closed_is_opened_again_at_once() {
    for faults in BACKENDS {
        let job = job(3).called(faults).option("--faults", faults);
        job.option("--shared", "64M")
            .run(|rank| {
                let node = rank.node();
                for round in 0..40 {
                    let shared = rank.shared(&node);
                    let word = one_each(rank, &shared, 1)[round % 3];
                    let held = shared.lock(1).unwrap();
                    word.set(0, word.get(0) + 1);
                    drop(held);
                    shared.barrier().unwrap();
                    assert_eq!(word.get(0), 3, "round {round}");
                    shared.close().unwrap();
                }
            })
            .succeeds()
            .soon();
    }
}

#[test]
fn shared_memory_opens_after_a_try_to_which_a_rank_did_not_come() {
    job(2)
        .option("--timeout", "2")
        .option("--shared", "64M")
        .run(|rank| {
            let node = rank.node();
            let buffer = node.alloc(4096).unwrap();
            let mut tried = None;
            if rank.number == 0 {
                let error = Shared::open(&node, 1).unwrap_err();
                assert!(error.to_string().contains("rank 1 has not opened"), "{error}");
                tried = Some(node.export_buffer(&buffer).name("tried").start().unwrap());
            } else {
                let wait = std::time::Duration::from_secs(20);
                node.import(0, "tried").timeout(wait).start().unwrap();
            }
            let shared = rank.shared(&node);
            let word = one_each(rank, &shared, 1)[0];
            shared.barrier().unwrap();
            assert_eq!(word.get(0), 0);
            shared.close().unwrap();
            drop(tried);
        })
        .succeeds();
}

#[test]
fn shared_memory_can_be_sent_from_and_fetched_into_on_both_paths() {
    on_all(2, |rank, shared| {
        let node = shared.node();
        let slices = one_each(rank, shared, 1500);
        let own = slices[rank.number];
        let data: Vec<u64> = (0..1500).map(|word| word + 10_000 * (rank.number as u64 + 1)).collect();
        own.write_from(0, &data).unwrap();
        shared.barrier().unwrap();
        for name in ["direct", "ring"] {
            let buffer = node.alloc(20_000).unwrap();
            let mut export = node.export_buffer(&buffer).name(name);
            if name == "ring" {
                export = export.ring_only();
            }
            let _export = export.start().unwrap();
            let other = node.import(1 - rank.number, name).rights(mapwire::Rights::ALL);
            let other = other.start().unwrap();
            rank.meet(name);
            // The other's minipage: each access to it is a fault, which may come in the middle of a copy.
            let theirs = slices[1 - rank.number];
            // SAFETY: nobody writes to these words from here to the barrier.
            let bytes = unsafe { std::slice::from_raw_parts(theirs.as_ptr().cast::<u8>(), 12_000) };
            other.send(bytes, 0).unwrap();
            other.put_signal(&bytes[..50], 12_000, 16_000, 5).unwrap();
            buffer.write(18_000, &bytes[..1000]).unwrap();
            shared.barrier().unwrap();
            node.wait_until(None, || (buffer.load_u64(16_000).unwrap() == 5).then_some(()));
            let mut found = vec![0; 12_000];
            buffer.read(0, &mut found).unwrap();
            let expected: Vec<u8> = data.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert!(found == expected, "by {name}");
            // And back, into shared memory of this rank that the other has just read.
            shared.barrier().unwrap();
            own.set(0, 0);
            // SAFETY: nobody else uses these words from here to the barrier.
            let into = unsafe { std::slice::from_raw_parts_mut(own.as_ptr().cast::<u8>(), 12_000) };
            other.fetch(0, into).unwrap();
            assert_eq!(own.get(3), 10_000 * (2 - rank.number as u64) + 3);
            own.write_from(0, &data).unwrap();
            shared.barrier().unwrap();
        }
    });
}

#[test]
fn a_buffer_filled_from_shared_memory_while_others_import_it_holds_nobody_up() {
    fn fill(job: Job) {
        job.run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            let slices = one_each(rank, &shared, 512);
            for turn in 0..40 {
                if rank.number == 0 {
                    let buffer = node.alloc(4096).unwrap();
                    let name = format!("b{turn}");
                    let _export = node.export_buffer(&buffer).name(name).start().unwrap();
                    rank.note(&format!("go{turn}"), "");
                    // The copy faults while the buffer is being passed to the importer.
                    for _ in 0..20 {
                        let theirs = slices[1];
                        // SAFETY: the words are only looked at; whatever they are is right.
                        let bytes = unsafe { std::slice::from_raw_parts(theirs.as_ptr().cast::<u8>(), 4096) };
                        buffer.write(0, bytes).unwrap();
                    }
                    shared.barrier().unwrap();
                } else {
                    rank.read(&format!("go{turn}"));
                    let name = format!("b{turn}");
                    let import = node.import(0, &name).start().unwrap();
                    for index in 0..200 {
                        slices[1].set(index, turn);
                    }
                    import.send(&[1], 0).unwrap();
                    shared.barrier().unwrap();
                }
            }
            shared.close().unwrap();
        })
        .succeeds();
    }
    fill(job(2).called("inline"));
    fill(job(2).called("thread").with("MAPWIRE_DRIVER", "thread"));
}

#[test]
fn a_slice_that_is_kept_for_longer_than_the_memory_says_so_and_reaches_nothing() {
    for faults in ["userfaultfd", "sigsegv"] {
        job(2)
            .called(faults)
            .option("--faults", faults)
            .run(|rank| {
                let node = rank.node();
                let shared = rank.shared(&node);
                let own = shared.alloc::<u64>(100).unwrap();
                own.set(3, 7);
                let part = own.part(2, 5).unwrap();
                shared.close().unwrap();
                let use_all = || {
                    for slice in [&own, &part] {
                        let parts = ["shared memory", "not open, or no longer"];
                        refused(slice.read_into(0, &mut [0; 3]), &parts);
                        refused(slice.write_from(0, &[1; 3]), &parts);
                        let parts = ["used after the shared memory was closed", "0x3"];
                        let get = std::panic::catch_unwind(|| slice.get(1));
                        refused(get.map_err(|panic| *panic.downcast::<String>().unwrap()), &parts);
                        let set = std::panic::catch_unwind(|| slice.set(1, 9));
                        refused(set.map_err(|panic| *panic.downcast::<String>().unwrap()), &parts);
                    }
                };
                use_all();
                // Nor does it reach what is opened later, at the same address.
                rank.meet("again");
                let again = rank.shared(&node);
                let other = again.alloc::<u64>(100).unwrap();
                other.set(1, 5);
                use_all();
                assert_eq!(other.get(1), 5);
                again.close().unwrap();
            })
            .succeeds();
    }
}

#[test]
fn ranks_that_wait_in_different_barriers_say_so_after_the_timeout() {
    let job = job(3).option("--shared", "16M").with("MAPWIRE_TIMEOUT", "3");
    job.run(|rank| {
        let node = rank.node();
        let shared = rank.shared(&node);
        let [first, second] = if rank.number == 2 { [2, 1] } else { [1, 2] };
        std::thread::scope(|scope| {
            scope.spawn(|| shared.barrier_of(first).unwrap());
            std::thread::sleep(std::time::Duration::from_secs(9));
            shared.barrier_of(second).unwrap();
        });
        shared.close().unwrap();
    })
    .succeeds()
    .says("rank 0 has waited for 3s in the shared memory: barrier 1, which rank 1 counts")
    .says("rank 1 has waited for 3s in the shared memory: barrier 1: ranks 0 1 have come, rank 2 has not")
    .says("rank 2 has waited for 3s in the shared memory: barrier 2: rank 2 has come, ranks 0 1 have not");
}

#[test]
fn boxes_and_vectors_go_from_rank_to_rank_and_are_freed_where_they_end() {
    on_all(2, |rank, shared| {
        let handed = |root: usize, address: u64| shared.broadcast(root, address).unwrap();
        let address = match rank.number {
            0 => handed(0, shared.boxed([1_u64, 2, 3]).unwrap().into_address()),
            _ => handed(0, 0),
        };
        if rank.number == 1 {
            // SAFETY: rank 0 has given it up.
            let owned = unsafe { SharedBox::<[u64; 3]>::from_address(shared, address) }.unwrap();
            assert_eq!(owned.get(), [1, 2, 3]);
            owned.set([4, 5, 6]);
            drop(owned);
            refused(shared.free(address), &["0x"]);
        }
        shared.barrier().unwrap();
        let mut words = shared.vec::<u32>();
        assert!(words.as_slice().is_none() && words.pop().is_none());
        for word in 0..1000 {
            words.push(word + rank.number as u32).unwrap();
        }
        let slices: Vec<_> = (0..2)
            .map(|root| shared.broadcast_slice(root, words.as_slice().filter(|_| root == rank.number)).unwrap())
            .collect();
        for (root, slice) in slices.iter().enumerate() {
            assert!((0..1000).all(|at| slice.get(at) == at as u32 + root as u32));
        }
        shared.barrier().unwrap();
        assert_eq!((words.pop(), words.len()), (Some(999 + rank.number as u32), 999));
    });
}
