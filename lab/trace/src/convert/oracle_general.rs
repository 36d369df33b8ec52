//! libCacheSim's `oracleGeneral`: 24 bytes for each lookup, little-endian.
//!
//! ```text
//! clock_time u32, obj_id u64, obj_size u32, next_access_vtime i64
//! ```
//!
//! **A record is a lookup**: an operation is cut into its pages, a record for each; one of no bytes has none, nor have records
//! that are no transfers. An object is a page: `obj_id` is the page's number (address ÷ page), `obj_size` the bytes of a page, so that
//! a cache of so many bytes holds so many translations. `clock_time` is the time since the trace's first record in units of choice, seconds unless
//! told otherwise, as libCacheSim takes it. `next_access_vtime` is the number of the next record of the same object, counting from 1, or −1 if
//! there is none. It is filled in by a second pass over the file, from its end to its begin, whose memory grows with the footprint
//! (about 40 bytes a page).
//!
//! A record that is read becomes a `send` of one page; its size and its next access are not looked at. An `obj_id` whose page lies beyond
//! 64-bit addresses is an error, unless objects are numbered anew, in the order in which they occur.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};

use mapwire_wire::{TraceOp, TraceRecord};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::error::ConvertError;
use super::import::{Fault, Import, ImportOptions, Reader};
use super::tags::Tags;
use super::{ExportOptions, Sink, looked_up};
use crate::pages::pages_of;
use crate::reader::read_up_to;
use crate::spread::Spread;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OracleRecord {
    /// In units of choice.
    pub clock_time: U32,
    pub obj_id: U64,
    pub obj_size: U32,
    /// The number of its next record, from 1; −1 if there is none.
    pub next_access_vtime: I64,
}

const RECORD_BYTES: usize = size_of::<OracleRecord>();
/// Records read or written at a time.
const CHUNK_RECORDS: usize = 16 << 10;

struct OracleReader<R> {
    input: BufReader<R>,
    options: ImportOptions,
    number_of: HashMap<u64, u64, BuildHasherDefault<Spread>>,
}

/// Reads an `oracleGeneral` file, which errors call `file`.
pub fn read<'a>(input: impl Read + 'a, file: &str, options: &ImportOptions) -> Import<'a> {
    let input = BufReader::with_capacity(CHUNK_RECORDS * RECORD_BYTES, input);
    let reader = OracleReader { input, options: *options, number_of: HashMap::default() };
    Import::new(file, |records| format!("record {records}"), reader)
}

impl<R: Read> Reader for OracleReader<R> {
    fn next(&mut self) -> Result<Option<TraceRecord>, Fault> {
        let mut record = OracleRecord::new_zeroed();
        match read_up_to(&mut self.input, record.as_mut_bytes())? {
            0 => return Ok(None),
            RECORD_BYTES => {}
            found => {
                let what = format!("the file ends {found} bytes into it; records have {RECORD_BYTES}");
                return Err(Fault::from(what));
            }
        }
        let ImportOptions { page_bytes, time_unit_ns, dense, .. } = self.options;
        let mut id = record.obj_id.get();
        if dense {
            let next = self.number_of.len() as u64;
            id = *self.number_of.entry(id).or_insert(next);
        }
        let address = id.checked_mul(page_bytes).ok_or_else(|| {
            format!(
                "obj_id is {id}, which is not the number of a page of {page_bytes} bytes: its address would have more than 64 bits; \
                 number the objects anew with --dense-ids"
            )
        })?;
        // At most 2³² × 10⁹ for a unit of at most a second.
        let time_ns = u64::from(record.clock_time.get()).saturating_mul(time_unit_ns);
        Ok(Some(self.options.record(time_ns, TraceOp::Send, address, page_bytes)))
    }
}

/// Writes lookups as an `oracleGeneral` file, in two passes.
pub(super) struct OracleWriter<'a, W> {
    out: W,
    second_pass: &'a mut dyn FnMut(u64, u64),
    file: String,
    tags: Tags,
    page_bytes: u64,
    time_unit_ns: u64,
    first_ns: Option<u64>,
    records: u64,
    buffer: Vec<u8>,
}

impl<'a, W: Read + Write + Seek> OracleWriter<'a, W> {
    /// Begins a file of the lookups of the trace `file`, as errors call it; `out` is empty. `second_pass` is told how many records of
    /// how many were done again.
    pub(super) fn new(out: W, file: &str, options: &ExportOptions, second_pass: &'a mut dyn FnMut(u64, u64)) -> Self {
        Self {
            out,
            second_pass,
            file: file.to_owned(),
            tags: Tags::new(file, options.tagged),
            page_bytes: options.page_bytes,
            time_unit_ns: options.time_unit_ns,
            first_ns: None,
            records: 0,
            buffer: Vec::new(),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// The second pass: fills in the next accesses, from the end to the begin.
    fn fill_in(&mut self) -> io::Result<()> {
        let mut next_of: HashMap<u64, u64, BuildHasherDefault<Spread>> = HashMap::default();
        let mut end = self.records;
        while end > 0 {
            let begin = end.saturating_sub(CHUNK_RECORDS as u64);
            self.buffer.resize((end - begin) as usize * RECORD_BYTES, 0);
            let place = SeekFrom::Start(begin * RECORD_BYTES as u64);
            self.out.seek(place)?;
            self.out.read_exact(&mut self.buffer)?;
            let records = <[OracleRecord]>::mut_from_bytes(&mut self.buffer).map_err(|_| io::ErrorKind::InvalidData)?;
            for (index, record) in records.iter_mut().enumerate().rev() {
                let number = begin + index as u64 + 1;
                let next = next_of.insert(record.obj_id.get(), number);
                record.next_access_vtime = next.map_or(-1, |next| next as i64).into();
            }
            self.out.seek(place)?;
            self.out.write_all(&self.buffer)?;
            end = begin;
            (self.second_pass)(self.records - end, self.records);
        }
        self.buffer.clear();
        self.out.seek(SeekFrom::End(0))?;
        self.out.flush()
    }
}

impl<W: Read + Write + Seek> Sink for OracleWriter<'_, W> {
    fn push(&mut self, record: &TraceRecord) -> Result<(), ConvertError> {
        let first_ns = *self.first_ns.get_or_insert(record.time_ns.get());
        if looked_up(record).is_none() {
            return Ok(());
        }
        let units = (record.time_ns.get() - first_ns) / self.time_unit_ns;
        let clock = u32::try_from(units).map_err(|_| ConvertError::File {
            file: self.file.clone(),
            what: format!(
                "{units} units of {} ns lie between the first record and that of {} ns; the format has room for 2^32: choose a \
                 larger --time-unit",
                self.time_unit_ns, record.time_ns
            ),
        })?;
        let above = self.tags.above(record.node.get(), record.process.get())?;
        let (first, pages) = pages_of(record.address.get(), record.bytes.get(), self.page_bytes);
        for page in first..first + pages {
            let address = self.tags.address(above, page * self.page_bytes)?;
            let record = OracleRecord {
                clock_time: clock.into(),
                obj_id: (address / self.page_bytes).into(),
                obj_size: (self.page_bytes as u32).into(),
                next_access_vtime: (-1).into(),
            };
            self.buffer.extend_from_slice(record.as_bytes());
            self.records += 1;
            if self.buffer.len() >= CHUNK_RECORDS * RECORD_BYTES {
                self.write()?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<u64, ConvertError> {
        self.write()?;
        self.fill_in()?;
        Ok(self.records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_its_golden_bytes() {
        let record = OracleRecord {
            clock_time: 0x0102_0304.into(),
            obj_id: 0x1112_1314_1516_1718.into(),
            obj_size: 4096.into(),
            next_access_vtime: (-1).into(),
        };
        let golden = [
            4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0, 0x10, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff,
            0xff, 0xff, 0xff,
        ];
        assert_eq!(record.as_bytes(), golden);
    }

    fn file(ids: &[u64]) -> Vec<u8> {
        let record = |(time, id): (u32, &u64)| OracleRecord {
            clock_time: time.into(),
            obj_id: (*id).into(),
            obj_size: 77.into(),
            next_access_vtime: 5.into(),
        };
        (0..).zip(ids).flat_map(|r| record(r).as_bytes().to_vec()).collect()
    }

    fn read(bytes: &[u8], options: &ImportOptions) -> Result<Vec<(u64, u16, u64, u64)>, String> {
        super::read(bytes, "f.oracleGeneral", options)
            .map(|r| {
                let r = r.map_err(|e| e.to_string())?;
                Ok((r.time_ns.get(), r.process.get(), r.address.get(), r.bytes.get()))
            })
            .collect()
    }

    #[test]
    fn an_object_is_a_page() {
        let options = ImportOptions { process: 7, ..ImportOptions::default() };
        let second = 1_000_000_000;
        assert_eq!(
            read(&file(&[3, (1 << 52) - 1]), &options),
            Ok(vec![(0, 7, 3 << 12, 4096), (second, 7, u64::MAX << 12, 4096)])
        );
        let tagged = ImportOptions { tagged: true, time_unit_ns: 10, ..options };
        assert_eq!(read(&file(&[0, (5 << 36) | 9]), &tagged).unwrap()[1], (10, 5, 9 << 12, 4096));
    }

    #[test]
    fn numbers_beyond_the_last_page_are_an_error_or_numbered_anew() {
        let bytes = file(&[1, u64::MAX, 1 << 52, u64::MAX]);
        let error = read(&bytes, &ImportOptions::default()).unwrap_err();
        assert!(error.contains("f.oracleGeneral, record 1: obj_id is 18446744073709551615"), "{error}");
        let dense = ImportOptions { dense: true, ..ImportOptions::default() };
        let pages: Vec<_> = read(&bytes, &dense).unwrap().iter().map(|r| r.2 >> 12).collect();
        assert_eq!(pages, [0, 1, 2, 1]);
    }

    #[test]
    fn a_file_that_ends_inside_a_record_is_an_error_that_names_it() {
        let bytes = file(&[1, 2]);
        for cut in [25, 47] {
            let error = read(&bytes[..cut], &ImportOptions::default()).unwrap_err();
            assert!(error.contains(&format!("record 1: the file ends {} bytes into it", cut - 24)), "{error}");
        }
    }
}
