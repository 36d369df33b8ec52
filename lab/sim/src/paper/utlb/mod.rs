//! UTLB: translation on network interfaces, managed by their users.
//!
//! | module | |
//! |---|---|
//! | `constants` | the machine that Tables 1 and 2 measure, and UTLB's costs on VMMC's machine |
//! | `operations` | Tables 1 and 2, as the machine gives them |
//! | `stream` | lookups with the rates that Table 4 prints, in place of the traces |
//! | `lookups` | Table 6: what a lookup costs, by running the designs |
//! | `effects` | how a lookup's cost moves latency and bandwidth |

mod constants;
mod effects;
mod lookups;
mod operations;
mod stream;
#[cfg(test)]
mod tests;

use mapwire_study::published::APPLICATIONS;

use super::{Options, Paper, PaperError, Report};

pub use constants::{machine, on_vmmc};

pub const PAPER: Paper = Paper {
    name: "utlb",
    title: "Chen, Bilas, Damianakis, Dubnicki, Li: UTLB: A Mechanism for Address Translation on Network Interfaces (ASPLOS 1998)",
    run,
};

/// Runs all tables and figures.
pub fn run(options: &Options) -> Result<Report, PaperError> {
    options.without_rows(PAPER.name)?;
    let mut tables = vec![operations::table_1()?, operations::table_2()?];
    let runs = lookups::run(&APPLICATIONS)?;
    tables.extend([runs.table_4(), runs.table_6()]);
    let figures = vec![runs.figure()];
    tables.extend(effects::tables()?);
    Ok(Report { profiles: vec![machine(), on_vmmc()], tables, figures })
}
