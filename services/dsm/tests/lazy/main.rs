//! Lazy release consistency on real bytes.
//!
//! `MAPWIRE_DSM_SEED=n` runs that seed alone; `MAPWIRE_DSM_SEEDS=n` runs that many.

mod oracle;
mod program;
#[path = "../../../../tests/random.rs"]
mod random;
mod steps;
mod world;
