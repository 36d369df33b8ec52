//! Units of allocations: what moves between ranks as one, rows, and what is pushed to another rank.

use mapwire::{AllocOptions, Coherence, ErrorKind, Shared, SharedRows, SharedSlice, Unit};

use crate::harness::{Rank, job, refused};
use crate::sharing::{on_all, on_both, on_both_over};

const PAGE: usize = 4096;

/// Runs `body` in two ranks of an hlrc job.
fn lazily(body: fn(&Rank, &Shared)) {
    job(2)
        .called("hlrc")
        .option("--coherence", "hlrc")
        .option("--shared", "64M")
        .run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            body(rank, &shared);
            shared.close().unwrap();
        })
        .succeeds();
}

#[test]
fn a_memory_may_be_of_a_tebibyte_and_its_last_pages_are_reached() {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = info.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap();
    if total < 12 << 20 {
        mapwire_testing::skip!("the kernel refuses the tables of a tebibyte where there are {total} KiB of memory");
        return;
    }
    for coherence in ["minipages", "hlrc"] {
        let job = job(2).called(coherence).option("--coherence", coherence).option("--shared", "1T");
        job.option("--views", "1")
            .run(|rank| {
                let node = rank.node();
                let shared = rank.shared(&node);
                // All that there is.
                let words = (rank.number == 0).then(|| shared.alloc::<u64>(1 << 37).unwrap());
                let words = shared.broadcast_slice(0, words).unwrap();
                for at in [0, words.len() / 2, words.len() - 1] {
                    if rank.number == 1 {
                        words.set(at, at as u64 + 7);
                    }
                    shared.barrier().unwrap();
                    assert_eq!(words.get(at), at as u64 + 7);
                    shared.barrier().unwrap();
                }
                shared.close().unwrap();
            })
            .succeeds();
    }
}

#[test]
fn an_array_moves_page_by_page_or_in_the_units_that_it_names() {
    on_both(3, |rank, shared| {
        for (unit, fetched) in
            [(Unit::Auto, PAGE), (Unit::Bytes(5000), 2 * PAGE), (Unit::Whole, 80_000), (Unit::Bytes(80_000), 80_000)]
        {
            let options = AllocOptions::new().unit(unit);
            let mine = (rank.number == 1).then(|| shared.alloc_with::<u64>(10_000, &options).unwrap());
            let words = shared.broadcast_slice(1, mine).unwrap();
            if rank.number == 1 {
                (0..words.len()).for_each(|at| words.set(at, at as u64 * 3));
            }
            let before = shared.counters();
            shared.barrier().unwrap();
            if rank.number == 2 {
                assert_eq!(words.get(5000), 15_000);
                words.set(5000, 1);
                assert_eq!(shared.counters().read_faults - before.read_faults, 1);
            }
            shared.barrier().unwrap();
            if rank.number == 1 {
                assert_eq!(shared.counters().bytes_sent - before.bytes_sent, fetched as u64, "{unit:?}");
            }
            shared.barrier().unwrap();
            // The last unit is shorter.
            assert_eq!(words.get(9999), 29_997);
            assert_eq!(words.get(5000), 1);
            shared.barrier().unwrap();
        }
    });
}

fn fill(rank: &Rank, shared: &Shared, rows: SharedRows<u32>) {
    for row in (0..rows.len()).filter(|row| row % rank.size == rank.number) {
        for at in 0..rows.row_len() {
            rows.row(row).set(at, (row * 1000 + at) as u32);
        }
    }
    shared.barrier().unwrap();
    for row in 0..rows.len() {
        for at in 0..rows.row_len() {
            assert_eq!(rows.row(row).get(at), (row * 1000 + at) as u32, "{rows:?} row {row}");
        }
    }
    shared.barrier().unwrap();
}

fn all_kinds_of_rows(rank: &Rank, shared: &Shared) {
    for (rows, length) in [(1, 1), (70, 3), (50, 25), (9, 600), (5, 1024), (7, 1500), (3, 2048), (1, 5000)] {
        let options = AllocOptions::new().name("rows");
        let root = rows % rank.size;
        let mine = (rank.number == root).then(|| shared.alloc_rows::<u32>(rows, length, &options).unwrap());
        let all = shared.broadcast_rows(root, mine).unwrap();
        assert_eq!((all.len(), all.row_len(), all.row(0).address()), (rows, length, all.address()));
        fill(rank, shared, all);
    }
}

#[test]
fn rows_are_the_same_in_every_rank_and_none_disturbs_another() {
    on_all(3, all_kinds_of_rows);
    lazily(all_kinds_of_rows);
    job(2)
        .called("two views")
        .option("--views", "2")
        .option("--shared", "64M")
        .run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            all_kinds_of_rows(rank, &shared);
            shared.close().unwrap();
        })
        .succeeds();
}

#[test]
fn rows_that_share_a_page_move_alone() {
    on_both(2, |rank, shared| {
        let mine = (rank.number == 0).then(|| shared.alloc_rows::<u64>(32, 16, &AllocOptions::new()).unwrap());
        let rows = shared.broadcast_rows(0, mine).unwrap();
        let before = shared.counters();
        for _ in 0..50 {
            rows.row(rank.number).set(3, 1);
        }
        shared.barrier().unwrap();
        let did = shared.counters();
        assert!(did.write_faults - before.write_faults <= 1, "{did:?}");
        assert!(did.bytes_sent - before.bytes_sent <= 128, "{did:?}");
        shared.barrier().unwrap();
    });
}

#[test]
fn rows_are_adjacent_where_no_row_moves_alone() {
    let adjacent = |_: &Rank, shared: &Shared| {
        let rows = shared.alloc_rows::<u16>(10, 700, &AllocOptions::new()).unwrap();
        for row in 0..10 {
            assert_eq!(rows.row(row).address(), rows.address() + row as u64 * 1400);
        }
        shared.barrier().unwrap();
    };
    lazily(adjacent);
    job(2)
        .option("--coherence", "auto")
        .run(move |rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            adjacent(rank, &shared);
            shared.close().unwrap();
        })
        .succeeds();
}

#[test]
fn an_hlrc_job_has_sequentially_consistent_memory_beside_lazy_memory() {
    lazily(|rank, shared| {
        let options = AllocOptions::new().coherence(Coherence::Minipages);
        let mine = (rank.number == 0).then(|| shared.alloc_with::<u64>(2000, &options).unwrap());
        let flags = shared.broadcast_slice(0, mine).unwrap();
        let mine = (rank.number == 0).then(|| shared.alloc_rows::<u64>(40, 8, &options).unwrap());
        let rows = shared.broadcast_rows(0, mine).unwrap();
        assert_ne!(rows.row(1).address(), rows.address() + 64, "each in a view of its own");
        // No lock and no barrier: one rank waits for the other's store.
        for round in 1..30 {
            let (ours, theirs) = (rank.number * 1999, (1 - rank.number) * 1999);
            flags.set(ours, round);
            rows.row(rank.number).set(0, round);
            while flags.get(theirs) < round || rows.row(1 - rank.number).get(0) < round {
                std::thread::yield_now();
            }
        }
        shared.barrier().unwrap();
    });
}

#[test]
fn what_a_rank_pushes_is_read_by_another_without_a_fault() {
    on_both(2, |rank, shared| {
        let mine = (rank.number == 0).then(|| shared.alloc::<u64>(8 * 512).unwrap());
        let words = shared.broadcast_slice(0, mine).unwrap();
        if rank.number == 0 {
            (0..words.len()).for_each(|at| words.set(at, 7));
            shared.push(&words, 1).unwrap();
        }
        shared.barrier().unwrap();
        // All that was asked for has arrived when a later request has been answered, by whoever manages the pages.
        if rank.number == 1 {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while shared.counters().prefetches < 8 && std::time::Instant::now() < deadline {
                std::thread::yield_now();
            }
            (0..words.len()).for_each(|at| assert_eq!(words.get(at), 7));
            assert_eq!(shared.counters().prefetches, 8);
        }
        shared.barrier().unwrap();
    });
}

#[test]
fn options_that_cannot_be_are_refused_and_name_the_value() {
    on_all(2, |_, shared| {
        let with = |unit| AllocOptions::new().unit(unit);
        let options = with(Unit::Bytes(0));
        refused(shared.alloc_with::<u8>(9000, &options), &["unit of 0 bytes", "between 1 and 9000"]);
        refused(shared.alloc_with::<u8>(9000, &with(Unit::Bytes(9001))), &["unit of 9001", "of 9000"]);
        refused(shared.alloc_with::<u8>(0, &with(Unit::Whole)), &["0 bytes"]);
        refused(shared.alloc_rows::<u8>(0, 5, &AllocOptions::new()), &["0 rows of 5 bytes"]);
        refused(shared.alloc_rows::<u64>(5, 0, &AllocOptions::new()), &["5 rows of 0 bytes"]);
        refused(shared.alloc_rows::<u64>(5, 2, &with(Unit::Bytes(16))), &["rows of 16 bytes are units"]);
        let error = shared.alloc_rows::<u64>(usize::MAX, usize::MAX, &AllocOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
        let home = AllocOptions::new().home(2);
        refused(shared.alloc_with::<u8>(1, &home), &["rank 2", "job of 2 ranks"]);
        refused(shared.alloc_rows::<u8>(3, 7, &home), &["rank 2", "job of 2 ranks"]);
        shared.alloc_with::<u8>(1, &AllocOptions::new().home(1)).unwrap();

        let words = shared.alloc::<u64>(1000).unwrap();
        let own = shared.node().rank();
        refused(shared.push(&words, own), &[&format!("rank {own} pushes to itself")]);
        refused(shared.push(&words, 2), &["rank 2", "job of 2 ranks"]);
        refused(shared.push(&words, usize::MAX), &["rank 65535"]);
        let outside = std::ptr::from_ref(shared) as u64;
        for (address, bytes) in [(outside, 8), (words.address(), u64::MAX), (0, 1)] {
            let text = format!("{address:#x}");
            refused(shared.push_bytes(address, bytes, 1 - own), &[&text]);
            refused(shared.prefetch_all(&[(address, bytes, false)]), &[&text]);
        }
        shared.push_bytes(words.address(), 0, 1 - own).unwrap();
        shared.barrier().unwrap();
    });
}

#[test]
fn a_coherence_that_the_job_does_not_have_is_refused() {
    on_both(1, |_, shared| {
        let options = AllocOptions::new().coherence(Coherence::Hlrc);
        refused(shared.alloc_with::<u8>(1, &options), &["by minipages", "none of hlrc"]);
        refused(shared.alloc_rows::<u8>(3, 1, &options), &["by minipages", "none of hlrc"]);
    });
    let done = job(1).option("--coherence", "hlrc").option("--views", "1").run(|rank| {
        let node = rank.node();
        let shared = rank.shared(&node);
        let options = AllocOptions::new().coherence(Coherence::Minipages);
        refused(shared.alloc_with::<u8>(1, &options), &["by hlrc in 1 views"]);
        refused(shared.alloc_rows::<u8>(9, 1, &options), &["by hlrc in 1 views"]);
        shared.close().unwrap();
    });
    done.succeeds();
}

#[test]
fn a_large_array_costs_what_is_touched_of_it() {
    let cheap = |_: &Rank, shared: &Shared| {
        let before = crate::one_host::resident_kib();
        let words = shared.alloc::<u64>(3 << 27).unwrap();
        let rows = shared.alloc_rows::<u64>(1 << 22, 16, &AllocOptions::new()).unwrap();
        words.set(1 << 28, 5);
        rows.row(1 << 21).set(3, 6);
        assert_eq!((words.get(1 << 28), rows.row(1 << 21).get(3), words.get(17)), (5, 6, 0));
        let more = crate::one_host::resident_kib() - before;
        assert!(more < 20 << 10, "{more} KiB");
        shared.barrier().unwrap();
    };
    for coherence in ["minipages", "hlrc", "auto"] {
        for faults in ["userfaultfd", "sigsegv"] {
            job(2)
                .called(format!("{coherence} {faults}"))
                .option("--coherence", coherence)
                .option("--faults", faults)
                .option("--shared", "8G")
                .run(move |rank| {
                    let node = rank.node();
                    let shared = rank.shared(&node);
                    cheap(rank, &shared);
                    shared.close().unwrap();
                })
                .succeeds();
        }
    }
}

#[test]
fn minipages_of_a_page_that_are_asked_for_together_come_together_and_nothing_else_changes() {
    for transport in ["shm", "udp"] {
        on_both_over(transport, 3, |rank, shared| {
            const COUNT: usize = 100;
            let slices: Vec<SharedSlice<u64>> = (0..COUNT)
                .map(|_| {
                    let slice = (rank.number == 0).then(|| shared.alloc::<u64>(8).unwrap());
                    shared.broadcast_slice(0, slice).unwrap()
                })
                .collect();
            shared.barrier().unwrap();
            // Every third belongs to rank 1, the others to rank 0.
            for (number, slice) in slices.iter().enumerate() {
                if (rank.number == 1) == (number % 3 == 1) && rank.number < 2 {
                    slice.set(number % 8, number as u64);
                }
            }
            shared.barrier().unwrap();
            let before = shared.counters();
            // Rank 1 has its own; rank 2 has none.
            if rank.number > 0 {
                let runs: Vec<_> = slices.iter().map(|slice| (slice.address(), 64, false)).collect();
                shared.prefetch_all(&runs).unwrap();
            }
            shared.barrier().unwrap();
            shared.barrier().unwrap();
            for (number, slice) in slices.iter().enumerate() {
                assert_eq!(slice.get(number % 8), number as u64);
            }
            let after = shared.counters();
            if rank.number == 2 {
                assert_eq!(after.prefetches - before.prefetches, COUNT as u64);
                // A minipage that is still under way is waited for by a fault.
                assert!(after.read_faults - before.read_faults < COUNT as u64 / 4);
                assert!(after.sets_sent > before.sets_sent);
                assert!(after.messages_sent - before.messages_sent < COUNT as u64 / 2);
            }
            shared.barrier().unwrap();
        });
    }
}
