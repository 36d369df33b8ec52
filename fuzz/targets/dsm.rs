//! A job of the shared memory: whatever its threads do and however messages are delayed, all see one memory, a lock has one holder,
//! and everybody comes to the end.
#![no_main]

#[path = "../../services/dsm/tests/simulation/cluster.rs"]
mod cluster;
#[path = "../../services/dsm/tests/simulation/program.rs"]
mod program;
#[path = "../../tests/random.rs"]
mod random;

use cluster::Cluster;
use libfuzzer_sys::fuzz_target;
use random::Random;

fuzz_target!(|bytes: &[u8]| Cluster::new(Random::steered(bytes)).run());
