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

use crate::block::Block;
use crate::info::is_transfer;
use crate::metadata::Metadata;
use crate::reader::TraceReader;

pub use error::{ConvertError, Place};
pub use sort::{MAX_RUNS, Ordered, RUN_RECORDS, Sorted};
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

/// Records that are read from another format, in the file's order. After an error there is none.
pub trait Import: Iterator<Item = Result<TraceRecord, ConvertError>> {
    fn file(&self) -> &str;

    /// Where the last record stood.
    fn place(&self) -> Place;

    /// What the trace said of itself that the file was exported from, if the format tells.
    fn metadata(&self) -> Option<&Metadata> {
        None
    }
}

impl<I: Import + ?Sized> Import for Box<I> {
    fn file(&self) -> &str {
        (**self).file()
    }

    fn place(&self) -> Place {
        (**self).place()
    }

    fn metadata(&self) -> Option<&Metadata> {
        (**self).metadata()
    }
}

/// How a file is imported.
#[derive(Clone, Copy, Debug)]
pub struct ImportOptions {
    /// The node of records that name none.
    pub node: u16,
    /// Their process, unless addresses are tagged.
    pub process: u16,
    /// Addresses have process numbers in their upper bits.
    pub tagged: bool,
    /// The lines of din are a program's loads and stores: all become sends, whatever their label.
    pub as_sends: bool,
    /// Bytes of the page that an object of oracleGeneral is.
    pub page_bytes: u64,
    /// Nanoseconds of the time unit of oracleGeneral.
    pub time_unit_ns: u64,
    /// Objects of oracleGeneral are numbered in the order in which they occur; else their numbers are page numbers.
    pub dense: bool,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            node: 0,
            process: 0,
            tagged: false,
            as_sends: false,
            page_bytes: crate::pages::PAGE_BYTES,
            time_unit_ns: 1_000_000_000,
            dense: false,
        }
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
) -> Result<Box<dyn Import + 'a>, ConvertError> {
    Ok(match format {
        Format::Csv => Box::new(csv::CsvReader::new(watch(input), file)?),
        Format::Din => Box::new(din::DinReader::new(watch(input), file, options)),
        Format::OracleGeneral => Box::new(oracle_general::OracleReader::new(watch(input), file, options)),
        Format::Parquet => Box::new(parquet::ParquetReader::new(input, file)?),
    })
}

pub trait Sink {
    /// Appends the records of a block.
    fn block(&mut self, block: &Block<'_>) -> Result<(), ConvertError>;

    fn finish(&mut self) -> Result<(), ConvertError>;
}

/// How a trace is exported.
#[derive(Clone, Copy, Debug)]
pub struct ExportOptions {
    /// Only records of this node.
    pub node: Option<u16>,
    /// Only records of this process of each node.
    pub process: Option<u16>,
    /// Formats without processes get their numbers in the upper bits of addresses.
    pub tagged: bool,
    /// CSV gets the column `direct`.
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
    /// Lines, records or rows written.
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
    let (file, metadata) = (reader.file().to_owned(), reader.metadata().clone());
    let mut exported = Exported::default();
    let mut chosen = Chosen::default();
    let mut each = |sink: &mut dyn Sink| -> Result<(), ConvertError> {
        while let Some(block) = reader.next_block()? {
            let before = block.len();
            let block = chosen.of(block, options);
            exported.not_chosen += (before - block.len()) as u64;
            exported.records += block.len() as u64;
            exported.direct += block.records().filter(TraceRecord::is_direct).count() as u64;
            let transfers = block.records().filter_map(|r| r.op()).filter(|op| is_transfer(*op));
            exported.not_transfers += (block.len() - transfers.count()) as u64;
            sink.block(&block)?;
        }
        sink.finish()
    };
    let written = match format {
        Format::Csv => {
            each(&mut csv::CsvWriter::new(out, options.direct))?;
            None
        }
        Format::Din => {
            let mut writer = din::DinWriter::new(out, &file, options);
            each(&mut writer)?;
            Some(writer.lines())
        }
        Format::OracleGeneral => {
            let mut writer = oracle_general::OracleWriter::new(out, &file, options, second_pass);
            each(&mut writer)?;
            Some(writer.records())
        }
        Format::Parquet => {
            each(&mut parquet::ParquetWriter::new(out, &metadata)?)?;
            None
        }
    };
    exported.written = written.unwrap_or(exported.records);
    Ok(exported)
}

/// The transfer that `record` is, if a NIC looks pages up for it: data that travel in a command and transfers of no bytes have none.
fn looked_up(record: &TraceRecord) -> Option<TraceOp> {
    let pages = !record.is_inline() && record.bytes.get() > 0;
    record.op().filter(|op| pages && is_transfer(*op))
}

/// The records of a block that were chosen.
#[derive(Debug, Default)]
struct Chosen {
    time_ns: Vec<u64>,
    node: Vec<u16>,
    process: Vec<u16>,
    op: Vec<u8>,
    flags: Vec<u8>,
    address: Vec<u64>,
    bytes: Vec<u64>,
}

impl Chosen {
    fn of<'a>(&'a mut self, block: Block<'a>, options: &ExportOptions) -> Block<'a> {
        if options.node.is_none() && options.process.is_none() {
            return block;
        }
        fn choose<T: Copy>(from: &[T], wanted: impl Iterator<Item = bool>, to: &mut Vec<T>) {
            to.clear();
            to.extend(from.iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(value, _)| *value));
        }
        let wanted = || {
            block.node.iter().zip(block.process).map(|(node, process)| {
                options.node.is_none_or(|only| only == *node) && options.process.is_none_or(|only| only == *process)
            })
        };
        choose(block.time_ns, wanted(), &mut self.time_ns);
        choose(block.node, wanted(), &mut self.node);
        choose(block.process, wanted(), &mut self.process);
        choose(block.op, wanted(), &mut self.op);
        choose(block.flags, wanted(), &mut self.flags);
        choose(block.address, wanted(), &mut self.address);
        choose(block.bytes, wanted(), &mut self.bytes);
        Block {
            time_ns: &self.time_ns,
            node: &self.node,
            process: &self.process,
            op: &self.op,
            flags: &self.flags,
            address: &self.address,
            bytes: &self.bytes,
        }
    }
}
