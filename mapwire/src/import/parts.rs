//! Transfers of many parts in one call: memory that lies here and there, and rows at equal distances.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use mapwire_host::memory::MappedBuffer;
use mapwire_host::memory::raw::Source;
use mapwire_wire::{Rights, SHORT_BYTES};

use super::Import;
use super::memory::{Memory, Then};
use crate::error::{Error, ErrorKind, Result, check_range};

/// Commands of a call that may be under way on the ring path.
const MOST_COMMANDS: usize = 32;
/// Parts shorter than this go through a buffer on the ring path, together with their neighbours.
const SHORT_PART: usize = 2 << 10;
/// Bytes of such a buffer.
const PACK_BYTES: usize = 16 << 10;
/// Bytes between two rows that are fetched along with them: to copy them costs less than another command.
const GAP_BYTES: u64 = 512;

/// Rows of equal length at equal distances, here and in an export: a part of a matrix, or one member of many structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// How many.
    pub count: usize,
    /// Bytes of each.
    pub bytes: usize,
    /// Bytes from the begin of a row to the begin of the next in the memory of this process.
    pub local_stride: usize,
    /// The same in the export.
    pub remote_stride: u64,
}

impl Rows {
    /// Bytes from the begin of the first row to the end of the last in the memory of this process; `None`: more than there can be.
    #[must_use]
    pub fn local_bytes(&self) -> Option<usize> {
        usize::try_from(self.span(self.local_stride as u64)?).ok()
    }

    /// The same in the export.
    #[must_use]
    pub fn remote_bytes(&self) -> Option<u64> {
        self.span(self.remote_stride)
    }

    fn span(&self, stride: u64) -> Option<u64> {
        let Some(between) = self.count.checked_sub(1).filter(|_| self.bytes > 0) else { return Some(0) };
        stride.checked_mul(between as u64)?.checked_add(self.bytes as u64)
    }

    /// Whether rows end where the next begins, here and there.
    fn are_whole(&self) -> bool {
        self.local_stride == self.bytes && self.remote_stride == self.bytes as u64
    }

    /// Refuses rows of which one would be stored over another.
    fn refuse_overlap(&self, stride: u64) -> Result<()> {
        if self.count > 1 && stride < self.bytes as u64 {
            return Err(Error::Overlap { row_bytes: self.bytes as u64, stride });
        }
        Ok(())
    }

    /// Refuses rows that pass the end of `length` bytes of this process.
    fn check_local(&self, length: usize) -> Result<()> {
        let bytes = self.local_bytes().map_or(u64::MAX, |bytes| bytes as u64);
        check_range(0, bytes, length as u64)
    }

    /// The offset of row `number` in the export, whose rows were checked.
    fn remote(&self, offset: u64, number: usize) -> u64 {
        offset + number as u64 * self.remote_stride
    }
}

/// Transfers of many parts in one call. All of them are checked before the first byte moves. On the ring path the parts follow each
/// other without a wait between them, and short ones travel together.
impl Import {
    /// Stores `parts` one behind the other from `offset` on. They are stored in order, as by as many calls of [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send). [`Error::Partial`] counts the bytes of all parts.
    pub fn send_vectored(&self, parts: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.held.engine.check_here()?;
        let length = total(parts.iter().map(|part| part.len()));
        self.check(Rights::STORE, offset, length)?;
        let places = parts.iter().scan(offset, |at, part| {
            let place = *at;
            *at += part.len() as u64;
            Some((place, Source::from(&**part)))
        });
        self.send_parts(length, places)
    }

    /// Copies the bytes from `offset` of the export on to `parts`, one after the other, until they are full.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch). Some parts may be filled then.
    pub fn fetch_vectored(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.held.engine.check_here()?;
        let length = total(parts.iter().map(|part| part.len()));
        self.check(Rights::FETCH, offset, length)?;
        let places = parts.iter_mut().scan(offset, |at, part| {
            let place = *at;
            *at += part.len() as u64;
            Some((place, &mut **part))
        });
        self.fetch_parts(places)
    }

    /// Stores rows of `data` as rows of the export, the first of which begins at `offset`. Rows of `data` may overlap.
    ///
    /// # Errors
    /// As [`send`](Self::send): nothing is stored when a row leaves `data` or the export. [`Error::Overlap`]: rows of the export
    /// would overlap. [`Error::Partial`] counts the bytes of all rows.
    pub fn send_strided(&self, data: &[u8], offset: u64, rows: &Rows) -> Result<()> {
        self.held.engine.check_here()?;
        rows.refuse_overlap(rows.remote_stride)?;
        rows.check_local(data.len())?;
        self.check(Rights::STORE, offset, rows.remote_bytes().unwrap_or(u64::MAX))?;
        if rows.bytes == 0 {
            return Ok(());
        }
        if rows.are_whole() {
            return self.send(&data[..rows.count * rows.bytes], offset);
        }
        let row = |number: usize| {
            let at = number * rows.local_stride;
            let data = &data[at..at + rows.bytes];
            (rows.remote(offset, number), data.into())
        };
        // Rows do not overlap in the export, so that their bytes are fewer than it has.
        let length = rows.count as u64 * rows.bytes as u64;
        self.send_parts(length, (0..rows.count).map(row))
    }

    /// Copies rows of the export, the first of which begins at `offset`, to rows of `into`. The bytes of `into` between rows stay
    /// as they are. Rows of the export may overlap.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch): nothing is fetched when a row leaves `into` or the export. [`Error::Overlap`]: rows of `into` would
    /// overlap.
    pub fn fetch_strided(&self, offset: u64, into: &mut [u8], rows: &Rows) -> Result<()> {
        self.held.engine.check_here()?;
        rows.refuse_overlap(rows.local_stride as u64)?;
        rows.check_local(into.len())?;
        self.check(Rights::FETCH, offset, rows.remote_bytes().unwrap_or(u64::MAX))?;
        if rows.bytes == 0 {
            return Ok(());
        }
        if rows.are_whole() {
            return self.fetch(offset, &mut into[..rows.count * rows.bytes]);
        }
        let rows_of = into.chunks_mut(rows.local_stride.max(rows.bytes)).take(rows.count).enumerate();
        self.fetch_parts(rows_of.map(|(number, row)| (rows.remote(offset, number), &mut row[..rows.bytes])))
    }

    /// Stores parts that were checked, which are `length` bytes together.
    fn send_parts<'a>(&self, length: u64, parts: impl Iterator<Item = (u64, Source<'a>)> + Clone) -> Result<()> {
        let mut sent_bytes = 0;
        let outcome = match &self.held.local.mapped {
            Some(mapped) => self.send_direct(mapped, parts, &mut sent_bytes),
            None => {
                let mut memory = parts.clone().map(|(_, part)| Memory::From(part));
                memory.try_for_each(|mut part| part.touch()).and_then(|()| {
                    Pipeline::run(self, parts.map(|(at, part)| (at, Memory::From(part))), &mut sent_bytes)
                })
            }
        };
        outcome.map_err(|error| match error {
            error if sent_bytes == 0 => error,
            Error::Partial { cause, .. } => Error::Partial { sent_bytes, length, cause },
            cause => Error::Partial { sent_bytes, length, cause: Box::new(cause) },
        })
    }

    fn send_direct<'a>(
        &self,
        mapped: &MappedBuffer,
        parts: impl Iterator<Item = (u64, Source<'a>)>,
        sent_bytes: &mut u64,
    ) -> Result<()> {
        let mut outcome = Ok(());
        for (offset, part) in parts {
            if !(self.is_open(mapped) && mapped.put(offset as usize, part)) {
                outcome = self.send_source(part, offset);
            }
            if outcome.is_err() {
                break;
            }
            *sent_bytes += part.len() as u64;
        }
        // Once for all of them.
        self.wake_awaiting(mapped);
        outcome
    }

    /// Fetches parts that were checked.
    fn fetch_parts<'a>(&self, mut parts: impl Iterator<Item = (u64, &'a mut [u8])>) -> Result<()> {
        if self.held.local.mapped.is_some() {
            return parts.try_for_each(|(offset, part)| self.fetch(offset, part));
        }
        Pipeline::run(self, parts.map(|(at, part)| (at, Memory::Into(part))), &mut 0)
    }
}

/// Bytes of all parts, or more than any export has.
fn total(lengths: impl Iterator<Item = usize>) -> u64 {
    lengths.fold(0, |sum, length| sum.saturating_add(length as u64))
}

/// The transfers of one call by packets, all of one direction. They use the caller's memory: dropping this waits until they are over.
struct Pipeline<'a, 'p> {
    import: &'a Import,
    pending: VecDeque<UnderWay<'p>>,
    /// Short parts that lie close to each other in the export, each with its offset in the pack.
    pack: Vec<(usize, Memory<'p>)>,
    /// Where the pack is in the export.
    pack_at: u64,
    pack_bytes: usize,
    /// Buffers of transfers that are over.
    spare: Vec<Vec<u8>>,
    /// Bytes that have left, or may have.
    sent_bytes: u64,
}

struct UnderWay<'p> {
    word: u32,
    stored_bytes: u64,
    /// What it uses unless that is the caller's, and for which parts.
    buffer: Vec<u8>,
    parts: Vec<(usize, Memory<'p>)>,
}

impl<'a, 'p> Pipeline<'a, 'p> {
    /// Carries out all transfers. `sent_bytes` are then those that have left, or may have.
    fn run(import: &'a Import, parts: impl Iterator<Item = (u64, Memory<'p>)>, sent_bytes: &mut u64) -> Result<()> {
        let mut pipeline = Self {
            import,
            pending: VecDeque::new(),
            pack: Vec::new(),
            pack_at: 0,
            pack_bytes: 0,
            spare: Vec::new(),
            sent_bytes: 0,
        };
        let outcome = pipeline.submit(parts).and(pipeline.end());
        *sent_bytes = pipeline.sent_bytes;
        outcome
    }

    fn submit(&mut self, parts: impl Iterator<Item = (u64, Memory<'p>)>) -> Result<()> {
        for (offset, part) in parts {
            if part.len() >= SHORT_PART {
                self.submit_pack()?;
                self.submit_one(offset, part)?;
                continue;
            }
            let most_gap = if part.is_stored() { 0 } else { GAP_BYTES };
            let gap = offset.checked_sub(self.pack_at + self.pack_bytes as u64);
            let joins = !self.pack.is_empty()
                && gap.is_some_and(|gap| gap <= most_gap && self.pack_bytes + gap as usize + part.len() <= PACK_BYTES);
            if !joins {
                self.submit_pack()?;
                self.pack_at = offset;
            }
            let at = (offset - self.pack_at) as usize;
            self.pack_bytes = at + part.len();
            self.pack.push((at, part));
        }
        self.submit_pack()
    }

    fn submit_one(&mut self, offset: u64, mut part: Memory<'p>) -> Result<()> {
        let stored_bytes = part.stored_bytes();
        if self.import.is_shared(part.bytes()) {
            self.import.by_packets(part, offset, Then::Nothing)?;
            self.sent_bytes += stored_bytes;
            return Ok(());
        }
        if !part.is_stored() {
            // Those that are stored have been touched before the first byte moved.
            part.touch()?;
        }
        let word = self.begin(offset, &mut part)?;
        self.pending.push_back(UnderWay { word, stored_bytes, buffer: Vec::new(), parts: Vec::new() });
        Ok(())
    }

    fn submit_pack(&mut self) -> Result<()> {
        let parts = core::mem::take(&mut self.pack);
        let bytes = core::mem::take(&mut self.pack_bytes);
        let Some((_, first)) = parts.first().filter(|_| bytes > 0) else { return Ok(()) };
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(bytes, 0);
        for (at, part) in &parts {
            part.gather(&mut buffer[*at..*at + part.len()]);
        }
        let mut memory = first.in_place_of(&mut buffer);
        let stored_bytes = memory.stored_bytes();
        if memory.is_stored() && bytes <= SHORT_BYTES {
            self.import.by_packets(memory, self.pack_at, Then::Nothing)?;
            self.sent_bytes += stored_bytes;
            return Ok(());
        }
        let word = self.begin(self.pack_at, &mut memory)?;
        self.pending.push_back(UnderWay { word, stored_bytes, buffer, parts });
        Ok(())
    }

    /// Begins a transfer that holds pages. Those before it may hold what it needs: it waits for them then, and tries again.
    fn begin(&mut self, offset: u64, memory: &mut Memory<'_>) -> Result<u32> {
        if self.pending.len() == MOST_COMMANDS {
            self.end_first()?;
        }
        match self.import.begin(memory, offset, Then::Nothing) {
            Err(error) if error.kind() == ErrorKind::Limit && !self.pending.is_empty() => {
                self.end()?;
                self.import.begin(memory, offset, Then::Nothing)
            }
            begun => begun,
        }
    }

    /// Waits for the oldest transfer; for none if there is none.
    fn end_first(&mut self) -> Result<()> {
        let Some(UnderWay { word, stored_bytes, mut buffer, parts }) = self.pending.pop_front() else { return Ok(()) };
        let outcome = self.import.held.finish(word, stored_bytes);
        self.sent_bytes += match &outcome {
            Ok(()) => stored_bytes,
            Err(Error::Partial { sent_bytes, .. }) => *sent_bytes,
            Err(_) => 0,
        };
        if outcome.is_ok() {
            for (at, mut part) in parts {
                let end = at + part.len();
                part.scatter(&buffer[at..end]);
            }
        }
        if buffer.capacity() > 0 {
            buffer.clear();
            self.spare.push(buffer);
        }
        outcome
    }

    /// Waits for all transfers, also when some fail; the first error.
    fn end(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        while !self.pending.is_empty() {
            outcome = outcome.and(self.end_first());
        }
        outcome
    }
}

impl Drop for Pipeline<'_, '_> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
