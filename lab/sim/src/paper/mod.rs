//! The machines that the papers measured, in virtual time: their tables and figures beside the published ones, and what the papers did
//! not ask.
//!
//! [`PAPERS`] lists what can be run. A [`Report`] says of each figure whether it went into the machine or came out of it.

pub mod dynamic_handle;
pub mod gms_np;
mod report;

use mapwire_gms::RowSize;

use crate::hardware::MachineError;

pub use report::{Cell, Figure, Group, Line, Plot, Published, Report, Role, Row, Table};

/// What can be chosen for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Entries in a row of the page directory.
    pub row_size: RowSize,
    /// Seed of what is drawn: intervals between getpages, where a paper does not state them.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            row_size: RowSize::default(),
            seed: 1,
        }
    }
}

/// A paper whose machine can be run.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// What commands call it.
    pub name: &'static str,
    /// Authors, title and place.
    pub title: &'static str,
    /// Runs everything.
    pub run: fn(&Options) -> Result<Report, MachineError>,
}

/// All of them.
pub const PAPERS: &[Paper] = &[gms_np::PAPER, dynamic_handle::PAPER];
