//! What import and export have in common on the command line.

use std::fs::{File, Metadata};
use std::path::Path;

use clap::{Args, ValueEnum};
use mapwire_trace::ReadError;
use mapwire_trace::convert::Format;

use super::{LabError, UsageError};
use mapwire_settings::size;

/// Options of formats that hold lookups.
#[derive(Debug, Args)]
pub(super) struct FormatOptions {
    /// Upper 16 bits of addresses are the number of the process, in the order in which processes occur (din, oracleGeneral)
    #[arg(long)]
    pub(super) tag_processes: bool,
    /// Size of a page: a lookup of din is one, an object of oracleGeneral is one
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = page_size)]
    pub(super) page: u64,
    /// Unit of the times of oracleGeneral
    #[arg(long, default_value = "s")]
    pub(super) time_unit: TimeUnit,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum TimeUnit {
    Ns,
    Us,
    Ms,
    S,
}

impl TimeUnit {
    pub(super) const fn ns(self) -> u64 {
        1000_u64.pow(self as u32)
    }
}

/// Opens a trace to be read once, from its beginning.
pub(super) fn open_trace(path: &Path) -> Result<File, ReadError> {
    File::open(path).map_err(|source| ReadError::Io { file: path.display().to_string(), at: 0, source })
}

/// The length of a file, if it is one.
pub(super) fn length(file: &File) -> Option<u64> {
    file.metadata().ok().filter(Metadata::is_file).map(|it| it.len())
}

pub(super) fn page_size(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text).map_err(|error| error.to_string())?;
    if bytes.is_power_of_two() && bytes <= 1 << 30 {
        Ok(bytes)
    } else {
        Err(format!("{bytes} is not the size of a page: it must be a power of two up to 1G, such as 4K or 2M"))
    }
}

/// The format that was asked for, or else the one that the ending of the file's name tells.
pub(super) fn of(asked: Option<Format>, path: &Path, option: &str) -> Result<Format, LabError> {
    asked.or_else(|| Format::of_path(path)).ok_or_else(|| {
        let names = Format::ALL.map(Format::name).join(", ");
        let name = path.display();
        UsageError(format!("the name {name} tells no format; give {option} and one of {names}")).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_asked_for_or_told_by_the_ending() {
        let told = |name: &str| of(None, Path::new(name), "--to").map_err(|e| e.to_string());
        assert_eq!(told("a/b.csv"), Ok(Format::Csv));
        assert_eq!(told("b.oracleGeneral.bin"), Ok(Format::OracleGeneral));
        assert_eq!(told("b.ORACLEGENERAL"), Ok(Format::OracleGeneral));
        assert_eq!(told("x.csv.parquet"), Ok(Format::Parquet));
        let error = told("csv").unwrap_err();
        assert!(error.contains("the name csv tells no format; give --to and one of csv, din"), "{error}");
        assert_eq!(of(Some(Format::Din), Path::new("b.csv"), "--to").unwrap(), Format::Din);
    }

    #[test]
    fn pages_have_sizes_that_pages_can_have() {
        assert_eq!(page_size("4K"), Ok(4096));
        assert_eq!(page_size("1"), Ok(1));
        for wrong in ["0", "3000", "2G", "x"] {
            assert!(page_size(wrong).is_err(), "{wrong}");
        }
    }
}
