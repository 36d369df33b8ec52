//! GMS-NP: the page directory of global memory on hosts and on NICs.
//!
//! | module | |
//! |---|---|
//! | `constants` | the machines, each constant with its source |
//! | `bench` | one requesting, one directory, one storing node |
//! | `crowd` | many nodes, each in all roles |
//! | `tables`, `figures` | the paper's, ours beside the published |
//! | `assumed` | how much constants matter that nobody states |
//! | `operations` | what each operation takes the directory node |
//! | `beyond` | what the paper did not ask |

mod assumed;
mod bench;
mod beyond;
mod constants;
mod crowd;
mod figures;
mod operations;
mod tables;
#[cfg(test)]
mod tests;

use mapwire_gms::RowSize;

use super::{Options, Paper, PaperError, Report};
use crate::directory::MachineError;
use tables::Tables;

pub use constants::{smart_nic, testbed};

pub const PAPER: Paper = Paper {
    name: "gms-np",
    title: "Coady, Ong, Feeley: Using Embedded Network Processors to Implement Global Memory Management in a Workstation Cluster (1999)",
    run,
};

/// The tables that measure the directory node: lookups, getpages, remote page faults, and how busy its processors are (Tables 1, 2, 4, 5).
pub fn directory_tables() -> Result<Vec<super::Table>, MachineError> {
    let options = Options::default();
    let tables = Tables { profile: testbed(), row_size: RowSize::default(), seed: options.seed };
    let mut all = tables.all()?;
    all.retain(|table| ["Table 1", "Table 2", "Table 4", "Table 5"].contains(&table.name));
    Ok(all)
}

/// Runs all tables and figures.
pub fn run(options: &Options) -> Result<Report, PaperError> {
    let row_size = options.row_size.unwrap_or_default();
    let tables = Tables { profile: testbed(), row_size, seed: options.seed };
    let mut all = tables.all()?;
    let entries = row_size.entries();
    if row_size != RowSize::default() {
        all[0].note(&format!(
            "Rows have {entries} entries here and in all tables that do not say otherwise; the published figures are of rows of 32."
        ));
    }
    let mut figures = Vec::new();
    for (figure, table) in [tables.figure_5()?, tables.figure_6()?] {
        figures.push(figure);
        all.push(table);
    }
    all.push(tables.assumed()?);
    all.push(tables.operations()?);
    all.extend(tables.beyond()?);
    Ok(Report { profiles: vec![testbed(), smart_nic()], tables: all, figures })
}
