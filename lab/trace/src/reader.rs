//! Reading trace files.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use mapwire_wire::TraceRecord;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::block::Block;
use crate::columns::Malformed;
use crate::decoded::Columns;
use crate::error::{Damage, DamageKind, ReadError};
use crate::format::{
    BLOCK_MARK, BlockHead, END_MARK, FileHead, MAGIC, MAX_BLOCK_RECORDS, MAX_METADATA_BYTES, MAX_PAYLOAD_BYTES, VERSION,
};
use crate::metadata::Metadata;

/// What the end of a trace file says about the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub records: u64,
    /// Time of the first record; 0 if there is none.
    pub first_ns: u64,
    /// Time of the last record; 0 if there is none.
    pub last_ns: u64,
}

/// Reads a trace file, a block at a time. A file that is cut off or damaged gives the blocks before that place; then
/// [`next_block`](Self::next_block) says where they end, as an error, or as the end of the file if
/// [`keep_good_part`](Self::keep_good_part) was asked for.
#[derive(Debug)]
pub struct TraceReader<R: Read> {
    input: R,
    file: String,
    metadata: Metadata,
    /// Bytes and records of the good part so far.
    at: u64,
    so_far: Summary,
    blocks: u32,
    condition: Condition,
    keep_good_part: bool,
    payload: Vec<u8>,
    columns: Columns,
}

#[derive(Debug, PartialEq, Eq)]
enum Condition {
    Reading,
    Complete,
    Damaged(Damage),
}

/// Reads until `bytes` is full or the file ends; gives the bytes read.
pub(crate) fn read_up_to(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match input.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl TraceReader<File> {
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|source| ReadError::Io { file: name.clone(), at: 0, source })?;
        Self::new(file, name)
    }

    /// What the file's end says; `None` if it has none, or cannot be read from its end. Reading goes on where it was.
    pub fn summary(&mut self) -> Result<Option<Summary>, ReadError> {
        let read = (|| {
            let here = self.input.stream_position()?;
            let mut bytes = [0; size_of::<BlockHead>() + 8];
            let found =
                self.input.seek(SeekFrom::End(-(bytes.len() as i64))).and_then(|_| self.input.read_exact(&mut bytes));
            self.input.seek(SeekFrom::Start(here))?;
            Ok((found.is_ok(), bytes))
        })();
        let (found, bytes) = match read {
            Ok(read) => read,
            // A pipe has no end yet.
            Err(error) if self.input.metadata().is_ok_and(|m| !m.is_file()) => {
                let _: io::Error = error;
                return Ok(None);
            }
            Err(source) => return Err(self.io(source)),
        };
        let Ok((head, payload)) = BlockHead::read_from_prefix(&bytes) else { return Ok(None) };
        let right = head.mark == END_MARK && head.checksum.get() == head.checksum_with(payload);
        let records = <[u8; 8]>::try_from(payload).map(u64::from_le_bytes);
        Ok(records.ok().filter(|_| found && right).map(|records| Summary {
            records,
            first_ns: head.first_ns.get(),
            last_ns: head.last_ns.get(),
        }))
    }

    /// Bytes of the file; `None` if it is a pipe.
    pub fn file_bytes(&self) -> Option<u64> {
        let metadata = self.input.metadata().ok()?;
        metadata.is_file().then_some(metadata.len())
    }
}

impl<R: Read> TraceReader<R> {
    /// Begins to read a trace file, which errors call `file`. Blocks are read by two reads each: no buffer is needed.
    ///
    /// # Errors
    /// It is no trace file, or its header is cut off or damaged, or it cannot be read.
    pub fn new(mut input: R, file: impl Into<String>) -> Result<Self, ReadError> {
        let file = file.into();
        let no = |why: String| ReadError::NotATrace { file: file.clone(), why };
        let io = |at: usize, source| ReadError::Io { file: file.clone(), at: at as u64, source };
        let mut bytes = vec![0; size_of::<FileHead>()];
        let found = read_up_to(&mut input, &mut bytes).map_err(|e| io(0, e))?;
        if found == 0 {
            return Err(no("it is empty".to_owned()));
        }
        if !MAGIC.starts_with(&bytes[..found.min(8)]) {
            return Err(no(format!("it begins with {}", bytes[..found.min(8)].escape_ascii())));
        }
        let head = FileHead::read_from_bytes(&bytes[..])
            .ok()
            .filter(|_| found == bytes.len())
            .ok_or_else(|| no(format!("its header is cut off after {found} bytes")))?;
        if !(1..=VERSION).contains(&head.version.get()) {
            return Err(ReadError::Version { file, version: head.version.get() });
        }
        let length = head.metadata_bytes.get() as usize;
        if length > MAX_METADATA_BYTES {
            return Err(no(format!("its header claims {length} bytes of metadata, more than {MAX_METADATA_BYTES}")));
        }
        bytes.resize(found + length + 4, 0);
        let more = read_up_to(&mut input, &mut bytes[found..]).map_err(|e| io(found, e))?;
        if found + more < bytes.len() {
            return Err(no(format!("its header is cut off after {} bytes", found + more)));
        }
        let (covered, checksum) = bytes.split_at(bytes.len() - 4);
        if crc32fast::hash(covered).to_le_bytes() != checksum || head.zero.get() != 0 {
            return Err(no("its header was changed: the checksum is wrong".to_owned()));
        }
        let metadata = serde_json::from_slice(&covered[found..])
            .map_err(|error| no(format!("its metadata is not JSON of mapwire: {error}")))?;
        Ok(Self {
            at: bytes.len() as u64,
            input,
            file,
            metadata,
            so_far: Summary { records: 0, first_ns: 0, last_ns: 0 },
            blocks: 0,
            condition: Condition::Reading,
            keep_good_part: false,
            payload: Vec::new(),
            columns: Columns::default(),
        })
    }

    /// Takes damage as the end of the file; [`damage`](Self::damage) tells of it.
    #[must_use]
    pub fn keep_good_part(mut self) -> Self {
        self.keep_good_part = true;
        self
    }

    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub fn file(&self) -> &str {
        &self.file
    }

    pub fn so_far(&self) -> Summary {
        self.so_far
    }

    pub fn position_bytes(&self) -> u64 {
        self.at
    }

    /// Whether the file was read to its end, and was whole.
    pub fn is_complete(&self) -> bool {
        self.condition == Condition::Complete
    }

    /// The damage at which the good part ended, once it was met.
    pub fn damage(&self) -> Option<&Damage> {
        match &self.condition {
            Condition::Damaged(damage) => Some(damage),
            Condition::Reading | Condition::Complete => None,
        }
    }

    /// The next block; `None` at the end.
    ///
    /// # Errors
    /// The file is cut off or damaged here, unless only the good part is wanted; the next call gives `None` then. Or it cannot be read.
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, ReadError> {
        if self.advance()? { Ok(Some(self.columns.block())) } else { Ok(None) }
    }

    pub fn records(self) -> Records<R> {
        Records { reader: self, next: 0 }
    }

    fn advance(&mut self) -> Result<bool, ReadError> {
        if self.condition != Condition::Reading {
            return Ok(false);
        }
        let kind = match self.try_advance() {
            Ok(Ok(more)) => {
                if !more {
                    self.condition = Condition::Complete;
                }
                return Ok(more);
            }
            Ok(Err(kind)) => kind,
            Err(source) => return Err(self.io(source)),
        };
        let damage = Damage { file: self.file.clone(), at: self.at, records: self.so_far.records, kind };
        self.condition = Condition::Damaged(damage.clone());
        if self.keep_good_part { Ok(false) } else { Err(damage.into()) }
    }

    fn io(&self, source: io::Error) -> ReadError {
        ReadError::Io { file: self.file.clone(), at: self.at, source }
    }

    fn try_advance(&mut self) -> io::Result<Result<bool, DamageKind>> {
        let mut head = BlockHead::new_zeroed();
        let found = read_up_to(&mut self.input, head.as_mut_bytes())?;
        if found == 0 {
            return Ok(Err(DamageKind::NoEnd));
        }
        if ![BLOCK_MARK, END_MARK].iter().any(|mark| mark.starts_with(&head.mark[..found.min(4)])) {
            return Ok(Err(DamageKind::NoBlock(head.mark)));
        }
        if found < size_of::<BlockHead>() {
            return Ok(Err(DamageKind::CutOff(found as u64)));
        }
        let is_end = head.mark == END_MARK;
        let (bytes, records) = (head.payload_bytes.get(), head.records.get());
        let fits = if is_end {
            bytes == 8
        } else {
            bytes as usize <= MAX_PAYLOAD_BYTES && (1..=MAX_BLOCK_RECORDS).contains(&(records as usize))
        };
        if !fits {
            return Ok(Err(DamageKind::Size { records, bytes }));
        }
        let bytes = bytes as usize;
        if self.payload.len() < bytes {
            self.payload.resize(bytes, 0);
        }
        let more = read_up_to(&mut self.input, &mut self.payload[..bytes])?;
        if more < bytes {
            return Ok(Err(DamageKind::CutOff((found + more) as u64)));
        }
        let payload = &self.payload[..bytes];
        let (is, expected) = (head.checksum_with(payload), head.checksum.get());
        if is != expected {
            return Ok(Err(DamageKind::Checksum { found: is, expected }));
        }
        if is_end {
            return self.check_end(&head);
        }
        let last_ns = self.so_far.last_ns;
        let first_ns = head.first_ns.get();
        if first_ns < last_ns {
            return Ok(Err(DamageKind::Unordered { first_ns, last_ns }));
        }
        if let Err(Malformed(why)) = self.columns.decode(payload, &head, records as usize) {
            return Ok(Err(DamageKind::Malformed(why)));
        }
        if self.so_far.records == 0 {
            self.so_far.first_ns = first_ns;
        }
        self.so_far.last_ns = head.last_ns.get();
        self.so_far.records += u64::from(records);
        self.blocks = self.blocks.wrapping_add(1);
        self.at += (found + bytes) as u64;
        Ok(Ok(true))
    }

    fn check_end(&mut self, head: &BlockHead) -> io::Result<Result<bool, DamageKind>> {
        let said = Summary {
            records: u64::from_le_bytes(std::array::from_fn(|i| self.payload[i])),
            first_ns: head.first_ns.get(),
            last_ns: head.last_ns.get(),
        };
        if said != self.so_far || head.records.get() != self.blocks {
            return Ok(Err(DamageKind::WrongEnd));
        }
        if read_up_to(&mut self.input, &mut [0])? != 0 {
            return Ok(Err(DamageKind::BehindEnd));
        }
        self.at += (size_of::<BlockHead>() + 8) as u64;
        Ok(Ok(false))
    }
}

#[derive(Debug)]
pub struct Records<R: Read> {
    reader: TraceReader<R>,
    next: usize,
}

impl<R: Read> Records<R> {
    /// The reader, which may have decoded more than was taken from here.
    pub fn reader(&self) -> &TraceReader<R> {
        &self.reader
    }
}

impl<R: Read> Iterator for Records<R> {
    type Item = Result<TraceRecord, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.reader.columns.records {
            self.next = 0;
            match self.reader.advance() {
                Ok(true) => {}
                Ok(false) => {
                    self.reader.columns.records = 0;
                    return None;
                }
                Err(error) => {
                    self.reader.columns.records = 0;
                    return Some(Err(error));
                }
            }
        }
        let record = self.reader.columns.block().record(self.next);
        self.next += 1;
        Some(Ok(record))
    }
}
