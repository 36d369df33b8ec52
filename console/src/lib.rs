//! What the commands `mapwire`, `mapwire-lab` and `mapwire-bench` share.
//!
//! | module | what |
//! |---|---|
//! | [`stdio`] | what a command prints, where nobody reads it any more or the disk is full |
//! | [`description`] | what a command takes, told to another command, which completes it |
//! | [`pages`] | manual pages |
//! | [`programs`] | where the other commands are |
//! | [`whole_file`] | files that a user names: written through no link of others, and there only when they are whole |
#![deny(unsafe_code)]

#[macro_use]
pub mod stdio;

pub mod description;
pub mod pages;
pub mod programs;
pub mod whole_file;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Command, Subcommand};

/// Requests of `mapwire` to the commands beside it.
#[derive(Clone, Debug, Subcommand)]
pub enum Asked {
    /// Tell mapwire what this command takes
    #[command(hide = true, after_help = "Example:\n  mapwire completions bash")]
    Describe,
    /// Write the manual pages into a folder
    #[command(hide = true, after_help = "Example:\n  mapwire man pages")]
    Man {
        /// The folder; made if it does not exist
        folder: PathBuf,
    },
}

impl Asked {
    /// Answers for all subcommands of `command` that it shows. `values_of` names the words that an argument takes, where only the code lists them.
    pub fn answer(&self, command: Command, values_of: description::ValuesOf) -> ExitCode {
        match self {
            Self::Describe => {
                stdio::print(format_args!("{}\n", description::told(&command, values_of)));
                ExitCode::SUCCESS
            }
            Self::Man { folder } => pages::write(command, false, folder),
        }
    }
}

/// Prints an error and its causes, as all commands do, and gives the exit code.
pub fn fail(error: &dyn std::error::Error, code: u8) -> ExitCode {
    eprintln!("mapwire: {}", with_causes(error));
    ExitCode::from(code)
}

/// An error and its causes, as one line.
#[must_use]
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Prints the help that was asked for, or what is wrong with the command line.
#[must_use]
pub fn show(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if !error.use_stderr() {
        stdio::note(printed);
    }
    ExitCode::from(error.exit_code() as u8)
}

/// The names of the commands below `command` whose help has no example.
#[must_use]
pub fn without_example(mut command: Command) -> Vec<String> {
    command.build();
    let mut left: Vec<&Command> = command.get_subcommands().collect();
    let mut found = Vec::new();
    while let Some(command) = left.pop() {
        if command.get_name() == "help" {
            continue;
        }
        let help = command.clone().render_long_help().to_string();
        if !help.contains("Example") {
            found.push(command.get_name().to_owned());
        }
        left.extend(command.get_subcommands());
    }
    found
}
