//! Sequential consistency: what no interleaving of the ranks' accesses allows is never seen. Each test plays a small program
//! many times on fresh values, all ranks at once.

use mapwire::{Shared, SharedSlice};

use crate::harness::Rank;
use crate::sharing::on_all;

const ROUNDS: u64 = 250;

/// `count` words, each a minipage of its own.
fn words(rank: &Rank, shared: &Shared, count: usize) -> Vec<SharedSlice<u64>> {
    (0..count)
        .map(|number| {
            // Allocated by different ranks, so that managers and owners differ.
            let root = number % rank.size;
            let word = (rank.number == root).then(|| shared.alloc::<u64>(1).unwrap());
            shared.broadcast_slice(root, word).unwrap()
        })
        .collect()
}

/// A short wait that differs from round to round and from rank to rank, so that the accesses meet in different ways.
fn stagger(rank: &Rank, round: u64) {
    let spins = (round * 7919 + rank.number as u64 * 104_729) % 400;
    for _ in 0..spins {
        std::hint::spin_loop();
    }
}

#[test]
fn of_two_ranks_that_store_and_then_load_one_sees_the_others_store() {
    on_all(2, |rank, shared| {
        let (flags, seen) = (words(rank, shared, 2), words(rank, shared, 2));
        for round in 1..=ROUNDS {
            shared.barrier().unwrap();
            stagger(rank, round);
            flags[rank.number].set(0, round);
            let other = flags[1 - rank.number].get(0);
            seen[rank.number].set(0, other);
            shared.barrier().unwrap();
            let both = (seen[0].get(0), seen[1].get(0));
            assert!(both.0 == round || both.1 == round, "round {round}: {both:?}");
        }
    });
}

#[test]
fn whoever_sees_a_flag_sees_the_data_stored_before_it() {
    on_all(2, |rank, shared| {
        let words = words(rank, shared, 3);
        let (data, more, flag) = (words[0], words[1], words[2]);
        for round in 1..=ROUNDS {
            if rank.number == 0 {
                data.set(0, round);
                more.set(0, round);
                flag.set(0, round);
                // The next round overwrites nothing that the other has yet to look at.
                shared.barrier().unwrap();
            } else {
                stagger(rank, round);
                while flag.get(0) != round {
                    std::hint::spin_loop();
                }
                assert_eq!((more.get(0), data.get(0)), (round, round));
                shared.barrier().unwrap();
            }
        }
    });
}

#[test]
fn two_readers_see_independent_stores_in_the_same_order() {
    // Ranks 0 and 1 store to words of their own; ranks 2 and 3 load both, in opposite order.
    on_all(4, |rank, shared| {
        let (stored, seen) = (words(rank, shared, 2), words(rank, shared, 4));
        for round in 1..=ROUNDS / 2 {
            shared.barrier().unwrap();
            stagger(rank, round);
            match rank.number {
                writer @ (0 | 1) => stored[writer].set(0, round),
                reader => {
                    let first = reader - 2;
                    let one = stored[first].get(0);
                    let two = stored[1 - first].get(0);
                    seen[2 * first].set(0, one);
                    seen[2 * first + 1].set(0, two);
                }
            }
            shared.barrier().unwrap();
            // Reader A saw 0's store and not yet 1's; reader B saw 1's and not yet 0's: then they disagree.
            let new = |index: usize| seen[index].get(0) == round;
            let disagree = new(0) && !new(1) && new(2) && !new(3);
            assert!(!disagree, "round {round}");
        }
    });
}

#[test]
fn loads_of_one_word_never_go_back_in_time() {
    on_all(3, |rank, shared| {
        let word = words(rank, shared, 1)[0];
        let end = 3000;
        if rank.number == 0 {
            for value in 1..=end {
                word.set(0, value);
                if value % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        } else {
            let mut last = 0;
            while last != end {
                let now = word.get(0);
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
        }
        shared.barrier().unwrap();
    });
}
