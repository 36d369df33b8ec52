//! `mapwire lab timeline`: what each thread of a job waited for, and what moved between its ranks.

mod input;
mod matrix;
mod perfetto;

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use mapwire_console::whole_file::WholeFile;

use super::output::{cannot_write, print, refuse_input};
use super::{DamagedError, LabError, UsageError};
use input::Input;
use matrix::Matrix;
use perfetto::Timeline;

#[derive(Debug, Args)]
pub(crate) struct TimelineArgs {
    /// The trace (.mwt) of a job; or a folder with it, or with the files of its ranks (MAPWIRE_TRACE_FOLDER)
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Write the timeline there, as Perfetto's JSON (Chrome's trace events)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw the bytes between ranks there, as SVG
    #[arg(long, value_name = "FILE.svg")]
    matrix: Option<PathBuf>,
    /// One JSON object a line: for each two ranks between which bytes moved, and for each rank
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &TimelineArgs) -> Result<(), LabError> {
    if let Some(path) = &args.matrix
        && path.extension().is_none_or(|ending| !ending.eq_ignore_ascii_case("svg"))
    {
        let name = path.display();
        return Err(UsageError(format!("--matrix {name}: pictures are SVG; give a name that ends in .svg")).into());
    }
    let input = Input::find(&args.trace)?;
    for path in args.output.iter().chain(&args.matrix) {
        refuse_input(path, input.files())?;
    }
    if let (Some(output), Some(matrix)) = (&args.output, &args.matrix)
        && output == matrix
    {
        return Err(UsageError(format!("-o and --matrix both name {}", output.display())).into());
    }
    let begin = |path: &PathBuf| match WholeFile::create(path) {
        Ok(file) => Ok((path.clone(), file)),
        Err(error) => Err(cannot_write(path)(&error)),
    };
    let json = args.output.as_ref().map(begin).transpose()?;
    let drawing = args.matrix.as_ref().map(begin).transpose()?;
    let shape = input.shape()?;
    let mut matrix = Matrix::new(shape.ranks.len());
    let damaged = match json {
        None => input.each(|record| matrix.count(&shape, record))?,
        Some((path, file)) => {
            let named = cannot_write(&path);
            let mut timeline = Timeline::new(BufWriter::new(file), &shape);
            let mut failed = None;
            let damaged = input.each(|record| {
                matrix.count(&shape, record);
                if failed.is_none() {
                    failed = timeline.record(record).err();
                }
            })?;
            if let Some(error) = failed {
                return Err(named(&error));
            }
            let file = timeline.finish().map_err(|error| named(&error))?;
            let file = file.into_inner().map_err(|error| named(error.error()))?;
            file.keep().map_err(|error| named(&error))?;
            damaged
        }
    };
    if let Some((path, mut file)) = drawing {
        let named = cannot_write(&path);
        file.write_all(matrix.drawing().as_bytes()).map_err(|error| named(&error))?;
        file.keep().map_err(|error| named(&error))?;
    }
    print(&if args.json { matrix.json_lines() } else { matrix.text() })?;
    DamagedError::tell(&damaged)
}

#[cfg(test)]
mod tests;
