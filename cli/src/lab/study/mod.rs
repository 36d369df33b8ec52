//! `mapwire lab study`: designs, sizes and policies, all combinations, on traces.

mod designs;
mod options;
pub(super) mod rows_out;

use std::path::PathBuf;

use clap::Args;
use mapwire_study::rows::{Row, rows};
use mapwire_study::sweep::Sweep;
use mapwire_translation::{PinLimit, Policy};

pub(super) use designs::DesignOptions;
pub(super) use options::{Format, TraceOptions};

use super::output::Output;
use super::{LabError, UsageError};
use mapwire_translation::size;

/// Most pages that a check miss pins.
const MAX_PREPIN: u64 = 512;

#[derive(Debug, Args)]
pub(crate) struct StudyArgs {
    #[command(flatten)]
    traces: TraceOptions,
    #[command(flatten)]
    designs: DesignOptions,
    /// Pages that a check miss pins, from the missed one on
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = prepin)]
    prepin: Vec<u64>,
    /// Most memory that a process may have pinned: none,4MiB
    #[arg(long, value_name = "SIZE|none,...", value_delimiter = ',', value_parser = limit)]
    limit: Vec<PinLimit>,
    /// What is unpinned when a limit is reached: lru, mru, lfu, mfu, random, random:SEED
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    policy: Vec<Policy>,
    /// Do not split NIC misses into compulsory, capacity and conflict: faster under a limit
    #[arg(long)]
    no_causes: bool,
    /// How the rows are written
    #[arg(long, value_name = "table|csv|json|parquet", default_value = "table")]
    format: Format,
    /// One JSON object a line for each row: --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write to this file, which appears when it is whole (default: stdout)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn prepin(text: &str) -> Result<u64, String> {
    let pages: u64 = text
        .parse()
        .map_err(|_| format!("`{text}` is no number of pages"))?;
    match pages {
        1..=MAX_PREPIN => Ok(pages),
        _ => Err(format!(
            "{pages} pages cannot be pinned at once; choose from 1 to {MAX_PREPIN}"
        )),
    }
}

fn limit(text: &str) -> Result<PinLimit, String> {
    if text == "none" {
        return Ok(PinLimit::Unlimited);
    }
    let bytes = size::parse(text).map_err(|error| error.to_string())?;
    PinLimit::from_bytes(bytes).map_err(|error| error.to_string())
}

impl StudyArgs {
    fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    fn sweep(&self) -> Result<Sweep, LabError> {
        Ok(Sweep {
            limits: self.limit.clone(),
            policies: self.policy.clone(),
            prepins: self.prepin.clone(),
            ..self.designs.sweep()?
        })
    }
}

/// `mapwire lab study`.
pub(crate) fn command(args: &StudyArgs) -> Result<(), LabError> {
    let configurations = args.sweep()?.configurations()?;
    let format = args.format();
    if format == Format::Parquet && args.output.is_none() {
        let text = "--format parquet needs a file: name one with -o";
        return Err(UsageError(text.to_owned()).into());
    }
    let profile = args.traces.profile()?;
    let output = Output::begin(args.output.as_deref(), &args.traces.traces)?;
    let studied = args.traces.study(configurations, !args.no_causes)?;
    let rows: Vec<Row> = rows(&studied.traces, &studied.configurations, &profile);
    output.write(&rows_out::bytes(&rows, format)?)?;
    studied.warn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_pages_to_pin_are_checked_as_they_are_read() {
        assert_eq!(limit("none"), Ok(PinLimit::Unlimited));
        assert_eq!(limit("4MiB"), Ok(PinLimit::Pages(1024)));
        assert!(limit("100").unwrap_err().contains("100 bytes"));
        assert!(limit("some").unwrap_err().contains("some"));
        assert_eq!(prepin("16"), Ok(16));
        assert!(prepin("0").unwrap_err().contains("1 to 512"));
        assert!(prepin("x").unwrap_err().contains("`x`"));
    }
}
