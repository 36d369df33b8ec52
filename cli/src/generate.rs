//! Completion scripts and manual pages, made from the command line's own description.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use mapwire_trace::convert::{FORMATS, Format};
use mapwire_trace::generate::{PATTERNS, Pattern};
use mapwire_translation::DesignConfig;

use crate::args::Cli;
use crate::{bench, stdio};

/// The programs that come with the command.
const PROGRAMS: [&str; 4] = ["tsp", "sor", "is", "lu"];

/// The words that completions offer as values of an argument: those that its name in the help lists (`poll|event|adaptive[:NS]`), or
/// what only the code lists. Others may be possible too, such as a design with its shape.
fn values_of(argument: &Arg) -> Vec<&'static str> {
    match argument.get_id().as_str() {
        "translation" | "design" => return DesignConfig::all().map(|design| design.name()).into(),
        "pattern" | "mix" => return PATTERNS.map(Pattern::name).into(),
        "policy" => return vec!["lru", "mru", "lfu", "mfu", "random"],
        "rules" => return crate::sim::rule_names(),
        "bug" => return crate::sim::bug_names(),
        "from" | "to" => return FORMATS.map(Format::name).into(),
        _ => {}
    }
    let listed = argument.get_value_names().and_then(<[_]>::first);
    let Some(listed) = listed.and_then(|name| name.as_str().split(['[', ',']).next()) else {
        return Vec::new();
    };
    if listed.contains(|it: char| it.is_ascii_uppercase()) {
        return Vec::new();
    }
    // clap keeps texts that live as long as the process.
    let words = listed.split('|');
    words.map(|word| &*word.to_owned().leak()).collect()
}

/// The command, and all under it, with the values that completions offer.
fn with_values(command: Command) -> Command {
    let names: Vec<_> = command
        .get_subcommands()
        .map(|it| it.get_name().to_owned())
        .collect();
    let command = names
        .iter()
        .fold(command, |it, name| it.mut_subcommand(name, with_values));
    command.mut_args(|argument| match values_of(&argument) {
        values if values.is_empty() => argument,
        // In zsh a colon in a name would end it.
        values => argument
            .value_name("VALUE")
            .value_parser(PossibleValuesParser::new(values)),
    })
}

/// The command line as completions describe it. It is not parsed so: there a value is checked where its source is known.
fn described(shell: Shell) -> Command {
    with_values(Cli::command())
        .mut_subcommand("run", |run| {
            run.mut_arg("program", |program| match shell {
                // It completes other commands besides, but not these where they are not installed.
                Shell::Zsh => program.value_hint(ValueHint::CommandWithArguments),
                _ => program.value_parser(PossibleValuesParser::new(PROGRAMS)),
            })
        })
        .mut_subcommand("bench", |command| {
            command.mut_arg("name", |name| {
                name.value_parser(PossibleValuesParser::new(bench::names()))
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
            let no_files = if argument.get_id() == "program" {
                ""
            } else {
                " -f"
            };
            let line = format!(
                "complete -c mapwire -n \"{condition}\"{no_files} -a \"{}\"\n",
                words.join(" ")
            );
            script.extend(line.into_bytes());
        }
    }
    for under in command.get_subcommands() {
        let condition = match condition {
            "" => format!("__fish_mapwire_using_subcommand {}", under.get_name()),
            _ => format!(
                "{condition}; and __fish_seen_subcommand_from {}",
                under.get_name()
            ),
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
            for value in values_of(argument) {
                assert!(is_possible(option, value), "{option} {value}");
                offered += 1;
            }
        }
        assert!(offered > 20, "{offered}");
    }
}
