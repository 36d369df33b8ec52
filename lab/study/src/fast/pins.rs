//! Which pages are pinned when, under a limit for each process and LRU.
//!
//! That does not depend on the NIC's cache, so one pass serves caches of all shapes. As in [`Stack`](super::Stack), each use
//! of a page takes the next place of its process's queue; the page to unpin is that of the oldest live place.

use mapwire_translation::PinError;

use super::keys::Keys;
use crate::decode::{Chunk, FIRST, PAGE_ID, Pages, RECEIVE};

/// What a cache sees: a page is unpinned and leaves it, and then one is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Key of the page that leaves; [`NO_PAGE`] if none does.
    pub unpinned: u32,
    /// Key of the page that is looked up, with [`RECEIVE`]. Where several pages leave before a lookup, all
    /// but the last leave with the page looked up before, again: that hits and changes nothing.
    pub looked_up: u32,
}

/// The key of no page: its slot is 0.
pub const NO_PAGE: u32 = 0;

impl Step {
    const NONE: Step = Step { unpinned: NO_PAGE, looked_up: NO_PAGE };
}

const NONE: u32 = u32::MAX;
const WORD: usize = 64;
/// Steps that are handed on at once, or a few more: as many as stay in the processor's nearest cache.
const BLOCK: usize = 2048;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PinCounts {
    /// Pages found not pinned, and so pinned.
    pub check_misses: u64,
    pub unpins: u64,
}

#[derive(Clone, Debug)]
struct Queue {
    ids: Box<[u32]>,
    /// Places that are not live any more. Those before `oldest` are not either, and those from `end` on are not marked.
    dead: Box<[u64]>,
    oldest: usize,
    end: usize,
    pinned: u32,
}

#[derive(Clone, Copy, Debug)]
struct OfPage {
    /// Place of its last use in the queue of its process; [`NONE`] if it is not pinned.
    last: u32,
    queue: u16,
}

/// Pinned pages of the processes of a node. Knows no exports: a chunk has none.
#[derive(Clone, Debug)]
pub struct Pins {
    limit: u32,
    of_page: Vec<OfPage>,
    queue_of_process: Vec<u16>,
    queues: Vec<Queue>,
    check_misses: u64,
    /// A block of which so many are filled, at times longer than [`BLOCK`].
    steps: Vec<Step>,
    filled: usize,
    looked_up_last: u32,
}

impl Pins {
    /// Nothing pinned, and at most `limit_pages` of each process to come.
    pub fn new(limit_pages: u64) -> Self {
        Pins {
            limit: limit_pages.min(u64::from(PAGE_ID)) as u32,
            of_page: Vec::new(),
            queue_of_process: Vec::new(),
            queues: Vec::new(),
            check_misses: 0,
            steps: vec![Step::NONE; BLOCK],
            filled: 0,
            looked_up_last: 0,
        }
    }

    pub fn counts(&self) -> PinCounts {
        let pinned = self.queues.iter().map(|queue| u64::from(queue.pinned));
        PinCounts { check_misses: self.check_misses, unpins: self.check_misses - pinned.sum::<u64>() }
    }

    fn extend(&mut self, pages: &Pages) {
        for id in self.of_page.len()..pages.len() {
            let process = usize::from(pages.name(id as u32).0.0);
            if self.queue_of_process.len() <= process {
                self.queue_of_process.resize(process + 1, u16::MAX);
            }
            if self.queue_of_process[process] == u16::MAX {
                self.queue_of_process[process] = self.queues.len() as u16;
                self.queues.push(Queue::new(self.limit as usize));
            }
            self.of_page.push(OfPage { last: NONE, queue: self.queue_of_process[process] });
        }
    }

    /// Hands what caches with these keys see of the chunk to `take`, many steps at a time.
    ///
    /// # Errors
    /// [`PinError::LimitTooSmall`]. The steps before it may not have been handed on then, and there is no use in going on.
    #[inline]
    pub fn run(
        &mut self,
        chunk: &Chunk,
        pages: &Pages,
        keys: &Keys,
        mut take: impl FnMut(&[Step]),
    ) -> Result<(), PinError> {
        self.extend(pages);
        let mut rest = chunk.lookups.as_slice();
        self.filled = 0;
        while !rest.is_empty() {
            rest = &rest[self.singles(rest, keys)..];
            let next_first = |it: &[u32]| it[1..].iter().position(|it| it & FIRST != 0);
            if self.filled < BLOCK && !rest.is_empty() {
                let count = next_first(rest).map_or(rest.len(), |at| at + 1);
                self.several(&rest[..count], keys)?;
                rest = &rest[count..];
            }
            if self.filled >= BLOCK {
                take(&self.steps[..self.filled]);
                self.filled = 0;
            }
        }
        take(&self.steps[..self.filled]);
        Ok(())
    }

    /// Does the operations of one page that come first, as long as there is room in the block. Returns how many.
    #[inline(never)]
    fn singles(&mut self, lookups: &[u32], keys: &Keys) -> usize {
        let (of_page, queues) = (self.of_page.as_mut_slice(), self.queues.as_mut_slice());
        let mut fresh = 0;
        let nexts = lookups[1..].iter().copied().chain([FIRST]);
        let mut done = 0;
        let room = &mut self.steps[self.filled..BLOCK];
        for ((step, lookup), next) in room.iter_mut().zip(lookups).zip(nexts) {
            if next & FIRST == 0 {
                break;
            }
            let id = lookup & PAGE_ID;
            let OfPage { last, queue } = of_page[id as usize];
            let queue = &mut queues[usize::from(queue)];
            let mut unpinned = NO_PAGE;
            if last as usize + 1 != queue.end {
                queue.push(id, of_page);
                if last == NONE {
                    fresh += 1;
                    if queue.pinned == self.limit {
                        unpinned = keys.key(queue.unpin_oldest(of_page));
                    } else {
                        queue.pinned += 1;
                    }
                }
            }
            *step = Step { unpinned, looked_up: keys.key(id) | lookup & RECEIVE };
            done += 1;
        }
        self.check_misses += fresh;
        self.filled += done;
        if let Some(lookup) = lookups[..done].last() {
            self.looked_up_last = lookup & PAGE_ID;
        }
        done
    }

    /// Does an operation of several pages. Those of its pages that are pinned count as used first; then others are unpinned, then
    /// the rest is pinned.
    #[inline(never)]
    fn several(&mut self, lookups: &[u32], keys: &Keys) -> Result<(), PinError> {
        if lookups.len() as u64 > u64::from(self.limit) {
            let (needed_pages, limit_pages) = (lookups.len() as u64, self.limit.into());
            return Err(PinError::LimitTooSmall { needed_pages, limit_pages, held_pages: 0 });
        }
        let queue = &mut self.queues[usize::from(self.of_page[(lookups[0] & PAGE_ID) as usize].queue)];
        let mut fresh = 0;
        for lookup in lookups {
            let id = lookup & PAGE_ID;
            if self.of_page[id as usize].last == NONE {
                fresh += 1;
            } else {
                queue.push(id, &mut self.of_page);
            }
        }
        let over = (queue.pinned + fresh).saturating_sub(self.limit);
        let needed = self.filled + over as usize + lookups.len();
        if self.steps.len() < needed {
            self.steps.resize(needed, Step::NONE);
        }
        // Pages leave before any is looked up, in an order that no cache sees. All but the last leave while the page that was looked up
        // before is looked up again; so if it leaves itself, it must be the last.
        let mut to = self.filled;
        let again = keys.key(self.looked_up_last);
        let mut gone = None;
        for _ in 0..over {
            let id = queue.unpin_oldest(&mut self.of_page);
            if id == self.looked_up_last {
                gone = Some(to);
            }
            self.steps[to] = Step { unpinned: keys.key(id), looked_up: again };
            to += 1;
        }
        if let Some(gone) = gone {
            let last = to - 1;
            let unpinned = self.steps[last].unpinned;
            self.steps[last].unpinned = self.steps[gone].unpinned;
            self.steps[gone].unpinned = unpinned;
        }
        queue.pinned += fresh - over;
        self.check_misses += u64::from(fresh);
        // The first lookup goes with the last page that leaves.
        let mut unpinned = NO_PAGE;
        if over > 0 {
            to -= 1;
            unpinned = self.steps[to].unpinned;
        }
        for lookup in lookups {
            let id = lookup & PAGE_ID;
            if self.of_page[id as usize].last == NONE {
                queue.push(id, &mut self.of_page);
            }
            self.steps[to] = Step {
                unpinned: std::mem::replace(&mut unpinned, NO_PAGE),
                looked_up: keys.key(id) | lookup & RECEIVE,
            };
            to += 1;
            self.looked_up_last = id;
        }
        self.filled = to;
        Ok(())
    }
}

impl Queue {
    fn new(limit: usize) -> Self {
        let places = (8 * limit).next_power_of_two().clamp(1 << 13, 1 << 31);
        Queue { ids: vec![0; places].into(), dead: vec![0; places / WORD].into(), oldest: 0, end: 0, pinned: 0 }
    }

    /// Makes the page the one used last.
    #[inline(always)]
    fn push(&mut self, id: u32, of_page: &mut [OfPage]) {
        if self.end == self.ids.len() {
            self.compact(of_page);
        }
        let end = self.end;
        self.end += 1;
        self.ids[end] = id;
        let before = std::mem::replace(&mut of_page[id as usize].last, end as u32);
        if before != NONE {
            self.dead[before as usize / WORD] |= 1 << (before as usize % WORD);
        }
    }

    /// Takes out the page used least recently. There is one.
    #[inline(always)]
    fn unpin_oldest(&mut self, of_page: &mut [OfPage]) -> u32 {
        let mut at = self.oldest / WORD;
        let mut word = !self.dead[at] & u64::MAX << (self.oldest % WORD);
        while word == 0 {
            at += 1;
            word = !self.dead[at];
        }
        let place = at * WORD + word.trailing_zeros() as usize;
        self.oldest = place + 1;
        let id = self.ids[place];
        of_page[id as usize].last = NONE;
        id
    }

    /// Moves the live places together. All places are taken, so the last word is whole.
    #[cold]
    fn compact(&mut self, of_page: &mut [OfPage]) {
        let mut moved = 0;
        for word in self.oldest / WORD..self.end / WORD {
            let mut live = !self.dead[word];
            while live != 0 {
                let place = word * WORD + live.trailing_zeros() as usize;
                live &= live - 1;
                if place >= self.oldest {
                    let id = self.ids[place];
                    self.ids[moved] = id;
                    of_page[id as usize].last = moved as u32;
                    moved += 1;
                }
            }
        }
        self.dead.fill(0);
        self.oldest = 0;
        self.end = moved;
    }
}
