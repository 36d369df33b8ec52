//! Short names for the lines that a cache holds.

use std::collections::HashMap;

use mapwire_translation::cache::MAX_ENTRIES;
use mapwire_translation::{CacheConfig, Page, Process};

use crate::counts::PathMisses;
use crate::decode::{Chunk, FIRST, PAGE_ID, Pages, RECEIVE};

/// Low bits of a key, of which a cache takes as many as it has sets.
pub const PLACE_BITS: u32 = 16;
/// Bits of a key that tell lines of one set apart.
pub const SLOT_BITS: u32 = 14;
/// A page of the lookups that the key stands for was never looked up before. The other flag of a key is [`RECEIVE`].
pub const FRESH: u32 = 1 << 30;
/// Most sets of a cache that keys can name.
pub const MAX_SETS: usize = 1 << PLACE_BITS;

const MAX_SLOT: u32 = (1 << SLOT_BITS) - 1;

/// The part of a key that tells lines of one set apart: from 1 on; 0 is no line.
#[inline(always)]
pub fn slot(key: u32) -> u16 {
    (key >> PLACE_BITS) as u16 & MAX_SLOT as u16
}

/// The class of a lookup by its flags, from 0 to 3: 1 for [`FRESH`], 2 for [`RECEIVE`].
#[inline(always)]
pub fn class(key: u32) -> usize {
    (key >> 30) as usize
}

/// Keys of all lines of a node, for caches with lines of one length, with the per-process offset or without, that have at least
/// so many sets.
///
/// Two lines that meet in a set of any such cache have different slots there.
#[derive(Clone, Debug)]
pub struct Keys {
    line_entries: u64,
    /// The shape with most sets: its sets refine those of all others.
    finest: CacheConfig,
    least_sets: usize,
    /// Lines met in each of the `least_sets` sets.
    met: Vec<u32>,
    most_met: u32,
    /// Key of the line of each page.
    keys: Vec<u32>,
    /// Number of the line of each page; empty if lines have one page, whose number it is then.
    lines: Vec<u32>,
    line_numbers: HashMap<(Process, u64), (u32, u32)>,
    looked_up: Vec<bool>,
    looked_up_lines: usize,
    line_count: usize,
    /// Pages below this have been looked up, or are known to be exported only.
    fresh_from: u32,
}

/// Lookups as an engine of caches takes them: runs of lookups of one operation in one line are one entry, since only the
/// first of them can miss.
#[derive(Clone, Debug, Default)]
pub struct KeyStream {
    /// Keys with [`FRESH`] and [`RECEIVE`].
    pub keys: Vec<u32>,
    /// Numbers of their lines with [`FRESH`]; empty if lines have one page, whose numbers the lookups have then.
    pub lines: Vec<u32>,
    /// Entries of each class.
    pub of_class: [u64; 4],
    /// First lookups of a line, in `send_cold` and `receive_cold`.
    pub cold: PathMisses,
}

impl Keys {
    /// No page yet. Lines have `line_entries` pages, a power of two; caches have `least_sets` sets, a power of two up to
    /// [`MAX_SETS`], or more.
    pub fn new(line_entries: usize, offset: bool, least_sets: usize) -> Self {
        Keys {
            line_entries: line_entries as u64,
            finest: CacheConfig::default()
                .with_entries(MAX_ENTRIES)
                .with_line_entries(line_entries)
                .with_offset_per_process(offset),
            least_sets,
            met: vec![0; least_sets],
            most_met: 0,
            keys: Vec::new(),
            lines: Vec::new(),
            line_numbers: HashMap::new(),
            looked_up: Vec::new(),
            looked_up_lines: 0,
            line_count: 0,
            fresh_from: 0,
        }
    }

    /// Takes in the pages that are new since last time. Returns whether all lines have keys still; if not, no key is good any
    /// more and only line numbers are.
    pub fn extend(&mut self, pages: &Pages) -> bool {
        for id in self.keys.len()..pages.len() {
            let (process, page) = pages.name(id as u32);
            let key = if self.line_entries == 1 {
                self.line_count += 1;
                self.new_key(process, page)
            } else {
                let name = (process, page.0 / self.line_entries);
                let (line, key) = match self.line_numbers.get(&name) {
                    Some(found) => *found,
                    None => {
                        let found = (self.line_count as u32, self.new_key(process, page));
                        self.line_count += 1;
                        self.line_numbers.insert(name, found);
                        found
                    }
                };
                self.lines.push(line);
                key
            };
            self.keys.push(key);
        }
        self.looked_up.resize(self.line_count, false);
        self.fit()
    }

    /// Whether there are lines that no stream has looked up yet.
    pub fn has_cold_lines(&self) -> bool {
        self.looked_up_lines < self.line_count
    }

    /// Whether every line has a key of its own.
    pub fn fit(&self) -> bool {
        self.most_met <= MAX_SLOT
    }

    /// The largest slot so far.
    pub fn most_slot(&self) -> u32 {
        self.most_met
    }

    /// Lines met.
    pub fn line_count(&self) -> usize {
        self.line_count
    }

    /// Key of the line of a page.
    #[inline(always)]
    pub fn key(&self, id: u32) -> u32 {
        self.keys[id as usize]
    }

    /// Number of the line of a page.
    #[inline(always)]
    pub fn line(&self, id: u32) -> u32 {
        match self.line_entries {
            1 => id,
            _ => self.lines[id as usize],
        }
    }

    fn new_key(&mut self, process: Process, page: Page) -> u32 {
        let place = self.finest.set_of(process, page);
        let met = &mut self.met[place & (self.least_sets - 1)];
        *met += 1;
        self.most_met = self.most_met.max(*met);
        (*met & MAX_SLOT) << PLACE_BITS | (place & (MAX_SETS - 1)) as u32
    }

    /// Writes the chunk's lookups as keys. [`extend`](Self::extend) has been called for its pages.
    pub fn stream(&mut self, chunk: &Chunk, out: &mut KeyStream) {
        out.keys.clear();
        out.lines.clear();
        out.of_class = [0; 4];
        out.cold = PathMisses::default();
        if self.line_entries == 1 {
            let keys = self.keys.as_slice();
            let mut receives = 0;
            out.keys.extend(chunk.lookups.iter().map(|it| {
                receives += it >> RECEIVE.trailing_zeros();
                keys[(it & PAGE_ID) as usize] | it & RECEIVE
            }));
            out.of_class[class(RECEIVE)] = receives.into();
            out.of_class[0] = out.keys.len() as u64 - u64::from(receives);
        } else {
            self.runs(chunk, out);
        }
        if self.looked_up_lines < self.line_count {
            let lines = std::mem::take(&mut out.lines);
            let numbers = if self.line_entries == 1 {
                &chunk.lookups
            } else {
                &lines
            };
            self.count_cold(numbers, out);
            out.lines = lines;
        }
    }

    fn runs(&mut self, chunk: &Chunk, out: &mut KeyStream) {
        let mut of_run = None;
        let mut events = chunk.events.iter().peekable();
        for (at, lookup) in chunk.lookups.iter().enumerate() {
            while let Some(event) = events.next_if(|event| event.at <= at) {
                self.fresh_from = self.fresh_from.max(event.pages_known);
            }
            let id = lookup & PAGE_ID;
            let line = self.lines[id as usize];
            if of_run != Some(line) || lookup & FIRST != 0 {
                out.keys.push(self.keys[id as usize] | lookup & RECEIVE);
                out.lines.push(line);
                of_run = Some(line);
            }
            if id >= self.fresh_from {
                self.fresh_from = id + 1;
                if let (Some(key), Some(line)) = (out.keys.last_mut(), out.lines.last_mut()) {
                    *key |= FRESH;
                    *line |= FRESH;
                }
            }
        }
        for key in &out.keys {
            out.of_class[class(*key)] += 1;
        }
    }

    fn count_cold(&mut self, lines: &[u32], out: &mut KeyStream) {
        for (line, key) in lines.iter().zip(&out.keys) {
            let looked_up = &mut self.looked_up[(line & PAGE_ID) as usize];
            if !*looked_up {
                *looked_up = true;
                self.looked_up_lines += 1;
                out.cold.count(key & RECEIVE != 0, true);
            }
        }
    }
}
