//! Pins by registering buffers with an io_uring: the kernel then keeps the pages in place.
//!
//! Pages pinned in one call take one slot of the ring's table for every 64 of them, since one slot of many pages costs a third of as many
//! slots of one page. Unpinning part of them cuts the slot: the rest of the run gets smaller slots, while its frames stay the same.
//!
//! ```text
//! frame = run × 128 + page of the run      run → its first page, which pages live, its slots
//! ```
//!
//! No more pages are ever pinned than there are slots, so a cut always finds a slot: in the worst case every page has its own.
//!
//! Registered buffers must be writable. Pages that are not (constants) are locked by `mlock`.

use mapwire_translation::{Frame, Page, PageRange};
use rustix::io::Errno;

use super::sys::{self, BufferTable};
use super::{PinError, Pinner, check_frames, explain};

/// Most slots that the kernel allows in a table.
pub const MAX_SLOTS: u32 = 1 << 14;

/// Default number of slots: 64 MiB of pages.
pub const DEFAULT_SLOTS: u32 = MAX_SLOTS;

/// Most pages of a run, the bits of its mask.
const RUN_PAGES: u64 = 64;

/// Frame numbers from one run to the next: more than a run has pages, so that consecutive frames always belong to one run.
const RUN_FRAMES: u64 = 2 * RUN_PAGES;

/// Ends the list of a run's slots.
const NONE: u32 = u32::MAX;
/// In place of that list: the run's pages are locked by `mlock`, one by one.
const LOCKED: u32 = u32::MAX - 1;

/// Pages pinned by one call, at most 64.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: Page,
    /// Bit n: page n is pinned. 0 while the run is free.
    live: u64,
    /// First of its slots, or [`LOCKED`].
    slots: u32,
}

/// Contents of a slot of the ring's table: neighbouring pages of one run, all still pinned.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// First page, counted from the run's first.
    start: u8,
    pages: u8,
    /// Next slot of the run.
    next: u32,
}

/// Pins with registered buffers. Dropping it unpins everything.
#[derive(Debug)]
pub struct UringPinner {
    table: BufferTable,
    runs: Box<[Run]>,
    slots: Box<[Piece]>,
    free_runs: Vec<u32>,
    free_slots: Vec<u32>,
    pinned_pages: u64,
}

impl UringPinner {
    /// Makes a pinner of up to `slots` pages, at most [`MAX_SLOTS`].
    ///
    /// # Errors
    /// The kernel provides no io_uring, or one that is too old.
    pub fn new(slots: u32) -> Result<Self, PinError> {
        let slots = slots.max(1);
        let table = BufferTable::open().map_err(|errno| match errno {
            Errno::NOMEM if !crate::limits::may_lock_without_limit() => {
                explain("io_uring_setup", PageRange::EMPTY, 0, errno)
            }
            errno => PinError::IoUringRefused { errno: errno.into(), disabled: crate::limits::io_uring_disabled() },
        })?;
        table.make_slots(slots).map_err(|errno| PinError::IoUringTooOld { slots, errno: errno.into() })?;
        let run = Run { first: Page(0), live: 0, slots: NONE };
        let slot = Piece { start: 0, pages: 0, next: NONE };
        Ok(Self {
            table,
            runs: vec![run; slots as usize].into(),
            slots: vec![slot; slots as usize].into(),
            free_runs: (0..slots).rev().collect(),
            free_slots: (0..slots).rev().collect(),
            pinned_pages: 0,
        })
    }

    fn pin_run(&mut self, pages: PageRange, frames: &mut [Frame]) -> Result<(), Errno> {
        // Both lists have an entry: no more pages are pinned than there are slots or runs.
        let (Some(&run), Some(&slot)) = (self.free_runs.last(), self.free_slots.last()) else {
            return Err(Errno::NOSPC);
        };
        let slots = match self.table.fill(slot, pages) {
            Ok(()) => {
                self.free_slots.pop();
                self.slots[slot as usize] = Piece { start: 0, pages: pages.count as u8, next: NONE };
                slot
            }
            Err(Errno::FAULT | Errno::OPNOTSUPP) => {
                // Not writable, if mapped at all.
                sys::lock(pages).inspect_err(|_| {
                    let _ = sys::unlock(pages);
                })?;
                LOCKED
            }
            Err(errno) => return Err(errno),
        };
        self.free_runs.pop();
        self.runs[run as usize] = Run { first: pages.first, live: mask(0, pages.count), slots };
        self.pinned_pages += pages.count;
        for (index, frame) in frames.iter_mut().enumerate() {
            *frame = Frame(u64::from(run) * RUN_FRAMES + index as u64);
        }
        Ok(())
    }

    /// Run of a frame, and index of its page in the run, if that page is pinned.
    #[inline]
    fn find(&self, frame: Frame) -> Option<(u32, u64)> {
        let (run, index) = (frame.0 / RUN_FRAMES, frame.0 % RUN_FRAMES);
        let live = self.runs.get(usize::try_from(run).ok()?)?.live;
        (index < RUN_PAGES && live >> index & 1 == 1).then_some((run as u32, index))
    }

    /// Unpins neighbouring live pages of a run.
    fn release(&mut self, run_index: u32, start: u64, pages: u64) -> Result<(), PinError> {
        let run = self.runs[run_index as usize];
        let freed = part(run, start, pages);
        let pinned_pages = self.pinned_pages;
        let fail = |errno| explain("io_uring_register", freed, pinned_pages, errno);
        if run.slots == LOCKED {
            match sys::unlock(freed) {
                Ok(()) | Err(Errno::NOMEM) => {}
                Err(errno) => return Err(fail(errno)),
            }
        } else {
            // Neighbouring live pages are in one slot: a cut only ever follows an unpinned page.
            let mut before = NONE;
            let mut at = run.slots;
            while at != NONE && !self.slots[at as usize].holds(start) {
                before = at;
                at = self.slots[at as usize].next;
            }
            let slot = self.slots[at as usize];
            let left = start - u64::from(slot.start);
            let right = u64::from(slot.pages) - left - pages;
            if left > 0 && right > 0 {
                self.cut(run, at, left, start + pages, right).map_err(fail)?;
            } else if left > 0 {
                self.table.fill(at, part(run, start - left, left)).map_err(fail)?;
                self.slots[at as usize].pages = left as u8;
            } else if right > 0 {
                self.table.fill(at, part(run, start + pages, right)).map_err(fail)?;
                let slot = &mut self.slots[at as usize];
                (slot.start, slot.pages) = ((start + pages) as u8, right as u8);
            } else {
                self.table.clear(at).map_err(fail)?;
                if before == NONE {
                    self.runs[run_index as usize].slots = slot.next;
                } else {
                    self.slots[before as usize].next = slot.next;
                }
                self.free_slots.push(at);
            }
        }
        self.pinned_pages -= pages;
        let run = &mut self.runs[run_index as usize];
        run.live &= !mask(start, pages);
        if run.live == 0 {
            self.free_runs.push(run_index);
        }
        Ok(())
    }

    /// Keeps the `left` first pages in slot `at` and moves its `right` last ones to a new slot.
    fn cut(&mut self, run: Run, at: u32, left: u64, right_start: u64, right: u64) -> Result<(), Errno> {
        let new = *self.free_slots.last().ok_or(Errno::NOSPC)?;
        let slot = self.slots[at as usize];
        let left_part = part(run, u64::from(slot.start), left);
        let right_part = part(run, right_start, right);
        // The remaining pages are pinned again before they are released, unless the limit of locked memory forbids counting them twice.
        let filled_first = match self.table.fill(new, right_part) {
            Ok(()) => true,
            Err(Errno::NOMEM) => false,
            Err(errno) => return Err(errno),
        };
        if let Err(errno) = self.table.fill(at, left_part) {
            if filled_first {
                let _ = self.table.clear(new);
            }
            return Err(errno);
        }
        if !filled_first && let Err(errno) = self.table.fill(new, right_part) {
            // Another process took what was just freed.
            let all = part(run, u64::from(slot.start), u64::from(slot.pages));
            return self.table.fill(at, all).and(Err(errno));
        }
        self.free_slots.pop();
        self.slots[new as usize] = Piece { start: right_start as u8, pages: right as u8, next: slot.next };
        let slot = &mut self.slots[at as usize];
        (slot.pages, slot.next) = (left as u8, new);
        Ok(())
    }

    /// The frames from `from` on that are neighbours in one run: run, index of the first page in it and their number; checked to be the
    /// frames of `pages`.
    fn group(&self, pages: PageRange, frames: &[Frame], from: usize) -> Result<(u32, u64, u64), PinError> {
        let wrong =
            |index: usize| PinError::NotPinned { page: Page(pages.first.0 + index as u64), frame: frames[index] };
        let (run, start) = self.find(frames[from]).ok_or(wrong(from))?;
        let mut count = 0;
        while from + (count as usize) < frames.len() {
            let index = from + count as usize;
            let expected = Frame(u64::from(run) * RUN_FRAMES + start + count);
            if start + count == RUN_PAGES || frames[index] != expected {
                break;
            }
            let lives = self.runs[run as usize].live >> (start + count) & 1 == 1;
            let page = self.runs[run as usize].first.0 + start + count;
            if !lives || page != pages.first.0 + index as u64 {
                return Err(wrong(index));
            }
            count += 1;
        }
        Ok((run, start, count))
    }
}

impl Piece {
    fn holds(&self, page: u64) -> bool {
        (u64::from(self.start)..u64::from(self.start) + u64::from(self.pages)).contains(&page)
    }
}

/// `pages` bits from bit `start` on.
fn mask(start: u64, pages: u64) -> u64 {
    debug_assert!(pages > 0 && start + pages <= RUN_PAGES);
    (u64::MAX >> (RUN_PAGES - pages)) << start
}

fn part(run: Run, start: u64, pages: u64) -> PageRange {
    PageRange { first: Page(run.first.0 + start), count: pages }
}

impl Pinner for UringPinner {
    fn pin(&mut self, pages: PageRange, frames: &mut [Frame]) -> Result<(), PinError> {
        let count = check_frames(pages, frames.len())?;
        if self.pinned_pages + pages.count > self.slots.len() as u64 {
            return Err(PinError::SlotsExhausted {
                pages,
                pinned_pages: self.pinned_pages,
                slots: self.slots.len() as u32,
            });
        }
        let mut done = 0;
        while done < count {
            let part = PageRange {
                first: Page(pages.first.0 + done as u64),
                count: (pages.count - done as u64).min(RUN_PAGES),
            };
            let end = done + part.count as usize;
            if let Err(errno) = self.pin_run(part, &mut frames[done..end]) {
                let error = explain("io_uring_register", pages, self.pinned_pages, errno);
                let pinned = PageRange { first: pages.first, count: done as u64 };
                self.unpin(pinned, &frames[..done])?;
                return Err(error);
            }
            done = end;
        }
        Ok(())
    }

    fn unpin(&mut self, pages: PageRange, frames: &[Frame]) -> Result<(), PinError> {
        let count = check_frames(pages, frames.len())?;
        if count == 0 {
            return Ok(());
        }
        let (run, start, group) = self.group(pages, frames, 0)?;
        if group as usize == count {
            return self.release(run, start, group);
        }
        // Several runs: checked as a whole before anything changes.
        let mut at = group as usize;
        while at < count {
            at += self.group(pages, frames, at)?.2 as usize;
        }
        at = 0;
        while at < count {
            let (run, start, group) = self.group(pages, frames, at)?;
            self.release(run, start, group)?;
            at += group as usize;
        }
        Ok(())
    }

    #[inline]
    fn address_of(&self, frame: Frame) -> Option<*mut u8> {
        let (run, index) = self.find(frame)?;
        let page = Page(self.runs[run as usize].first.0 + index);
        Some(core::ptr::with_exposed_provenance_mut(page.address() as usize))
    }

    fn limit_pages(&self) -> Option<u64> {
        Some(self.slots.len() as u64)
    }

    fn pinned_pages(&self) -> u64 {
        self.pinned_pages
    }

    fn name(&self) -> &'static str {
        "io_uring"
    }
}

impl Drop for UringPinner {
    fn drop(&mut self) {
        // The kernel unpins those in the table; locked pages must be unlocked here.
        for run in self.runs.iter().filter(|run| run.slots == LOCKED) {
            for index in (0..RUN_PAGES).filter(|index| run.live >> index & 1 == 1) {
                let _ = sys::unlock(part(*run, index, 1));
            }
        }
    }
}
