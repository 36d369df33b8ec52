//! The cache of translations in NIC memory that all processes of a NIC share (UTLB §3.2).
//!
//! A translation may live in one set, selected by its page number and process; without the per-process offset, programs with the same
//! layout would compete for the same sets. Within a set the least recently used line is evicted.

mod config;

pub use config::{CacheConfig, CacheError, MAX_ENTRIES, MAX_LINE_ENTRIES};

use crate::page::{Frame, PAGE_NUMBER_END, Page, PageRange, Process};
use alloc::boxed::Box;
use alloc::vec;

/// Line number and process in one word, so that a hit is one comparison. Page numbers have 36 bits, processes 16; no translation has the
/// all-ones word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tag(u64);

const PAGE_BITS: u32 = PAGE_NUMBER_END.trailing_zeros();

impl Tag {
    const NONE: Tag = Tag(u64::MAX);

    #[inline(always)]
    fn new(process: Process, line: u64) -> Tag {
        Tag(u64::from(process.0) << PAGE_BITS | line)
    }

    #[inline(always)]
    fn process(self) -> Process {
        Process((self.0 >> PAGE_BITS) as u16)
    }

    fn line(self) -> u64 {
        self.0 & (PAGE_NUMBER_END - 1)
    }
}

/// A line of the cache. Its frames are in the cell of the same number; if lines have one entry, `content` is the frame itself.
#[derive(Clone, Copy, Debug)]
struct Way {
    tag: Tag,
    content: u64,
}

/// The NIC's bounded cache of the translation tables of all processes.
///
/// Never holds the garbage frame: a page without a frame is not in the cache, even if its line is.
///
/// ```
/// use mapwire_translation::{CacheConfig, Frame, Page, Process, SharedCache};
/// let mut cache = SharedCache::new(CacheConfig::default())?;
/// cache.fill(Process(1), Page(5), Frame(77));
/// assert_eq!(cache.lookup(Process(1), Page(5)), Some(Frame(77)));
/// assert_eq!(cache.lookup(Process(2), Page(5)), None);
/// # Ok::<(), mapwire_translation::CacheError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedCache {
    /// The sets in order; in a set the most recently used line comes first, and vacant ones come last.
    ways: Box<[Way]>,
    /// Frames of lines longer than one entry.
    cells: Box<[Frame]>,
    config: CacheConfig,
    set_mask: u64,
    line_shift: u32,
    offset_factor: u64,
    /// Whether it is direct-mapped with lines of one entry.
    plain: bool,
}

impl SharedCache {
    /// An empty cache.
    ///
    /// # Errors
    /// Names the number that must be changed.
    pub fn new(config: CacheConfig) -> Result<Self, CacheError> {
        let config = config.checked()?;
        let lines = config.entries / config.line_entries;
        let of_lines = config.line_entries > 1;
        let mut ways = vec![VACANT; lines].into_boxed_slice();
        if of_lines {
            for (at, way) in ways.iter_mut().enumerate() {
                way.content = (at * config.line_entries) as u64;
            }
        }
        let cells = if of_lines { config.entries } else { 0 };
        Ok(SharedCache {
            ways,
            cells: vec![Frame::GARBAGE; cells].into_boxed_slice(),
            config,
            set_mask: config.sets() as u64 - 1,
            line_shift: config.line_entries.trailing_zeros(),
            offset_factor: config::offset_factor(config.offset_per_process),
            plain: config.ways == 1 && !of_lines,
        })
    }

    /// The shape it was built with.
    pub fn config(&self) -> CacheConfig {
        self.config
    }

    /// Bytes of NIC memory: 16 for each line, and 8 for each entry of lines longer than one entry.
    pub fn memory_bytes(&self) -> usize {
        self.ways.len() * size_of::<Way>() + self.cells.len() * size_of::<Frame>()
    }

    /// The pages whose translations are cached and evicted together with that of `page`.
    #[inline]
    pub fn line_of(&self, page: Page) -> PageRange {
        PageRange { first: Page(page.0 >> self.line_shift << self.line_shift), count: 1 << self.line_shift }
    }

    #[inline(always)]
    fn set(&self, process: Process, line: u64) -> usize {
        (line.wrapping_add(config::offset(process, self.offset_factor)) & self.set_mask) as usize
    }

    /// The frame of the page, if cached; its line becomes the most recently used of its set.
    #[inline]
    pub fn lookup(&mut self, process: Process, page: Page) -> Option<Frame> {
        if self.plain { self.peek_plain(process, page) } else { self.lookup_in_set(process, page) }
    }

    #[inline(always)]
    fn peek_plain(&self, process: Process, page: Page) -> Option<Frame> {
        let way = self.ways.get(self.set(process, page.0))?;
        // A page number of more than 36 bits would spill into the process's bits.
        let found = way.tag == Tag::new(process, page.0) && page.in_address_space();
        found.then_some(Frame(way.content))
    }

    fn lookup_in_set(&mut self, process: Process, page: Page) -> Option<Frame> {
        let (set, at) = self.find(process, page)?;
        let frame = self.frame(set + at, page)?;
        if at > 0 {
            self.ways[set..=set + at].rotate_right(1);
        }
        Some(frame)
    }

    /// As [`lookup`](Self::lookup), but leaves the order of use as it is.
    pub fn peek(&self, process: Process, page: Page) -> Option<Frame> {
        let (set, at) = self.find(process, page)?;
        self.frame(set + at, page)
    }

    /// First way of the line's set, and the line's index in the set if present.
    #[inline(always)]
    fn find(&self, process: Process, page: Page) -> Option<(usize, usize)> {
        if !page.in_address_space() {
            return None;
        }
        let line = page.0 >> self.line_shift;
        let set = self.set(process, line) * self.config.ways;
        let tag = Tag::new(process, line);
        let mut ways = self.ways[set..set + self.config.ways].iter();
        ways.position(|way| way.tag == tag).map(|at| (set, at))
    }

    #[inline(always)]
    fn frame(&self, way: usize, page: Page) -> Option<Frame> {
        let content = self.ways[way].content;
        let frame = match self.line_shift {
            0 => Frame(content),
            _ => self.cells[content as usize + self.entry_in_line(page)],
        };
        (!frame.is_garbage()).then_some(frame)
    }

    #[inline(always)]
    fn entry_in_line(&self, page: Page) -> usize {
        page.0 as usize & (self.config.line_entries - 1)
    }

    /// Inserts a translation; in a line of several entries the others stay. If the line is absent, it replaces the least recently used
    /// line of its set. A page outside the 48-bit address space and the garbage frame are ignored.
    #[inline]
    pub fn fill(&mut self, process: Process, page: Page, frame: Frame) {
        if self.plain && page.in_address_space() && !frame.is_garbage() {
            let place = self.set(process, page.0);
            self.ways[place] = Way { tag: Tag::new(process, page.0), content: frame.0 };
        } else {
            self.fill_in_set(process, page, frame);
        }
    }

    #[inline(never)]
    fn fill_in_set(&mut self, process: Process, page: Page, frame: Frame) {
        self.fill_evicting(process, page, frame, |_, _| ());
    }

    /// [`fill`](Self::fill) that also reports the translations that it evicted.
    pub fn fill_evicting(&mut self, process: Process, page: Page, frame: Frame, evicted: impl FnMut(Process, Page)) {
        if frame.is_garbage() || !page.in_address_space() {
            return;
        }
        let way = self.claim(process, page, evicted);
        match self.line_shift {
            0 => self.ways[way].content = frame.0,
            _ => {
                let at = self.ways[way].content as usize + self.entry_in_line(page);
                self.cells[at] = frame;
            }
        }
    }

    /// Inserts the whole line of `page`, with the frames that `frame_of` returns, unless all are garbage. Reports the translations that it
    /// evicted.
    pub fn fill_line(
        &mut self,
        process: Process,
        page: Page,
        mut frame_of: impl FnMut(Page) -> Frame,
        evicted: impl FnMut(Process, Page),
    ) {
        if self.line_shift == 0 {
            return self.fill_evicting(process, page, frame_of(page), evicted);
        }
        let line = self.line_of(page);
        if !page.in_address_space() || line.iter().all(|page| frame_of(page).is_garbage()) {
            return;
        }
        let way = self.claim(process, page, evicted);
        let base = self.ways[way].content as usize;
        for (cell, page) in self.cells[base..].iter_mut().zip(line) {
            *cell = frame_of(page);
        }
    }

    /// Inserts what a miss of `page` fetches: all lines from that of the page to that of `last`, in reverse order. Of the lines behind the
    /// first, those that are cached, or have no frame, are skipped.
    pub(crate) fn fetch(&mut self, process: Process, page: Page, last: Page, frame_of: impl Fn(Page) -> Frame) {
        let missed = self.line_of(page);
        let mut line = self.line_of(last);
        while line.first > missed.first {
            if !self.has_line(process, line.first) {
                self.fill_line(process, line.first, &frame_of, |_, _| ());
            }
            line = self.line_of(Page(line.first.0 - 1));
        }
        self.fill_line(process, page, frame_of, |_, _| ());
    }

    fn has_line(&self, process: Process, page: Page) -> bool {
        self.find(process, page).is_some()
    }

    /// Makes the line of `page` the most recently used of its set, evicting another if it is absent. Returns its way.
    fn claim(&mut self, process: Process, page: Page, mut evicted: impl FnMut(Process, Page)) -> usize {
        let line = page.0 >> self.line_shift;
        let set = self.set(process, line) * self.config.ways;
        let tag = Tag::new(process, line);
        let ways = &mut self.ways[set..set + self.config.ways];
        let found = ways.iter().position(|way| way.tag == tag);
        ways[..=found.unwrap_or(self.config.ways - 1)].rotate_right(1);
        if found.is_none() {
            let old = core::mem::replace(&mut ways[0].tag, tag);
            self.vacate(set, old, &mut evicted);
        }
        set
    }

    /// Reports the content of a line whose tag was `old`, and empties it.
    fn vacate(&mut self, way: usize, old: Tag, evicted: &mut impl FnMut(Process, Page)) {
        let first = old.line() << self.line_shift;
        let content = &mut self.ways[way].content;
        if self.line_shift == 0 {
            *content = Frame::GARBAGE.0;
            if old != Tag::NONE {
                evicted(old.process(), Page(first));
            }
            return;
        }
        let base = *content as usize;
        let cells = &mut self.cells[base..base + self.config.line_entries];
        for (page, cell) in (first..).zip(cells) {
            if !core::mem::replace(cell, Frame::GARBAGE).is_garbage() {
                evicted(old.process(), Page(page));
            }
        }
    }

    /// Process and first page of the line that a fill of `page` would evict; `None` if it evicts none.
    pub fn displaced_by(&self, process: Process, page: Page) -> Option<(Process, Page)> {
        if !page.in_address_space() || self.has_line(process, page) {
            return None;
        }
        let set = self.set(process, page.0 >> self.line_shift) * self.config.ways;
        let last = self.ways[set + self.config.ways - 1].tag;
        let first = Page(last.line() << self.line_shift);
        (last != Tag::NONE).then(|| (last.process(), first))
    }

    /// Removes the page of the process; a line without pages is vacant. Returns whether it was present.
    #[inline]
    pub fn invalidate(&mut self, process: Process, page: Page) -> bool {
        match self.find(process, page) {
            Some((set, at)) => self.invalidate_in_set(set, at, page),
            None => false,
        }
    }

    fn invalidate_in_set(&mut self, set: usize, at: usize, page: Page) -> bool {
        let mut was_there = true;
        if self.line_shift > 0 {
            let base = self.ways[set + at].content as usize;
            let cell = &mut self.cells[base + (page.0 as usize & (self.config.line_entries - 1))];
            was_there = !core::mem::replace(cell, Frame::GARBAGE).is_garbage();
            let line = &self.cells[base..base + self.config.line_entries];
            if line.iter().any(|cell| !cell.is_garbage()) {
                return was_there;
            }
        }
        self.drop_way(set, at);
        was_there
    }

    /// Makes a way vacant and moves it behind the used ones of its set.
    fn drop_way(&mut self, set: usize, at: usize) {
        let old = core::mem::replace(&mut self.ways[set + at].tag, Tag::NONE);
        self.vacate(set + at, old, &mut |_, _| ());
        self.ways[set + at..set + self.config.ways].rotate_left(1);
    }

    /// Removes all pages of the process. Scans the whole cache.
    pub fn invalidate_process(&mut self, process: Process) {
        for set in (0..self.ways.len()).step_by(self.config.ways) {
            for at in (0..self.config.ways).rev() {
                let tag = self.ways[set + at].tag;
                if tag != Tag::NONE && tag.process() == process {
                    self.drop_way(set, at);
                }
            }
        }
    }
}

const VACANT: Way = Way { tag: Tag::NONE, content: Frame::GARBAGE.0 };

#[cfg(test)]
mod tests;
