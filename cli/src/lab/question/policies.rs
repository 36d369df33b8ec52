//! `mapwire lab question policies`: the five policies for unpinning, and the optimum.

use clap::Args;
use mapwire_study::questions::MemoryLimit;
use mapwire_study::questions::policies::{Options, ask};
use mapwire_translation::DesignConfig;

use super::super::LabError;
use super::super::study::TraceOptions;
use super::output::OutputOptions;
use super::traces::failed;
use super::values;

#[derive(Debug, Args)]
pub(crate) struct PoliciesArgs {
    #[command(flatten)]
    chosen: UnpinOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// What the questions take in which pages are unpinned by one policy or another.
#[derive(Debug, Args)]
pub(super) struct UnpinOptions {
    #[command(flatten)]
    pub(super) traces: TraceOptions,
    /// Limits on the pinned memory of a process: sizes, or parts of the largest footprint of a process (default:
    /// 1/16,1/8,1/4,1/2,3/4)
    #[arg(long, value_name = "SIZE|PART,...", value_delimiter = ',', value_parser = values::some_limit)]
    limit: Vec<MemoryLimit>,
    /// The NIC's side: hierarchical, shared-cache or per-process, perhaps with options: hierarchical,entries=1K
    #[arg(long, value_name = "DESIGN", default_value = "hierarchical")]
    design: DesignConfig,
    /// Do not find the optimum, which takes 4 bytes of memory for each lookup
    #[arg(long)]
    no_optimum: bool,
}

impl UnpinOptions {
    pub(super) fn options(&self) -> Options {
        let mut options = Options {
            selection: self.traces.sends(),
            design: self.design,
            optimum: !self.no_optimum,
            threads: self.traces.threads(),
            ..Options::default()
        };
        if !self.limit.is_empty() {
            options.limits = self.limit.clone();
        }
        options
    }
}

/// `mapwire lab question policies`.
pub(super) fn command(args: &PoliciesArgs) -> Result<(), LabError> {
    let mut traces = &args.chosen.traces;
    let profile = traces.profile()?;
    let output = args.output.begin(&args.chosen.traces)?;
    let answer = ask(&mut traces, &args.chosen.options(), &profile).map_err(failed)?;
    output.write(&answer)
}
