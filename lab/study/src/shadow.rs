//! A fully associative LRU cache beside a real one, to tell why that one misses.

use std::collections::HashMap;

use mapwire_translation::{CacheConfig, Page, Process};

use crate::counts::Cause;

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Line {
    newer: u32,
    older: u32,
    cached: bool,
}

/// As many entries, lines as long and as much prefetch as a real cache, without sets.
#[derive(Clone, Debug)]
pub struct Shadow {
    capacity: usize,
    line_entries: u64,
    prefetch: u64,
    numbers: HashMap<(Process, u64), u32>,
    lines: Vec<Line>,
    /// One bit for each page of each line: whether the cached line has it.
    valid: Vec<u64>,
    /// One bit for each page of each line: whether it was ever looked up.
    looked_up: Vec<u64>,
    /// Whether a miss fills a line whole, so that its first lookup is that of all its pages.
    whole_lines: bool,
    words: usize,
    newest: u32,
    oldest: u32,
    cached: usize,
    misses: u64,
}

/// Entries of a second-level table: a miss fetches from one only.
const TABLE_ENTRIES: u64 = mapwire_translation::table::TABLE_ENTRIES as u64;

impl Shadow {
    /// Empty. `whole_lines`: a miss of the real cache fills a line whole, also with pages that were not pinned before.
    pub fn new(cache: CacheConfig, prefetch: u64, whole_lines: bool) -> Self {
        Shadow {
            capacity: cache.entries / cache.line_entries,
            line_entries: cache.line_entries as u64,
            prefetch,
            numbers: HashMap::new(),
            lines: Vec::new(),
            valid: Vec::new(),
            looked_up: Vec::new(),
            whole_lines,
            words: cache.line_entries.div_ceil(64),
            newest: NIL,
            oldest: NIL,
            cached: 0,
            misses: 0,
        }
    }

    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// Looks the page up. On a miss fetches what is installed of its line, and of those that are prefetched. Returns why the real
    /// cache misses the page, if it does.
    pub fn look_up(&mut self, process: Process, page: Page, installed: impl Fn(Page) -> bool) -> Cause {
        let line = self.number(process, page);
        let (word, bit) = self.place(line, page);
        let first = self.is_first(line, word, bit);
        self.looked_up[word] |= bit;
        if self.lines[line as usize].cached && self.valid[word] & bit != 0 {
            self.make_newest(line);
            return Cause::Conflict;
        }
        self.misses += 1;
        if installed(page) {
            self.fetch(process, page, line, &installed);
        }
        if first { Cause::Compulsory } else { Cause::Capacity }
    }

    /// Whether neither the page nor, if lines are filled whole, any other of its line was looked up before.
    fn is_first(&self, line: u32, word: usize, bit: u64) -> bool {
        if !self.whole_lines {
            return self.looked_up[word] & bit == 0;
        }
        let from = line as usize * self.words;
        let words = &self.looked_up[from..from + self.words];
        words.iter().all(|word| *word == 0)
    }

    fn fetch(&mut self, process: Process, page: Page, line: u32, installed: &impl Fn(Page) -> bool) {
        let table_end = (page.0 / TABLE_ENTRIES + 1) * TABLE_ENTRIES;
        let last = (page.0 + self.prefetch).min(table_end) - 1;
        for line_number in (page.0 / self.line_entries + 1..=last / self.line_entries).rev() {
            let first = Page(line_number * self.line_entries);
            let other = self.number(process, first);
            if !self.lines[other as usize].cached {
                self.fill(other, first, installed);
            }
        }
        self.fill(line, Page(page.0 / self.line_entries * self.line_entries), installed);
    }

    pub fn remove(&mut self, process: Process, page: Page) {
        let Some(&line) = self.numbers.get(&(process, page.0 / self.line_entries)) else { return };
        let (word, bit) = self.place(line, page);
        self.valid[word] &= !bit;
        let from = line as usize * self.words;
        if self.lines[line as usize].cached && self.valid[from..from + self.words].iter().all(|word| *word == 0) {
            self.drop_line(line);
        }
    }

    fn number(&mut self, process: Process, page: Page) -> u32 {
        let next = self.lines.len() as u32;
        let line = *self.numbers.entry((process, page.0 / self.line_entries)).or_insert(next);
        if line == next {
            self.lines.push(Line { newer: NIL, older: NIL, cached: false });
            self.valid.resize(self.valid.len() + self.words, 0);
            self.looked_up.resize(self.valid.len(), 0);
        }
        line
    }

    fn place(&self, line: u32, page: Page) -> (usize, u64) {
        let at = (page.0 % self.line_entries) as usize;
        (line as usize * self.words + at / 64, 1 << (at % 64))
    }

    /// Takes in what is installed of the line that starts at `first`, if that is anything.
    fn fill(&mut self, line: u32, first: Page, installed: &impl Fn(Page) -> bool) {
        let from = line as usize * self.words;
        let mut any = false;
        for at in 0..self.line_entries {
            let here = installed(Page(first.0 + at));
            let word = &mut self.valid[from + at as usize / 64];
            *word = *word & !(1 << (at % 64)) | u64::from(here) << (at % 64);
            any |= here;
        }
        if !any {
            return;
        }
        if !self.lines[line as usize].cached {
            if self.cached == self.capacity {
                self.drop_line(self.oldest);
            }
            self.lines[line as usize].cached = true;
            self.cached += 1;
            self.link(line);
        } else {
            self.make_newest(line);
        }
    }

    fn make_newest(&mut self, line: u32) {
        if self.newest != line {
            self.unlink(line);
            self.link(line);
        }
    }

    fn drop_line(&mut self, line: u32) {
        self.unlink(line);
        self.lines[line as usize].cached = false;
        self.cached -= 1;
        let from = line as usize * self.words;
        self.valid[from..from + self.words].fill(0);
    }

    fn unlink(&mut self, line: u32) {
        let Line { newer, older, .. } = self.lines[line as usize];
        match newer {
            NIL => self.newest = older,
            _ => self.lines[newer as usize].older = older,
        }
        match older {
            NIL => self.oldest = newer,
            _ => self.lines[older as usize].newer = newer,
        }
    }

    fn link(&mut self, line: u32) {
        let older = std::mem::replace(&mut self.newest, line);
        match older {
            NIL => self.oldest = line,
            _ => self.lines[older as usize].newer = line,
        }
        let it = &mut self.lines[line as usize];
        (it.newer, it.older) = (NIL, older);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapwire_translation::{Frame, Hierarchical, HierarchicalConfig, TranslationDesign};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn it_misses_as_a_cache_of_one_set_does(
            shift in 0_u32..5,
            line_shift in 0_u32..4,
            prefetch in 1_u32..9,
            ops in prop::collection::vec((0_u16..2, 0_u64..60, 0_u8..8), 0..300),
        ) {
            let line = 1_usize << line_shift.min(shift);
            let entries = 1_usize << shift;
            let cache = CacheConfig::default().with_entries(entries).with_line_entries(line).with_ways(entries / line);
            let mut nic = Hierarchical::new(HierarchicalConfig::from(cache).with_prefetch(prefetch)).unwrap();
            let mut shadow = Shadow::new(cache, prefetch.into(), false);
            for process in [Process(0), Process(1)] {
                nic.open(process).unwrap();
            }
            for (process, page, op) in ops {
                let (process, page) = (Process(process), Page(page));
                match op {
                    0 => {
                        nic.remove(process, page).unwrap();
                        shadow.remove(process, page);
                    }
                    1..4 if nic.installed(process, page).is_garbage() => nic.install(process, page, Frame(page.0)).unwrap(),
                    _ => {
                        shadow.look_up(process, page, |page| !nic.installed(process, page).is_garbage());
                        nic.lookup(process, page);
                    }
                }
                prop_assert_eq!(shadow.misses(), nic.counters().nic_misses);
            }
        }
    }
}
