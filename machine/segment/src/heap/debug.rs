//! Debug mode: what lies behind a block, and what a freed one holds.
//!
//! | part of a block | holds |
//! |---|---|
//! | the bytes asked for | the program's; once freed, a pattern |
//! | from there to the record: from 16 bytes on, of which 4 KiB are looked at | a pattern, which stores behind the block damage |
//! | the last 32 bytes | the record: bytes asked for, rank, location, and a sum over them |

use core::sync::atomic::Ordering;

use super::classes::LONGEST_BYTES;
use super::error::{Allocated, HeapError};
use super::inner::Taken;
use crate::layout::FREED_BYTE;
use crate::segment::Segment;

/// What a block needs besides what is asked for.
pub(super) const EXTRA_BYTES: u64 = RECORD_BYTES + 16;
/// Bytes of the record.
const RECORD_BYTES: u64 = 32;
/// What is filled behind a block at most.
const BEHIND_BYTES: u64 = 4096;

/// What fills the room behind a block.
const BEHIND: u8 = 0xfd;
/// What fills a new block that is not to be zero, if it is not longer than any class.
const NEW: u8 = 0xcd;

/// The record of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Bytes asked for.
    pub(super) bytes: u64,
    pub(super) by: Allocated,
}

impl Record {
    fn words(self, at: u64) -> [u64; 4] {
        let [bytes, rank, location] =
            [self.bytes, self.by.rank.map_or(0, |rank| u64::from(rank) + 1), self.by.location];
        let mut sum = 0x9e37_79b9_7f4a_7c15_u64 ^ at;
        for word in [bytes, rank, location] {
            sum = (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
        }
        [bytes, rank, location, sum]
    }

    /// The record of the block of `room` bytes at `offset`; `None` if it is damaged.
    fn load(segment: &Segment, offset: u64, room: u64) -> Option<Self> {
        let at = offset + room - RECORD_BYTES;
        let mut found = [0; RECORD_BYTES as usize];
        if !segment.read(at, &mut found) {
            return None;
        }
        let word = |nth: usize| u64::from_ne_bytes(core::array::from_fn(|byte| found[nth * 8 + byte]));
        let words: [u64; 4] = core::array::from_fn(word);
        let rank = words[1].checked_sub(1).and_then(|rank| u32::try_from(rank).ok());
        let record = Self { bytes: words[0], by: Allocated { rank, location: words[2] } };
        (record.words(at) == words && record.bytes <= room - RECORD_BYTES).then_some(record)
    }
}

/// Who allocated the block last, as far as its record says.
pub(super) fn by(segment: &Segment, offset: u64, room: u64) -> Allocated {
    Record::load(segment, offset, room).map_or(Allocated::UNKNOWN, |record| record.by)
}

/// Prepares a block for the program.
///
/// # Errors
/// It was stored to after it had been freed.
pub(super) fn hand_out(segment: &Segment, taken: Taken, record: Record, zeroed: bool) -> Result<(), HeapError> {
    let Taken { offset, room, is_fresh } = taken;
    let record_at = offset + room - RECORD_BYTES;
    if !is_fresh && let Some(at) = first_unlike(segment, offset, record_at, FREED_BYTE) {
        let by = by(segment, offset, room);
        let address = |offset: u64| segment.base() + offset as usize;
        return Err(HeapError::UsedAfterFree { address: address(offset), at: address(at), by });
    }
    if zeroed && !is_fresh {
        segment.fill(offset, record.bytes, 0);
    } else if !zeroed && room <= LONGEST_BYTES {
        segment.fill(offset, record.bytes, NEW);
    }
    let end = offset + record.bytes;
    segment.fill(end, (record_at - end).min(BEHIND_BYTES), BEHIND);
    for (word, at) in record.words(record_at).into_iter().zip((record_at..).step_by(8)) {
        if let Some(to) = segment.word64(at) {
            to.store(word, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Looks whether anything was stored behind a block, and gives its record.
///
/// # Errors
/// [`HeapError::Record`], [`HeapError::Overrun`].
pub(super) fn check(segment: &Segment, offset: u64, room: u64) -> Result<Record, HeapError> {
    let address = |offset: u64| segment.base() + offset as usize;
    let record_at = offset + room - RECORD_BYTES;
    let Some(record) = Record::load(segment, offset, room) else {
        return Err(HeapError::Record { address: address(offset), at: address(record_at) });
    };
    let end = offset + record.bytes;
    match first_unlike(segment, end, end + (record_at - end).min(BEHIND_BYTES), BEHIND) {
        None => Ok(record),
        Some(at) => {
            Err(HeapError::Overrun { address: address(offset), bytes: record.bytes, at: address(at), by: record.by })
        }
    }
}

/// Fills a freed block.
pub(super) fn poison(segment: &Segment, offset: u64, room: u64) {
    segment.fill(offset, room - RECORD_BYTES, FREED_BYTE);
}

/// The first byte of a range that is not `value`.
fn first_unlike(segment: &Segment, from: u64, end: u64, value: u8) -> Option<u64> {
    let mut bytes = [0; 256];
    let mut at = from;
    while at < end {
        let part = &mut bytes[..(end - at).min(256) as usize];
        if !segment.read(at, part) {
            return Some(at);
        }
        if let Some(nth) = part.iter().position(|&byte| byte != value) {
            return Some(at + nth as u64);
        }
        at += part.len() as u64;
    }
    None
}
