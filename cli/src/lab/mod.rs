//! `mapwire lab`: the laboratory. Each subcommand is a module with its arguments and its `command`.
//!
//! | module | command |
//! |---|---|
//! | [`info`] | `mapwire lab info`: what a trace is made of |

mod info;
mod output;

use std::process::ExitCode;

use clap::Subcommand;

use crate::args::LabArgs;

/// What went wrong, for the user.
pub(crate) type LabError = Box<dyn std::error::Error>;

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Show what a trace is made of: operations, lookups, footprints
    ///
    /// A lookup is a page of a transfer (send, fetch, recv); a footprint is the number of distinct pages of a process's
    /// transfers. A trace that is cut off or damaged is shown as far as it is good.
    #[command(
        after_help = "Examples:\n  mapwire lab info fft.mwt\n  mapwire lab info --json fft.mwt"
    )]
    Info(info::InfoArgs),
}

/// `mapwire lab`.
pub(crate) fn command(args: &LabArgs) -> ExitCode {
    let done = match &args.command {
        LabCommand::Info(args) => info::command(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => crate::fail(error.as_ref(), 1),
    }
}
