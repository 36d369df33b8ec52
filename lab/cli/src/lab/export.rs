//! `mapwire lab export`: traces to other formats.

use std::io;
use std::path::PathBuf;

use clap::Args;
use mapwire_console::whole_file::WholeFile;
use mapwire_trace::TraceReader;
use mapwire_trace::convert::{ConvertError, ExportOptions, Exported, Format, export};
use serde_json::json;

use super::LabError;
use super::formats::{self, FormatOptions};
use super::output::{self, grouped, print};
use crate::progress::Progress;

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The trace file
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// csv, din, oracleGeneral or parquet (default: what the ending of FILE says)
    #[arg(long, value_name = "FORMAT")]
    to: Option<Format>,
    /// Only this node
    #[arg(long, value_name = "N")]
    node: Option<u16>,
    /// Only this process of each node
    #[arg(long, value_name = "N")]
    process: Option<u16>,
    /// Give CSV the column `direct`: whether the operation went by mapped memory, without the NIC
    #[arg(long)]
    direct: bool,
    #[command(flatten)]
    format: FormatOptions,
    /// Export the good part of a trace that is cut off or damaged
    #[arg(long)]
    good_part: bool,
    /// One JSON object: what was exported
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &ExportArgs) -> Result<(), LabError> {
    let format = formats::of(args.to, &args.output, "--to")?;
    let name = args.trace.display().to_string();
    let file = formats::open_trace(&args.trace)?;
    let progress = Progress::bytes("exporting", formats::length(&file));
    let mut reader = TraceReader::new(progress.watch(file), name.as_str())?;
    if args.good_part {
        reader = reader.keep_good_part();
    }
    let options = ExportOptions {
        node: args.node,
        process: args.process,
        tagged: args.format.tag_processes,
        direct: args.direct,
        page_bytes: args.format.page,
        time_unit_ns: args.format.time_unit.ns(),
    };
    output::refuse_input(&args.output, [&args.trace])?;
    let named = output::cannot_write(&args.output);
    let mut out = WholeFile::create(&args.output).map_err(|error| named(&error))?;
    let mut second = None;
    let mut second_pass = |done, of| {
        let progress = second.get_or_insert_with(|| Progress::records("second pass", Some(of)));
        progress.at(done);
    };
    let exported = export(&mut reader, format, &mut out, &options, &mut second_pass).map_err(|error| match error {
        ConvertError::Write(error) if error.kind() == io::ErrorKind::NotSeekable => {
            named(&format!("{format} is written in two passes, and needs a file that can be read back"))
        }
        ConvertError::Write(error) => named(&error),
        other => other.into(),
    })?;
    if exported.written == 0 {
        return Err(format!(
            "{name} has nothing to export{}: {} was not written",
            if exported.records == 0 && args.node.is_none() && args.process.is_none() {
                ", it has no records"
            } else {
                " of what was chosen"
            },
            args.output.display()
        )
        .into());
    }
    let bytes = out.keep().map_err(|error| named(&error))?;
    drop(second);
    if let Some(damage) = reader.damage() {
        eprintln!("mapwire: warning: {damage}");
    }
    warn(args, format, &exported);
    print(&report(args, format, &exported, bytes))
}

/// Tells what the format does not hold.
fn warn(args: &ExportArgs, format: Format, exported: &Exported) {
    if exported.not_chosen > 0 {
        eprintln!("mapwire: note: {} records of other nodes or processes are left out", grouped(exported.not_chosen));
    }
    let lookups = matches!(format, Format::Din | Format::OracleGeneral);
    if lookups && exported.not_transfers > 0 {
        eprintln!(
            "mapwire: note: {} records that are no transfers are left out: {format} holds lookups",
            grouped(exported.not_transfers)
        );
    }
    if exported.direct > 0 && (lookups || format == Format::Csv && !args.direct) {
        let mend = if lookups { "" } else { "; --direct adds a column that does" };
        eprintln!(
            "mapwire: note: {} operations went by mapped memory, and the file does not tell{mend}",
            grouped(exported.direct)
        );
    }
}

fn report(args: &ExportArgs, format: Format, exported: &Exported, bytes: u64) -> String {
    let file = args.output.display().to_string();
    if args.json {
        let row = json!({
            "kind": "export", "file": file, "format": format.name(), "records": exported.records,
            "not_chosen": exported.not_chosen, "direct": exported.direct, "not_transfers": exported.not_transfers, "written": exported.written, "file_bytes": bytes,
        });
        return format!("{row}\n");
    }
    let what = match format {
        Format::Csv => "lines",
        Format::Parquet => "rows",
        Format::Din | Format::OracleGeneral => "lookups",
    };
    let (records, written) = (grouped(exported.records), grouped(exported.written));
    format!("{file}: {records} records as {written} {what} in {} bytes\n", grouped(bytes))
}
