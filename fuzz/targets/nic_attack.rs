//! A NIC between a hostile peer and hostile processes: only exported memory changes, its memory stays within bounds, and honest
//! processes are served in the end.
#![no_main]

#[path = "../../firmware/nic/tests/worlds/attack.rs"]
mod attack;
#[path = "../../firmware/nic/tests/worlds/world/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use all of it")]
mod world;

use attack::Attack;
use libfuzzer_sys::fuzz_target;
use world::random::Random;

fuzz_target!(|bytes: &[u8]| {
    let mut attack = Attack::new(Random::steered(bytes));
    while !attack.world.random.is_spent() {
        attack.act();
    }
    attack.finish();
});
