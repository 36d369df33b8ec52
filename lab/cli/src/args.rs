//! The command line.

use clap::{Args, Parser, Subcommand};
use mapwire_console::Asked;
use mapwire_trace::convert::Format;
use mapwire_trace::generate::Pattern;
use mapwire_translation::DesignConfig;

use crate::lab::LabCommand;
use crate::sim::{self, SimCommand};

/// The laboratory: traces, studies of them, and clusters in virtual time.
#[derive(Debug, Parser)]
#[command(
    name = "mapwire",
    bin_name = "mapwire",
    version,
    propagate_version = true,
    after_help = "Examples:\n  mapwire lab info fft.mwt\n  mapwire sim run --seed 7"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Traces of communication: import, export, look at them, make them up
    ///
    /// Works on trace files (.mwt). A file that is written appears under its name only when it is whole.
    #[command(
        after_help = "Examples:\n  mapwire lab info fft.mwt\n  mapwire lab generate zipf -o zipf.mwt --records 10M --seed 7\n  mapwire lab export zipf.mwt -o zipf.csv"
    )]
    Lab(LabArgs),
    /// Clusters in virtual time: faults, checks, seeds
    ///
    /// The nodes are the real ones; computers, links, programs and time are simulated. A seed repeats a run to the last event.
    #[command(subcommand, after_help = "Examples:\n  mapwire sim run --seed 7\n  mapwire sim vopr --minutes 10")]
    Sim(SimCommand),
    #[command(flatten)]
    Asked(Asked),
}

#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

/// The words that an argument takes where only the code lists them.
pub(crate) fn values_of(argument: &str) -> Option<Vec<&'static str>> {
    match argument {
        "translation" | "design" => Some(DesignConfig::all().map(|design| design.name()).into()),
        "pattern" | "mix" => Some(Pattern::ALL.map(Pattern::name).into()),
        "policy" => Some(vec!["lru", "mru", "lfu", "mfu", "random"]),
        "rules" => Some(sim::rule_names()),
        "bug" => Some(sim::bug_names()),
        "from" | "to" => Some(Format::ALL.map(Format::name).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_every_command_has_an_example() {
        Cli::command().debug_assert();
        let none: [&str; 0] = [];
        assert_eq!(mapwire_console::without_example(Cli::command()), none);
    }

    #[test]
    fn mapwire_is_told_of_all_commands_and_of_the_words_that_they_take() {
        let told = mapwire_console::description::told(&Cli::command(), values_of);
        for word in ["zipf", "oracleGeneral", "dynamic-handle", "vopr", "partition", "lost-signal"] {
            assert!(told.contains(&format!("\"{word}\"")), "{word}: {told}");
        }
    }
}
