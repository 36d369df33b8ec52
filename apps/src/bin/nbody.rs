//! Gravity of all pairs on mapwire's shared memory.

use std::process::ExitCode;

use mapwire_apps::cli;
use mapwire_apps::nbody::NBody;

const ABOUT: &str = "Move bodies by the gravity of all pairs, step by step";

const EXAMPLES: &str = "Examples:
  mapwire run -n 4 -- nbody                       4096 bodies over 4 ranks, checked
  mapwire run -n 2 -- nbody --against-threads     beside two plain threads, in turn
  nbody --mode threads --threads 2 --steps 5      plain threads, fewer steps";

fn main() -> ExitCode {
    cli::main::<NBody>("nbody", ABOUT, EXAMPLES)
}
