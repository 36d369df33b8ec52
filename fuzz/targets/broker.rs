//! The broker of a job, attacked by strangers that know its token: it stays within bounds and serves a rank that comes late.
#![no_main]

#[path = "../../machine/transport/tests/rendezvous_attack.rs"]
#[allow(dead_code, reason = "the client has a target of its own")]
mod rendezvous_attack;

use libfuzzer_sys::fuzz_target;
use rendezvous_attack::{attack_broker, random::Random};

fuzz_target!(|bytes: &[u8]| attack_broker(Random::steered(bytes), 0));
