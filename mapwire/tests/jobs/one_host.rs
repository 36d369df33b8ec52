//! Shared memory of ranks on one host, which the processor keeps coherent: what holds there and not with minipages.

use std::io::{Read, Seek, SeekFrom, Write};

use mapwire::{Coherence, ErrorKind, NodeConfig, Shared, SharedSlice};
use rustix::process::Resource;

use crate::forks::in_child;
use crate::harness::denials::{lower_limit, map_at, outlive_sigterm};
use crate::harness::{Job, Rank, job, pattern, refused};

/// A job whose ranks share memory by the processor.
fn one_host(ranks: u32) -> Job {
    job(ranks).option("--coherence", "auto")
}

/// Runs `body` in `ranks` ranks with the memory open.
fn on_one_host(ranks: u32, body: fn(&Rank, &Shared)) {
    one_host(ranks)
        .run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            assert_eq!(shared.coherence(), Coherence::Auto);
            body(rank, &shared);
            shared.close().unwrap();
        })
        .succeeds();
}

/// A slice that rank 0 allocates and all learn of.
fn common(rank: &Rank, shared: &Shared, length: usize) -> SharedSlice<u64> {
    let mine = (rank.number == 0).then(|| shared.alloc::<u64>(length).unwrap());
    shared.broadcast_slice(0, mine).unwrap()
}

pub(crate) fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn system_calls_read_and_write_shared_memory_that_other_ranks_use() {
    on_one_host(2, |rank, shared| {
        let words = common(rank, shared, 1 << 16);
        let bytes = words.len() * 8;
        let content = pattern(7, bytes);
        if rank.number == 0 {
            let mut file = tempfile();
            file.write_all(&content).unwrap();
            file.seek(SeekFrom::Start(0)).unwrap();
            // SAFETY: the others wait.
            let into = unsafe { words.as_mut_slice() };
            let (into, _) = zerocopy::IntoBytes::as_mut_bytes(into).split_at_mut(bytes);
            file.read_exact(into).unwrap();
        }
        shared.barrier().unwrap();
        if rank.number == 1 {
            let mut file = tempfile();
            // SAFETY: nobody stores there now.
            file.write_all(zerocopy::IntoBytes::as_bytes(unsafe { words.as_slice() })).unwrap();
            file.seek(SeekFrom::Start(0)).unwrap();
            let mut found = Vec::new();
            file.read_to_end(&mut found).unwrap();
            assert!(found == content);
        }
        shared.barrier().unwrap();
    });
}

fn tempfile() -> std::fs::File {
    rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into()
}

#[test]
fn forked_children_load_store_allocate_lock_and_unlock() {
    on_one_host(2, |rank, shared| {
        let words = common(rank, shared, 64);
        shared.barrier().unwrap();
        let before = words.get(rank.number);
        for round in 0..20 {
            let status = in_child(|| {
                let held = shared.lock(3).unwrap();
                words.set(32, words.get(32) + 1);
                drop(held);
                let block = shared.malloc(100 + round).unwrap();
                words.set(rank.number, block);
            });
            assert_eq!(status, 0);
            let block = words.get(rank.number);
            assert!(block != before);
            shared.free(block).unwrap();
        }
        shared.barrier().unwrap();
        assert_eq!(words.get(32), 40);
        // A holder is a thread of a process, and not a rank.
        if rank.number == 0 {
            let held = shared.lock(4).unwrap();
            let status = in_child(|| {
                let error = shared.unlock(4).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::State, "{error}");
            });
            assert_eq!(status, 0);
            drop(held);
        }
        shared.barrier().unwrap();
    });
}

#[test]
fn a_child_that_dies_with_a_lock_is_named_to_those_who_want_it() {
    on_one_host(2, |rank, shared| {
        if rank.number == 0 {
            let status = in_child(|| {
                std::mem::forget(shared.lock(5).unwrap());
            });
            assert_eq!(status, 0);
        }
        shared.barrier().unwrap();
        let error = shared.lock(5).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
        assert!(error.to_string().contains("of rank 0") && error.to_string().contains("has ended"), "{error}");
        shared.barrier().unwrap();
    });
}

#[test]
fn blocks_are_freed_by_other_ranks_than_those_that_allocated_them() {
    on_one_host(2, |rank, shared| {
        let blocks = common(rank, shared, 1000);
        for round in 0..10 {
            if rank.number == round % 2 {
                for at in 0..blocks.len() {
                    let block = shared.malloc(16 + at as u64 * 7).unwrap();
                    assert!(shared.usable_bytes(block).unwrap() >= 16 + at as u64 * 7);
                    blocks.set(at, block);
                }
            }
            shared.barrier().unwrap();
            if rank.number != round % 2 {
                (0..blocks.len()).for_each(|at| shared.free(blocks.get(at)).unwrap());
                refused(shared.free(blocks.get(5)), &["0x", "freed"]);
            }
            shared.barrier().unwrap();
        }
        refused(shared.free(8), &["0x8 is not in the shared memory"]);
        refused(shared.free(blocks.address() + 8), &["inside the block"]);
        refused(shared.calloc(u64::MAX, 2), &["more than can be addressed"]);
        refused(shared.aligned_alloc(3, 8), &["alignment 3"]);
        refused(shared.malloc(1 << 40), &["no room for 1099511627776 bytes", "--shared"]);
    });
}

#[test]
fn a_terabyte_can_be_asked_for_and_only_what_is_touched_takes_memory() {
    one_host(2)
        .option("--shared", "1T")
        .run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            let before = resident_kib();
            let large = common(rank, &shared, 100 << 27);
            for step in 0..100_usize {
                let at = (step << 27) + rank.number;
                assert_eq!(large.get(at), 0);
                large.set(at, step as u64);
            }
            assert!(resident_kib() < before + 4096, "{} KiB", resident_kib() - before);
            shared.barrier().unwrap();
            assert_eq!(large.get((99 << 27) + 1 - rank.number), 99);
            shared.close().unwrap();
        })
        .succeeds();
}

#[test]
fn locked_memory_is_what_is_used_and_not_what_could_be() {
    one_host(1)
        .option("--shared", "1T")
        .run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            let words = shared.alloc::<u64>(1000).unwrap();
            rustix::mm::mlockall(rustix::mm::MlockAllFlags::CURRENT).unwrap();
            words.set(999, 1);
            assert!(resident_kib() < 400 << 10, "{} KiB", resident_kib());
            rustix::mm::munlockall().unwrap();
            shared.close().unwrap();
        })
        .succeeds();
}

#[test]
fn limits_are_named_where_they_are_in_the_way() {
    one_host(1)
        .run(|rank| {
            let node = rank.node();
            lower_limit(Resource::As, 200 << 20);
            refused(Shared::open(&node, 1).map(drop), &["RLIMIT_AS", "209715200", "ulimit -v", "MAPWIRE_SHARED"]);
        })
        .succeeds();
    one_host(1)
        .called("files")
        .run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            lower_limit(Resource::Fsize, 16 << 20);
            refused(shared.alloc_bytes(32 << 20), &["RLIMIT_FSIZE", "16777216", "ulimit -f"]);
            shared.alloc_bytes(64 << 10).unwrap();
            shared.close().unwrap();
        })
        .succeeds();
    one_host(1)
        .called("huge")
        .option("--shared", "100T")
        .with("MAPWIRE_SHARED_BASE", "0x600000000000")
        .run(|rank| refused(Shared::open(&rank.node(), 1).map(drop), &["MAPWIRE_SHARED"]))
        .succeeds();
}

#[test]
fn an_address_that_is_taken_in_one_rank_makes_all_use_another_and_is_named_if_it_must_be_that_one() {
    const BASE: usize = 0x3000_0000_0000;
    one_host(3)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 1 {
                map_at(BASE + (16 << 20), 4096);
            }
            let shared = rank.shared(&node);
            assert!(common(rank, &shared, 1).address() >= BASE as u64 + (1 << 40));
            shared.close().unwrap();
        })
        .succeeds();
    let done = one_host(3).called("named").with("MAPWIRE_SHARED_BASE", "0x3000_0000_0000").run(|rank| {
        outlive_sigterm();
        let node = rank.node();
        if rank.number == 1 {
            map_at(BASE + (16 << 20), 4096);
        }
        eprintln!("error: {}", Shared::open(&node, 1).unwrap_err());
        rank.meet("end");
    });
    done.succeeds().says("in rank 1").says("is taken by anonymous memory").says("rank 1 cannot map the shared memory");
}

#[test]
fn ranks_that_differ_in_what_keeps_the_memory_coherent_are_told_so() {
    let done = job(2).run(|rank| {
        let mut config = NodeConfig::from_env().unwrap();
        config.shared.coherence = if rank.number == 0 { Coherence::Auto } else { Coherence::Minipages };
        let node = mapwire::Node::with(config).unwrap();
        outlive_sigterm();
        match Shared::open(&node, 1) {
            Ok(_) => std::process::exit(0),
            Err(error) => eprintln!("error: {error}"),
        }
        std::process::exit(4);
    });
    done.code(4).soon().says("MAPWIRE_COHERENCE").says("minipages here and auto in rank 0");
}

#[test]
fn a_store_beside_an_allocation_is_named_in_debug_mode() {
    one_host(2)
        .with("MAPWIRE_HEAP_DEBUG", "true")
        .run(|rank| {
            let node = rank.node();
            let shared = rank.shared(&node);
            if rank.number == 1 {
                let block = shared.malloc(24).unwrap();
                // SAFETY: beside the block, in memory of the heap: what this test is about.
                let slice = unsafe { SharedSlice::<u8>::from_address(&shared, block, 32) }.unwrap();
                slice.set(24, 1);
                refused(shared.free(block), &["0 bytes behind", "24 bytes", "rank 1 allocated it"]);
            }
            shared.close().unwrap();
        })
        .succeeds();
}

#[test]
fn what_was_never_freed_is_named_at_the_close_in_debug_mode() {
    let done = one_host(2).with("MAPWIRE_HEAP_DEBUG", "true").run(|rank| {
        let node = rank.node();
        let shared = rank.shared(&node);
        let kept: Vec<u64> = (0..3).map(|_| shared.malloc(100).unwrap()).collect();
        let freed: Vec<u64> = (0..50).map(|_| shared.malloc(100).unwrap()).collect();
        freed.into_iter().for_each(|block| shared.free(block).unwrap());
        if rank.number == 1 {
            shared.free(kept[0]).unwrap();
        }
        shared.close().unwrap();
    });
    done.succeeds()
        .says("3 blocks of shared memory, 300 bytes, were never freed; rank 0 allocated it")
        .says("2 blocks of shared memory, 200 bytes, were never freed; rank 1 allocated it");
}

#[test]
fn a_box_that_a_forked_child_drops_stays_its_parents() {
    on_one_host(1, |_, shared| {
        let value = shared.boxed(5_u64).unwrap();
        let mut words = shared.vec::<u64>();
        words.push(7).unwrap();
        let handles = std::cell::Cell::new(Some((value, words)));
        assert_eq!(in_child(|| drop(handles.take())), 0);
        let (value, words) = handles.take().unwrap();
        assert_eq!((value.get(), words.as_slice().unwrap().get(0)), (5, 7));
        shared.free(value.into_address()).unwrap();
    });
}

#[test]
fn a_rank_that_cannot_open_the_memory_keeps_no_other_waiting() {
    let done = one_host(2).run(|rank| {
        outlive_sigterm();
        let node = rank.node();
        let threads = if rank.number == 1 { 40_000 } else { 1 };
        let error = Shared::open(&node, threads).unwrap_err();
        eprintln!("rank {}: {error}", rank.number);
        // It stays: the other learns of it by the memory alone.
        rank.meet("end");
    });
    done.succeeds().says("rank 1: 40000 threads cannot take part").says("rank 0: rank 1 has taken its part");
}

#[test]
fn the_memory_opens_once_an_address_that_was_taken_is_free() {
    one_host(2)
        .with("MAPWIRE_SHARED_BASE", "0x3000_0000_0000")
        .run(|rank| {
            let node = rank.node();
            if rank.number == 1 {
                map_at(0x3000_0010_0000, 4096);
            }
            assert_eq!(Shared::open(&node, 1).unwrap_err().kind(), ErrorKind::Exists);
            if rank.number == 1 {
                std::thread::sleep(std::time::Duration::from_millis(50));
                // SAFETY: the page was mapped above, and nobody uses it.
                unsafe { rustix::mm::munmap(0x3000_0010_0000 as *mut _, 4096) }.unwrap();
            }
            let shared = rank.shared(&node);
            shared.barrier().unwrap();
            shared.close().unwrap();
        })
        .succeeds();
}
