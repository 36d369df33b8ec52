//! Common command-line options of the programs.
//!
//! In a job every rank gets the same command line and reads it the same way; only rank 0 prints.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser};

use crate::error::Failure;
use crate::how::{How, rank_of_environment};
use crate::program::Program;
use crate::run;

/// The problem that a command line names.
pub trait Problem: Args {
    /// What solves it.
    type Program: Program;

    /// Checks the problem, and prepares to solve it.
    fn program(self) -> Result<Self::Program, Failure>;
}

impl<P: Program + Args> Problem for P {
    type Program = Self;

    fn program(self) -> Result<Self, Failure> {
        self.check().map(|()| self)
    }
}

#[derive(Parser)]
#[command(version)]
struct Cli<P: Problem> {
    #[command(flatten)]
    problem: P,
    #[command(flatten)]
    how: How,
}

/// The program `name`: parses the command line, runs, and reports a failure. Only rank 0 of a job prints.
pub fn main<P: Problem>(name: &'static str, about: &'static str, examples: &'static str) -> ExitCode {
    let speaks = rank_of_environment() == 0;
    let command = Cli::<P>::command().name(name).about(about).after_help(examples);
    let matches = command.try_get_matches();
    let Cli { problem, how } = match matches.and_then(|matches| Cli::<P>::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            if speaks {
                // If even the terminal is gone, the exit code still tells.
                let _ = error.print();
            }
            return end(error.exit_code() as u8, speaks);
        }
    };
    match problem.program().and_then(|program| run::main(&program, &how)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if speaks || !failure.is_said_by_rank_0() {
                let _ = writeln!(std::io::stderr(), "{name}: {failure}");
            }
            end(failure.exit_code(), speaks)
        }
    }
}

/// Ends with `code`. A silent rank that fails as rank 0 does lets it print first: the launcher ends the job when any rank fails.
fn end(code: u8, speaks: bool) -> ExitCode {
    if code != 0 && !speaks {
        std::thread::sleep(Duration::from_secs(1));
    }
    ExitCode::from(code)
}

/// Parses a count that may be written as a power: `8388608` or `2^23`.
pub fn parse_count(text: &str) -> Result<usize, String> {
    let parsed = match text.split_once('^') {
        None => text.parse().ok(),
        Some((base, exponent)) => match (base.parse::<usize>(), exponent.parse()) {
            (Ok(base), Ok(exponent)) => base.checked_pow(exponent),
            _ => None,
        },
    };
    parsed.ok_or_else(|| "give a whole number, such as 8388608 or 2^23".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_may_be_powers() {
        assert_eq!(parse_count("512"), Ok(512));
        assert_eq!(parse_count("2^23"), Ok(1 << 23));
        assert_eq!(parse_count("10^0"), Ok(1));
        for wrong in ["", "-1", "2^", "^2", "2^64", "2^2^2", "1.5", "two"] {
            assert!(parse_count(wrong).is_err(), "{wrong:?}");
        }
    }

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        how: How,
    }

    fn check(arguments: &[&str]) -> Result<(), Failure> {
        let cli = Cli::try_parse_from([&["program"], arguments].concat()).unwrap();
        cli.how.check()
    }

    #[test]
    fn ways_to_run_that_cannot_be_meant_are_refused() {
        check(&[]).unwrap();
        check(&["--mode", "threads", "--threads", "4"]).unwrap();
        check(&["--against-threads", "--rounds", "1"]).unwrap();
        for wrong in [
            &["--threads", "0"][..],
            &["--threads", "1000"],
            &["--rounds", "0"],
            &["--against-threads", "--mode", "threads"],
            &["--mode", "sequential", "--threads", "2"],
        ] {
            assert_eq!(check(wrong).unwrap_err().exit_code(), 2, "{wrong:?}");
        }
    }
}
