//! NICs of two nodes, joined: whatever is sent, fetched, redirected, blocked, missed and dropped, in whatever order, memory is as
//! byte arrays would be, and each command is told of once.
#![no_main]

#[path = "../../firmware/nic/tests/worlds/traffic.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod traffic;
#[path = "../../firmware/nic/tests/worlds/world/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use all of it")]
mod world;

use libfuzzer_sys::fuzz_target;
use traffic::Traffic;
use world::World;
use world::random::Random;

fuzz_target!(|bytes: &[u8]| {
    let mut random = Random::steered(bytes);
    let (percent, drops) = (random.below(61), random.chance(50));
    let mut traffic = Traffic::new(World::forgetful(2, random, percent, drops));
    while !traffic.world.random.is_spent() {
        traffic.act();
    }
    traffic.settle();
});
