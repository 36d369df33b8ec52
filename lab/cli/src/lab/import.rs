//! `mapwire lab import`: traces from other formats.

use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;
use mapwire_study::decode;
use mapwire_trace::Metadata;
use mapwire_trace::convert::{Format, Import, ImportOptions, RUN_RECORDS, Sorted, import};
use mapwire_wire::TraceOp;

use super::formats::{self, FormatOptions};
use super::output::{self, grouped};
use super::{LabError, target};
use crate::progress::Progress;

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The file to import
    #[arg(value_name = "FILE")]
    input: PathBuf,
    /// The trace file
    #[arg(short, long, value_name = "TRACE")]
    output: PathBuf,
    /// csv, din, oracleGeneral or parquet (default: what the ending of FILE says)
    #[arg(long, value_name = "FORMAT")]
    from: Option<Format>,
    /// Put records in order of time (more than 8 million by way of files beside TRACE)
    #[arg(long)]
    sort: bool,
    /// The node of records that name none (din, oracleGeneral)
    #[arg(long, value_name = "N", default_value = "0")]
    node: u16,
    /// Their process
    #[arg(long, value_name = "N", default_value = "0")]
    process: u16,
    /// Make all lines of din sends: of the loads and stores of a program. Else label 0 is send, 1 recv, 2 fetch, as the export writes them
    #[arg(long)]
    as_sends: bool,
    /// Number the objects of oracleGeneral anew, in the order in which they occur; else their numbers are page numbers
    #[arg(long)]
    dense_ids: bool,
    #[command(flatten)]
    format: FormatOptions,
    /// One JSON object: file, records, bytes
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &ImportArgs) -> Result<(), LabError> {
    let format = formats::of(args.from, &args.input, "--from")?;
    output::refuse_input(&args.output, [&args.input])?;
    let name = args.input.display().to_string();
    let file = File::open(&args.input).map_err(|error| format!("cannot read {name}: {error}"))?;
    let options = ImportOptions {
        node: args.node,
        process: args.process,
        tagged: args.format.tag_processes,
        as_sends: args.as_sends,
        page_bytes: args.format.page,
        time_unit_ns: args.format.time_unit.ns(),
        dense: args.dense_ids,
    };
    let receives = Cell::new(0);
    let bytes = Progress::bytes("importing", formats::length(&file));
    let import = import(format, file, &name, |file| Box::new(bytes.watch(file)), &options)?;
    // Of Parquet, which is read in any order, records are followed.
    let rows = import.total_records().map(|rows| Progress::records("importing", Some(rows)));
    let import = import.checked(|record| {
        receives.set(receives.get() + u64::from(record.op() == Some(TraceOp::Receive)));
        decode::check(record).map_err(|why| why.to_string())
    });
    let written = write(args, format, import, rows)?;
    if format == Format::Din && receives.get() > 0 {
        eprintln!(
            "mapwire: note: {} lines with label 1 are receives, which studies with --ops send,fetch leave out; --as-sends makes the \
             loads and stores of a program sends",
            grouped(receives.get())
        );
    }
    written.report("import", &args.output, args.json)
}

/// Writes the trace file. `progress` follows the records; else their reader follows itself.
fn write(
    args: &ImportArgs,
    format: Format,
    import: Import<'_>,
    progress: Option<Progress>,
) -> Result<target::Written, LabError> {
    let metadata = Metadata {
        imported_from: Some(format.to_string()),
        ..import.metadata().cloned().unwrap_or_else(|| Metadata {
            command: std::env::args().collect(),
            page_bytes: args.format.page,
            ..Metadata::default()
        })
    };
    let name = import.file().to_owned();
    let source = target::Source::File(&name);
    if !args.sort {
        return target::write(&args.output, &metadata, source, import.in_order(), progress.as_ref());
    }
    let folder = args.output.parent().filter(|folder| folder.is_dir());
    let sorted = Sorted::new(import, folder.unwrap_or(Path::new(".")), RUN_RECORDS)?;
    drop(progress);
    let progress = Progress::records("writing", None);
    target::write(&args.output, &metadata, source, sorted, Some(&progress))
}
