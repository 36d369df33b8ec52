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
//! | [`see`] | `mapwire top`, `mapwire stats`, and what `run --summary` and `--metrics` show |
//! | [`programs`] | `mapwire bench`, `mapwire lab`, `mapwire sim`: programs of their own |
//! | [`generate`] | `mapwire completions`, `mapwire man` |
//!
//! Exit codes: 0 success, 2 an invalid command line or configuration, 126 and 127 a
//! program that cannot be started or found; `run` passes on the code of the rank that failed first.
#![deny(unsafe_code)]

#[macro_use]
extern crate mapwire_console;

mod args;
mod command_line;
mod config;
mod doctor;
mod far;
mod generate;
mod names;
mod ping;
mod programs;
mod run;
mod see;
mod serve;

use std::io::IsTerminal;
use std::process::ExitCode;

use args::{Cli, Command, Passed};
use mapwire::{environment, log};
use mapwire_console::{stdio, with_causes};

/// The exit code of a command that failed, and why.
type Failure = (u8, String);

/// Makes a failure with this exit code of an error and its causes.
fn failing<E: std::error::Error>(code: u8) -> impl Fn(E) -> Failure {
    move |error| (code, with_causes(&error))
}

/// Log lines go to stderr; `MAPWIRE_LOG` filters them (`warn` unless set, `debug`, or
/// `mapwire_transport=trace`).
fn start_log() {
    let given = std::env::var("MAPWIRE_LOG").unwrap_or_default();
    if let Some(text) = environment::log_mistake(&given) {
        environment::warn(&text);
    }
    // Colours are for a terminal, unless https://no-color.org asks for none.
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    log::start(log::Look { time: true, colour: !no_color && std::io::stderr().is_terminal() });
}

fn main() -> ExitCode {
    run::signals::keep_ended_children();
    let arguments: Vec<_> = std::env::args_os().collect();
    let outcome = match programs::helped(&arguments) {
        Some(failure) => Err(failure),
        None => match command_line::parse(arguments) {
            Ok(cli) => run(cli),
            Err(error) => Ok(mapwire_console::show(&error)),
        },
    };
    stdio::finish(outcome.unwrap_or_else(|(code, why)| {
        eprintln!("mapwire: {why}");
        ExitCode::from(code)
    }))
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

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    warn_of_variables(&cli);
    start_log();
    let file = cli.config.as_deref();
    match cli.command {
        Command::Run(args) => run::command(&args, file),
        Command::Agent => Ok(run::hosts::agent::command()),
        Command::Top(args) => see::top::command(&args),
        Command::Stats(args) => see::stats::command(&args),
        Command::Config(args) => config::command(&args, file),
        Command::Doctor(args) => Ok(doctor::command(&args, file)),
        Command::Ping(args) => ping::command(&args),
        Command::Serve(args) => serve::command(&args),
        Command::Lend(args) => serve::lend::command(&args),
        Command::Names(args) => names::command(&args),
        Command::Far(args) => far::command(&args),
        Command::Bench(Passed { words }) => Err(programs::exec("bench", words)),
        Command::Lab(Passed { words }) => Err(programs::exec("lab", words)),
        Command::Sim(Passed { words }) => Err(programs::exec("sim", words)),
        Command::Completions { shell } => Ok(generate::completions(shell)),
        Command::Man { folder } => Ok(generate::man(&folder)),
    }
}
