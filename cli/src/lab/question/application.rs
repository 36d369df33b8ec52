//! `mapwire lab question application`: policies that an application could bring.

use clap::Args;
use mapwire_study::questions::application::ask;

use super::super::LabError;
use super::output::OutputOptions;
use super::policies::UnpinOptions;
use super::traces::failed;

#[derive(Debug, Args)]
pub(crate) struct ApplicationArgs {
    #[command(flatten)]
    chosen: UnpinOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// `mapwire lab question application`.
pub(super) fn command(args: &ApplicationArgs) -> Result<(), LabError> {
    let mut traces = &args.chosen.traces;
    let profile = traces.profile()?;
    let output = args.output.begin(traces)?;
    let answer = ask(&mut traces, &args.chosen.options(), &profile).map_err(failed)?;
    output.write(&answer)
}
