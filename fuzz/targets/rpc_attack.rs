//! Two nodes that call each other while a third sends them whatever it likes: their calls end as they must.
#![no_main]

#[path = "../../services/rpc/tests/attack.rs"]
mod attack;

use attack::random::Random;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    attack::run(Random::steered(bytes), 0);
});
