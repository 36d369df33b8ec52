//! Seeded clusters in virtual time: nodes put, get and discard pages, donate frames, join, leave and crash, while messages between
//! different pairs of nodes overtake each other. What is read is compared with what was written last; once all is quiet, the directory with
//! the pages that are stored, and the frames with their uses.
//!
//! `MAPWIRE_GMS_SEED=n` runs that seed alone; `MAPWIRE_GMS_SEEDS=n` runs that many.

mod checks;
mod cluster;
mod programs;
#[path = "../../../../tests/random.rs"]
mod random;
mod shape;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use cluster::Cluster;
use random::Random;
use shape::{Seen, Shape};

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn run(seed: u64) -> Seen {
    let mut random = Random::new(seed);
    let shape = Shape::draw(&mut random);
    let mut cluster = Cluster::new(shape, random);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| cluster.run())) {
        eprintln!("seed {seed} fails after {} steps: {shape:?}", cluster.steps);
        resume_unwind(panic);
    }
    cluster.seen
}

#[test]
fn every_page_read_is_the_page_last_written_and_every_operation_ends() {
    if let Some(seed) = number("MAPWIRE_GMS_SEED") {
        println!("{:?}", run(seed));
        return;
    }
    let seeds = number("MAPWIRE_GMS_SEEDS").unwrap_or(600);
    println!("seeds 0 to {seeds}; MAPWIRE_GMS_SEED=n repeats one");
    let mut sum = Seen::default();
    for seed in 0..seeds {
        sum.add(&run(seed));
    }
    println!("{sum:?}");
    sum.check();
}
