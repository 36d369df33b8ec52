//! Files of other formats, record by record.

use std::{fmt, io};

use mapwire_wire::{TraceOp, TraceRecord};

use super::error::ConvertError;
use super::tags::TAG_SHIFT;
use crate::metadata::Metadata;

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

impl ImportOptions {
    /// A record of a format without nodes and processes.
    pub(super) fn record(&self, time_ns: u64, op: TraceOp, address: u64, bytes: u64) -> TraceRecord {
        let (process, address) = match self.tagged {
            true => ((address >> TAG_SHIFT) as u16, address & ((1 << TAG_SHIFT) - 1)),
            false => (self.process, address),
        };
        TraceRecord {
            time_ns: time_ns.into(),
            address: address.into(),
            bytes: bytes.into(),
            node: self.node.into(),
            process: process.into(),
            op: op as u8,
            flags: 0,
            reserved: 0.into(),
        }
    }
}

pub(super) enum Fault {
    /// What is wrong with the record that lies so many behind the last one.
    Value {
        behind: u64,
        what: String,
    },
    Read(io::Error),
}

impl Fault {
    pub(super) fn at(self, file: &str, place: String) -> ConvertError {
        let file = file.to_owned();
        match self {
            Self::Read(source) => ConvertError::Read { file, source },
            Self::Value { what, .. } => ConvertError::Value { file, place, what },
        }
    }
}

impl From<String> for Fault {
    fn from(what: String) -> Self {
        Self::Value { behind: 0, what }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

pub(super) trait Reader {
    fn next(&mut self) -> Result<Option<TraceRecord>, Fault>;
}

type Check<'a> = dyn FnMut(&TraceRecord) -> Result<(), String> + 'a;

/// Records that are read from another format, in the file's order. After an error there is none.
pub struct Import<'a> {
    reader: Box<dyn Reader + 'a>,
    file: String,
    /// Where a record stands behind so many others.
    place: fn(u64) -> String,
    records: u64,
    metadata: Option<Metadata>,
    total_records: Option<u64>,
    check: Box<Check<'a>>,
    /// The last time, if records must be in order.
    last_ns: Option<u64>,
    ended: bool,
}

impl fmt::Debug for Import<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Import({}, {})", self.file, (self.place)(self.records))
    }
}

impl<'a> Import<'a> {
    pub(super) fn new(file: &str, place: fn(u64) -> String, reader: impl Reader + 'a) -> Self {
        Self {
            reader: Box::new(reader),
            file: file.to_owned(),
            place,
            records: 0,
            metadata: None,
            total_records: None,
            check: Box::new(|_| Ok(())),
            last_ns: None,
            ended: false,
        }
    }

    pub(super) fn with_head(self, metadata: Option<Metadata>, total_records: u64) -> Self {
        Self { metadata, total_records: Some(total_records), ..self }
    }

    /// The same, where records that `check` refuses are errors.
    #[must_use]
    pub fn checked(self, check: impl FnMut(&TraceRecord) -> Result<(), String> + 'a) -> Self {
        Self { check: Box::new(check), ..self }
    }

    /// The same, where records that are not in order of time are errors.
    #[must_use]
    pub fn in_order(self) -> Self {
        Self { last_ns: Some(0), ..self }
    }

    pub fn file(&self) -> &str {
        &self.file
    }

    /// What the trace said of itself that the file was exported from, if the format tells.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// Records of the whole file, if its head tells.
    pub fn total_records(&self) -> Option<u64> {
        self.total_records
    }

    fn try_next(&mut self) -> Result<Option<TraceRecord>, Fault> {
        let Some(record) = self.reader.next()? else { return Ok(None) };
        (self.check)(&record)?;
        if let Some(last_ns) = &mut self.last_ns {
            let time_ns = record.time_ns.get();
            if time_ns < *last_ns {
                return Err(Fault::from(format!(
                    "its time is {time_ns} ns, before the {last_ns} ns of the record before; --sort puts records in order"
                )));
            }
            *last_ns = time_ns;
        }
        self.records += 1;
        Ok(Some(record))
    }
}

impl Iterator for Import<'_> {
    type Item = Result<TraceRecord, ConvertError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.try_next().map_err(|fault| {
            let behind = if let Fault::Value { behind, .. } = fault { behind } else { 0 };
            fault.at(&self.file, (self.place)(self.records + behind))
        });
        self.ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}
