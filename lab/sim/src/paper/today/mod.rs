//! The same questions of NICs of today: which translation cache, which design, and when the NIC's processor pays.
//!
//! | module | |
//! |---|---|
//! | `constants` | the machines, each constant with its source |
//! | `tables` | what was published beside ours, and the questions |

mod constants;
mod tables;

use super::{Options, Paper, PaperError, Report};

pub use constants::{rnic, smart_nic};

/// What others have published of such NICs.
pub const PAPER: Paper = Paper {
    name: "today",
    title: "NICs of today: an RNIC whose translations are cached on the NIC, and a SmartNIC with Arm cores (Potter 2018; Neugebauer et al. 2018; Fragkouli, Vanbever 2025; Shen et al. 2023; NVIDIA)",
    run,
};

/// Runs all tables.
///
/// # Errors
/// A row size; a cache that cannot be built; the firmware refuses what a run does.
pub fn run(options: &Options) -> Result<Report, PaperError> {
    options.without_rows(PAPER.name)?;
    let (tables, figures) = tables::all(options.seed)?;
    Ok(Report { profiles: vec![rnic(), smart_nic()], tables, figures })
}
