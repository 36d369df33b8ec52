//! The designs to try, and their options.

use clap::Args;
use mapwire_study::sweep::{Sweep, parse_designs};
use mapwire_translation::DesignConfig;

use super::super::{LabError, UsageError};

#[derive(Debug, Args)]
pub(crate) struct DesignOptions {
    /// Designs, each perhaps with options of its own: hierarchical,entries=8K (default: hierarchical)
    #[arg(long, value_name = "DESIGN,...")]
    design: Vec<String>,
    /// Entries of the NIC's cache, or of a process's table: 1K,2K,4K
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    entries: Vec<String>,
    /// Lines of a set: 1 is direct-mapped
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    ways: Vec<String>,
    /// Entries of a line
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    line: Vec<String>,
    /// Whether each process's pages start at a place of their own in the cache: on,off
    #[arg(long, value_name = "on|off,...", value_delimiter = ',')]
    offset: Vec<String>,
    /// Entries that a NIC miss fetches
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    prefetch: Vec<String>,
    /// Pages that one interrupt has pinned and filled
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    fill: Vec<String>,
}

impl DesignOptions {
    /// All combinations, with nothing said of limits.
    pub(crate) fn sweep(&self) -> Result<Sweep, LabError> {
        let mut designs: Vec<DesignConfig> = Vec::new();
        for text in &self.design {
            designs.extend(parse_designs(text).map_err(|error| UsageError(format!("--design {text}: {error}")))?);
        }
        let options = [
            ("entries", &self.entries),
            ("ways", &self.ways),
            ("line", &self.line),
            ("offset", &self.offset),
            ("prefetch", &self.prefetch),
            ("fill", &self.fill),
        ];
        let values = options.map(|(option, values)| (option, values.clone()));
        Ok(Sweep { designs, options: values.into(), ..Sweep::default() })
    }
}
