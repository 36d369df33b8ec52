//! A node among hostile peers and programs. `MAPWIRE_NODE_SEED=n` repeats one seed.

#[path = "../../../../tests/allocations.rs"]
mod allocations;
mod attack;

use attack::{Attack, Random};

fn run(seed: u64) {
    let mut attack = Attack::new(Random::new(seed));
    let mut acts = 0;
    while acts < 400 || !attack.is_spent() {
        attack.act();
        acts += 1;
    }
    attack.finish();
}

#[test]
fn whatever_peers_and_programs_do_only_exported_memory_changes_and_every_operation_ends() {
    if let Ok(seed) = std::env::var("MAPWIRE_NODE_SEED") {
        return run(seed.parse().expect("MAPWIRE_NODE_SEED is a number"));
    }
    for seed in 0..600 {
        std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|panic| {
            eprintln!("MAPWIRE_NODE_SEED={seed} fails");
            std::panic::resume_unwind(panic)
        });
    }
}
