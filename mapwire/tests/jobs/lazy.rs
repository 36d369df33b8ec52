//! Shared memory by home-based lazy release consistency: what ranks write is seen by those that synchronise with them.

use mapwire::{Coherence, Shared};

use crate::harness::{Rank, job, refused};
use crate::sharing::one_each;

/// Runs `body` in `ranks` ranks, on one host and as if each were on its own, with either way of catching faults.
fn lazily(ranks: u32, body: fn(&Rank, &Shared)) {
    for (transport, faults) in
        [("shm", "userfaultfd"), ("shm", "sigsegv"), ("udp", "userfaultfd"), ("ofi:tcp", "userfaultfd")]
    {
        job(ranks)
            .called(format!("{transport} {faults}"))
            .option("--coherence", "hlrc")
            .option("--transport", transport)
            .option("--faults", faults)
            .option("--shared", "64M")
            .run(|rank| {
                let node = rank.node();
                let shared = rank.shared(&node);
                assert_eq!(shared.coherence(), Coherence::Hlrc);
                body(rank, &shared);
                shared.close().unwrap();
            })
            .succeeds();
    }
}

#[test]
fn what_one_rank_writes_all_read_after_a_barrier_whoever_writes_next() {
    lazily(3, |rank, shared| {
        let words = one_each(rank, shared, 2000)[1];
        for round in 1..8_u64 {
            if round as usize % 3 == rank.number {
                (0..words.len()).for_each(|at| words.set(at, round * 0x101 + at as u64 * 0x1_0001));
            }
            shared.barrier().unwrap();
            for at in 0..words.len() {
                assert_eq!(words.get(at), round * 0x101 + at as u64 * 0x1_0001, "{at} in round {round}");
            }
            shared.barrier().unwrap();
        }
    });
}

#[test]
fn neighbouring_bytes_of_a_page_belong_to_different_ranks_that_write_at_the_same_time() {
    lazily(3, |rank, shared| {
        let mine = (rank.number == 0).then(|| shared.alloc::<u8>(9000).unwrap());
        let bytes = shared.broadcast_slice(0, mine).unwrap();
        for round in 1..6_u8 {
            for at in (rank.number..bytes.len()).step_by(3) {
                assert_eq!(bytes.get(at), (round - 1).wrapping_mul(at as u8));
                bytes.set(at, round.wrapping_mul(at as u8));
            }
            shared.barrier().unwrap();
            for at in 0..bytes.len() {
                assert_eq!(bytes.get(at), round.wrapping_mul(at as u8), "{at} in round {round}");
            }
            shared.barrier().unwrap();
        }
    });
}

#[test]
fn locks_pass_on_what_was_written_under_them_also_by_way_of_a_third_rank() {
    lazily(3, |rank, shared| {
        let all = one_each(rank, shared, 600);
        let counter = all[0];
        shared.barrier().unwrap();
        for step in 0..60 {
            let held = shared.lock(1 + step % 2).unwrap();
            let at = (step % 2) as usize * 512;
            let before = counter.get(at);
            counter.set(at, before + 1);
            // What rode along with the count is as new as the count.
            assert_eq!(all[1].get(at), before);
            all[1].set(at, before + 1);
            drop(held);
        }
        shared.barrier().unwrap();
        assert_eq!((counter.get(0), counter.get(512)), (90, 90));
        // Rank 0 writes, 1 reads it and writes elsewhere, 2 reads that and must know what 0 wrote.
        let flag = all[2];
        for stage in 0..3 {
            if stage == rank.number {
                let held = shared.lock(7).unwrap();
                match stage {
                    0 => all[0].set(100, 42),
                    1 => all[1].set(300, all[0].get(100) + 1),
                    _ => flag.set(5, all[0].get(100) + all[1].get(300)),
                }
                drop(held);
            }
            shared.barrier_of(3).unwrap();
        }
        assert_eq!(flag.get(5), 85);
    });
}

#[test]
fn blocks_are_allocated_in_one_rank_and_freed_in_another() {
    lazily(2, |rank, shared| {
        let mine = (rank.number == 0).then(|| shared.alloc::<u64>(300).unwrap());
        let blocks = shared.broadcast_slice(0, mine).unwrap();
        for round in 0..4 {
            if rank.number == round % 2 {
                for at in 0..blocks.len() {
                    blocks.set(at, shared.calloc(1, 16 + at as u64 * 9).unwrap());
                }
            }
            shared.barrier().unwrap();
            if rank.number != round % 2 {
                for at in 0..blocks.len() {
                    assert!(shared.usable_bytes(blocks.get(at)).unwrap() >= 16 + at as u64 * 9);
                    shared.free(blocks.get(at)).unwrap();
                }
                refused(shared.free(blocks.get(1)), &["freed for the second time"]);
                refused(shared.free(blocks.get(1) + 16), &["is not allocated"]);
            }
            shared.barrier().unwrap();
        }
    });
}

#[test]
fn a_rank_that_goes_by_another_protocol_is_told_so() {
    for transport in ["shm", "udp"] {
        let done = job(2).called(transport).option("--transport", transport).run(|rank| {
            crate::harness::denials::outlive_sigterm();
            let mut config = mapwire::NodeConfig::from_env().unwrap();
            config.shared.bytes = 64 << 20;
            config.shared.coherence = if rank.number == 0 { Coherence::Hlrc } else { Coherence::Minipages };
            let node = mapwire::Node::with(config).unwrap();
            if let Err(error) = Shared::open(&node, 1) {
                eprintln!("error: {error}");
                std::process::exit(4);
            }
        });
        done.code(4).soon().says("MAPWIRE_COHERENCE").says("hlrc");
    }
}

#[test]
fn bytes_that_two_ranks_change_at_the_same_time_are_named_if_that_is_asked_for() {
    for transport in ["shm", "udp"] {
        let done = job(3)
            .called(transport)
            .option("--coherence", "hlrc")
            .option("--transport", transport)
            .with("MAPWIRE_RACES", "true")
            .run(|rank| {
                let node = rank.node();
                let shared = rank.shared(&node);
                let words = one_each(rank, &shared, 100)[0];
                // The first to touch a page is its home, whose own changes are not looked at.
                if rank.number == 0 {
                    words.set(0, 1);
                }
                shared.barrier().unwrap();
                if rank.number > 0 {
                    words.set(50, rank.number as u64);
                    words.set(60 + rank.number, 1);
                }
                shared.barrier().unwrap();
                shared.barrier().unwrap();
                shared.close().unwrap();
            });
        done.succeeds().says("have both changed bytes 0x").says("without a lock or barrier between");
    }
}
