//! Reads the command line, and helps those who know other launchers.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Error, Parser};

use crate::args::{Cli, Command};

/// Options of other launchers, and what to write instead.
const FOREIGN: &[(&[&str], &str)] = &[
    (&["np", "nprocs", "ntasks", "nproc-per-node", "nproc_per_node"], "-n N starts N ranks"),
    (
        &["ppn", "npernode", "ntasks-per-node", "N", "nnodes", "nodes"],
        "--hosts HOST:RANKS,HOST:RANKS says how many ranks each host has; -n N starts N",
    ),
    (
        &["H", "f", "host", "machinefile", "nodelist"],
        "--hosts a:2,b or --hostfile FILE says on which hosts the ranks run",
    ),
    (
        &["l", "label", "tag-output", "prepend-rank"],
        "each line begins with its rank unless --no-tag is given; leave this option out",
    ),
    (&["oversubscribe", "overcommit", "allow-run-as-root"], "this is always allowed; leave this option out"),
    (&["bind-to", "bind-to-core", "cpu-bind", "map-by"], "--bind core binds each rank to a processor"),
    (&["genv", "env", "export"], "-x VAR=VALUE sets a variable for the ranks"),
    (&["wd", "chdir", "cwd", "D"], "--wdir FOLDER is where the ranks start"),
];

/// Parses the arguments, the first of which is the name of the command.
pub(crate) fn parse(mut arguments: Vec<OsString>) -> Result<Cli, Error> {
    let parsed = match Cli::try_parse_from(&arguments) {
        Ok(cli) if takes_p_for_a_number(&cli) => {
            if let Some(np) = arguments.iter_mut().find(|word| *word == "-np") {
                *np = "-n".into();
            }
            Cli::try_parse_from(&arguments)
        }
        parsed => parsed,
    };
    parsed.map_err(|error| match error.kind() {
        ErrorKind::UnknownArgument if precedes_command(&arguments) => misplaced(error),
        ErrorKind::UnknownArgument => advised(error),
        ErrorKind::InvalidSubcommand => with_nearest_command(error),
        // `-hostfile` begins as `-h` does.
        ErrorKind::DisplayHelp => match one_dash_word(&arguments) {
            Some(word) => unknown(&word),
            None => error,
        },
        _ => error,
    })
}

/// Whether `-np 4` was read as `-n p`.
fn takes_p_for_a_number(cli: &Cli) -> bool {
    matches!(&cli.command, Command::Run(run) if run.options.get("ranks") == Some("p"))
}

/// The word that was taken for `-h` and is longer.
fn one_dash_word(arguments: &[OsString]) -> Option<String> {
    let asks = |word: &&OsString| *word == "--help" || word.as_bytes().starts_with(b"-h");
    let word = arguments.iter().find(asks)?;
    (word != "--help" && word != "-h").then(|| word.to_string_lossy().into_owned())
}

fn unknown(word: &str) -> Error {
    let mut error = Error::new(ErrorKind::UnknownArgument).with_cmd(&Cli::command());
    let word = ContextValue::String(word.to_owned());
    error.insert(ContextKind::InvalidArg, word);
    advised(error)
}

/// Whether an option stands where the name of the command is expected: `mapwire -n 2 run ./prog`.
fn precedes_command(arguments: &[OsString]) -> bool {
    let first = arguments.get(1).map(|word| word.as_bytes());
    first.is_some_and(|word| word.starts_with(b"-"))
}

fn misplaced(mut error: Error) -> Error {
    let advice = "options of a command follow its name: mapwire run -n 2 -- ./prog";
    let advice = ContextValue::StyledStrs(vec![StyledStr::from(advice)]);
    error.insert(ContextKind::Suggested, advice);
    error
}

/// Names the command that two slips at most make of what was written. clap's own measure misses short words with two letters swapped.
fn with_nearest_command(mut error: Error) -> Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let cli = Cli::command();
    let shown = cli.get_subcommands().filter(|it| !it.is_hide_set());
    let measured = shown.map(|it| (strsim::osa_distance(word, it.get_name()), it.get_name()));
    if let Some((1..=2, name)) = measured.min() {
        let name = ContextValue::Strings(vec![name.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, name);
    }
    error
}

/// Says what to write instead of an option of another launcher.
fn advised(mut error: Error) -> Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let name = word.trim_start_matches('-');
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    let advice = FOREIGN.iter().find(|(names, _)| names.contains(&name));
    if let Some((_, advice)) = advice {
        let advice = ContextValue::StyledStrs(vec![StyledStr::from(*advice)]);
        error.insert(ContextKind::Suggested, advice);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Cli, Error> {
        parse(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn np_is_as_good_as_n() {
        for line in [
            "mapwire run -np 4 --wait poll -- prog -np 9",
            "mapwire run --wait poll -np 4 prog -np 9",
            "mapwire run --np 4 --wait=poll prog -np 9",
            "mapwire run -n4 --wait=poll prog -np 9",
        ] {
            let Command::Run(run) = of(line).unwrap().command else { panic!("{line}") };
            assert_eq!(run.options.get("ranks"), Some("4"), "{line}");
            assert_eq!(run.options.get("wait"), Some("poll"), "{line}");
            assert_eq!(run.program, ["prog", "-np", "9"], "{line}");
        }
    }

    #[test]
    fn options_that_run_does_not_have_are_refused_with_what_to_write_instead() {
        for (options, says) in [
            ("--machinefile hosts", "--hostfile FILE"),
            ("-hostfile hosts", "unexpected argument '-hostfile'"),
            ("-H a,b", "--hosts a:2,b"),
            ("-N 2", "--hosts HOST:RANKS"),
            ("--tag-output", "each line begins with its rank"),
            ("--oversubscribe", "always allowed"),
            ("--bind-to core", "--bind core"),
            ("--ntasks=4", "-n N"),
            ("--trnasport shm", "a similar argument exists: '--transport'"),
            ("-q", "unexpected argument '-q'"),
        ] {
            let line = format!("mapwire run -n 2 {options} prog");
            let error = of(&line).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{line}");
            assert!(error.to_string().contains(says), "{line}: {error}");
        }
    }

    #[test]
    fn an_option_before_the_command_is_told_where_it_belongs() {
        for line in ["mapwire -n 2 run ./prog", "mapwire --wait poll run prog"] {
            let error = of(line).unwrap_err().to_string();
            assert!(error.contains("mapwire run -n 2 -- ./prog"), "{error}");
        }
    }

    #[test]
    fn a_command_with_swapped_letters_is_recognised() {
        for (word, name) in [("rnu", "run"), ("nmaes", "names"), ("dcotor", "doctor")] {
            let error = of(&format!("mapwire {word}")).unwrap_err().to_string();
            assert!(error.contains(&format!("'{name}'")), "{error}");
        }
        let far_off = of("mapwire frobnicate").unwrap_err().to_string();
        assert!(!far_off.contains("similar"), "{far_off}");
    }

    #[test]
    fn help_is_still_help() {
        for line in ["mapwire run -h", "mapwire -h", "mapwire run --help", "mapwire run -n 2 -h prog -hostfile"] {
            assert_eq!(of(line).unwrap_err().kind(), ErrorKind::DisplayHelp);
        }
        let Command::Run(run) = of("mapwire run -n 2 -- prog -hostfile").unwrap().command else { panic!() };
        assert_eq!(run.program, ["prog", "-hostfile"]);
    }
}
