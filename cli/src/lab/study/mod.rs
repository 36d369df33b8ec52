//! `mapwire lab study`: designs, sizes and policies, all combinations, on traces.

mod options;
pub(super) mod rows_out;

use std::path::PathBuf;

use clap::Args;
use mapwire_study::rows::{Row, rows};
use mapwire_study::sweep::{Sweep, parse_designs};
use mapwire_translation::{DesignConfig, PinLimit, Policy};

pub(super) use options::{Format, TraceOptions};

use super::{LabError, UsageError};
use crate::size;

/// Most pages that a check miss pins.
const MAX_PREPIN: u64 = 512;

#[derive(Debug, Args)]
pub(crate) struct StudyArgs {
    #[command(flatten)]
    traces: TraceOptions,
    /// Designs, each perhaps with options of its own: hierarchical,entries=8K (default: hierarchical)
    #[arg(long, value_name = "DESIGN,...")]
    design: Vec<String>,
    /// Entries of the NIC's cache, or of a process's table: 1K,2K,4K
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    entries: Vec<String>,
    /// Lines of a set: 1 is direct-mapped
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    ways: Vec<String>,
    /// Entries of a line
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    line: Vec<String>,
    /// Whether each process's pages start at a place of their own in the cache: on,off
    #[arg(long, value_name = "on|off,...", value_delimiter = ',')]
    offset: Vec<String>,
    /// Entries that a NIC miss fetches
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    prefetch: Vec<String>,
    /// Pages that one interrupt has pinned and filled
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    fill: Vec<String>,
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
    PinLimit::from_bytes(size::parse(text)?).map_err(|error| error.to_string())
}

impl StudyArgs {
    fn sweep(&self) -> Result<Sweep, LabError> {
        let mut designs: Vec<DesignConfig> = Vec::new();
        for text in &self.design {
            designs.extend(
                parse_designs(text)
                    .map_err(|error| UsageError(format!("--design {text}: {error}")))?,
            );
        }
        let options = [
            ("entries", &self.entries),
            ("ways", &self.ways),
            ("line", &self.line),
            ("offset", &self.offset),
            ("prefetch", &self.prefetch),
            ("fill", &self.fill),
        ];
        Ok(Sweep {
            designs,
            options: options
                .into_iter()
                .map(|(option, values)| (option, values.clone()))
                .collect(),
            limits: self.limit.clone(),
            policies: self.policy.clone(),
            prepins: self.prepin.clone(),
        })
    }
}

/// `mapwire lab study`.
pub(crate) fn command(args: &StudyArgs) -> Result<(), LabError> {
    let configurations = args.sweep()?.configurations()?;
    let profile = args.traces.profile()?;
    let studied = args.traces.study(configurations, !args.no_causes)?;
    let rows: Vec<Row> = rows(&studied.traces, &studied.configurations, &profile);
    rows_out::write(&rows, args.format, args.output.as_deref())?;
    studied.warn();
    Ok(())
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
