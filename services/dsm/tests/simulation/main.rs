//! Seeded jobs in virtual time, each checked at every step against one memory, one holder a lock, and barriers
//! that wait for everybody.
//!
//! `MAPWIRE_DSM_SEED=n` runs that seed alone, and large jobs from it on; `MAPWIRE_DSM_SEEDS=n` runs that many.

mod cluster;
mod program;
#[path = "../../../../tests/random.rs"]
mod random;

use cluster::{Cluster, Shape};
use mapwire_dsm::Counters;
use random::Random;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Runs a job and returns what its ranks did.
fn run(seed: u64, mut cluster: Cluster) -> Vec<Counters> {
    let shape = cluster.shape;
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| cluster.run())) {
        eprintln!("seed {seed} fails at {} ns: {shape:?}", cluster.now_ns);
        resume_unwind(panic);
    }
    cluster.machines.iter().map(|machine| machine.dsm.counters()).collect()
}

#[test]
fn every_job_sees_one_memory_and_comes_to_its_end() {
    if let Some(seed) = number("MAPWIRE_DSM_SEED") {
        let cluster = Cluster::new(Random::new(seed));
        println!("seed {seed}: {:?}", cluster.shape);
        println!("{:#?}", run(seed, cluster));
        return;
    }
    let seeds = number("MAPWIRE_DSM_SEEDS").unwrap_or(2_000);
    println!("seeds 0 to {seeds}; MAPWIRE_DSM_SEED=n repeats one");
    let mut sums = [0; 13];
    for seed in 0..seeds {
        for did in run(seed, Cluster::new(Random::new(seed))) {
            let counts = [
                did.read_faults,
                did.write_faults,
                did.spurious_faults,
                did.prefetches,
                did.sets_sent,
                did.read_ahead,
                did.read_ahead_lost,
                did.upgrades,
                did.downgrades,
                did.held_back,
                did.lock_acquires_local,
                did.lock_acquires_remote,
                did.barriers,
            ];
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count;
            }
        }
    }
    assert!(sums.iter().all(|&sum| sum > 0), "too little happened: {sums:?}");
}

#[test]
fn jobs_of_hundreds_of_ranks_see_one_memory_too() {
    let first = number("MAPWIRE_DSM_SEED").unwrap_or(0);
    for (seed, ranks) in (first..).zip([65, 100, 256, 512, 1024, 1024]) {
        let mut random = Random::new(seed);
        let shape = Shape::large(ranks, &mut random);
        println!("seed {seed}: {shape:?}");
        let did = run(seed, Cluster::of(shape, random));
        let sum = |count: fn(&Counters) -> u64| did.iter().map(count).sum::<u64>();
        assert!(sum(|did| did.read_faults) > u64::from(ranks));
        assert!(sum(|did| did.invalidations) > u64::from(ranks));
        assert!(did.iter().all(|did| did.barriers > 1));
    }
}
