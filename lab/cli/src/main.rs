//! The command `mapwire-lab`, by which `mapwire lab` and `mapwire sim` work.
//!
//! | module | command |
//! |---|---|
//! | [`lab`] | `mapwire lab`: traces and studies of them |
//! | [`sim`] | `mapwire sim`: clusters in virtual time |
//!
//! Nothing of it uses this computer's network or shared memory: the nodes are simulated.
#![deny(unsafe_code)]

#[macro_use]
extern crate mapwire_console;

mod args;
mod lab;
mod progress;
mod sim;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use mapwire_console::{fail, stdio};

use args::{Cli, Command};

fn main() -> ExitCode {
    let code = match Cli::try_parse() {
        Ok(cli) => run(cli.command),
        Err(error) => mapwire_console::show(&error),
    };
    stdio::finish(code)
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Lab(args) => lab::command(&args.command),
        Command::Sim(command) => sim::command(&command),
        Command::Asked(asked) => asked.answer(Cli::command(), args::values_of),
    }
}
