//! The command `mapwire`: starts parallel programs, measures, and says what this computer allows.
//!
//! | module | command |
//! |---|---|
//! | [`run`] | `mapwire run`: starts the ranks of a job, is their broker, and ends them together |
//! | [`config`] | the options of a job from file, environment and flags; `mapwire config` |
//! | [`doctor`] | `mapwire doctor` |
//! | [`ping`] | `mapwire ping` |
//! | [`far`] | `mapwire far`: programs larger than their RAM |
//! | [`serve`], [`names`] | `mapwire serve`, `mapwire names`: names of jobs |
//! | [`bench`] | `mapwire bench` |
//! | [`see`] | `mapwire top`, `mapwire stats`, and what `run --summary` and `--metrics` show |
//! | [`lab`] | `mapwire lab`: traces and studies of them |
//! | [`sim`] | `mapwire sim`: clusters in virtual time |
//! | [`generate`] | `mapwire completions`, `mapwire man` |
//! | [`stdio`] | what all commands print |
//!
//! Exit codes: 0 success, 2 a command line or configuration that makes no sense, 126 and 127 a
//! program that cannot be started or found; `run` passes on the code of the rank that failed first.
#![deny(unsafe_code)]

#[macro_use]
mod stdio;

mod args;
mod bench;
mod command_line;
mod config;
mod doctor;
mod far;
mod generate;
mod lab;
mod names;
mod ping;
mod progress;
mod run;
mod see;
mod serve;
mod sim;

use std::io::IsTerminal;
use std::process::ExitCode;

use args::{Cli, Command};
use mapwire::environment;

/// Log lines go to stderr; `MAPWIRE_LOG` filters them (`warn` unless set, `debug`, or
/// `mapwire_transport=trace`).
fn start_log() {
    use tracing_subscriber::EnvFilter;
    let given = std::env::var("MAPWIRE_LOG").unwrap_or_default();
    let mistake = environment::log_mistake(&given);
    if let Some(text) = &mistake {
        environment::warn(text);
    }
    let chosen = match given.trim() {
        "" => "warn",
        _ if mistake.is_some() => "warn",
        given => given,
    };
    let filter = EnvFilter::try_new(chosen).unwrap_or_else(|_| EnvFilter::new("warn"));
    // Colours are for a terminal, unless https://no-color.org asks for none.
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(!no_color && std::io::stderr().is_terminal())
        // A line that cannot be written is dropped, rather than reported by a print that panics.
        .log_internal_errors(false)
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
    run::signals::keep_ended_children();
    let cli = match command_line::parse(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(error) => return stdio::finish(show(&error)),
    };
    start_log();
    stdio::finish(run(cli))
}

/// Prints the help that was asked for, or what is wrong with the command line.
fn show(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if !error.use_stderr() {
        stdio::note(printed);
    }
    ExitCode::from(error.exit_code() as u8)
}

/// Warns of variables that mean nothing, unless this process is a rank: then the launcher has.
fn warn_of_variables(cli: &Cli) {
    if std::env::var_os("MAPWIRE_JOB").is_some() {
        return;
    }
    let names = std::env::vars_os().map(|(name, _)| name);
    let given = match &cli.command {
        Command::Run(args) => args.names().collect(),
        _ => Vec::new(),
    };
    for text in environment::unknown_variables(names.chain(given)) {
        environment::warn(&text);
    }
}

fn run(cli: Cli) -> ExitCode {
    warn_of_variables(&cli);
    let file = cli.config.as_deref();
    match cli.command {
        Command::Run(args) => run::command(&args, file),
        Command::Agent => run::hosts::agent::command(),
        Command::Top(args) => see::top::command(&args),
        Command::Stats(args) => see::stats::command(&args),
        Command::Config(args) => config::command(&args, file),
        Command::Doctor(args) => doctor::command(&args, file),
        Command::Ping(args) => ping::command(&args),
        Command::Serve(args) => serve::command(&args),
        Command::Lend(args) => serve::lend::command(&args),
        Command::Names(args) => names::command(&args),
        Command::Far(args) => far::command(&args),
        Command::Bench(args) => bench::command(&args),
        Command::Lab(args) => lab::command(&args),
        Command::Sim(command) => sim::command(&command),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { folder } => generate::man(&folder),
    }
}
