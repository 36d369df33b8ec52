//! Completion scripts and manual pages, made from the command line's own description.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use mapwire_console::description::with_values;
use mapwire_console::{pages, stdio};
use mapwire_translation::DesignConfig;

use crate::args::Cli;
use crate::programs;

/// The programs that come with the command.
const PROGRAMS: [&str; 8] = ["tsp", "sor", "is", "lu", "lu-nc", "radix", "tasks", "nbody"];

/// The words that an argument takes where only the code lists them.
fn special(argument: &str) -> Option<Vec<&'static str>> {
    match argument {
        "translation" => Some(DesignConfig::all().map(|design| design.name()).into()),
        _ => None,
    }
}

/// The command line as completions describe it. It is not parsed so: there a value is checked where its source is known.
fn described(shell: Shell) -> Command {
    programs::with_described(with_values(Cli::command(), special)).mut_subcommand("run", |run| {
        run.mut_arg("program", |program| match shell {
            // It completes other commands besides, but not these where they are not installed.
            Shell::Zsh => program.value_hint(ValueHint::CommandWithArguments),
            _ => program.value_parser(PossibleValuesParser::new(PROGRAMS)),
        })
    })
}

/// What clap's script for fish leaves out: the words that stand without an option, under `condition` for those of `command`.
fn fish_words(command: &Command, condition: &str, script: &mut Vec<u8>) {
    for argument in command.get_positionals() {
        let values = argument.get_possible_values();
        let words: Vec<_> = values.iter().map(PossibleValue::get_name).collect();
        if !words.is_empty() {
            // A program may be any file.
            let no_files = if argument.get_id() == "program" { "" } else { " -f" };
            let line = format!("complete -c mapwire -n \"{condition}\"{no_files} -a \"{}\"\n", words.join(" "));
            script.extend(line.into_bytes());
        }
    }
    for under in command.get_subcommands() {
        let condition = match condition {
            "" => format!("__fish_mapwire_using_subcommand {}", under.get_name()),
            _ => format!("{condition}; and __fish_seen_subcommand_from {}", under.get_name()),
        };
        fish_words(under, &condition, script);
    }
}

/// Prints the completion script of `shell`.
pub(crate) fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    let mut command = described(shell);
    clap_complete::generate(shell, &mut command, "mapwire", &mut script);
    if shell == Shell::Fish {
        fish_words(&command, "", &mut script);
    }
    stdio::note(io::stdout().write_all(&script));
    ExitCode::SUCCESS
}

/// Writes `mapwire.1` and one page a command.
pub(crate) fn man(folder: &Path) -> ExitCode {
    let code = pages::write(Cli::command(), true, folder);
    // Over those that say only that these commands are programs of their own.
    if code == ExitCode::SUCCESS {
        programs::write_pages(folder);
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::is_possible;
    use mapwire_console::description::values_of;

    #[test]
    fn values_that_are_offered_are_possible() {
        let mut offered = 0;
        for argument in Cli::command().find_subcommand("run").unwrap().get_arguments() {
            let option = argument.get_id().as_str();
            for value in values_of(argument, special) {
                assert!(is_possible(option, value), "{option} {value}");
                offered += 1;
            }
        }
        assert!(offered > 20, "{offered}");
    }
}
