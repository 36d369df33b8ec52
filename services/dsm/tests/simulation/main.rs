//! Seeded jobs in virtual time, each checked at every step against one memory, one holder a lock, and barriers
//! that wait for everybody.
//!
//! `MAPWIRE_DSM_SEED=n` runs that seed alone; `MAPWIRE_DSM_SEEDS=n` runs that many.

mod cluster;
mod program;
mod random;

use cluster::Cluster;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

fn run(seed: u64) {
    let mut cluster = Cluster::new(seed);
    let shape = cluster.shape;
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| cluster.run())) {
        eprintln!(
            "MAPWIRE_DSM_SEED={seed} fails at {} ns: {shape:?}",
            cluster.now_ns
        );
        resume_unwind(panic);
    }
}

#[test]
fn every_job_sees_one_memory_and_comes_to_its_end() {
    if let Some(seed) = number("MAPWIRE_DSM_SEED") {
        println!("seed {seed}: {:?}", Cluster::new(seed).shape);
        return run(seed);
    }
    let seeds = number("MAPWIRE_DSM_SEEDS").unwrap_or(2_000);
    println!("seeds 0 to {seeds}; MAPWIRE_DSM_SEED=n repeats one");
    for seed in 0..seeds {
        run(seed);
    }
}
