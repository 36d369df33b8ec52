//! `mapwire lab question limits`: designs under limits on pinned memory.

use clap::Args;
use mapwire_study::questions::MemoryLimit;
use mapwire_study::questions::limits::{Options, ask};

use super::super::LabError;
use super::super::study::TraceOptions;
use super::output::OutputOptions;
use super::traces::failed;
use super::values;

#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    #[command(flatten)]
    traces: TraceOptions,
    /// Limits on the pinned memory of a process: none, sizes, or parts of the largest footprint of a process (default:
    /// none,3/4,1/2,1/4,1/8,1/16)
    #[arg(long, value_name = "none|SIZE|PART,...", value_delimiter = ',', value_parser = values::limit)]
    limit: Vec<MemoryLimit>,
    /// Designs, each perhaps with options of its own (default: all, and interrupt,variant=vmmc)
    #[arg(long, value_name = "DESIGN,...")]
    design: Vec<String>,
    #[command(flatten)]
    output: OutputOptions,
}

/// `mapwire lab question limits`.
pub(super) fn command(args: &LimitsArgs) -> Result<(), LabError> {
    let defaults = Options::default();
    let options = Options {
        selection: args.traces.sends(),
        designs: values::designs(&args.design, defaults.designs)?,
        limits: match args.limit.as_slice() {
            [] => defaults.limits,
            limits => limits.to_vec(),
        },
        threads: args.traces.threads(),
    };
    let mut traces = &args.traces;
    let profile = args.traces.profile()?;
    let output = args.output.begin(&args.traces)?;
    let answer = ask(&mut traces, &options, &profile).map_err(failed)?;
    output.write(&answer)
}
