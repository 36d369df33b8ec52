//! LU factorisation of a row-major matrix on mapwire's shared memory.

use std::process::ExitCode;

use mapwire_apps::cli;
use mapwire_apps::lu_nc::LuNc;

const ABOUT: &str = "Factor a dense, diagonally dominant matrix into L and U, row by row, without pivoting; rows are dealt to the workers in turn";

const EXAMPLES: &str = "Examples:
  mapwire run -n 4 -- lu-nc                       1024 x 1024 over 4 ranks, checked
  mapwire run -n 2 -- lu-nc --against-threads     beside two plain threads, in turn
  lu-nc --mode threads --threads 2 --size 512     plain threads, a smaller matrix";

fn main() -> ExitCode {
    cli::main::<LuNc>("lu-nc", ABOUT, EXAMPLES)
}
