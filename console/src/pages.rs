//! Manual pages, made from a command line's own description.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;

use crate::whole_file::WholeFile;

/// Writes a page for each command below `command` that is shown, and for itself if it is `whole`.
pub fn write(command: Command, whole: bool, folder: &Path) -> ExitCode {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let written = std::fs::create_dir_all(folder).and_then(|()| below(&command, whole, folder));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mapwire: cannot write manual pages into {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn below(command: &Command, whole: bool, folder: &Path) -> io::Result<()> {
    for under in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        below(under, true, folder)?;
    }
    if whole {
        let man = Man::new(command.clone());
        let mut page = Vec::new();
        man.render(&mut page)?;
        page.extend(exit_status(command.get_name()).into_bytes());
        let mut file = WholeFile::create(&folder.join(man.get_filename()))?;
        file.write_all(&page)?;
        file.keep()?;
    }
    Ok(())
}

/// What each exit code means: one code for one cause, in all commands.
const CODES: [(&str, &str); 3] = [
    ("0", "It is done; of a check, what it checks holds."),
    (
        "1",
        "It failed: a file that cannot be read or written, a port that is taken, a peer that does not answer, a result that is wrong.",
    ),
    ("2", "The command line, a variable or the configuration file is invalid. Nothing was begun."),
];

/// Those of commands that start a program.
const OF_PROGRAMS: [(&str, &str); 4] = [
    ("126", "The program cannot be started."),
    ("127", "The program is not there."),
    ("128+N", "Signal N ended the program."),
    ("other", "That of the program: under mapwire run, of the rank that failed first."),
];

/// The section EXIT STATUS of the page of a command, in roff.
fn exit_status(command: &str) -> String {
    let more: &[_] = match command {
        "run" | "far" | "ping" => &OF_PROGRAMS,
        _ => &[],
    };
    let mut text = ".SH \"EXIT STATUS\"\n".to_owned();
    for (code, meaning) in CODES.iter().chain(more) {
        text.push_str(&format!(".TP\n\\fB{code}\\fR\n{meaning}\n"));
    }
    text
}
