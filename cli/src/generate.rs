//! Completion scripts and manual pages, made from the command line's own description.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use mapwire_translation::DesignConfig;

use crate::args::Cli;
use crate::{bench, stdio};

/// The programs that come with the command.
const PROGRAMS: [&str; 4] = ["tsp", "sor", "is", "lu"];

/// The words that completions offer as values of a job's option. Others may be possible too, such as a design with its shape.
fn values_of(option: &str) -> Vec<&'static str> {
    match option {
        "translation" => DesignConfig::all().map(|design| design.name()).into(),
        "policy" => vec!["lru", "mru", "lfu", "mfu", "random"],
        "transport" => vec!["shm"],
        "wait" => vec!["poll", "event", "adaptive"],
        "faults" => vec!["userfaultfd", "sigsegv"],
        "pinner" => vec!["cheapest", "mlock", "io_uring"],
        "bind" => vec!["none", "core"],
        "stdout" => vec!["auto", "pty", "pipe"],
        _ => Vec::new(),
    }
}

/// The command line as completions describe it. It is not parsed so: there a value is checked where its source is known.
fn described(shell: Shell) -> Command {
    let mut cli = Cli::command();
    for name in ["run", "config"] {
        cli = cli.mut_subcommand(name, |command| {
            command.mut_args(|argument| match values_of(argument.get_id().as_str()) {
                values if values.is_empty() => argument,
                values => argument.value_parser(PossibleValuesParser::new(values)),
            })
        });
    }
    cli.mut_subcommand("run", |run| {
        run.mut_arg("program", |program| match shell {
            // It completes names of files where no word of the list fits; other shells would not.
            Shell::Bash => program.value_parser(PossibleValuesParser::new(PROGRAMS)),
            _ => program.value_hint(ValueHint::CommandWithArguments),
        })
    })
    .mut_subcommand("bench", |command| {
        command.mut_arg("name", |name| {
            name.value_parser(PossibleValuesParser::new(bench::names()))
        })
    })
}

/// Prints the completion script of `shell`.
pub(crate) fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut described(shell), "mapwire", &mut script);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::is_possible;

    #[test]
    fn values_that_are_offered_are_possible() {
        let mut offered = 0;
        for argument in Cli::command()
            .find_subcommand("run")
            .unwrap()
            .get_arguments()
        {
            let option = argument.get_id().as_str();
            for value in values_of(option) {
                assert!(is_possible(option, value), "{option} {value}");
                offered += 1;
            }
        }
        assert!(offered > 20, "{offered}");
    }
}
