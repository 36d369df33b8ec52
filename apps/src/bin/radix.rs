//! Radix sort on mapwire's shared memory.

use std::process::ExitCode;

use mapwire_apps::cli;
use mapwire_apps::radix::Radix;

const ABOUT: &str = "Sort keys of 64 bits by their digits, from the last to the first";

const EXAMPLES: &str = "Examples:
  mapwire run -n 4 -- radix                       2^23 keys over 4 ranks, checked
  mapwire run -n 2 -- radix --against-threads     beside two plain threads, in turn
  radix --mode threads --threads 2 --bits 11      plain threads, longer digits";

fn main() -> ExitCode {
    cli::main::<Radix>("radix", ABOUT, EXAMPLES)
}
