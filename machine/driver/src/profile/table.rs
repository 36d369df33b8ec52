//! The table that a rank counts in.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use mapwire_host::mapping::{Mapping, Rights};
use mapwire_host::private_folder::PrivateFolder;

use super::{
    AREA_PAGES, BYTES, COHERENCE, DIFFS, FIRST, HEAD, IN_ROW, KEY, LEFT_OUT, LENGTH, LOST, LOST_NS, MAGIC, MOST_RANGES,
    MOST_SITES, MOST_TEXT_BYTES, Means, PARTS, RANGES, RANK, READS, RETURNED, RIGHT, ROOM, SHORTLY_NS, SITES,
    UNIT_WORDS, VERSION, WRITES, file_bytes, file_of, range_at, site_at, unit_at, units,
};

const PAGE_BYTES: u64 = mapwire_translation::PAGE_BYTES as u64;

/// Call site of an allocation: a file and a line, or a name and line 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSite<'a> {
    /// Path or name.
    pub text: &'a str,
    /// Line, from 1.
    pub line: u32,
}

/// A minipage or page, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// View.
    pub view: u16,
    /// Offset in the memory of its first byte, or of its page.
    pub offset: u64,
    /// Length in bytes; 0 if it is not known: at most a page.
    pub bytes: u64,
}

/// Access of a rank to a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Right {
    /// Nothing.
    None = 1,
    /// Load.
    Read = 2,
    /// Load and store.
    Write = 3,
}

/// Counts of a rank's shared memory.
#[derive(Debug)]
pub struct Profile {
    words: Mapping,
    room: usize,
    /// Bits of the positions of the opening that is in use.
    opening: AtomicU64,
    is_lazy: AtomicBool,
    /// Position of the last fault.
    last: AtomicU64,
    /// For those who allocate; no fault handler takes it.
    sites: Mutex<Sites>,
    clock: fn() -> u64,
}

/// The sites, by text and line.
#[derive(Debug, Default)]
struct Sites {
    by_text: BTreeMap<Box<str>, Vec<(u32, usize)>>,
    count: usize,
    ranges: usize,
    last: Option<(u64, usize)>,
}

impl Profile {
    /// Makes the file of `rank`, which must not be there, in a folder that no other user can reach into. `clock` gives nanoseconds.
    ///
    /// # Errors
    /// The folder is not the user's alone, the file exists, or there is no room for it.
    pub fn create(folder: &Path, rank: u32, ranks: u32, clock: fn() -> u64) -> io::Result<Self> {
        let file = PrivateFolder::open(folder)?.create(&file_of(folder, rank))?;
        let room = units(ranks);
        // A store to a mapped page for which the disk has no room would end the process.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, file_bytes(room) as u64)?;
        let words = Mapping::shared(&file, 0, file_bytes(room), Rights::ReadWrite)?;
        let profile = Self {
            words,
            room,
            opening: AtomicU64::new(0),
            is_lazy: AtomicBool::new(false),
            last: AtomicU64::new(0),
            sites: Mutex::default(),
            clock,
        };
        for (word, value) in [(1, VERSION), (RANK, rank.into()), (ROOM, room as u64), (0, MAGIC)] {
            profile.word(word).store(value, Ordering::Relaxed);
        }
        Ok(profile)
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        self.words.word64(8 * at)
    }

    /// Adds to a word that only one thread at a time writes.
    #[inline]
    fn add(&self, at: usize, more: u64) {
        let word = self.word(at);
        word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// The memory is opened for the time `number`.
    pub fn open(&self, number: u32, kept: Means) {
        self.opening.store(u64::from(number as u16) << 48, Ordering::Relaxed);
        self.is_lazy.store(kept == Means::Lazy, Ordering::Relaxed);
        let so_far = self.word(COHERENCE).load(Ordering::Relaxed);
        self.word(COHERENCE).store(so_far | kept as u64, Ordering::Relaxed);
    }

    /// Whether the unit is a page of lazy release consistency, which has view 0 to itself.
    fn is_lazy(&self, span: Span) -> bool {
        span.view == 0 && self.is_lazy.load(Ordering::Relaxed)
    }

    fn position(&self, offset: u64) -> u64 {
        self.opening.load(Ordering::Relaxed) | offset
    }

    /// Notes that `place` has allocated `bytes` bytes at an offset.
    pub fn note_allocation(&self, offset: u64, bytes: u64, place: CallSite<'_>) {
        let first = self.position(offset);
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        let site = self.site(&mut sites, place);
        self.add(site_at(site), 1);
        self.add(site_at(site) + 1, bytes);
        let end = first + bytes;
        // What one place allocates in a row is one range.
        let follows = sites.last.filter(|&(last, of)| of == site && first >= last && first - last < PAGE_BYTES);
        if follows.is_none() {
            if sites.ranges == MOST_RANGES {
                return self.add(LEFT_OUT, 1);
            }
            sites.ranges += 1;
            self.word(range_at(sites.ranges - 1)).store(first, Ordering::Relaxed);
            self.word(range_at(sites.ranges - 1) + 2).store(site as u64, Ordering::Relaxed);
        }
        self.word(range_at(sites.ranges - 1) + 1).store(end, Ordering::Relaxed);
        self.word(RANGES).store(sites.ranges as u64, Ordering::Relaxed);
        sites.last = Some((end, site));
    }

    fn site(&self, sites: &mut Sites, place: CallSite<'_>) -> usize {
        let known = sites.by_text.get(place.text).and_then(|lines| lines.iter().find(|(line, _)| *line == place.line));
        if let Some(&(_, site)) = known {
            return site;
        }
        if sites.count == MOST_SITES {
            return MOST_SITES - 1;
        }
        let site = sites.count;
        sites.count += 1;
        if sites.count == MOST_SITES {
            self.describe(site, CallSite { text: "other places", line: 0 });
        } else {
            self.describe(site, place);
            sites.by_text.entry(place.text.into()).or_default().push((place.line, site));
        }
        self.word(SITES).store(sites.count as u64, Ordering::Relaxed);
        site
    }

    fn describe(&self, site: usize, CallSite { text, line }: CallSite<'_>) {
        // The end of a path says more than its begin.
        let cut = (text.len().saturating_sub(MOST_TEXT_BYTES)..).find(|&at| text.is_char_boundary(at));
        let text = &text.as_bytes()[cut.unwrap_or(0)..];
        let at = site_at(site);
        self.word(at + 2).store(line.into(), Ordering::Relaxed);
        self.word(at + 3).store(text.len() as u64, Ordering::Relaxed);
        for (chunk, at) in text.chunks(8).zip(at + 4..) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            self.word(at).store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    }

    /// Counts a fault in `span` at the offset `at`, that the protocol must serve. Of this and the methods below, one thread at a time calls
    /// one: whoever holds the driver.
    pub fn note_fault(&self, span: Span, at: u64, wanted: Right) {
        let Some(unit) = self.unit(span) else { return };
        let position = self.position(at);
        if self.word(unit + FIRST).load(Ordering::Relaxed) == 0 {
            self.word(unit + FIRST).store(position, Ordering::Relaxed);
        }
        self.add(unit + if wanted == Right::Write { WRITES } else { READS }, 1);
        let ahead = position.wrapping_sub(self.last.swap(position, Ordering::Relaxed));
        if (1..=2 * PAGE_BYTES).contains(&ahead) {
            self.add(unit + IN_ROW, 1);
        }
        let lost = self.word(unit + LOST).load(Ordering::Relaxed);
        let is_back = if self.is_lazy(span) { lost > 0 } else { lost >= wanted as u64 };
        if is_back {
            let since_ns = (self.clock)().wrapping_sub(self.word(unit + LOST_NS).load(Ordering::Relaxed));
            if since_ns < SHORTLY_NS {
                self.add(unit + RETURNED, 1);
            }
            self.word(unit + LOST).store(0, Ordering::Relaxed);
        }
        if wanted == Right::Write {
            let part = match span.bytes {
                0..=PAGE_BYTES => at % PAGE_BYTES / 8,
                bytes => {
                    u64::try_from(u128::from(at.saturating_sub(span.offset)) * 512 / u128::from(bytes)).unwrap_or(0)
                }
            };
            let part = part.min(511) as usize;
            let word = self.word(unit + PARTS + part / 64);
            word.store(word.load(Ordering::Relaxed) | 1 << (part % 64), Ordering::Relaxed);
        }
    }

    /// Finds the row of a unit, or makes it.
    fn unit(&self, span: Span) -> Option<usize> {
        let page = self.position(span.offset) / PAGE_BYTES;
        let view = u64::from(span.view) << 52;
        let fine = 1 << 63 | view | page;
        // A quarter is for areas.
        let (first_area, areas) = (self.room / 4 * 3, self.room / 4);
        let found = self.row(fine, 0, first_area, true);
        let area = || self.row(1 << 63 | 1 << 62 | view | (page / AREA_PAGES), first_area, areas, true);
        if let Some(unit) = found {
            if span.bytes > 0 {
                self.word(unit + LENGTH).store(span.bytes, Ordering::Relaxed);
            }
            return found;
        }
        area()
    }

    /// The row of a unit that was counted before.
    fn known(&self, span: Span) -> Option<usize> {
        let page = self.position(span.offset) / PAGE_BYTES;
        self.row(1 << 63 | u64::from(span.view) << 52 | page, 0, self.room / 4 * 3, false)
    }

    fn row(&self, key: u64, first: usize, count: usize, is_made: bool) -> Option<usize> {
        let start = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % count;
        for step in 0..16 {
            let at = unit_at(first + (start + step) % count);
            let word = self.word(at + KEY);
            match word.load(Ordering::Relaxed) {
                found if found == key => return Some(at),
                0 if is_made => {
                    word.store(key, Ordering::Relaxed);
                    return Some(at);
                }
                0 => return None,
                _ => {}
            }
        }
        None
    }

    /// Notes what this rank may do from now on with a unit, or with pages of lazy release consistency.
    pub fn note_right(&self, span: Span, right: Right) {
        if !self.is_lazy(span) {
            return self.note_right_to(span, right);
        }
        for page in 0..span.bytes.div_ceil(PAGE_BYTES) {
            self.note_right_to(Span { offset: span.offset + page * PAGE_BYTES, bytes: PAGE_BYTES, ..span }, right);
        }
    }

    fn note_right_to(&self, span: Span, right: Right) {
        let Some(unit) = self.known(span) else { return };
        self.word(unit + LENGTH).store(span.bytes, Ordering::Relaxed);
        let (before, now) = (self.word(unit + RIGHT).load(Ordering::Relaxed), right as u64);
        // The end of an interval leaves the right to load, and is no loss.
        let is_loss = now < before && (right == Right::None || !self.is_lazy(span));
        if is_loss {
            self.word(unit + LOST).store(before, Ordering::Relaxed);
            self.word(unit + LOST_NS).store((self.clock)(), Ordering::Relaxed);
        }
        self.word(unit + RIGHT).store(now, Ordering::Relaxed);
    }

    /// Notes that a diff of a page has gone to its home.
    pub fn note_diff(&self, span: Span, bytes: u64) {
        self.note_moved(span, bytes);
        if let Some(unit) = self.known(span) {
            self.add(unit + DIFFS, 1);
        }
    }

    /// Notes that this rank has stored bytes of a unit into another, or fetched them.
    pub fn note_moved(&self, span: Span, bytes: u64) {
        let Some(unit) = self.unit(span) else { return };
        self.add(unit + BYTES, bytes);
        if self.word(unit + FIRST).load(Ordering::Relaxed) == 0 {
            self.word(unit + FIRST).store(self.position(span.offset), Ordering::Relaxed);
        }
    }
}

const _: () = assert!(HEAD > LEFT_OUT && PARTS + super::PART_WORDS == UNIT_WORDS);
