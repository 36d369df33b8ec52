//! Two nodes that seal what they send, over a network that loses, repeats, delays, changes and forges, while they restart: every
//! datagram is opened once or never, unchanged, by the node that it is for; memory stays within bounds; both talk again in the end.
#![no_main]

#[path = "../../firmware/seal/tests/sessions/world.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod world;

use libfuzzer_sys::fuzz_target;
use mapwire_seal::Rotation;
use world::{Random, SECOND, World};

/// More show nothing new, and each may cost a handshake.
const MOST_ACTS: u32 = 300;

fuzz_target!(|bytes: &[u8]| {
    let rotation = Rotation { datagrams: 20, time_ns: SECOND, grace_ns: SECOND / 2, silence_ns: SECOND / 4 };
    let mut world = World::new(Random::steered(bytes), rotation);
    for _ in 0..MOST_ACTS {
        if world.random.is_spent() {
            break;
        }
        world.act();
    }
    world.finish();
});
