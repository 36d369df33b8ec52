//! What a command takes, as another command can read it: `mapwire` completes the words of commands that are programs of their own.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgAction, Command, ValueHint};
use serde::{Deserialize, Serialize};

/// The words that an argument takes, by its name in the code; `None` where its help lists them, or nobody does.
pub type ValuesOf = fn(&str) -> Option<Vec<&'static str>>;

#[derive(Deserialize, Serialize)]
struct Described {
    name: String,
    about: String,
    hidden: bool,
    arguments: Vec<Argument>,
    commands: Vec<Described>,
}

#[derive(Deserialize, Serialize)]
struct Argument {
    id: String,
    short: Option<char>,
    long: Option<String>,
    help: String,
    hidden: bool,
    takes_value: bool,
    /// It may be given several times, or takes several values.
    is_many: bool,
    is_path: bool,
    value_name: Option<String>,
    values: Vec<String>,
}

/// Text that lives as long as the process, as clap keeps it.
fn kept(text: &str) -> &'static str {
    text.to_owned().leak()
}

/// The words that completions offer as values of an argument: those that its name in the help lists (`poll|event|adaptive[:NS]`), or
/// what only the code lists. Others may be possible too, such as a design with its shape.
#[must_use]
pub fn values_of(argument: &Arg, special: ValuesOf) -> Vec<&'static str> {
    if let Some(values) = special(argument.get_id().as_str()) {
        return values;
    }
    let listed = argument.get_value_names().and_then(<[_]>::first);
    let Some(listed) = listed.and_then(|name| name.as_str().split(['[', ',']).next()) else {
        return Vec::new();
    };
    if listed.contains(|it: char| it.is_ascii_uppercase()) {
        return Vec::new();
    }
    listed.split('|').map(kept).collect()
}

/// The command, and all under it, with the values that completions offer.
#[must_use]
pub fn with_values(command: Command, special: ValuesOf) -> Command {
    let names = command.get_subcommands().map(|it| it.get_name().to_owned());
    let names: Vec<_> = names.collect();
    let command =
        names.iter().fold(command, |command, name| command.mut_subcommand(name, |it| with_values(it, special)));
    command.mut_args(|argument| match values_of(&argument, special) {
        values if values.is_empty() => argument,
        // In zsh a colon in a name would end it.
        values => argument.value_name("VALUE").value_parser(PossibleValuesParser::new(values)),
    })
}

/// `command` and all under it, as a line of JSON.
#[must_use]
pub fn told(command: &Command, special: ValuesOf) -> String {
    let described = of_command(&with_values(command.clone(), special));
    serde_json::to_string(&described).unwrap_or_default()
}

fn of_command(command: &Command) -> Described {
    Described {
        name: command.get_name().to_owned(),
        about: command.get_about().map(ToString::to_string).unwrap_or_default(),
        hidden: command.is_hide_set(),
        arguments: command.get_arguments().map(of_argument).collect(),
        commands: command.get_subcommands().map(of_command).collect(),
    }
}

fn of_argument(argument: &Arg) -> Argument {
    let takes_value = argument.get_action().takes_values();
    let names = argument.get_value_names().and_then(<[_]>::first);
    let values = argument.get_possible_values();
    // Flags have the values true and false.
    let values = values.iter().filter(|_| takes_value);
    Argument {
        id: argument.get_id().to_string(),
        short: argument.get_short(),
        long: argument.get_long().map(str::to_owned),
        help: argument.get_help().map(ToString::to_string).unwrap_or_default(),
        hidden: argument.is_hide_set(),
        takes_value,
        is_many: matches!(argument.get_action(), ArgAction::Append | ArgAction::Count),
        is_path: argument.get_value_hint() == ValueHint::AnyPath,
        value_name: names.map(ToString::to_string),
        values: values.map(|it| it.get_name().to_owned()).collect(),
    }
}

/// The command that [`told`] tells of. It is not parsed so: the program of that command does.
///
/// # Errors
/// The text is not of that form.
pub fn read(text: &str) -> Result<Command, serde_json::Error> {
    serde_json::from_str(text).map(|it: Described| command_of(&it))
}

fn command_of(described: &Described) -> Command {
    Command::new(kept(&described.name))
        .about(kept(&described.about))
        .hide(described.hidden)
        .args(described.arguments.iter().map(argument_of))
        .subcommands(described.commands.iter().map(command_of))
}

fn argument_of(described: &Argument) -> Arg {
    let mut argument = Arg::new(kept(&described.id)).help(kept(&described.help)).hide(described.hidden);
    if let Some(short) = described.short {
        argument = argument.short(short);
    }
    if let Some(long) = &described.long {
        argument = argument.long(kept(long));
    }
    argument = argument.action(match (described.takes_value, described.is_many) {
        (true, true) => ArgAction::Append,
        (true, false) => ArgAction::Set,
        (false, true) => ArgAction::Count,
        (false, false) => ArgAction::SetTrue,
    });
    if let Some(name) = &described.value_name {
        argument = argument.value_name(kept(name));
    }
    if described.is_path {
        argument = argument.value_hint(ValueHint::AnyPath);
    }
    if !described.values.is_empty() {
        let values = described.values.iter().map(|it| PossibleValue::new(kept(it)));
        argument = argument.value_parser(PossibleValuesParser::new(values));
    }
    argument
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn command() -> Command {
        let design = Arg::new("design").long("design");
        let paths = Arg::new("traces").value_parser(clap::value_parser!(PathBuf));
        let study = Command::new("study").about("Replay traces").args([
            design,
            paths.action(ArgAction::Append),
            Arg::new("cost").short('c').value_name("none|measured[:FILE]"),
            Arg::new("json").long("json").action(ArgAction::SetTrue),
        ]);
        Command::new("lab").subcommand(study)
    }

    fn special(id: &str) -> Option<Vec<&'static str>> {
        (id == "design").then(|| vec!["utlb", "cached"])
    }

    #[test]
    fn what_is_told_is_read_as_it_was_and_told_again_alike() {
        let told = told(&command(), special);
        let mut read = read(&told).unwrap();
        assert_eq!(super::told(&read, |_| None), told);
        read.build();
        let study = read.find_subcommand("study").unwrap();
        let values = |id: &str| {
            let argument = study.get_arguments().find(|it| it.get_id() == id).unwrap();
            let values = argument.get_possible_values();
            let names = values.iter().map(|it| it.get_name().to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(values("design"), ["utlb", "cached"]);
        assert_eq!(values("cost"), ["none", "measured"]);
        let of_id = |id: &str| study.get_arguments().find(|it| it.get_id() == id).unwrap();
        assert_eq!(of_id("traces").get_value_hint(), ValueHint::AnyPath);
        assert!(!of_id("json").get_action().takes_values());
    }

    #[test]
    fn what_is_no_description_is_refused() {
        assert!(read("").is_err());
        assert!(read("{\"name\":1}").is_err());
    }
}
