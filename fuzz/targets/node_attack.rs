//! A node between hostile peers and hostile programs: only what is exported or asked for is read and stored, each command is told of once,
//! pins are balanced, its memory stays within bounds, and every operation ends.
#![no_main]

#[path = "../../tests/allocations.rs"]
mod allocations;
#[path = "../../services/node/tests/attack/attack.rs"]
mod attack;

use attack::{Attack, Random};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut attack = Attack::new(Random::steered(bytes));
    while !attack.is_spent() {
        attack.act();
    }
    attack.finish();
});
