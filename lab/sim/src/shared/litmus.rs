//! Litmus tests: programs of a few loads and stores whose outcomes tell models of memory apart.
//!
//! What each thread loads must be what some order of all their operations gives that keeps the order of each thread (Lamport 1979,
//! sequential consistency). [`allowed`] finds these outcomes by going through the orders.

use std::collections::BTreeSet;
use std::fmt;

use crate::random::Random;

/// Variables that a test may have.
pub const VARIABLES: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    Load(u8),
    /// Store a value, 1 to 15, in a variable.
    Store(u8, u8),
    /// Wait for the one lock.
    Lock,
    Unlock,
    Barrier,
}

use Op::{Barrier, Load, Lock, Store, Unlock};

#[derive(Clone, Copy, Debug)]
pub struct Litmus {
    pub name: &'static str,
    threads: &'static [&'static [Op]],
}

pub const LITMUS: [Litmus; 9] = [
    test("message passing", &[&[Store(0, 1), Store(1, 1)], &[Load(1), Load(0)]]),
    test("store buffering", &[&[Store(0, 1), Load(1)], &[Store(1, 1), Load(0)]]),
    test("load buffering", &[&[Load(0), Store(1, 1)], &[Load(1), Store(0, 1)]]),
    test(
        "independent reads of independent writes",
        &[&[Store(0, 1)], &[Store(1, 1)], &[Load(0), Load(1)], &[Load(1), Load(0)]],
    ),
    test("write to read causality", &[&[Store(0, 1)], &[Load(0), Store(1, 1)], &[Load(1), Load(0)]]),
    test("coherence of reads", &[&[Store(0, 1), Store(0, 2)], &[Load(0), Load(0)]]),
    test("coherence of writes", &[&[Store(0, 1)], &[Store(0, 2)], &[Load(0), Load(0)], &[Load(0), Load(0)]]),
    test("coherence of a read and a write", &[&[Load(0), Store(0, 1)], &[Store(0, 2), Load(0)]]),
    test(
        "two writes each",
        &[&[Store(0, 1), Store(1, 2), Barrier, Load(0), Load(1)], &[Store(1, 1), Store(0, 2), Barrier]],
    ),
];

const fn test(name: &'static str, threads: &'static [&'static [Op]]) -> Litmus {
    Litmus { name, threads }
}

/// How the threads of a test synchronise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    Plain,
    /// Under the lock between two barriers.
    Locked,
    /// With a barrier behind the first operation of each thread.
    Barriers,
}

impl Variant {
    pub const ALL: [Self; 3] = [Self::Plain, Self::Locked, Self::Barriers];
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Locked => "with locks",
            Self::Barriers => "with barriers",
        })
    }
}

impl Litmus {
    /// Its threads, as a variant has them.
    pub fn threads(&self, variant: Variant) -> Vec<Vec<Op>> {
        let vary = |ops: &&[Op]| match variant {
            Variant::Plain => ops.to_vec(),
            Variant::Locked => {
                let parts = ops.split(|op| *op == Barrier);
                let locked =
                    parts.map(|part| if part.is_empty() { Vec::new() } else { [&[Lock], part, &[Unlock]].concat() });
                locked.collect::<Vec<_>>().join(&Barrier)
            }
            Variant::Barriers => [&ops[..1], &[Barrier], &ops[1..]].concat(),
        };
        self.threads.iter().map(vary).collect()
    }
}

/// What the threads of a test have done so far.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reached {
    /// The next operation of each thread.
    next: Vec<usize>,
    memory: [u8; VARIABLES as usize],
    holder: Option<usize>,
    loaded: Vec<Vec<u8>>,
}

/// All that the loads of the threads may give, thread by thread.
pub fn allowed(threads: &[Vec<Op>]) -> BTreeSet<Vec<Vec<u8>>> {
    let start = Reached {
        next: vec![0; threads.len()],
        memory: [0; VARIABLES as usize],
        holder: None,
        loaded: vec![Vec::new(); threads.len()],
    };
    let mut seen = BTreeSet::from([start.clone()]);
    let mut open = vec![start];
    let mut outcomes = BTreeSet::new();
    while let Some(state) = open.pop() {
        let op = |thread: usize| threads[thread].get(state.next[thread]).copied();
        let mut follow = |state: Reached| {
            if seen.insert(state.clone()) {
                open.push(state);
            }
        };
        if (0..threads.len()).all(|thread| op(thread).is_none()) {
            outcomes.insert(state.loaded.clone());
        } else if (0..threads.len()).all(|thread| op(thread) == Some(Barrier)) {
            let mut passed = state.clone();
            passed.next.iter_mut().for_each(|next| *next += 1);
            follow(passed);
            continue;
        }
        for thread in 0..threads.len() {
            let mut after = state.clone();
            after.next[thread] += 1;
            match op(thread) {
                Some(Load(variable)) => {
                    let value = after.memory[usize::from(variable)];
                    after.loaded[thread].push(value);
                }
                Some(Store(variable, value)) => after.memory[usize::from(variable)] = value,
                Some(Lock) if after.holder.is_none() => after.holder = Some(thread),
                Some(Unlock) => after.holder = None,
                Some(Lock | Barrier) | None => continue,
            }
            follow(after);
        }
    }
    outcomes
}

/// A test as the ranks run it.
#[derive(Debug)]
struct Round {
    test: &'static Litmus,
    variant: Variant,
    /// What each rank does: a barrier, then its thread if it has one.
    ops: Vec<Vec<Op>>,
    /// The rank of each thread.
    ranks: Vec<usize>,
    allowed: BTreeSet<Vec<Vec<u8>>>,
    loaded: Vec<Vec<u8>>,
    /// Ranks that have done all of it.
    done: usize,
}

/// What the loads of a test gave.
pub type Seen = (&'static str, Variant, Vec<Vec<u8>>);

/// The tests of a run, one after the other.
#[derive(Debug)]
pub(super) struct Tests {
    rounds: Vec<Round>,
    /// The round of each rank, and its next operation there.
    at: Vec<(usize, usize)>,
    pub(super) seen: Vec<Seen>,
    /// Time between two operations of a rank, at most.
    pub(super) most_ns: u64,
}

impl Tests {
    /// Draws some for so many ranks, at least 2.
    pub(super) fn draw(random: &mut Random, ranks: usize) -> Self {
        let count = random.spread(4, 64);
        let mut order: Vec<usize> = (0..ranks).collect();
        let mut round = |_| {
            let fits = |test: &&Litmus| test.threads.len() <= ranks;
            let fitting: Vec<&Litmus> = LITMUS.iter().filter(fits).collect();
            let (test, variant) = (*random.pick(&fitting), *random.pick(&Variant::ALL));
            for last in (1..ranks).rev() {
                order.swap(last, random.below(last as u64 + 1) as usize);
            }
            let threads = test.threads(variant);
            let barriers = threads[0].iter().filter(|op| **op == Barrier).count();
            let ranks_of: Vec<usize> = order[..threads.len()].to_vec();
            let mut ops = vec![vec![Barrier; 1 + barriers]; ranks];
            for (rank, thread) in ranks_of.iter().zip(&threads) {
                ops[*rank] = [&[Barrier][..], thread].concat();
            }
            Round {
                test,
                variant,
                ops,
                loaded: vec![Vec::new(); threads.len()],
                ranks: ranks_of,
                allowed: allowed(&threads),
                done: 0,
            }
        };
        Self {
            rounds: (0..count).map(&mut round).collect(),
            at: vec![(0, 0); ranks],
            seen: Vec::new(),
            most_ns: random.spread(50, 50_000),
        }
    }

    /// Leaves out tests, by number.
    pub(super) fn keep(&mut self, has: impl Fn(usize) -> bool) {
        let mut number = 0..;
        self.rounds.retain(|_| number.next().is_some_and(&has));
    }

    pub(super) fn len(&self) -> usize {
        self.rounds.len()
    }

    /// How often the ranks meet.
    pub(super) fn barriers(&self) -> usize {
        self.rounds.iter().flat_map(|round| &round.ops[0]).filter(|op| **op == Barrier).count()
    }

    /// What a rank does next, with the number of its round.
    pub(super) fn next(&mut self, rank: usize) -> Option<(usize, Op)> {
        let (number, next) = &mut self.at[rank];
        let round = self.rounds.get(*number)?;
        let op = *round.ops[rank].get(*next)?;
        *next += 1;
        Some((*number, op))
    }

    /// The value that a store in a round leaves, which no other round's stores do.
    pub(super) fn stored(round: usize, value: u8) -> u64 {
        (round as u64 + 1) << 4 | u64::from(value)
    }

    /// A rank has loaded this.
    pub(super) fn note_loaded(&mut self, rank: usize, found: u64) {
        let number = self.at[rank].0;
        let round = &mut self.rounds[number];
        // What a former round has left is what this one begins with.
        let is_own = found >> 4 == number as u64 + 1;
        let value = if is_own { (found & 15) as u8 } else { 0 };
        if let Some(thread) = round.ranks.iter().position(|of| *of == rank) {
            round.loaded[thread].push(value);
        }
    }

    /// A rank has done its last operation. What it has to say if that was the last of a round and its outcome is not allowed.
    pub(super) fn note_done(&mut self, rank: usize) -> Option<String> {
        let (number, next) = &mut self.at[rank];
        let round = &mut self.rounds[*number];
        if *next < round.ops[rank].len() {
            return None;
        }
        (*number, *next) = (*number + 1, 0);
        round.done += 1;
        if round.done < round.ops.len() {
            return None;
        }
        let Round { test, variant, loaded, .. } = round;
        self.seen.push((test.name, *variant, loaded.clone()));
        (!round.allowed.contains(&round.loaded)).then(|| {
            format!(
                "{}, {variant}: ranks {:?} loaded {:?}, which no order of their operations gives",
                test.name, round.ranks, round.loaded
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the loads of a variant may not give, though each value is stored or there from the start.
    fn forbids(name: &str, variant: Variant, loaded: &[&[u8]]) -> bool {
        let test = LITMUS.iter().find(|test| test.name == name).unwrap();
        let outcome: Vec<Vec<u8>> = loaded.iter().map(|values| values.to_vec()).collect();
        !allowed(&test.threads(variant)).contains(&outcome)
    }

    #[test]
    fn sequential_consistency_forbids_the_outcome_that_each_test_is_known_for_and_no_other() {
        for (name, loaded) in [
            ("message passing", &[&[][..], &[1, 0]][..]),
            ("store buffering", &[&[0], &[0]]),
            ("load buffering", &[&[1], &[1]]),
            ("independent reads of independent writes", &[&[], &[], &[1, 0], &[1, 0]]),
            ("write to read causality", &[&[], &[1], &[1, 0]]),
            ("coherence of reads", &[&[], &[2, 1]]),
            ("coherence of writes", &[&[], &[], &[1, 2], &[2, 1]]),
            ("coherence of a read and a write", &[&[1], &[2]]),
            ("two writes each", &[&[1, 1], &[]]),
        ] {
            assert!(forbids(name, Variant::Plain, loaded), "{name}");
        }
        let outcomes = |at: usize| allowed(&LITMUS[at].threads(Variant::Plain)).len();
        assert_eq!([0, 1, 2, 3].map(outcomes), [3, 3, 3, 15]);
    }

    #[test]
    fn locks_and_barriers_leave_fewer_outcomes() {
        let plain: &[&[u8]] = &[&[], &[0, 1]];
        assert!(!forbids("message passing", Variant::Plain, plain));
        assert!(forbids("message passing", Variant::Locked, plain));
        let before: &[&[u8]] = &[&[], &[0, 0]];
        assert!(!forbids("message passing", Variant::Locked, before));
        assert!(forbids("message passing", Variant::Barriers, before));
        assert!(!forbids("message passing", Variant::Barriers, plain));
        for test in &LITMUS {
            for variant in Variant::ALL {
                let threads = test.threads(variant);
                let meets = |ops: &Vec<Op>| ops.iter().filter(|op| **op == Barrier).count();
                assert!(threads.iter().all(|ops| meets(ops) == meets(&threads[0])));
                assert!(!allowed(&threads).is_empty(), "{} {variant}", test.name);
            }
        }
    }
}
