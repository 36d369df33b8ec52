//! What the threads of a run do: litmus tests of release consistency, and draws of loads, stores and locks, one after the other with a
//! barrier before each.
//!
//! Whether a load is right is decided for each on its own ([`happens_before`](crate::checks::happens_before)); the tests are there for the
//! ways in which protocols go wrong.

use crate::random::Random;

/// Locks of the tests.
pub(super) const LOCKS: u32 = 3;
/// Where each variable lies, in bytes from the start: neighbours on a page, neighbours across the end of one, and alone.
pub(super) const VARIABLES: [u64; 8] = [100, 101, 102, 4095, 4096, 9000, 12_288, 12_289];
/// Bytes in which they lie.
pub(super) const BYTES: u64 = 4 * 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Load(u8),
    Store(u8),
    Lock(u8),
    Unlock(u8),
    Barrier,
}

use Op::{Barrier, Load, Lock, Store, Unlock};

#[derive(Clone, Copy, Debug)]
pub struct Test {
    pub name: &'static str,
    threads: &'static [&'static [Op]],
}

const fn test(name: &'static str, threads: &'static [&'static [Op]]) -> Test {
    Test { name, threads }
}

pub const TESTS: [Test; 15] = [
    test(
        "message passing by a lock",
        &[
            &[Store(5), Lock(0), Store(6), Unlock(0), Barrier],
            &[Lock(0), Load(6), Load(5), Unlock(0), Barrier, Load(5), Load(6)],
        ],
    ),
    test("message passing by a barrier", &[&[Store(0), Store(5), Barrier], &[Barrier, Load(5), Load(0)]]),
    test("store buffering", &[&[Store(0), Load(5)], &[Store(5), Load(0)]]),
    test("false sharing of two", &[&[Store(0), Barrier, Load(1), Load(0)], &[Store(1), Barrier, Load(0), Load(1)]]),
    test(
        "false sharing of three",
        &[
            &[Store(0), Barrier, Load(1), Load(2)],
            &[Store(1), Barrier, Load(2), Load(0)],
            &[Store(2), Barrier, Load(0), Load(1)],
        ],
    ),
    test(
        "a page that is written on both sides of a lock",
        &[
            &[Lock(0), Store(0), Unlock(0), Store(1), Lock(1), Store(2), Unlock(1), Load(1), Barrier],
            &[Store(3), Lock(0), Load(0), Unlock(0), Load(3), Lock(1), Load(2), Store(3), Unlock(1), Load(3), Barrier],
        ],
    ),
    test(
        "a fetch into a page that is written here",
        &[
            &[Load(0), Barrier, Lock(0), Store(0), Unlock(0), Barrier],
            &[Load(1), Barrier, Store(1), Lock(0), Load(0), Load(1), Unlock(0), Load(1), Barrier, Load(0), Load(1)],
            &[Load(2), Barrier, Store(2), Load(2), Barrier, Load(0), Load(1), Load(2)],
        ],
    ),
    test(
        "a third rank passes on what it has learned",
        &[
            &[Load(5), Barrier, Lock(0), Store(5), Unlock(0), Barrier],
            &[Barrier, Lock(0), Load(5), Unlock(0), Lock(1), Store(6), Unlock(1), Barrier],
            &[Load(5), Barrier, Lock(1), Load(6), Load(5), Unlock(1), Barrier, Load(5)],
        ],
    ),
    test(
        "a chain of locks",
        &[
            &[Load(5), Barrier, Lock(0), Load(5), Store(5), Unlock(0), Barrier, Load(5)],
            &[Load(5), Barrier, Lock(0), Load(5), Store(5), Lock(1), Unlock(0), Store(6), Unlock(1), Barrier, Load(5)],
            &[Load(6), Barrier, Lock(1), Load(6), Load(5), Lock(2), Unlock(1), Store(5), Unlock(2), Barrier, Load(5)],
            &[Load(5), Barrier, Lock(2), Load(5), Unlock(2), Lock(0), Load(5), Store(5), Unlock(0), Barrier, Load(5)],
        ],
    ),
    test(
        "one that alone writes a page, of which the home moves",
        &[
            &[Store(4), Barrier, Load(4), Barrier, Load(4), Barrier, Load(4), Barrier, Load(4), Barrier, Load(4)],
            &[Barrier, Store(4), Barrier, Store(4), Barrier, Store(4), Barrier, Store(4), Barrier, Store(4)],
            &[Load(4), Barrier, Load(4), Barrier, Load(4), Barrier, Load(4), Barrier, Load(4), Barrier, Load(4)],
        ],
    ),
    test(
        "a home that writes in each interval",
        &[
            &[Store(6), Barrier, Store(6), Lock(0), Store(7), Unlock(0), Store(6), Barrier, Load(6)],
            &[Barrier, Load(6), Lock(0), Load(7), Unlock(0), Load(6), Barrier, Load(6), Load(7)],
        ],
    ),
    test(
        "a home that has long been alone",
        &[
            &[Store(6), Barrier, Store(6), Barrier, Store(6), Lock(0), Store(6), Unlock(0), Store(6), Barrier, Load(6)],
            &[Barrier, Barrier, Lock(0), Load(6), Unlock(0), Load(6), Barrier, Load(6)],
        ],
    ),
    test(
        "turns under a lock",
        &[
            &[Lock(0), Load(0), Store(0), Unlock(0), Lock(0), Load(0), Store(0), Unlock(0), Barrier, Load(0)],
            &[Lock(0), Load(0), Store(0), Unlock(0), Lock(0), Load(0), Store(0), Unlock(0), Barrier, Load(0)],
            &[Lock(0), Load(0), Store(0), Unlock(0), Lock(0), Load(0), Store(0), Unlock(0), Barrier, Load(0)],
        ],
    ),
    test(
        "a byte that stays as others change",
        &[&[Store(1), Barrier, Barrier, Load(1)], &[Barrier, Store(0), Barrier, Load(1)]],
    ),
    test(
        "a write behind a release",
        &[
            &[Lock(0), Store(0), Unlock(0), Store(0), Barrier, Load(0)],
            &[Lock(0), Load(0), Unlock(0), Barrier, Load(0)],
        ],
    ),
];

/// Operations of each thread, between two barriers that all pass.
#[derive(Debug)]
pub(super) struct Round {
    /// A test; `None`: drawn.
    pub(super) test: Option<&'static str>,
    pub(super) ops: Vec<Vec<Op>>,
}

impl Round {
    fn barriers(&self) -> usize {
        self.ops[0].iter().filter(|op| **op == Barrier).count()
    }
}

/// Rounds of a run, for so many threads of which each rank has `of_rank`.
pub(super) fn draw(random: &mut Random, threads: usize, of_rank: usize) -> Vec<Round> {
    let count = random.spread(4, 48);
    let mut order: Vec<usize> = (0..threads).collect();
    let mut round = |_| {
        for last in (1..threads).rev() {
            order.swap(last, random.below(last as u64 + 1) as usize);
        }
        // Those of different ranks first.
        let mut places = order.clone();
        places
            .sort_by_key(|who| order.iter().filter(|other| **other / of_rank == who / of_rank && *other < who).count());
        if random.chance(40) {
            return Round { test: None, ops: (0..threads).map(|_| drawn(random)).collect() };
        }
        let fitting: Vec<&Test> = TESTS.iter().filter(|test| test.threads.len() <= threads).collect();
        let test = random.pick(&fitting);
        let most = test.threads.iter().map(|ops| ops.iter().filter(|op| **op == Barrier).count()).max();
        let barriers = vec![Barrier; most.unwrap_or_default()];
        let mut ops = vec![[&[Barrier][..], &barriers].concat(); threads];
        for (who, thread) in places.iter().zip(test.threads) {
            let has = thread.iter().filter(|op| **op == Barrier).count();
            ops[*who] = [&[Barrier][..], thread, &barriers[has..]].concat();
        }
        Round { test: Some(test.name), ops }
    };
    (0..count).map(&mut round).collect()
}

/// Some accesses, a part of them under a lock.
fn drawn(random: &mut Random) -> Vec<Op> {
    let mut ops = vec![Barrier];
    for _ in 0..random.below(6) {
        let lock = random.below(LOCKS.into()) as u8;
        let is_locked = random.chance(60);
        if is_locked {
            ops.push(Lock(lock));
        }
        for _ in 0..random.within(1, 4) {
            let variable = random.below(VARIABLES.len() as u64) as u8;
            ops.push(if random.chance(50) { Store(variable) } else { Load(variable) });
        }
        if is_locked {
            ops.push(Unlock(lock));
        }
    }
    ops
}

/// How often the threads meet.
pub(super) fn barriers(rounds: &[Round]) -> usize {
    rounds.iter().map(Round::barriers).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_of_a_round_meet_as_often_and_free_what_they_lock() {
        for seed in 0..50 {
            for (threads, of_rank) in [(2, 1), (6, 2), (9, 3)] {
                for round in draw(&mut Random::new(seed), threads, of_rank) {
                    assert_eq!(round.ops.len(), threads);
                    for ops in &round.ops {
                        let barriers = ops.iter().filter(|op| **op == Barrier).count();
                        assert_eq!(barriers, round.barriers(), "{round:?}");
                        let count = |is: fn(&Op) -> bool| ops.iter().filter(|op| is(op)).count();
                        assert_eq!(count(|op| matches!(op, Lock(_))), count(|op| matches!(op, Unlock(_))));
                    }
                }
            }
        }
    }
}
