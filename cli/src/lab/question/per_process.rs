//! `mapwire lab question per-process`: a table for each process, or one shared cache.

use std::str::FromStr;

use clap::Args;
use mapwire_study::questions::per_process::{Equal, Options, ask};

use super::super::study::TraceOptions;
use super::super::{LabError, UsageError};
use super::output::OutputOptions;
use super::traces::failed;
use super::values;

#[derive(Debug, Args)]
pub(crate) struct PerProcessArgs {
    #[command(flatten)]
    traces: TraceOptions,
    /// Entries of the shared cache (default: 1K,2K,4K,8K,16K)
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = values::entries)]
    entries: Vec<usize>,
    /// Lines of a set of the shared cache: 1 is direct-mapped
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::entries)]
    ways: usize,
    /// What the tables have as much of as the cache. An entry of the cache has a tag, and takes twice the bytes of one of a table
    #[arg(long, value_name = "entries|bytes", default_value = "entries")]
    equal: EqualIn,
    #[command(flatten)]
    output: OutputOptions,
}

#[derive(Clone, Copy, Debug)]
struct EqualIn(Equal);

impl FromStr for EqualIn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "entries" => Ok(EqualIn(Equal::Entries)),
            "bytes" => Ok(EqualIn(Equal::Bytes)),
            _ => Err(format!("`{text}` is none of entries, bytes")),
        }
    }
}

/// `mapwire lab question per-process`.
pub(super) fn command(args: &PerProcessArgs) -> Result<(), LabError> {
    let defaults = Options::default();
    let options = Options {
        selection: args.traces.sends(),
        entries: match args.entries.as_slice() {
            [] => defaults.entries,
            entries => entries.to_vec(),
        },
        ways: args.ways,
        equal: args.equal.0,
        threads: args.traces.threads(),
    };
    if let Some(least) = options.entries.iter().min()
        && args.ways > *least
    {
        let text = format!(
            "--ways {}: a cache of {least} entries has no sets of so many lines; choose at most {least}, or larger --entries",
            args.ways
        );
        return Err(Box::new(UsageError(text)));
    }
    let mut traces = &args.traces;
    let profile = args.traces.profile()?;
    let output = args.output.begin(&args.traces)?;
    let answer = ask(&mut traces, &options, &profile).map_err(failed)?;
    output.write(&answer)
}
