//! Lazy release consistency on real bytes.
//!
//! `MAPWIRE_DSM_SEED=n` runs that seed alone; `MAPWIRE_DSM_SEEDS=n` runs that many.

#[allow(unreachable_pub, reason = "the simulator exports it")]
#[path = "../../../../lab/sim/src/checks/happens_before.rs"]
mod oracle;
mod phases;
mod program;
#[path = "../../../../tests/random.rs"]
mod random;
mod steps;
mod world;
