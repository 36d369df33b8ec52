//! Red-black successive over-relaxation on mapwire's shared memory.

use std::process::ExitCode;

use mapwire_apps::cli;
use mapwire_apps::sor::Sor;

const ABOUT: &str = "Relax a square matrix towards the solution of Laplace's equation, red and black points in turn";

const EXAMPLES: &str = "Examples:
  mapwire run -n 4 -- sor                          2048 x 2048 points over 4 ranks, checked
  mapwire run -n 2 -- sor --against-threads        beside two plain threads, in turn
  sor --mode threads --threads 2 --size 512        plain threads, a smaller matrix
  mapwire run -n 2 -- sor --iterations 10 --json   figures as a row of JSON";

fn main() -> ExitCode {
    cli::main::<Sor>("sor", ABOUT, EXAMPLES)
}
