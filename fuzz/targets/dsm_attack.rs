//! A rank of the shared memory among hostile peers: it refuses, and never acts outside its segment.
#![no_main]

#[path = "../../services/dsm/tests/hostile.rs"]
mod hostile;

use hostile::random::Random;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    hostile::run(Random::steered(bytes), 0);
});
