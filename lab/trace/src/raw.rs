//! The files that ranks write while they run: bare [`TraceRecord`]s, 32 bytes each, one file a rank. A rank that was killed leaves
//! its last record torn, or room behind its last record that it never wrote (zeros).

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use mapwire_wire::{TRACE_FLAG_DIRECT, TRACE_FLAG_INLINE, TRACE_RECORD_BYTES, TraceRecord};
use zerocopy::{FromZeros, IntoBytes};

use crate::reader::read_up_to;

#[derive(Debug, thiserror::Error)]
pub enum RawError {
    #[error("cannot read {file} at record {record}")]
    Io { file: String, record: u64, source: io::Error },
    #[error(
        "record {record} of {file} has operation {op}, which does not exist: the file is not a rank's trace, or was damaged"
    )]
    Op { file: String, record: u64, op: u8 },
    #[error(
        "record {record} of {file} has flags {flags:#04x} and reserved bytes {reserved:#06x}, which this version does not know"
    )]
    Unknown { file: String, record: u64, flags: u8, reserved: u16 },
}

/// Reads the file of one rank. Every record that it gives is valid; their order is not checked here
/// ([`Merge`](crate::Merge) does).
#[derive(Debug)]
pub struct RawReader<R: Read> {
    input: BufReader<R>,
    file: String,
    records: u64,
    torn_bytes: u64,
    ended: bool,
    /// By how much its times are ahead of those wanted.
    ahead_ns: i64,
}

impl RawReader<File> {
    pub fn open(path: &Path) -> Result<Self, RawError> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Ok(Self::new(file, name)),
            Err(source) => Err(RawError::Io { file: name, record: 0, source }),
        }
    }
}

impl<R: Read> RawReader<R> {
    /// Reads from `input`, which errors call `file`.
    pub fn new(input: R, file: impl Into<String>) -> Self {
        Self {
            input: BufReader::with_capacity(64 << 10, input),
            file: file.into(),
            records: 0,
            torn_bytes: 0,
            ended: false,
            ahead_ns: 0,
        }
    }

    /// Gives the records by another clock: that of the file is so many nanoseconds ahead of it.
    #[must_use]
    pub fn ahead_by(self, ahead_ns: i64) -> Self {
        Self { ahead_ns, ..self }
    }

    pub fn file(&self) -> &str {
        &self.file
    }

    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes behind the last whole record, once the end was met: not 0 if the rank was stopped in the middle of one, or left room
    /// that it never wrote.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    fn try_next(&mut self) -> Result<Option<TraceRecord>, RawError> {
        let mut record = TraceRecord::new_zeroed();
        let found = self.fill(record.as_mut_bytes())?;
        if found < TRACE_RECORD_BYTES {
            self.torn_bytes = found as u64;
            return Ok(None);
        }
        if record.op().is_none() {
            if record.as_bytes().iter().all(|byte| *byte == 0)
                && let Some(zeros) = self.zeros_to_the_end()?
            {
                self.torn_bytes = TRACE_RECORD_BYTES as u64 + zeros;
                return Ok(None);
            }
            return Err(RawError::Op { file: self.file.clone(), record: self.records, op: record.op });
        }
        if record.flags & !(TRACE_FLAG_DIRECT | TRACE_FLAG_INLINE) != 0 || record.reserved.get() != 0 {
            return Err(RawError::Unknown {
                file: self.file.clone(),
                record: self.records,
                flags: record.flags,
                reserved: record.reserved.get(),
            });
        }
        self.records += 1;
        let time_ns = record.time_ns.get();
        record.time_ns = time_ns.saturating_add_signed(self.ahead_ns.saturating_neg()).into();
        Ok(Some(record))
    }

    /// How many bytes follow, if all are zero.
    fn zeros_to_the_end(&mut self) -> Result<Option<u64>, RawError> {
        let mut zeros = 0;
        loop {
            let mut bytes = [0; 4096];
            let found = self.fill(&mut bytes)?;
            if bytes[..found].iter().any(|byte| *byte != 0) {
                return Ok(None);
            }
            zeros += found as u64;
            if found < bytes.len() {
                return Ok(Some(zeros));
            }
        }
    }

    /// Reads until `bytes` is full or the file ends; gives the bytes read.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, RawError> {
        let wrong = |source| RawError::Io { file: self.file.clone(), record: self.records, source };
        read_up_to(&mut self.input, bytes).map_err(wrong)
    }
}

impl<R: Read> Iterator for RawReader<R> {
    type Item = Result<TraceRecord, RawError>;

    /// The next record; after an error or the end there is none.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.try_next().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapwire_wire::TraceOp;
    use proptest::prelude::*;

    fn record(time_ns: u64) -> TraceRecord {
        TraceRecord {
            time_ns: time_ns.into(),
            address: 0x7f00_1234_5000.into(),
            bytes: 4096.into(),
            node: 1.into(),
            process: 2.into(),
            op: TraceOp::Send as u8,
            flags: TRACE_FLAG_DIRECT,
            reserved: 0.into(),
        }
    }

    fn file(records: u64) -> Vec<u8> {
        (0..records).flat_map(|i| record(i).as_bytes().to_vec()).collect()
    }

    fn read(bytes: &[u8]) -> (Vec<TraceRecord>, Option<RawError>, u64) {
        let mut reader = RawReader::new(bytes, "rank-3.raw");
        let (mut records, mut error) = (Vec::new(), None);
        for next in &mut reader {
            match next {
                Ok(record) => records.push(record),
                Err(found) => error = Some(found),
            }
        }
        (records, error, reader.torn_bytes())
    }

    #[test]
    fn a_file_cut_anywhere_gives_its_whole_records() {
        let bytes = file(5);
        for length in 0..=bytes.len() {
            let (records, error, torn) = read(&bytes[..length]);
            assert!(error.is_none());
            assert_eq!(records, (0..length as u64 / 32).map(record).collect::<Vec<_>>());
            assert_eq!(torn, length as u64 % 32);
        }
    }

    #[test]
    fn room_that_was_never_written_is_the_end_but_a_gap_is_an_error() {
        let mut bytes = file(3);
        bytes.resize(3 * 32 + 100_000, 0);
        let (records, error, torn) = read(&bytes);
        assert_eq!((records.len(), torn), (3, 100_000));
        assert!(error.is_none());
        *bytes.last_mut().unwrap() = 1;
        let (records, error, _) = read(&bytes);
        assert_eq!(records.len(), 3);
        assert!(matches!(error, Some(RawError::Op { record: 3, op: 0, .. })));
    }

    #[test]
    fn what_no_rank_writes_is_an_error_that_names_file_and_record() {
        for (at, value, says) in [
            (28, 24, "record 2 of rank-3.raw has operation 24"),
            (28, 0, "record 2 of rank-3.raw has operation 0"),
            (29, 0x81, "record 2 of rank-3.raw has flags 0x81"),
            (31, 1, "reserved bytes 0x0100"),
        ] {
            let mut bytes = file(4);
            bytes[2 * 32 + at] = value;
            let (records, error, _) = read(&bytes);
            assert_eq!(records.len(), 2);
            let text = error.unwrap().to_string();
            assert!(text.contains(says), "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_file_holds_what_it_gives_is_valid(bytes in prop::collection::vec(0..7_u8, 0..2000)) {
            let (records, error, _) = read(&bytes);
            prop_assert!(records.iter().all(|r| r.op().is_some()));
            prop_assert!(error.is_some() || records.len() == bytes.len() / 32 || bytes[records.len() * 32..].iter().all(|b| *b == 0));
        }
    }
}
