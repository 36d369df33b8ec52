//! Manual pages, made from a command line's own description.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;

/// Writes a page for each command below `command` that is shown, and for itself if it is `whole`.
pub fn write(command: Command, whole: bool, folder: &Path) -> ExitCode {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let written = std::fs::create_dir_all(folder).and_then(|()| below(&command, whole, folder));
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

fn below(command: &Command, whole: bool, folder: &Path) -> io::Result<()> {
    for under in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        below(under, true, folder)?;
    }
    match whole {
        true => Man::new(command.clone()).generate_to(folder).map(|_| ()),
        false => Ok(()),
    }
}
