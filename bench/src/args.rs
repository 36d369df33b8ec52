//! The command line.

use clap::{Args, Parser, Subcommand};
use mapwire::global::DirectoryPlacement;
use mapwire_console::Asked;
use mapwire_settings::Transport;
use mapwire_transport::net::{Carrier, CarrierError};

/// Measurements beside raw limits.
#[derive(Debug, Parser)]
#[command(
    name = "mapwire",
    bin_name = "mapwire",
    version,
    propagate_version = true,
    after_help = "Example:\n  mapwire bench --list"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure; every figure stands beside the raw limit measured in the same run
    #[command(
        after_help = "Examples:\n  mapwire bench --list\n  mapwire bench send-latency --json\n  mapwire bench directory --placement nic-hm --seconds 2"
    )]
    Bench(Plan),
    #[command(flatten)]
    Asked(Asked),
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// What to measure; see --list
    #[arg(required_unless_present = "list")]
    pub(crate) name: Option<String>,
    /// Print the names and what they measure
    #[arg(long)]
    pub(crate) list: bool,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Fewer and shorter runs: shows that it works, the figures are rough
    #[arg(long)]
    pub(crate) quick: bool,
    /// How the ranks reach each other
    #[arg(long = "transport", value_name = "shm|udp|ofi[:PROVIDER]", default_value = "shm", value_parser = transport)]
    pub(crate) transport_text: String,
    /// With udp: neither seal nor authenticate datagrams
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Of `directory`: measure one placement of the page directory only
    #[arg(long, value_name = "host|nic-hm|nic-nm")]
    pub(crate) placement: Option<DirectoryPlacement>,
    /// Of `directory`: how long each point is measured, in seconds
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: Option<u64>,
    /// Of `directory`: getpages a second beside the owner's program (default: 10000)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) rate: Option<u64>,
}

impl Plan {
    pub(crate) fn transport(&self) -> Transport {
        Transport::of(&self.transport_text)
    }
}

/// A transport, as it is written.
fn transport(text: &str) -> Result<String, CarrierError> {
    text.parse::<Carrier>().map(|_| text.to_owned())
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
    fn mapwire_is_told_of_all_benches() {
        let told = mapwire_console::description::told(&Cli::command(), crate::values_of);
        for word in ["send-latency", "nic-hm", "transport"] {
            assert!(told.contains(&format!("\"{word}\"")), "{word}: {told}");
        }
    }
}
