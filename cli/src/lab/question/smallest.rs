//! `mapwire lab question smallest`: how little NIC memory is enough.

use clap::Args;
use mapwire_study::questions::smallest::{Options, ask};

use super::super::study::TraceOptions;
use super::super::{LabError, UsageError};
use super::output::OutputOptions;
use super::traces::failed;
use super::values;

#[derive(Debug, Args)]
pub(crate) struct SmallestArgs {
    #[command(flatten)]
    traces: TraceOptions,
    /// Designs, each perhaps with options of its own but without prefetch (default: all)
    #[arg(long, value_name = "DESIGN,...")]
    design: Vec<String>,
    /// Ways to try, of designs that have them
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,4", value_parser = values::entries)]
    ways: Vec<usize>,
    /// Fewest entries to try
    #[arg(long, value_name = "N", default_value = "64", value_parser = values::entries)]
    least: usize,
    /// Most entries to try
    #[arg(long, value_name = "N", default_value = "64K", value_parser = values::entries)]
    most: usize,
    /// How much more a lookup may cost than with unlimited NIC memory
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = values::part)]
    within: f64,
    #[command(flatten)]
    output: OutputOptions,
}

/// `mapwire lab question smallest`.
pub(super) fn command(args: &SmallestArgs) -> Result<(), LabError> {
    if args.least > args.most {
        let text = format!("--least {} is more than --most {}", args.least, args.most);
        return Err(Box::new(UsageError(text)));
    }
    let options = Options {
        selection: args.traces.sends(),
        designs: values::designs(&args.design, Options::default().designs)?,
        ways: args.ways.clone(),
        least_entries: args.least,
        most_entries: args.most,
        within: args.within,
        threads: args.traces.threads(),
    };
    let mut traces = &args.traces;
    let profile = args.traces.profile()?;
    let output = args.output.begin(&args.traces)?;
    let answer = ask(&mut traces, &options, &profile).map_err(failed)?;
    output.write(&answer)
}
