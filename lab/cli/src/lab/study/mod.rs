//! `mapwire lab study`: designs, sizes and policies, all combinations, on traces.

mod designs;
mod options;
pub(super) mod rows_out;

use std::path::PathBuf;

use clap::Args;
use mapwire_study::choosers::UnpinPolicy;
use mapwire_study::rows::{rows, smallest, sums};
use mapwire_study::sweep::{Limit, Sweep};

pub(super) use designs::DesignOptions;
pub(super) use options::{Format, TraceOptions};

use super::output::Output;
use super::{LabError, UsageError};

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
    /// Most memory that a process may have pinned: none, 4MiB, or a part of the largest footprint of a process: 1/4
    #[arg(long, value_name = "SIZE|PART|none,...", value_delimiter = ',')]
    limit: Vec<Limit>,
    /// What is unpinned when a limit is reached: lru, mru, lfu, mfu, random, random:SEED, sweep, released, optimum
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    policy: Vec<UnpinPolicy>,
    /// Do not split NIC misses into compulsory, capacity and conflict: faster under a limit
    #[arg(long)]
    no_causes: bool,
    /// Of rows that differ only in entries, the fewest with which a lookup costs at most so much more than with unlimited NIC memory
    #[arg(long, value_name = "PERCENT", value_parser = part)]
    within: Option<f64>,
    /// Add the sums over all traces
    #[arg(long)]
    sum: bool,
    /// How the rows are written
    #[arg(long, default_value = "table")]
    format: Format,
    /// One JSON object a line for each row: --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write to this file, which appears when it is whole (default: stdout)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn prepin(text: &str) -> Result<u64, String> {
    let pages: u64 = text.parse().map_err(|_| format!("`{text}` is not a number of pages; write one such as 64"))?;
    match pages {
        1..=MAX_PREPIN => Ok(pages),
        _ => Err(format!("{pages} pages cannot be pinned at once; choose from 1 to {MAX_PREPIN}")),
    }
}

/// Reads a part of a whole as a percentage or a fraction of one: `3%`, `0.03`.
fn part(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number / unit),
        _ => Err(format!("`{text}` is not a part; write a percentage or a number from 0 on: 3%, 0.03")),
    }
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

pub(crate) fn command(args: &StudyArgs) -> Result<(), LabError> {
    let (traces, sweep) = (&args.traces, args.sweep()?);
    let mut configurations = sweep.configurations(0)?;
    let choosing = configurations.iter().find(|it| it.chooser.is_some());
    if let (Some(choosing), true) = (choosing, traces.all().receive) {
        let text = format!(
            "--policy {}: what is exported stays pinned, whoever chooses; add --ops send,fetch",
            choosing.policy()
        );
        return Err(UsageError(text).into());
    }
    let format = args.format();
    if format == Format::Parquet && args.output.is_none() {
        let text = "--format parquet needs a file: name one with -o";
        return Err(UsageError(text.to_owned()).into());
    }
    let profile = traces.profile()?;
    let output = Output::begin(args.output.as_deref(), &traces.traces)?;
    if sweep.needs_footprint() {
        let known = traces.study(Vec::new(), false)?.traces;
        let largest = known.iter().map(|trace| trace.findings.footprint_pages());
        configurations = sweep.configurations(largest.max().unwrap_or(0))?;
    }
    let studied = traces.study(configurations, !args.no_causes)?;
    let mut rows = rows(&studied.traces, &studied.configurations, &profile);
    if args.sum && traces.traces.len() > 1 {
        rows.extend(sums(&rows, traces.traces.len(), &profile));
    }
    if rows.is_empty() {
        return studied.warn();
    }
    let mut missing = Vec::new();
    if let Some(within) = args.within {
        (rows, missing) = smallest(rows, within);
    }
    output.write(&rows_out::bytes(&rows, format)?)?;
    for why in missing {
        eprintln!("mapwire: note: {why}");
    }
    studied.warn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_pages_to_pin_are_checked_as_they_are_read() {
        assert_eq!((part("3%"), part("0.5")), (Ok(0.03), Ok(0.5)));
        for text in ["some", "-1", "inf", "%"] {
            assert!(part(text).unwrap_err().contains(&format!("`{text}`")));
        }
        assert_eq!(prepin("16"), Ok(16));
        assert!(prepin("0").unwrap_err().contains("1 to 512"));
        assert!(prepin("x").unwrap_err().contains("`x`"));
    }
}
