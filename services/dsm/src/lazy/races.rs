//! Finds writes of two ranks to the same bytes that no synchronisation orders, for debugging.
//!
//! In this mode a writer tells the home which bytes each diff changed ([`Message::Changed`]). The home keeps the latest of them, and when
//! two of different ranks overlap, asks the later writer whether it knew of the other's interval when its own ended
//! ([`Message::Overlap`]). The later writer did not come before: its diff came after the other's, and what it knew by then was published
//! after that. If it did not know of it either, the intervals are concurrent, and it reports a [`Race`].
//!
//! It finds nothing where a writer learned of the other's interval between its write and the end of its own interval, where the home itself
//! writes (it makes no diffs), where nothing changed, and in changes that are no longer kept. What it reports is a race.

use crate::context::Context;
use crate::{Message, Rank, Violation};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Lazy;
use super::pages::SENT;

/// Changes that a home keeps.
const KEPT: usize = 4096;
/// Races that wait to be taken; there is no use in more.
const MOST_RACES: usize = 64;
/// Ranges of bytes of a page that differ from its twin at most.
const MOST_RANGES: usize = 2048;
/// Bytes of an encoded range.
const RANGE_BYTES: usize = 4;

/// Two ranks wrote the same bytes of a page, and nothing orders these writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Race {
    /// The two ranks.
    pub ranks: [Rank; 2],
    /// Offset of the first such byte in the segment, and their number.
    pub offset_bytes: u64,
    pub length_bytes: u64,
}

/// Bytes of a page: offset of the first, and their number.
type Range = (u16, u16);

#[derive(Debug)]
struct Change {
    page: u32,
    by: Rank,
    interval: u64,
    range: Range,
}

#[derive(Debug)]
pub(super) struct Races {
    /// At the home, oldest first.
    changes: VecDeque<Change>,
    /// Bytes that the last diff changed, and how many ranges the home was told.
    ranges: Vec<Range>,
    told: usize,
    /// What this rank knew when the interval under way ended.
    time: Vec<u64>,
    found: VecDeque<Race>,
}

impl Races {
    pub(super) fn new(ranks: u16) -> Self {
        Races {
            changes: VecDeque::with_capacity(KEPT),
            ranges: Vec::with_capacity(MOST_RANGES),
            told: 0,
            time: alloc::vec![0; usize::from(ranks)],
            found: VecDeque::with_capacity(MOST_RACES),
        }
    }

    /// Writes the next ranges for the home.
    pub(super) fn write(&mut self, bytes: &mut [u8]) -> usize {
        let ranges = &self.ranges[self.told..];
        let count = ranges.len().min(bytes.len() / RANGE_BYTES);
        for (range, bytes) in ranges[..count].iter().zip(bytes.chunks_exact_mut(RANGE_BYTES)) {
            bytes[..2].copy_from_slice(&range.0.to_le_bytes());
            bytes[2..].copy_from_slice(&range.1.to_le_bytes());
        }
        self.told += count;
        count * RANGE_BYTES
    }

    pub(super) fn pop(&mut self) -> Option<Race> {
        self.found.pop_front()
    }
}

fn overlap(a: Range, b: Range) -> Option<Range> {
    let end = |range: Range| u32::from(range.0) + u32::from(range.1);
    let start = a.0.max(b.0);
    let length = end(a).min(end(b)).checked_sub(u32::from(start)).filter(|&length| length > 0)?;
    Some((start, length as u16))
}

impl Lazy {
    /// Takes note that an interval ends here.
    pub(super) fn note_end(&mut self) {
        if let Some(races) = &mut self.races {
            races.time.copy_from_slice(self.log.time());
        }
    }

    /// Takes note of the bytes that the last diff has changed, and tells the home if races are looked for.
    pub(crate) fn note_diff(&mut self, context: &mut Context, page: u64, ranges: impl Iterator<Item = Range>) {
        let mut bytes = 0;
        let ranges = ranges.inspect(|(_, length)| bytes += u64::from(*length));
        match &mut self.races {
            None => ranges.for_each(drop),
            Some(races) => {
                races.ranges.clear();
                races.ranges.extend(ranges.take(MOST_RANGES));
                races.told = 0;
            }
        }
        context.counters_mut().bytes_stored += bytes;
        let Some(races) = &self.races else { return };
        let page = u32::try_from(page).ok().filter(|&page| page < self.pages.count() && self.pages.is(page, SENT));
        let Some((page, home)) = page.and_then(|page| Some((page, self.pages.home(page)?))) else { return };
        let interval = self.log.next_interval();
        for _ in races.ranges.chunks(crate::MAX_PAYLOAD_BYTES / RANGE_BYTES) {
            context.send(home, Message::Changed { page, interval });
        }
    }

    /// At the home: a rank has changed these bytes of a page.
    pub(super) fn handle_changed(
        &mut self,
        context: &mut Context,
        by: Rank,
        (page, interval): (u32, u64),
        payload: &[u8],
    ) -> Result<(), Violation> {
        let Some(races) = &mut self.races else { return Err(Violation::Unasked) };
        let (ranges, rest) = payload.as_chunks::<RANGE_BYTES>();
        if !rest.is_empty() {
            return Err(Violation::Payload);
        }
        for &[a, b, c, d] in ranges {
            let range = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
            let other = races.changes.iter().rev().filter(|other| (other.page, other.by != by) == (page, true));
            let first = other.filter_map(|other| Some((other.by, other.interval, overlap(other.range, range)?))).next();
            if let Some((other, of, (start, length))) = first {
                context.send(by, Message::Overlap { page, other, interval: of, start, length });
            }
            if races.changes.len() == KEPT {
                races.changes.pop_front();
            }
            races.changes.push_back(Change { page, by, interval, range });
        }
        Ok(())
    }

    /// At a writer: its diff overlaps that of another rank's interval, which came before.
    pub(super) fn handle_overlap(
        &mut self,
        from: Rank,
        page: u32,
        (other, interval): (Rank, u64),
        (start, length): Range,
    ) -> Result<(), Violation> {
        let is_asked = self.pages.is(page, SENT) && self.pages.home(page) == Some(from);
        let Some(races) = self.races.as_mut().filter(|_| is_asked) else { return Err(Violation::Unasked) };
        let Some(&known) = races.time.get(usize::from(other)) else { return Err(Violation::OutOfRange) };
        if other == self.rank || u64::from(start) + u64::from(length) > crate::PAGE_BYTES {
            return Err(Violation::OutOfRange);
        }
        if known < interval && races.found.len() < MOST_RACES {
            races.found.push_back(Race {
                ranks: [other, self.rank],
                offset_bytes: u64::from(page) * crate::PAGE_BYTES + u64::from(start),
                length_bytes: length.into(),
            });
        }
        Ok(())
    }

    /// A race that was found.
    pub(crate) fn poll_race(&mut self) -> Option<Race> {
        self.races.as_mut()?.pop()
    }
}
