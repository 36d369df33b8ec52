//! Which pages are pinned when, under a limit for each process and LRU.
//!
//! That does not depend on the NIC's cache, so one pass serves caches of all shapes. As in [`Stack`](super::Stack), each use
//! of a page takes the next place of its process's queue; the page to unpin is that of the oldest live place.

use crate::decode::{Chunk, FIRST, PAGE_ID, PIN_CALL_PAGES, Pages};

/// The page is unpinned here, and leaves the NIC's cache. An entry without it is a lookup.
pub const UNPIN: u32 = 1 << 30;

const NONE: u32 = u32::MAX;
const WORD: usize = 64;

/// What pinning under a limit costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PinCounts {
    /// Pages found not pinned, and so pinned.
    pub check_misses: u64,
    /// Calls that pinned them.
    pub pin_calls: u64,
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
    live: Vec<u64>,
    /// No live place is before it.
    oldest: usize,
    end: usize,
    pinned: u32,
}

/// Pinned pages of the processes of a node. Knows no exports: a chunk has none.
#[derive(Clone, Debug)]
pub struct Pins {
    limit: u32,
    /// Place of each page's last use in the queue of its process; none if it is not pinned.
    last: Vec<u32>,
    /// Queue of each page.
    of_page: Vec<u16>,
    queue_of_process: Vec<u16>,
    queues: Vec<Queue>,
    counts: PinCounts,
}

impl Pins {
    /// Nothing pinned, and at most `limit_pages` of each process to come.
    pub fn new(limit_pages: u64) -> Self {
        Pins {
            limit: limit_pages.min(u64::from(PAGE_ID)) as u32,
            last: Vec::new(),
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
            self.of_page.push(self.queue_of_process[process]);
        }
        self.last.resize(pages.len(), NONE);
    }

    /// Writes the chunk's lookups to `out`, page numbers with [`RECEIVE`](crate::decode::RECEIVE), and before those of each
    /// operation the pages that are unpinned for it, with [`UNPIN`].
    ///
    /// # Errors
    /// [`LimitTooSmall`].
    pub fn run(
        &mut self,
        chunk: &Chunk,
        pages: &Pages,
        out: &mut Vec<u32>,
    ) -> Result<(), LimitTooSmall> {
        self.extend(pages);
        out.clear();
        let lookups = chunk.lookups.as_slice();
        out.reserve(lookups.len() + lookups.len() / 2);
        let mut at = 0;
        while at < lookups.len() {
            let next = lookups.get(at + 1).copied().unwrap_or(FIRST);
            if next & FIRST != 0 {
                self.single(lookups[at] & PAGE_ID, out);
                out.push(lookups[at] & !FIRST);
                at += 1;
            } else {
                let rest = &lookups[at..];
                let count = rest[1..]
                    .iter()
                    .position(|it| it & FIRST != 0)
                    .map_or(rest.len(), |at| at + 1);
                self.several(&rest[..count], out)?;
                out.extend(rest[..count].iter().map(|it| it & !FIRST));
                at += count;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn single(&mut self, id: u32, out: &mut Vec<u32>) {
        let queue = &mut self.queues[usize::from(self.of_page[id as usize])];
        let last = queue.push(id, &mut self.last);
        if last == NONE {
            self.counts.check_misses += 1;
            self.counts.pin_calls += 1;
            if queue.pinned == self.limit {
                self.counts.unpins += 1;
                out.push(queue.unpin_oldest(&mut self.last) | UNPIN);
            } else {
                queue.pinned += 1;
            }
        }
    }

    /// Those of its pages that are pinned count as used first; then others are unpinned, then the rest is pinned.
    fn several(&mut self, lookups: &[u32], out: &mut Vec<u32>) -> Result<(), LimitTooSmall> {
        if lookups.len() as u64 > u64::from(self.limit) {
            return Err(LimitTooSmall {
                needed_pages: lookups.len() as u64,
                limit_pages: self.limit.into(),
            });
        }
        let queue = &mut self.queues[usize::from(self.of_page[(lookups[0] & PAGE_ID) as usize])];
        let mut fresh = 0;
        let mut run = 0;
        for lookup in lookups {
            let id = lookup & PAGE_ID;
            if self.last[id as usize] == NONE {
                self.counts.pin_calls += u64::from(run % PIN_CALL_PAGES == 0);
                run += 1;
                fresh += 1;
            } else {
                queue.push(id, &mut self.last);
                run = 0;
            }
        }
        if fresh == 0 {
            return Ok(());
        }
        let over = (queue.pinned + fresh).saturating_sub(self.limit);
        for _ in 0..over {
            out.push(queue.unpin_oldest(&mut self.last) | UNPIN);
        }
        queue.pinned += fresh - over;
        self.counts.unpins += u64::from(over);
        self.counts.check_misses += u64::from(fresh);
        for lookup in lookups {
            let id = lookup & PAGE_ID;
            if self.last[id as usize] == NONE {
                queue.push(id, &mut self.last);
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
            live: vec![0; places / WORD],
            oldest: 0,
            end: 0,
            pinned: 0,
        }
    }

    /// Makes the page the one used last. Returns its place so far.
    #[inline(always)]
    fn push(&mut self, id: u32, last: &mut [u32]) -> u32 {
        if self.end == self.ids.len() {
            self.compact(last);
        }
        let end = self.end;
        self.end += 1;
        self.ids[end] = id;
        self.live[end / WORD] |= 1 << (end % WORD);
        let before = std::mem::replace(&mut last[id as usize], end as u32);
        if before != NONE {
            self.live[before as usize / WORD] &= !(1 << (before as usize % WORD));
        }
        before
    }

    /// Takes out the page used least recently. There is one.
    #[inline(always)]
    fn unpin_oldest(&mut self, last: &mut [u32]) -> u32 {
        let mut at = self.oldest / WORD;
        // Places before the oldest are not live.
        let mut word = self.live[at];
        while word == 0 {
            at += 1;
            word = self.live[at];
        }
        let place = at * WORD + word.trailing_zeros() as usize;
        self.live[at] &= !(1 << (place % WORD));
        self.oldest = place + 1;
        let id = self.ids[place];
        last[id as usize] = NONE;
        id
    }

    #[cold]
    fn compact(&mut self, last: &mut [u32]) {
        let mut moved = 0;
        for place in 0..self.end {
            if self.live[place / WORD] >> (place % WORD) & 1 != 0 {
                let id = self.ids[place];
                self.ids[moved] = id;
                last[id as usize] = moved as u32;
                moved += 1;
            }
        }
        self.live.fill(0);
        for place in 0..moved {
            self.live[place / WORD] |= 1 << (place % WORD);
        }
        self.oldest = 0;
        self.end = moved;
    }
}
