//! The machines that the papers measured, in virtual time: their tables and figures beside the published ones, and what the papers did
//! not ask.
//!
//! [`PAPERS`] lists what can be run. A [`Report`] says of each figure whether it went into the machine or came out of it.

pub mod dynamic_handle;
mod error;
pub mod gms_np;
pub mod millipage;
mod numbers;
mod report;
pub mod today;
pub mod utlb;
pub mod vmmc;

use mapwire_gms::RowSize;

pub use error::PaperError;
pub use report::{Cell, Figure, Group, Line, Plot, Published, Report, Role, Row, Summary, Table};

/// What can be chosen for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Entries in a row of the page directory, of a machine that has one; `None`: those of the paper.
    pub row_size: Option<RowSize>,
    /// Seed of what is drawn: intervals between getpages, where a paper does not state them.
    pub seed: u64,
}

impl Options {
    /// Refuses a row size, on behalf of a machine without a page directory.
    pub(crate) fn without_rows(&self, paper: &'static str) -> Result<(), PaperError> {
        match self.row_size {
            Some(_) => Err(PaperError::NoRows { paper }),
            None => Ok(()),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { row_size: None, seed: 1 }
    }
}

/// A paper whose machine can be run.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    pub name: &'static str,
    pub title: &'static str,
    pub run: fn(&Options) -> Result<Report, PaperError>,
}

pub const PAPERS: &[Paper] =
    &[gms_np::PAPER, vmmc::PAPER, utlb::PAPER, dynamic_handle::PAPER, millipage::PAPER, today::PAPER];
