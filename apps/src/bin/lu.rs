//! Blocked LU factorisation on mapwire's shared memory.

use std::process::ExitCode;

use mapwire_apps::cli;
use mapwire_apps::lu::Lu;

const ABOUT: &str = "Factor a dense, diagonally dominant matrix into L and U, in blocks, without pivoting";

const EXAMPLES: &str = "Examples:
  mapwire run -n 4 -- lu                          1024 x 1024, blocks of 32, over 4 ranks, checked
  mapwire run -n 2 -- lu --against-threads        beside two plain threads, in turn
  lu --mode threads --threads 2 --size 2048       plain threads, a larger matrix
  mapwire run -n 2 -- lu --block 64 --json        larger blocks; figures as a row of JSON";

fn main() -> ExitCode {
    cli::main::<Lu>("lu", ABOUT, EXAMPLES)
}
