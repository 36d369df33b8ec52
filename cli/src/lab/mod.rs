//! `mapwire lab`: the laboratory. Each subcommand is a module with its arguments and its `command`.
//!
//! | module | command |
//! |---|---|
//! | [`generate`] | `mapwire lab generate`: synthetic traces |
//! | [`info`] | `mapwire lab info`: what a trace is made of |

mod count;
mod generate;
mod info;
mod output;
mod target;

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
    /// Make up a trace by a pattern of communication
    ///
    /// The file says that it is synthetic, with the whole command. The same options give the same bytes on every computer.
    /// A transfer is two records: a send or fetch, and the recv at its other side.
    #[command(
        after_help = "Examples:\n  mapwire lab generate zipf -o zipf.mwt --records 10M --seed 7\n  mapwire lab generate transpose -o fft.mwt --nodes 8 --processes 1 --buffer 64M\n  mapwire lab generate --mix zipf,sequential -o mix.mwt"
    )]
    Generate(generate::GenerateArgs),
}

/// `mapwire lab`.
pub(crate) fn command(args: &LabArgs) -> ExitCode {
    let done = match &args.command {
        LabCommand::Info(args) => info::command(args),
        LabCommand::Generate(args) => generate::command(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => crate::fail(error.as_ref(), 1),
    }
}
