//! Integer sort, as the NAS benchmark IS defines it: rank keys of few values, again and again.
//!
//! Each worker counts its own keys by value and publishes the counts; from all counts it knows the rank of the first
//! of its keys of each value, and ranks its keys in order. Ranks are stable, so they do not depend on the number of workers.
//! Before iteration `i` two keys change, as NAS has it: key `i` becomes `i`, and key `i + iterations` becomes `values − i`.

mod generator;

pub use generator::Keys;

use std::ops::Range;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::parse_count;
use crate::crew::{Crew, Worker, share_of};
use crate::error::{Failure, ensure};
use crate::phase::Blocks;
use crate::program::Program;

/// Number of keys in a block: 256 KiB.
const BLOCK_KEYS: usize = 1 << 16;
/// NAS's largest class that fits 32-bit ranks.
const MAX_KEYS: usize = 1 << 31;
const MAX_VALUES: u32 = 1 << 24;

/// The keys, and how often to rank them.
#[derive(Args, Clone, Debug)]
pub struct Is {
    /// How many keys; 2^23 may be written so
    #[arg(long, default_value = "2^23", value_name = "N", value_parser = parse_count)]
    pub keys: usize,
    /// How many values a key may have: a power of two
    #[arg(long, default_value = "2^9", value_name = "V", value_parser = parse_count)]
    pub values: usize,
    /// How often to rank the keys
    #[arg(long, default_value_t = 10, value_name = "I")]
    pub iterations: usize,
}

/// Every key and its rank after the last iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranked {
    keys: Vec<u32>,
    ranks: Vec<u32>,
}

/// Shared memory of the workers. Worker `w` owns the blocks that hold its share of the keys, and counts `w`.
pub struct Memory<'c> {
    keys: Blocks<'c, u32>,
    ranks: Blocks<'c, u32>,
    counts: Blocks<'c, u32>,
    /// Keys `place.keys` are block `place.block`, of worker `place.worker`.
    places: Vec<KeyBlock>,
}

#[derive(Clone, Debug)]
struct KeyBlock {
    worker: usize,
    keys: Range<usize>,
}

impl Is {
    /// The blocks of the keys: each worker's share, cut up.
    fn places(&self, workers: usize) -> Vec<KeyBlock> {
        let mut places = Vec::new();
        for worker in 0..workers {
            let share = share_of(self.keys, worker, workers);
            for start in share.clone().step_by(BLOCK_KEYS) {
                let keys = start..share.end.min(start + BLOCK_KEYS);
                places.push(KeyBlock { worker, keys });
            }
        }
        places
    }

    /// The two keys that iteration `iteration`, from 1, changes, and their new values.
    fn changes(&self, iteration: usize) -> [(usize, u32); 2] {
        [(iteration, iteration as u32), (iteration + self.iterations, (self.values - iteration) as u32)]
    }
}

impl Program for Is {
    type Memory<'c> = Memory<'c>;
    type Outcome = Ranked;

    fn name(&self) -> &'static str {
        "is"
    }

    fn check(&self) -> Result<(), Failure> {
        let Self { keys, values, iterations } = *self;
        let refuse = |what: String| Err(Failure::Input(what));
        if iterations == 0 {
            return refuse("--iterations 0: rank the keys at least once".to_string());
        }
        if keys > MAX_KEYS {
            return refuse(format!("--keys {keys}: at most 2^31, as ranks have 32 bits"));
        }
        if keys <= 2 * iterations {
            return refuse(format!(
                "--keys {keys}: {iterations} iterations change {} keys, so there must be more",
                2 * iterations
            ));
        }
        if !values.is_power_of_two() || values < 4 || values > MAX_VALUES as usize {
            return refuse(format!("--values {values}: must be a power of two from 4 to 2^24"));
        }
        if values <= iterations {
            return refuse(format!(
                "--values {values}: iterations write keys up to {iterations}, so there must be more values"
            ));
        }
        Ok(())
    }

    fn problem(&self) -> String {
        format!("ranking {} keys of {} values, {} times", self.keys, self.values, self.iterations)
    }

    fn fields(&self) -> Value {
        json!({"keys": self.keys, "values": self.values, "iterations": self.iterations})
    }

    fn shared_bytes(&self, workers: usize) -> u64 {
        ((2 * self.keys + workers * self.values) * size_of::<u32>()) as u64
    }

    fn layout<'c>(&self, crew: &'c Crew) -> Result<Memory<'c>, Failure> {
        let workers = crew.workers();
        let places = self.places(workers);
        let shapes = || places.iter().map(|place| (place.keys.len(), place.worker));
        Ok(Memory {
            keys: crew.blocks(shapes())?,
            ranks: crew.blocks(shapes())?,
            counts: crew.blocks((0..workers).map(|worker| (self.values, worker)))?,
            places,
        })
    }

    fn prepare(&self, worker: &Worker<'_>, memory: &Memory<'_>) -> Result<(), Failure> {
        for (number, place) in memory.of(worker) {
            let keys = Keys::from(place.keys.start, self.values as u32);
            let mut block = memory.keys[number].write();
            for (slot, key) in block.iter_mut().zip(keys) {
                *slot = key;
            }
            memory.ranks[number].write().fill(u32::MAX);
        }
        memory.counts[worker.id()].write().fill(0);
        Ok(())
    }

    fn work(&self, worker: &Worker<'_>, memory: &Memory<'_>) -> Result<(), Failure> {
        let mut next_rank = vec![0u32; self.values];
        for iteration in 1..=self.iterations {
            for (number, place) in memory.of(worker) {
                for (index, key) in self.changes(iteration) {
                    if place.keys.contains(&index) {
                        memory.keys[number].write()[index - place.keys.start] = key;
                    }
                }
            }
            let mut counts = memory.counts[worker.id()].write();
            counts.fill(0);
            for (number, _) in memory.of(worker) {
                count(&memory.keys[number].read(), &mut counts);
            }
            drop(counts);
            worker.barrier()?;

            worker.note_must_move((size_of::<u32>() * self.values * (worker.count() - 1)) as u64);
            first_ranks(&memory.counts, worker.id(), &mut next_rank);
            for (number, _) in memory.of(worker) {
                let keys = memory.keys[number].read();
                rank(&keys, &mut next_rank, &mut memory.ranks[number].write());
            }
            worker.barrier()?;
        }
        Ok(())
    }

    fn collect(&self, memory: &Memory<'_>) -> Ranked {
        let mut ranked = Ranked { keys: Vec::with_capacity(self.keys), ranks: Vec::with_capacity(self.keys) };
        for number in 0..memory.places.len() {
            ranked.keys.extend_from_slice(&memory.keys[number].read());
            ranked.ranks.extend_from_slice(&memory.ranks[number].read());
        }
        ranked
    }

    fn verify(&self, ranked: &Ranked) -> Result<(), Failure> {
        let sorted = ranked.sorted()?;
        match sorted.windows(2).position(|pair| pair[0] > pair[1]) {
            None => Ok(()),
            Some(at) => Err(Failure::Differs(format!(
                "the key of rank {at} is {}, and that of the next rank {}: they are not in order",
                sorted[at],
                sorted[at + 1]
            ))),
        }
    }

    fn compare(&self, ranked: &Ranked, sequential: &Ranked) -> Result<(), Failure> {
        for (what, ours, theirs) in
            [("key", &ranked.keys, &sequential.keys), ("rank of key", &ranked.ranks, &sequential.ranks)]
        {
            if let Some(at) = ours.iter().zip(theirs).position(|(a, b)| a != b) {
                return Err(Failure::Differs(format!(
                    "{what} {at} is {}, in the sequential run {}",
                    ours[at], theirs[at]
                )));
            }
        }
        Ok(())
    }

    fn describe(&self, ranked: &Ranked) -> Vec<String> {
        match ranked.sorted() {
            Ok(sorted) => vec![format!(
                "sorted: least key {}, median {}, greatest {}",
                sorted[0],
                sorted[sorted.len() / 2],
                sorted[sorted.len() - 1]
            )],
            Err(_) => Vec::new(),
        }
    }
}

impl Memory<'_> {
    /// This worker's blocks, with number and place.
    fn of<'m>(&'m self, worker: &Worker<'_>) -> impl Iterator<Item = (usize, &'m KeyBlock)> + use<'m> {
        let worker = worker.id();
        self.places.iter().enumerate().filter(move |(_, place)| place.worker == worker)
    }
}

impl Ranked {
    /// The keys by rank. Fails unless the ranks are a permutation.
    fn sorted(&self) -> Result<Vec<u32>, Failure> {
        let mut sorted = vec![u32::MAX; self.keys.len()];
        for (index, (&key, &rank)) in self.keys.iter().zip(&self.ranks).enumerate() {
            let slot = sorted.get_mut(rank as usize);
            let free = slot.filter(|slot| **slot == u32::MAX);
            match free {
                Some(slot) => *slot = key,
                None => {
                    return Err(Failure::Differs(format!(
                        "key {index} has rank {rank}, which is another key's or beyond all keys"
                    )));
                }
            }
        }
        ensure(!sorted.contains(&u32::MAX), || "a rank is nobody's".into())?;
        Ok(sorted)
    }
}

/// Counts keys by value. Never inlined, so that every mode runs the same machine code.
#[inline(never)]
fn count(keys: &[u32], counts: &mut [u32]) {
    for &key in keys {
        counts[key as usize] += 1;
    }
}

/// Ranks keys, each one after the last of its value. Never inlined, so that every mode runs the same machine code.
#[inline(never)]
fn rank(keys: &[u32], next_rank: &mut [u32], ranks: &mut [u32]) {
    for (rank, &key) in ranks.iter_mut().zip(keys) {
        let next = &mut next_rank[key as usize];
        *rank = *next;
        *next += 1;
    }
}

/// The rank of the first of `worker`'s keys of each value: all smaller keys come before, and the equal keys of earlier workers.
pub(crate) fn first_ranks(counts: &Blocks<'_, u32>, worker: usize, into: &mut [u32]) {
    let all: Vec<_> = (0..counts.count()).map(|w| counts[w].read()).collect();
    let mut smaller = 0;
    for (value, first) in into.iter_mut().enumerate() {
        let earlier: u32 = all[..worker].iter().map(|counts| counts[value]).sum();
        let later: u32 = all[worker..].iter().map(|counts| counts[value]).sum();
        *first = smaller + earlier;
        smaller += earlier + later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::solve;

    fn run(is: &Is, workers: usize) -> Ranked {
        solve(is, &Crew::plain(workers)).unwrap()
    }

    /// NAS publishes, for some keys of each class, how many keys are smaller, to be adjusted by the iteration.
    fn smaller_than(ranked: &Ranked, index: usize) -> usize {
        let key = ranked.keys[index];
        ranked.keys.iter().filter(|&&other| other < key).count()
    }

    #[test]
    fn class_s_has_the_ranks_that_nas_publishes() {
        let is = Is { keys: 1 << 16, values: 1 << 11, iterations: 10 };
        let ranked = run(&is, 2);
        is.verify(&ranked).unwrap();
        let published = [(48427, 10), (17148, 18 + 10), (23627, 346 + 10), (62548, 64917 - 10), (4431, 65463 - 10)];
        for (index, rank) in published {
            assert_eq!(smaller_than(&ranked, index), rank, "key {index}");
        }
    }

    #[test]
    fn class_w_has_the_ranks_that_nas_publishes() {
        let is = Is { keys: 1 << 20, values: 1 << 16, iterations: 10 };
        let ranked = run(&is, 3);
        is.verify(&ranked).unwrap();
        let published = [
            (357773, 1249 + 8),
            (934767, 11698 + 8),
            (875723, 1039987 - 10),
            (898999, 1043896 - 10),
            (404505, 1048018 - 10),
        ];
        for (index, rank) in published {
            assert_eq!(smaller_than(&ranked, index), rank, "key {index}");
        }
    }

    #[test]
    fn any_number_of_workers_gives_the_same_stable_ranks() {
        for (keys, values, iterations) in [(9, 8, 4), (1000, 4, 3), (200_000, 512, 2)] {
            let is = Is { keys, values, iterations };
            is.check().unwrap();
            let sequential = run(&is, 1);
            is.verify(&sequential).unwrap();
            let mut by_key: Vec<_> = (0..keys).collect();
            by_key.sort_by_key(|&index| sequential.keys[index]);
            for (rank, index) in by_key.into_iter().enumerate() {
                assert_eq!(sequential.ranks[index] as usize, rank);
            }
            for workers in [2, 3, 5] {
                is.compare(&run(&is, workers), &sequential).unwrap();
            }
        }
    }

    #[test]
    fn more_workers_than_keys_is_no_matter() {
        let is = Is { keys: 5, values: 4, iterations: 2 };
        is.compare(&run(&is, 8), &run(&is, 1)).unwrap();
    }

    #[test]
    fn wrong_ranks_are_found_and_named() {
        let is = Is { keys: 100, values: 16, iterations: 1 };
        let right = run(&is, 1);
        let mut twice = right.clone();
        twice.ranks[7] = twice.ranks[8];
        assert!(is.verify(&twice).unwrap_err().to_string().contains("rank"));
        let mut swapped = right.clone();
        swapped.ranks.reverse();
        assert!(is.verify(&swapped).unwrap_err().to_string().contains("order"));
        let message = is.compare(&twice, &right).unwrap_err().to_string();
        assert!(message.contains("rank of key 7"), "{message}");
    }

    #[test]
    fn counts_that_cannot_be_are_refused() {
        for (keys, values, iterations) in [
            (0, 512, 1),
            (20, 512, 10),
            (1 << 40, 512, 1),
            (1000, 0, 1),
            (1000, 500, 1),
            (1000, 1 << 30, 1),
            (1000, 8, 8),
            (1000, 8, 0),
        ] {
            let is = Is { keys, values, iterations };
            assert_eq!(is.check().unwrap_err().exit_code(), 2);
        }
    }
}
