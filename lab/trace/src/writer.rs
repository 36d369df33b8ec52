//! Writing trace files.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::io::Write;

use mapwire_wire::{TraceOp, TraceRecord};
use zerocopy::IntoBytes;

use crate::columns::encode::{Encoder, estimate};
use crate::error::WriteError;
use crate::format::{
    ADDRESS_PLAIN, ADDRESS_STEPS, BLOCK_MARK, BLOCK_RECORDS, BlockHead, END_MARK, FileHead, MAGIC, MAX_METADATA_BYTES,
    Stream, VERSION,
};
use crate::metadata::Metadata;
use crate::spread::Spread;

/// Streams that are found at once.
const RECENT: usize = 256;
/// Blocks for which it holds whether addresses or their steps are smaller.
const SAME_BLOCKS: u32 = 7;

/// Writes a trace file, a block at a time: [`push`](Self::push) records in order of time, then [`finish`](Self::finish).
///
/// What was pushed since the last whole block is lost if the writer is dropped unfinished; what was written before reads as a file
/// without end.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    out: W,
    /// Of stream numbers, time steps, bytes, addresses and their steps.
    encoders: [Encoder; 5],
    /// Address steps are smaller than addresses; holds for so many blocks.
    steps_win: (bool, u32),
    streams: Vec<Stream>,
    stream_of: HashMap<u64, u16, BuildHasherDefault<Spread>>,
    /// Keys and numbers of streams that came lately, by some bits of the key.
    recent: Box<[(u64, u16); RECENT]>,
    stream: Vec<u64>,
    step: Vec<u64>,
    address: Vec<u64>,
    bytes: Vec<u64>,
    steps: Vec<u64>,
    begin_ns: u64,
    /// Of the whole file.
    first_ns: u64,
    last_ns: u64,
    records: u64,
    blocks: u32,
    payload: Vec<u8>,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace file on `out`, which takes whole blocks by single writes.
    pub fn new(mut out: W, metadata: &Metadata) -> Result<Self, WriteError> {
        let text = serde_json::to_vec(metadata).map_err(std::io::Error::from)?;
        if text.len() > MAX_METADATA_BYTES {
            return Err(WriteError::Metadata { bytes: text.len() });
        }
        let head = FileHead {
            magic: MAGIC,
            version: VERSION.into(),
            zero: 0.into(),
            metadata_bytes: (text.len() as u32).into(),
        };
        let mut bytes = [head.as_bytes(), &text].concat();
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        out.write_all(&bytes)?;
        let column = || Vec::with_capacity(BLOCK_RECORDS);
        Ok(Self {
            out,
            encoders: Default::default(),
            steps_win: (false, 0),
            recent: Box::new([(u64::MAX, 0); RECENT]),
            steps: column(),
            streams: Vec::new(),
            stream_of: HashMap::default(),
            stream: column(),
            step: column(),
            address: column(),
            bytes: column(),
            begin_ns: 0,
            first_ns: 0,
            last_ns: 0,
            records: 0,
            blocks: 0,
            payload: Vec::new(),
        })
    }

    /// Appends a record; its `reserved` is not kept.
    ///
    /// # Errors
    /// The record has no valid operation or is older than the last: it is not appended, and others may follow. The system does
    /// not take a block: the file is lost.
    #[inline]
    pub fn push(&mut self, record: &TraceRecord) -> Result<(), WriteError> {
        let time_ns = record.time_ns.get();
        if TraceOp::from_code(record.op).is_none() {
            return Err(WriteError::Op { record: self.records, op: record.op });
        }
        if self.records == 0 {
            self.first_ns = time_ns;
        } else if time_ns < self.last_ns {
            return Err(WriteError::Unordered { record: self.records, time_ns, last_ns: self.last_ns });
        }
        if self.step.is_empty() {
            self.begin_ns = time_ns;
            self.step.push(0);
        } else {
            self.step.push(time_ns - self.last_ns);
        }
        self.last_ns = time_ns;
        let stream = self.stream_number(record);
        self.stream.push(stream);
        self.address.push(record.address.get());
        self.bytes.push(record.bytes.get());
        self.records += 1;
        if self.step.len() == BLOCK_RECORDS {
            self.write_block()?;
        }
        Ok(())
    }

    pub fn records(&self) -> u64 {
        self.records
    }

    /// Ends the file, and gives back what it was written to.
    pub fn finish(mut self) -> Result<W, WriteError> {
        if !self.step.is_empty() {
            self.write_block()?;
        }
        let payload = self.records.to_le_bytes();
        let head = BlockHead {
            mark: END_MARK,
            payload_bytes: (payload.len() as u32).into(),
            records: self.blocks.into(),
            checksum: 0.into(),
            first_ns: self.first_ns.into(),
            last_ns: self.last_ns.into(),
        };
        self.write(head, &payload)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn stream_number(&mut self, record: &TraceRecord) -> u64 {
        let key = u64::from(record.node.get()) << 32
            | u64::from(record.process.get()) << 16
            | u64::from(record.op) << 8
            | u64::from(record.flags);
        // A small table in front of the large one: most blocks have few streams.
        let recent = &mut self.recent[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize];
        if recent.0 == key {
            return u64::from(recent.1);
        }
        let next = self.streams.len() as u16;
        let number = *self.stream_of.entry(key).or_insert(next);
        if number == next {
            self.streams.push(Stream {
                node: record.node,
                process: record.process,
                op: record.op,
                flags: record.flags,
            });
        }
        *recent = (key, number);
        u64::from(number)
    }

    fn write_block(&mut self) -> Result<(), WriteError> {
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        payload.extend_from_slice(&(self.streams.len() as u16).wrapping_sub(1).to_le_bytes());
        payload.extend_from_slice(self.streams.as_bytes());
        let [numbers, times, lengths, addresses, steps] = &mut self.encoders;
        numbers.column(&self.stream, &mut payload);
        times.column(&self.step, &mut payload);
        lengths.column(&self.bytes, &mut payload);
        let mut before = vec![0_u64; self.streams.len()];
        self.steps.clear();
        self.steps.extend(
            self.stream.iter().zip(&self.address).map(|(stream, address)| {
                address.wrapping_sub(std::mem::replace(&mut before[*stream as usize], *address))
            }),
        );
        let (win, holds) = &mut self.steps_win;
        if *holds == 0 {
            (*win, *holds) = (estimate(&self.steps) < estimate(&self.address), SAME_BLOCKS);
        } else {
            *holds -= 1;
        }
        if *win {
            payload.push(ADDRESS_STEPS);
            steps.column(&self.steps, &mut payload);
        } else {
            payload.push(ADDRESS_PLAIN);
            addresses.column(&self.address, &mut payload);
        }
        let head = BlockHead {
            mark: BLOCK_MARK,
            payload_bytes: (payload.len() as u32).into(),
            records: (self.step.len() as u32).into(),
            checksum: 0.into(),
            first_ns: self.begin_ns.into(),
            last_ns: self.last_ns.into(),
        };
        self.blocks = self.blocks.wrapping_add(1);
        self.streams.clear();
        self.stream_of.clear();
        self.recent.fill((u64::MAX, 0));
        for column in [&mut self.stream, &mut self.step, &mut self.address, &mut self.bytes] {
            column.clear();
        }
        let written = self.write(head, &payload);
        self.payload = payload;
        written
    }

    fn write(&mut self, mut head: BlockHead, payload: &[u8]) -> Result<(), WriteError> {
        head.checksum = head.checksum_with(payload).into();
        self.out.write_all(head.as_bytes())?;
        self.out.write_all(payload)?;
        Ok(())
    }
}
