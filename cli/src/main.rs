//! The command `mapwire`: starts parallel programs, measures, and says what this computer allows.
//!
//! | module | command |
//! |---|---|
//! | [`run`] | `mapwire run`: starts the ranks of a job, is their broker, and ends them together |
//! | [`config`] | the options of a job from file, environment and flags; `mapwire config` |
//! | [`doctor`] | `mapwire doctor` |
//! | [`bench`] | `mapwire bench` |
//! | [`lab`] | `mapwire lab`: traces and studies of them |
//! | [`generate`] | `mapwire completions`, `mapwire man` |
//!
//! Exit codes: 0 success, 2 a command line or configuration that makes no sense, 126 and 127 a
//! program that cannot be started or found; `run` passes on the code of the rank that failed first.
#![deny(unsafe_code)]

mod args;
mod bench;
mod config;
mod doctor;
mod generate;
mod lab;
mod progress;
mod run;
mod size;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

/// Log lines go to stderr; `MAPWIRE_LOG` filters them (`warn` unless set, `debug`, or
/// `mapwire_transport=trace`).
fn start_log() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("MAPWIRE_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
}

/// Prints an error and its causes, as all commands do, and gives the exit code.
fn fail(error: &dyn std::error::Error, code: u8) -> ExitCode {
    eprint!("mapwire: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprint!(": {error}");
        cause = error.source();
    }
    eprintln!();
    ExitCode::from(code)
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_log();
    let file = cli.config.as_deref();
    match cli.command {
        Command::Run(args) => run::command(&args, file),
        Command::Config(args) => config::command(&args, file),
        Command::Doctor(args) => doctor::command(&args),
        Command::Bench(args) => bench::command(&args),
        Command::Lab(args) => lab::command(&args),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { folder } => generate::man(&folder),
    }
}
