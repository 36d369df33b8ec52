//! Short names for the lines that a cache holds.

use std::collections::HashMap;

use mapwire_translation::cache::MAX_ENTRIES;
use mapwire_translation::{CacheConfig, Page, Process};

use super::stack::Stack;
use crate::counts::PathMisses;
use crate::decode::{Chunk, FIRST, PAGE_ID, Pages, RECEIVE};

/// Low bits of a key, of which a cache takes as many as it has sets.
pub const PLACE_BITS: u32 = 16;
/// Bits of a key that tell lines of one set apart.
pub const SLOT_BITS: u32 = 14;
/// Bits that a key of a stream has below its class.
const CLASS_SHIFT: u32 = 32;
/// Kinds of lookups that a stream tells apart.
pub const KINDS: usize = 8;
/// Classes of lookups: kinds on the send path, then the same on the receive path.
pub const CLASSES: usize = 2 * KINDS;
/// The kind of a lookup of a line with a page that was never looked up before, where a stream tells these apart.
pub const FRESH: usize = 1;
/// Most sets of a cache that keys can name.
pub const MAX_SETS: usize = 1 << PLACE_BITS;

const MAX_SLOT: u32 = (1 << SLOT_BITS) - 1;

/// The part of a key that tells lines of one set apart: from 1 on; 0 is no line.
#[inline(always)]
pub fn slot(key: u32) -> u16 {
    (key >> PLACE_BITS) as u16 & MAX_SLOT as u16
}

/// The class of a lookup of a stream: its kind, and [`KINDS`] more on the receive path.
#[inline(always)]
pub fn class(key: u64) -> usize {
    (key >> CLASS_SHIFT) as usize
}

/// The bits that give a key of a stream the class of that kind and path.
#[inline(always)]
fn class_bits(kind: usize, lookup: u32) -> u64 {
    let receive = (lookup >> RECEIVE.trailing_zeros()) as usize;
    ((kind + KINDS * receive) as u64) << CLASS_SHIFT
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
    /// Keys, each with its [`class`] above.
    pub keys: Vec<u64>,
    /// Numbers of their lines; empty if lines have one page, whose numbers the lookups have then.
    pub lines: Vec<u32>,
    pub of_class: [u64; CLASSES],
    /// First lookups of a line, in `send_cold` and `receive_cold`.
    pub cold: PathMisses,
}

impl KeyStream {
    /// Looks the lines up in `stack`, which has fewer than [`KINDS`] sizes: the kind of each entry becomes the number of sizes in
    /// which it misses. `lookups` are those of the chunk.
    pub fn tell_by(&mut self, stack: &mut Stack, lookups: &[u32]) {
        let lines = if self.lines.is_empty() { lookups } else { &self.lines };
        let keys = &mut self.keys[..lines.len()];
        let mut of_class = [0; CLASSES];
        stack.run(lines, |at, missed| {
            let class = missed + (class(keys[at]) & KINDS);
            keys[at] = keys[at] & u64::from(u32::MAX) | (class as u64) << CLASS_SHIFT;
            of_class[class % CLASSES] += 1;
        });
        self.of_class = of_class;
    }

    fn count_classes(&mut self) {
        self.of_class = [0; CLASSES];
        for key in &self.keys {
            self.of_class[class(*key)] += 1;
        }
    }
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

    pub fn most_slot(&self) -> u32 {
        self.most_met
    }

    pub fn line_count(&self) -> usize {
        self.line_count
    }

    #[inline(always)]
    pub fn key(&self, id: u32) -> u32 {
        self.keys[id as usize]
    }

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
        out.of_class = [0; CLASSES];
        out.cold = PathMisses::default();
        if self.line_entries == 1 {
            let keys = self.keys.as_slice();
            let mut receives = 0;
            out.keys.extend(chunk.lookups.iter().map(|it| {
                receives += it >> RECEIVE.trailing_zeros();
                u64::from(keys[(it & PAGE_ID) as usize]) | class_bits(0, *it)
            }));
            out.of_class[KINDS] = receives.into();
            out.of_class[0] = out.keys.len() as u64 - u64::from(receives);
        } else {
            self.runs(chunk, out);
        }
        if self.looked_up_lines < self.line_count {
            let lines = std::mem::take(&mut out.lines);
            let numbers = if self.line_entries == 1 { &chunk.lookups } else { &lines };
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
                out.keys.push(u64::from(self.keys[id as usize]) | class_bits(0, *lookup));
                out.lines.push(line);
                of_run = Some(line);
            }
            if id >= self.fresh_from {
                self.fresh_from = id + 1;
                if let Some(key) = out.keys.last_mut() {
                    *key |= class_bits(FRESH, 0);
                }
            }
        }
        out.count_classes();
    }

    fn count_cold(&mut self, lines: &[u32], out: &mut KeyStream) {
        for (line, key) in lines.iter().zip(&out.keys) {
            let looked_up = &mut self.looked_up[(line & PAGE_ID) as usize];
            if !*looked_up {
                *looked_up = true;
                self.looked_up_lines += 1;
                out.cold.count(class(*key) >= KINDS, true);
            }
        }
    }
}
