//! Integer sort on mapwire's shared memory.

use std::process::ExitCode;

use mapwire_apps::cli;
use mapwire_apps::is::Is;

const ABOUT: &str = "Rank integer keys of few values by counting, as the NAS benchmark IS does";

const EXAMPLES: &str = "Examples:
  mapwire run -n 4 -- is                             2^23 keys of 2^9 values over 4 ranks, checked
  mapwire run -n 2 -- is --against-threads           beside two plain threads, in turn
  mapwire run -n 2 -- is --keys 2^20 --values 2^16   NAS class W
  is --mode sequential --json                        one thread; figures as a row of JSON";

fn main() -> ExitCode {
    cli::main::<Is>("is", ABOUT, EXAMPLES)
}
