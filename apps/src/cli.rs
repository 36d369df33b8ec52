//! Common command-line options of the programs.
//!
//! In a job every rank gets the same command line and reads it the same way; only rank 0 prints.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser, ValueEnum};

use crate::error::Failure;
use crate::program::Program;
use crate::run;

/// How to run, check and report.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "How to run")]
pub struct How {
    /// auto: over mapwire, with the ranks that `mapwire run` has started; sequential; threads: plain threads of one process
    #[arg(long, value_enum, default_value = "auto", value_name = "MODE")]
    pub mode: Mode,
    /// Threads in each rank over mapwire, 1 by default; in mode threads all threads, as many as processors by default
    #[arg(long, value_name = "T")]
    pub threads: Option<usize>,
    /// Print figures as JSON, one object a line
    #[arg(long)]
    pub json: bool,
    /// Neither run sequentially nor check the result against that
    #[arg(long)]
    pub no_check: bool,
    /// Compare with as many plain threads, run in turn inside this job: how near does mapwire come to their speed-up?
    #[arg(long)]
    pub against_threads: bool,
    /// How often to run each, with --against-threads
    #[arg(long, default_value_t = 5, value_name = "R")]
    pub rounds: usize,
}

/// What carries the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// mapwire, in all ranks of the job.
    Auto,
    /// One thread.
    Sequential,
    /// Threads of one process.
    Threads,
}

/// Most threads of a run.
const MAX_THREADS: usize = 256;

impl How {
    /// Refuses invalid combinations.
    pub fn check(&self) -> Result<(), Failure> {
        let refuse = |what: &str| Err(Failure::Input(what.to_string()));
        if self.threads.is_some_and(|t| t == 0 || t > MAX_THREADS) {
            return Err(Failure::Input(format!(
                "--threads {}: must be between 1 and {MAX_THREADS}",
                self.threads.unwrap_or_default()
            )));
        }
        if self.rounds == 0 {
            return refuse("--rounds 0: run at least once");
        }
        if self.against_threads && self.mode != Mode::Auto {
            return refuse("--against-threads compares with mapwire: leave out --mode");
        }
        if self.mode == Mode::Sequential && self.threads.is_some_and(|t| t > 1) {
            return refuse("--mode sequential has one thread: leave out --threads");
        }
        Ok(())
    }
}

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

/// This process's rank, 0 outside a job.
pub fn rank_of_environment() -> usize {
    let rank = std::env::var("MAPWIRE_RANK").ok();
    rank.and_then(|rank| rank.parse().ok()).unwrap_or(0)
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
