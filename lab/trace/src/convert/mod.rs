//! Other formats: import and export.
//!
//! | module | format | what it can hold |
//! |---|---|---|
//! | [`csv`] | CSV with a header | everything; direct or not in a column of its own |
//! | [`din`] | DineroIV's `din` | lookups in order: op, address, bytes on the page; neither times nor processes |
//! | [`oracle_general`] | libCacheSim's `oracleGeneral` | lookups in order: page, time in units of choice; neither ops nor processes |
//! | [`parquet`] | Apache Parquet | everything |
//!
//! Formats without processes hold one process, or several with their numbers in the upper bits of addresses ([`Tags`]).

pub mod csv;
pub mod din;
mod error;
mod import;
pub mod oracle_general;
pub mod parquet;
mod parquet_pages;
mod parquet_types;
mod sort;
mod tags;
mod text;

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::str::FromStr;

use mapwire_wire::{TraceOp, TraceRecord};

use crate::info::is_transfer;
use crate::reader::TraceReader;

pub use error::ConvertError;
pub use import::{Import, ImportOptions};
pub use sort::{MAX_RUNS, RUN_RECORDS, Sorted};
pub use tags::{TAG_SHIFT, Tags};

mapwire_wire::codes! {
    /// A format that can be imported and exported. Its name is also the usual ending of its files.
    pub enum Format: u8 {
        Csv = 0 => "csv",
        Din = 1 => "din",
        /// libCacheSim's binary format with the time of each object's next access.
        OracleGeneral = 2 => "oracleGeneral",
        Parquet = 3 => "parquet",
    }
}

impl Format {
    /// The format that the ending of a file's name tells; `None` if it tells none.
    pub fn of_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let ending = name.strip_suffix(".bin").unwrap_or(name).rsplit_once('.')?.1;
        Format::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(ending))
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Format::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(text)).ok_or_else(|| {
            let names = Format::ALL.map(Self::name).join(", ");
            format!("`{text}` is not a format; choose one of: {names}")
        })
    }
}

/// Begins to import a file of a format, which errors call `file`. `watch` may follow what is read of it; of Parquet, which is read
/// in any order, it sees nothing.
pub fn import<'a>(
    format: Format,
    input: File,
    file: &str,
    watch: impl FnOnce(File) -> Box<dyn Read + 'a>,
    options: &ImportOptions,
) -> Result<Import<'a>, ConvertError> {
    Ok(match format {
        Format::Csv => csv::read(watch(input), file)?,
        Format::Din => din::read(watch(input), file, options),
        Format::OracleGeneral => oracle_general::read(watch(input), file, options),
        Format::Parquet => parquet::read(input, file)?,
    })
}

/// A file of another format while it is written.
trait Sink {
    fn push(&mut self, record: &TraceRecord) -> Result<(), ConvertError>;

    /// Ends the file; returns how many lines, records or rows it has.
    fn finish(&mut self) -> Result<u64, ConvertError>;
}

#[derive(Clone, Copy, Debug)]
pub struct ExportOptions {
    pub node: Option<u16>,
    pub process: Option<u16>,
    /// Formats without processes get their numbers in the upper bits of addresses.
    pub tagged: bool,
    pub direct: bool,
    /// Bytes of the pages into which operations are cut for formats of lookups.
    pub page_bytes: u64,
    /// Nanoseconds of the time unit of oracleGeneral.
    pub time_unit_ns: u64,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            node: None,
            process: None,
            tagged: false,
            direct: false,
            page_bytes: crate::pages::PAGE_BYTES,
            time_unit_ns: 1_000_000_000,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Records of the trace that were chosen.
    pub records: u64,
    /// Records of other nodes and processes, which were not.
    pub not_chosen: u64,
    /// Of those that were, records that are no transfers, which formats of lookups leave out.
    pub not_transfers: u64,
    /// Of those that were, direct ones; formats other than Parquet, and CSV without `direct`, do not tell them from others.
    pub direct: u64,
    pub written: u64,
}

/// Exports a trace to `out`, which is empty. Of oracleGeneral, `second_pass` is told how many records of how many were done again.
///
/// # Errors
/// The trace cannot be read, or is cut off or damaged unless the reader keeps the good part; the format cannot hold a record;
/// `out` does not take the bytes.
pub fn export<R: Read, W: Read + Write + Seek + Send>(
    reader: &mut TraceReader<R>,
    format: Format,
    out: &mut W,
    options: &ExportOptions,
    second_pass: &mut dyn FnMut(u64, u64),
) -> Result<Exported, ConvertError> {
    let mut sink: Box<dyn Sink + '_> = match format {
        Format::Csv => Box::new(csv::CsvWriter::new(out, options.direct)?),
        Format::Din => Box::new(din::DinWriter::new(out, reader.file(), options)),
        Format::OracleGeneral => Box::new(oracle_general::OracleWriter::new(out, reader.file(), options, second_pass)),
        Format::Parquet => Box::new(parquet::ParquetWriter::new(out, reader.metadata())?),
    };
    let mut exported = Exported::default();
    while let Some(block) = reader.next_block()? {
        for record in block.records() {
            let is_of = |only: Option<u16>, number: u16| only.is_none_or(|only| only == number);
            if !is_of(options.node, record.node.get()) || !is_of(options.process, record.process.get()) {
                exported.not_chosen += 1;
                continue;
            }
            exported.records += 1;
            exported.direct += u64::from(record.is_direct());
            exported.not_transfers += u64::from(!record.op().is_some_and(is_transfer));
            sink.push(&record)?;
        }
    }
    exported.written = sink.finish()?;
    Ok(exported)
}

/// The transfer that `record` is, if a NIC looks pages up for it: data that travel in a command and transfers of no bytes have none.
fn looked_up(record: &TraceRecord) -> Option<TraceOp> {
    let pages = !record.is_inline() && record.bytes.get() > 0;
    record.op().filter(|op| pages && is_transfer(*op))
}
