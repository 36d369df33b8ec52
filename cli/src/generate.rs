//! Completion scripts and manual pages, made from the command line's own description.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::args::Cli;
use crate::stdio;

/// Prints the completion script of `shell`.
pub(crate) fn completions(shell: clap_complete::Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mapwire", &mut script);
    stdio::note(io::stdout().write_all(&script));
    ExitCode::SUCCESS
}

/// Writes `mapwire.1` and one page a command.
pub(crate) fn man(folder: &Path) -> ExitCode {
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "mapwire: cannot write manual pages into {}: {error}",
                folder.display()
            );
            ExitCode::FAILURE
        }
    }
}
