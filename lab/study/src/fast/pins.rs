//! Which pages are pinned when, under a limit for each process and LRU.
//!
//! That does not depend on the NIC's cache, so one pass serves caches of all shapes. As in [`Stack`](super::Stack), each use
//! of a page takes the next place of its process's queue; the page to unpin is that of the oldest live place.

use crate::decode::{Chunk, FIRST, PAGE_ID, Pages};

/// The page is unpinned here, and leaves the NIC's cache. An entry without it is a lookup.
pub const UNPIN: u32 = 1 << 30;

const NONE: u32 = u32::MAX;
const WORD: usize = 64;

/// What pinning under a limit costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PinCounts {
    /// Pages found not pinned, and so pinned.
    pub check_misses: u64,
    /// Pages unpinned.
    pub unpins: u64,
}

/// An operation has more pages than a process may have pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "an operation touches {needed_pages} pages, but a process may have only {limit_pages} pinned; raise the limit"
)]
pub struct LimitTooSmall {
    /// Pages of the operation.
    pub needed_pages: u64,
    /// The limit.
    pub limit_pages: u64,
}

#[derive(Clone, Debug)]
struct Queue {
    ids: Vec<u32>,
    /// Places that are not live any more. Those before `oldest` are not either, and those from `end` on are not marked.
    dead: Vec<u64>,
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
    counts: PinCounts,
}

impl Pins {
    /// Nothing pinned, and at most `limit_pages` of each process to come.
    pub fn new(limit_pages: u64) -> Self {
        Pins {
            limit: limit_pages.min(u64::from(PAGE_ID)) as u32,
            of_page: Vec::new(),
            queue_of_process: Vec::new(),
            queues: Vec::new(),
            counts: PinCounts::default(),
        }
    }

    /// Counts so far.
    pub fn counts(&self) -> PinCounts {
        self.counts
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
            self.of_page.push(OfPage {
                last: NONE,
                queue: self.queue_of_process[process],
            });
        }
    }

    /// Hands the chunk's lookups to `entry`, page numbers with [`RECEIVE`](crate::decode::RECEIVE), and before those of each
    /// operation the pages that are unpinned for it, with [`UNPIN`].
    ///
    /// # Errors
    /// [`LimitTooSmall`].
    #[inline]
    pub fn run(
        &mut self,
        chunk: &Chunk,
        pages: &Pages,
        mut entry: impl FnMut(u32),
    ) -> Result<(), LimitTooSmall> {
        self.extend(pages);
        let lookups = chunk.lookups.as_slice();
        let mut at = 0;
        while at < lookups.len() {
            let next = lookups.get(at + 1).copied().unwrap_or(FIRST);
            if next & FIRST != 0 {
                self.single(lookups[at] & PAGE_ID, &mut entry);
                entry(lookups[at] & !FIRST);
                at += 1;
            } else {
                let rest = &lookups[at..];
                let count = rest[1..]
                    .iter()
                    .position(|it| it & FIRST != 0)
                    .map_or(rest.len(), |at| at + 1);
                self.several(&rest[..count], &mut entry)?;
                rest[..count].iter().for_each(|it| entry(it & !FIRST));
                at += count;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn single(&mut self, id: u32, entry: &mut impl FnMut(u32)) {
        let OfPage { last, queue } = self.of_page[id as usize];
        let queue = &mut self.queues[usize::from(queue)];
        if last as usize + 1 == queue.end {
            return;
        }
        queue.push(id, &mut self.of_page);
        if last == NONE {
            self.counts.check_misses += 1;
            if queue.pinned == self.limit {
                self.counts.unpins += 1;
                entry(queue.unpin_oldest(&mut self.of_page) | UNPIN);
            } else {
                queue.pinned += 1;
            }
        }
    }

    /// Those of its pages that are pinned count as used first; then others are unpinned, then the rest is pinned.
    fn several(
        &mut self,
        lookups: &[u32],
        entry: &mut impl FnMut(u32),
    ) -> Result<(), LimitTooSmall> {
        if lookups.len() as u64 > u64::from(self.limit) {
            return Err(LimitTooSmall {
                needed_pages: lookups.len() as u64,
                limit_pages: self.limit.into(),
            });
        }
        let queue =
            &mut self.queues[usize::from(self.of_page[(lookups[0] & PAGE_ID) as usize].queue)];
        let mut fresh = 0;
        for lookup in lookups {
            let id = lookup & PAGE_ID;
            if self.of_page[id as usize].last == NONE {
                fresh += 1;
            } else {
                queue.push(id, &mut self.of_page);
            }
        }
        if fresh == 0 {
            return Ok(());
        }
        let over = (queue.pinned + fresh).saturating_sub(self.limit);
        for _ in 0..over {
            entry(queue.unpin_oldest(&mut self.of_page) | UNPIN);
        }
        queue.pinned += fresh - over;
        self.counts.unpins += u64::from(over);
        self.counts.check_misses += u64::from(fresh);
        for lookup in lookups {
            let id = lookup & PAGE_ID;
            if self.of_page[id as usize].last == NONE {
                queue.push(id, &mut self.of_page);
            }
        }
        Ok(())
    }
}

impl Queue {
    fn new(limit: usize) -> Self {
        let places = (4 * limit).next_power_of_two().clamp(1 << 13, 1 << 31);
        Queue {
            ids: vec![0; places],
            dead: vec![0; places / WORD],
            oldest: 0,
            end: 0,
            pinned: 0,
        }
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

    #[cold]
    fn compact(&mut self, of_page: &mut [OfPage]) {
        let mut moved = 0;
        for place in self.oldest..self.end {
            if self.dead[place / WORD] >> (place % WORD) & 1 == 0 {
                let id = self.ids[place];
                self.ids[moved] = id;
                of_page[id as usize].last = moved as u32;
                moved += 1;
            }
        }
        self.dead.fill(0);
        self.oldest = 0;
        self.end = moved;
    }
}
