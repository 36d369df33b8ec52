//! Radix sort: pass after pass of keys into buckets of one digit, from the last digit to the first.
//!
//! In a pass each worker counts its run of keys by digit and publishes the counts; from all counts it knows where its keys of each digit
//! go, and scatters them over an array that all write. The other array is the source of the next pass.

use std::sync::atomic::Ordering::Relaxed;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::parse_count;
use crate::crew::{Crew, Worker};
use crate::error::{Failure, ensure};
use crate::is::first_ranks;
use crate::phase::{Blocks, Words};
use crate::program::Program;
use crate::random::mix;

/// Most keys: positions have 32 bits.
const MAX_KEYS: usize = 1 << 31;
const KEY_BITS: u32 = u64::BITS;

/// The keys and the digits.
#[derive(Args, Clone, Debug)]
pub struct Radix {
    /// How many keys; 2^23 may be written so
    #[arg(long, default_value = "2^23", value_name = "N", value_parser = parse_count)]
    pub keys: usize,
    /// Bits of a digit
    #[arg(long, default_value_t = 8, value_name = "B")]
    pub bits: u32,
}

/// Shared memory of the workers.
pub struct Memory<'c> {
    /// Groups 0 and 1: the source and the target of even passes.
    keys: Words<'c>,
    /// A block for each worker: its keys by digit.
    counts: Blocks<'c, u32>,
}

impl Radix {
    fn digits(&self) -> usize {
        1 << self.bits
    }

    /// Where the keys of each digit end, of which so many begin there.
    fn ends(counts: &[u32], firsts: &[u32]) -> Vec<u32> {
        counts.iter().zip(firsts).map(|(count, first)| first + count).collect()
    }

    fn passes(&self) -> u32 {
        KEY_BITS.div_ceil(self.bits)
    }
}

impl Program for Radix {
    type Memory<'c> = Memory<'c>;
    type Outcome = Vec<u64>;

    fn name(&self) -> &'static str {
        "radix"
    }

    fn check(&self) -> Result<(), Failure> {
        let Self { keys, bits } = *self;
        if keys == 0 || keys > MAX_KEYS {
            return Err(Failure::Input(format!("--keys {keys}: must be between 1 and 2^31")));
        }
        if bits == 0 || bits > 16 {
            return Err(Failure::Input(format!("--bits {bits}: a digit has 1 to 16 bits")));
        }
        Ok(())
    }

    fn problem(&self) -> String {
        format!("sorting {} keys of 64 bits, {} bits a pass", self.keys, self.bits)
    }

    fn fields(&self) -> Value {
        json!({"keys": self.keys, "bits": self.bits})
    }

    fn shared_bytes(&self, workers: usize) -> u64 {
        (2 * self.keys * size_of::<u64>() + workers * self.digits() * size_of::<u32>()) as u64
    }

    fn layout<'c>(&self, crew: &'c Crew) -> Result<Memory<'c>, Failure> {
        Ok(Memory {
            keys: crew.words([(self.keys, 0), (self.keys, 0)])?,
            counts: crew.blocks((0..crew.workers()).map(|worker| (self.digits(), worker)))?,
        })
    }

    fn prepare(&self, worker: &Worker<'_>, memory: &Memory<'_>) -> Result<(), Failure> {
        for at in worker.share_of(self.keys) {
            memory.keys[0][at].store(mix(at as u64), Relaxed);
            // So that the worker that reads a page is the first that touches it.
            memory.keys[1][at].store(0, Relaxed);
        }
        Ok(())
    }

    fn work(&self, worker: &Worker<'_>, memory: &Memory<'_>) -> Result<(), Failure> {
        let share = worker.share_of(self.keys);
        let digit = |key: u64, pass: u32| (key >> (pass * self.bits)) as usize & (self.digits() - 1);
        let mut next = vec![0u32; self.digits()];
        for pass in 0..self.passes() {
            let (from, to) = (&memory.keys[pass as usize % 2], &memory.keys[1 - pass as usize % 2]);
            let mut counts = memory.counts[worker.id()].write();
            counts.fill(0);
            for key in &from[share.clone()] {
                counts[digit(key.load(Relaxed), pass)] += 1;
            }
            drop(counts);
            worker.barrier()?;

            worker.note_must_move((size_of::<u32>() * self.digits() * (worker.count() - 1)) as u64);
            first_ranks(&memory.counts, worker.id(), &mut next);
            let firsts = next.clone();
            if worker.count() > 1 {
                let ends = Self::ends(&memory.counts[worker.id()].read(), &firsts);
                let runs = firsts.iter().zip(&ends).map(|(&first, &end)| first as usize..end as usize);
                memory.keys.overwrite(1 - pass as usize % 2, runs)?;
            }
            for key in &from[share.clone()] {
                let key = key.load(Relaxed);
                let next = &mut next[digit(key, pass)];
                to[*next as usize].store(key, Relaxed);
                *next += 1;
            }
            if pass + 1 < self.passes() {
                // Others read in the next pass what this worker has put beyond its own share.
                let runs = firsts.iter().zip(&next).map(|(&first, &end)| first as usize..end as usize);
                let beyond = runs.map(|run| run.len() - common(&run, &share)).sum::<usize>();
                worker.note_must_move((beyond * size_of::<u64>()) as u64);
            }
            worker.barrier()?;
        }
        Ok(())
    }

    fn collect(&self, memory: &Memory<'_>) -> Vec<u64> {
        memory.keys[self.passes() as usize % 2].iter().map(|key| key.load(Relaxed)).collect()
    }

    fn verify(&self, keys: &Vec<u64>) -> Result<(), Failure> {
        ensure(keys.is_sorted(), || "the keys are not in order".into())
    }

    fn compare(&self, keys: &Vec<u64>, sequential: &Vec<u64>) -> Result<(), Failure> {
        match keys.iter().zip(sequential).position(|(ours, theirs)| ours != theirs) {
            None => Ok(()),
            Some(at) => Err(Failure::Differs(format!(
                "key {at} is {:#x}, in the sequential run {:#x}",
                keys[at], sequential[at]
            ))),
        }
    }

    fn describe(&self, keys: &Vec<u64>) -> Vec<String> {
        vec![format!("sorted: least key {:#x}, greatest {:#x}", keys[0], keys[keys.len() - 1])]
    }
}

/// How many numbers are in both ranges.
fn common(one: &std::ops::Range<usize>, other: &std::ops::Range<usize>) -> usize {
    one.end.min(other.end).saturating_sub(one.start.max(other.start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::solve;

    #[test]
    fn any_number_of_workers_sorts_as_the_standard_library_does() {
        for (keys, bits) in [(1, 8), (1000, 8), (5000, 11), (300, 1), (64, 16)] {
            let radix = Radix { keys, bits };
            radix.check().unwrap();
            let mut sorted: Vec<_> = (0..keys as u64).map(mix).collect();
            sorted.sort_unstable();
            for workers in [1, 2, 3, 7] {
                let ours = solve(&radix, &Crew::plain(workers)).unwrap();
                radix.verify(&ours).unwrap();
                radix.compare(&ours, &sorted).unwrap();
            }
        }
    }

    #[test]
    fn keys_that_land_in_anothers_share_and_all_counts_must_move() {
        let radix = Radix { keys: 1000, bits: 8 };
        let crew = Crew::plain(2);
        solve(&radix, &crew).unwrap();
        // By the definition: after each pass but the last, who wrote a position, and who reads it.
        let mut keys: Vec<_> = (0..1000).map(|at| (mix(at as u64), at)).collect();
        let mut expected = 8 * 2 * 256 * 4;
        for pass in 0..7 {
            keys.sort_by_key(|&(key, _)| key >> (8 * pass) & 255);
            for (at, slot) in keys.iter_mut().enumerate() {
                let half = |at: usize| at / 500;
                expected += 8 * u64::from(half(slot.1) != half(at));
                slot.1 = at;
            }
        }
        assert_eq!(crew.traffic().must_move_bytes, expected);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for (keys, bits) in [(0, 8), (1 << 40, 8), (10, 0), (10, 17)] {
            assert_eq!(Radix { keys, bits }.check().unwrap_err().exit_code(), 2);
        }
    }

    #[test]
    fn a_wrong_key_is_found_and_named() {
        let radix = Radix { keys: 3, bits: 8 };
        assert!(radix.verify(&vec![1, 3, 2]).is_err());
        let message = radix.compare(&vec![1, 2, 4], &vec![1, 2, 3]).unwrap_err().to_string();
        assert!(message.contains("key 2 is 0x4"), "{message}");
    }
}
