//! `mapwire lab import`: traces from other formats.

use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use mapwire_study::decode;
use mapwire_trace::Metadata;
use mapwire_trace::convert::parquet::ParquetReader;
use mapwire_trace::convert::{
    ConvertError, Format, Import, ImportOptions, Ordered, Place, RUN_RECORDS, Sorted, import,
};

use mapwire_wire::{TraceOp, TraceRecord};

use super::formats::{self, FormatOptions};
use super::output::grouped;
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

/// `mapwire lab import`.
pub(crate) fn command(args: &ImportArgs) -> Result<(), LabError> {
    let format = formats::of(args.from, &args.input, "--from")?;
    target::refuse_input(&args.output, [&args.input])?;
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
    let receives = Rc::new(Cell::new(0));
    let written = if format == Format::Parquet {
        let reader = ParquetReader::new(file, name.as_str())?;
        let progress = Progress::records("importing", Some(reader.rows()));
        write(args, format, reader, Some(progress), &receives)?
    } else {
        let progress = Progress::bytes("importing", formats::length(&file));
        let reader = import(format, file, &name, |file| Box::new(progress.watch(file)), &options)?;
        write(args, format, reader, None, &receives)?
    };
    if format == Format::Din && receives.get() > 0 {
        eprintln!(
            "mapwire: note: {} lines with label 1 are receives, which studies with --ops send,fetch leave out; --as-sends makes the \
             loads and stores of a program sends",
            grouped(receives.get())
        );
    }
    written.report("import", &args.output, args.json)
}

/// Records of which a study can look every page up; any other is an error with its place. Receives are counted.
#[derive(Debug)]
struct Studiable<I>(I, Rc<Cell<u64>>);

impl<I: Import> Iterator for Studiable<I> {
    type Item = Result<TraceRecord, ConvertError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.0.next()?;
        if let Ok(record) = &next
            && record.op() == Some(TraceOp::Receive)
        {
            self.1.set(self.1.get() + 1);
        }
        let refused = next.as_ref().ok().and_then(|it| decode::check(it).err());
        Some(match refused {
            None => next,
            Some(why) => Err(ConvertError::Value {
                file: self.0.file().to_owned(),
                place: self.0.place(),
                what: why.to_string(),
            }),
        })
    }
}

impl<I: Import> Import for Studiable<I> {
    fn file(&self) -> &str {
        self.0.file()
    }

    fn place(&self) -> Place {
        self.0.place()
    }

    fn metadata(&self) -> Option<&Metadata> {
        self.0.metadata()
    }
}

/// Writes the trace file. `progress` follows the records; else their reader follows itself.
fn write(
    args: &ImportArgs,
    format: Format,
    reader: impl Import,
    progress: Option<Progress>,
    receives: &Rc<Cell<u64>>,
) -> Result<target::Written, LabError> {
    let metadata = Metadata {
        imported_from: Some(format.to_string()),
        ..reader.metadata().cloned().unwrap_or_else(|| Metadata {
            command: std::env::args().collect(),
            page_bytes: args.format.page,
            ..Metadata::default()
        })
    };
    let name = reader.file().to_owned();
    let reader = Studiable(reader, Rc::clone(receives));
    let named = |error: ConvertError| -> LabError { error.into() };
    let source = target::Source::File(&name);
    if !args.sort {
        let records = Ordered::new(reader).map(|record| record.map_err(named));
        return target::write(&args.output, &metadata, source, records, progress.as_ref());
    }
    let folder = args.output.parent().filter(|folder| folder.is_dir());
    let sorted = Sorted::new(reader, folder.unwrap_or(Path::new(".")), RUN_RECORDS)?;
    drop(progress);
    let progress = Progress::records("writing", None);
    let records = sorted.map(|record| record.map_err(named));
    target::write(&args.output, &metadata, source, records, Some(&progress))
}
