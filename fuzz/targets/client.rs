//! A rank whose broker sends whatever it likes: it ends when the broker does.
#![no_main]

#[path = "../../machine/transport/tests/rendezvous_attack.rs"]
#[allow(dead_code, reason = "the broker has a target of its own")]
mod rendezvous_attack;

use libfuzzer_sys::fuzz_target;
use rendezvous_attack::{attack_client, random::Random};

fuzz_target!(|bytes: &[u8]| attack_client(Random::steered(bytes), 0));
