//! Commands that are programs of their own, found as git finds its own: beside this one, or in `PATH`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use mapwire_console::{description, programs};

use crate::{Failure, failing};

/// A command, the program that it is, and the folder of that in a clone.
struct Program {
    command: &'static str,
    name: &'static str,
    folder: &'static str,
}

const PROGRAMS: [Program; 3] = [
    Program { command: "bench", name: "mapwire-bench", folder: "bench" },
    Program { command: "lab", name: "mapwire-lab", folder: "lab/cli" },
    Program { command: "sim", name: "mapwire-lab", folder: "lab/cli" },
];

#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(
        "`mapwire {command}` is the program {name}, which is neither beside mapwire nor in PATH: `make install` brings it, or `cargo install --path {folder}` in a clone"
    )]
    Missing { command: &'static str, name: &'static str, folder: &'static str },
    #[error("cannot start {}", program.display())]
    Start { program: PathBuf, source: std::io::Error },
}

impl Program {
    fn of(command: &str) -> Option<&'static Self> {
        PROGRAMS.iter().find(|it| it.command == command)
    }

    fn find(&self) -> Result<PathBuf, StartError> {
        let Self { command, name, folder } = *self;
        programs::find(name).ok_or(StartError::Missing { command, name, folder })
    }

    /// Goes on as this program; returns only if that cannot be.
    fn exec(&self, words: impl IntoIterator<Item = OsString>) -> Failure {
        match self.find() {
            Ok(program) => {
                let source = Command::new(&program).args(words).exec();
                failing(126)(StartError::Start { program, source })
            }
            Err(error) => failing(127)(error),
        }
    }
}

/// Goes on as the program that `command` is, with the words behind it.
pub(crate) fn exec(command: &'static str, words: Vec<OsString>) -> Failure {
    match Program::of(command) {
        Some(program) => program.exec([command.into()].into_iter().chain(words)),
        None => unreachable!("{command} is not a program of its own"),
    }
}

/// `mapwire help lab study` is for that program too.
pub(crate) fn helped(arguments: &[OsString]) -> Option<Failure> {
    let [_, help, command, ..] = arguments else {
        return None;
    };
    let program = Program::of(command.to_str()?)?;
    (help == "help").then(|| program.exec(arguments[1..].iter().cloned()))
}

/// `command` with what those commands take, as far as their programs are beside this one.
pub(crate) fn with_described(command: clap::Command) -> clap::Command {
    PROGRAMS.iter().fold(command, |whole, program| {
        let described = asked(program, &["describe".into()])
            .and_then(|text| description::read(&text).ok())
            .and_then(|it| it.find_subcommand(program.command).cloned());
        match described {
            Some(described) => whole.mut_subcommand(program.command, |_| described),
            None => whole,
        }
    })
}

/// Has the programs beside this one write their manual pages.
pub(crate) fn write_pages(folder: &Path) {
    for program in PROGRAMS.iter().filter(|it| it.command != "sim") {
        let _ = asked(program, &["man".into(), folder.into()]);
    }
}

/// What a program prints that came with this one: another may be of another version, and is run only by who asks for it.
fn asked(program: &Program, words: &[OsString]) -> Option<String> {
    let output = Command::new(programs::beside(program.name)?).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(text)
}
