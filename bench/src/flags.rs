//! The plainest message there is: a flag stored by one rank and seen by another, there and back between ranks 0 and 1.

use std::time::Instant;

use mapwire::{Buffer, Export, Import, Node, Rights};

use super::BenchError;
use super::words::Words;

/// One rank's ends.
pub(crate) struct Flags {
    ours: Words,
    theirs: Words,
    _kept: Option<(Buffer, Export, Import)>,
}

impl Flags {
    /// Joins ranks 0 and 1; other ranks get ends that they must not use.
    pub(crate) fn new(node: &Node) -> Result<Self, BenchError> {
        let buffer = node.alloc(4096)?;
        let ours = Words::of_buffer(&buffer);
        if node.rank() > 1 || node.size() < 2 {
            return Ok(Self { ours, theirs: ours, _kept: None });
        }
        let export = node.export_buffer(&buffer).name("bench.flags").start()?;
        let import = node.import(1 - node.rank(), "bench.flags").rights(Rights::ALL).start()?;
        let theirs = Words::of_import(&import)?;
        Ok(Self { ours, theirs, _kept: Some((buffer, export, import)) })
    }

    /// Rank 0: nanoseconds of a round trip.
    pub(crate) fn ask(&self, times: u64) -> f64 {
        let base = self.ours.load(0);
        let start = Instant::now();
        for turn in base + 1..=base + times {
            self.theirs.store(0, turn);
            while self.ours.load(0) < turn {}
        }
        start.elapsed().as_nanos() as f64 / times as f64
    }

    /// Rank 1: gives each flag back.
    pub(crate) fn answer(&self, times: u64) {
        let base = self.theirs.load(0);
        for turn in base + 1..=base + times {
            while self.ours.load(0) < turn {}
            self.theirs.store(0, turn);
        }
    }
}
