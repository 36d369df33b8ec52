//! A search of an uneven tree on mapwire's shared memory.

use std::process::ExitCode;

use mapwire_apps::cli;
use mapwire_apps::tasks::Tasks;

const ABOUT: &str =
    "Visit every node of a tree that is known only as it is walked; workers without work steal from the others";

const EXAMPLES: &str = "Examples:
  mapwire run -n 4 -- tasks                       over 4 ranks, checked
  mapwire run -n 2 -- tasks --against-threads     beside two plain threads, in turn
  tasks --mode threads --threads 2 --seed 7       plain threads, another tree";

fn main() -> ExitCode {
    cli::main::<Tasks>("tasks", ABOUT, EXAMPLES)
}
