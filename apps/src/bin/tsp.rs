//! The travelling salesman's problem on mapwire's shared memory.

use std::process::ExitCode;

use mapwire_apps::cli;
use mapwire_apps::tsp::Arguments;

const ABOUT: &str = "Find a shortest tour of cities by branch and bound: real cities from the system's time-zone table";

const EXAMPLES: &str = "Examples:
  mapwire run -n 4 -- tsp                                19 cities of Europe over 4 ranks, checked
  mapwire run -n 2 -- tsp --against-threads              beside two plain threads, in turn
  mapwire run -n 2 -- tsp --region America --cities 24   other cities
  tsp --mode sequential --json                           one thread; figures as a row of JSON";

fn main() -> ExitCode {
    cli::main::<Arguments>("tsp", ABOUT, EXAMPLES)
}
