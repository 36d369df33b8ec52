//! `mapwire lab generate`: synthetic traces.

use std::convert::Infallible;
use std::path::PathBuf;

use clap::Args;
use mapwire_trace::Metadata;
use mapwire_trace::generate::{Generator, Options, Pattern};

use super::{LabError, UsageError, count, target};
use crate::progress::Progress;
use mapwire_settings::size;

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// sequential, strided, zipf, task-queue or transpose
    #[arg(required_unless_present = "mix", conflicts_with = "mix")]
    pattern: Option<Pattern>,
    /// Several independent programs: process 0 of each node takes the first pattern, process 1 the next, and so on in turn
    #[arg(long, value_name = "PATTERN,...", value_delimiter = ',')]
    mix: Vec<Pattern>,
    /// The trace file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Records in all (K, M and G are thousands, millions and billions)
    #[arg(long, value_name = "N", default_value = "1M", value_parser = count::parse)]
    records: u64,
    /// Nodes
    #[arg(long, value_name = "N", default_value = "4")]
    nodes: u16,
    /// Processes of each node
    #[arg(long, value_name = "N", default_value = "4")]
    processes: u16,
    /// Of the random numbers: the same seed gives the same bytes
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Memory from which each process sends; its export is as large
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size::parse)]
    buffer: u64,
    /// Bytes of a transfer
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = size::parse)]
    bytes: u64,
    /// Transfers' lengths from one to the next, of the strided pattern
    #[arg(long, value_name = "N", default_value = "16")]
    stride: u64,
    /// The exponent of Zipf's law: the k-th most popular place is drawn in proportion to 1/k^S
    #[arg(long, value_name = "S", default_value = "0.99")]
    skew: f64,
    /// Mean time from one transfer of a process to its next
    #[arg(long, value_name = "NS", default_value = "10000")]
    gap: u64,
    /// Each process has its memory at addresses of its own, as with address randomisation, not where all have it
    #[arg(long)]
    scatter: bool,
    /// One JSON object: file, records, bytes
    #[arg(long)]
    json: bool,
}

impl GenerateArgs {
    fn options(&self) -> Options {
        Options {
            patterns: self.pattern.map_or_else(|| self.mix.clone(), |one| vec![one]),
            records: self.records,
            nodes: self.nodes,
            processes: self.processes,
            seed: self.seed,
            buffer_bytes: self.buffer,
            piece_bytes: self.bytes,
            stride: self.stride,
            skew: self.skew,
            gap_ns: self.gap,
            scatter: self.scatter,
        }
    }
}

pub(crate) fn command(args: &GenerateArgs) -> Result<(), LabError> {
    let options = args.options();
    let generator = Generator::new(&options).map_err(|error| UsageError(error.to_string()))?;
    let metadata = Metadata {
        command: options.command(),
        synthetic: true,
        nodes: Some(options.nodes.into()),
        ..Metadata::default()
    };
    let progress = Progress::records("generating", Some(options.records));
    let records = generator.map(Ok::<_, Infallible>);
    let written = target::write(&args.output, &metadata, target::Source::Generator, records, Some(&progress))?;
    drop(progress);
    written.report("generate", &args.output, args.json)
}
