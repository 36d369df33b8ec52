//! What this rank knows of each page.
//!
//! A word a page, zero at the start. Low to high: 2 bits the application's access, 2 bits the access that the machine was last told, 16
//! flags, 12 bits home, 32 bits twin + 1. Two lists run through the pages: of those whose access must be reduced ([`Pages::poll_reduced`]),
//! and of those that were written, each on one of several [`List`]s at most.

use crate::{Minipage, PAGE_BYTES, Protection, Rank, tables};
use alloc::vec::Vec;

/// A flag of a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flag(u64);

/// It is allocated, as far as this rank must know.
pub(super) const KNOWN: Flag = Flag(1 << 4);
/// It was allocated here.
pub(super) const OWN: Flag = Flag(1 << 5);
/// This rank knows its home.
pub(super) const PLACED: Flag = Flag(1 << 6);
/// The manager was asked for its home.
pub(super) const ASKED: Flag = Flag(1 << 7);
/// Its bytes are under way from the home.
pub(super) const FETCHING: Flag = Flag(1 << 8);
/// What is under way may be too old by now.
pub(super) const STALE: Flag = Flag(1 << 9);
/// It was written in the interval that is open or being sent, and is on a list.
pub(super) const DIRTY: Flag = Flag(1 << 10);
/// Its diff is under way to the home.
pub(super) const SENT: Flag = Flag(1 << 11);
/// Its access must be reduced: it is on that list.
const REDUCED: Flag = Flag(1 << 12);
/// The manager waits until nothing is under way to its home.
pub(super) const CLOSING: Flag = Flag(1 << 13);
/// This rank will be its home once it is fetched.
pub(super) const TAKING: Flag = Flag(1 << 14);
/// This rank was its home until it closed, and takes what the others still send.
pub(super) const FORMER: Flag = Flag(1 << 15);

/// This rank is its home, and no other rank has a copy or knows of it.
pub(super) const ALONE: Flag = Flag(1 << 16);
/// It is fetched ahead of accesses, or will be.
pub(super) const AHEAD: Flag = Flag(1 << 18);
/// Its home was asked for to fetch it ahead.
pub(super) const ASKED_AHEAD: Flag = Flag(1 << 19);
/// The application stores to all of it in the interval that is open, or will once this rank knows the home; it has no twin.
pub(super) const WHOLE: Flag = Flag(1 << 17);

const HOME_SHIFT: u32 = 20;
const HOME_MASK: u64 = 0xfff;
const _: () = assert!(crate::MAX_RANKS as u64 <= HOME_MASK + 1);
const TWIN_SHIFT: u32 = 32;

/// Pages in the order in which they were added: the first and last page + 1, or 0.
#[derive(Debug, Default)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(super) fn is_empty(&self) -> bool {
        self.first == 0
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.first.checked_sub(1)
    }

    fn push(&mut self, links: &mut [u32], page: u32) {
        links[page as usize] = 0;
        match self.last.checked_sub(1) {
            None => self.first = page + 1,
            Some(last) => links[last as usize] = page + 1,
        }
        self.last = page + 1;
    }

    fn pop(&mut self, links: &[u32]) -> Option<u32> {
        let page = self.first()?;
        self.first = links[page as usize];
        if self.first == 0 {
            self.last = 0;
        }
        Some(page)
    }
}

#[derive(Debug)]
pub(super) struct Pages {
    words: Vec<u64>,
    /// Next of each page on its list.
    written: Vec<u32>,
    /// Next of each page whose access must be reduced.
    reduced: Vec<u32>,
    to_reduce: List,
    /// Pages from this one on were never accessible here.
    end: u32,
}

fn protection(bits: u64) -> Protection {
    match bits & 3 {
        0 => Protection::None,
        1 => Protection::Read,
        _ => Protection::Write,
    }
}

/// Pages as a minipage of view 0.
pub(super) fn run(first: u32, count: u32) -> Minipage {
    Minipage { view: 0, offset_bytes: u64::from(first) * PAGE_BYTES, length_bytes: u64::from(count) * PAGE_BYTES }
}

impl Pages {
    /// Nothing is known; `None` if the machine refuses memory.
    pub(super) fn new(pages: u32) -> Option<Self> {
        let count = usize::try_from(pages).ok()?;
        Some(Pages {
            words: tables::zeroes(count)?,
            written: tables::zeroes(count)?,
            reduced: tables::zeroes(count)?,
            to_reduce: List::default(),
            end: 0,
        })
    }

    pub(super) fn count(&self) -> u32 {
        self.words.len() as u32
    }

    pub(super) fn is(&self, page: u32, flag: Flag) -> bool {
        self.words[page as usize] & flag.0 != 0
    }

    pub(super) fn set(&mut self, page: u32, flag: Flag) {
        self.words[page as usize] |= flag.0;
    }

    pub(super) fn clear(&mut self, page: u32, flag: Flag) {
        self.words[page as usize] &= !flag.0;
    }

    /// Clears a flag; whether it was set.
    pub(super) fn take(&mut self, page: u32, flag: Flag) -> bool {
        let was = self.is(page, flag);
        self.clear(page, flag);
        was
    }

    pub(super) fn home(&self, page: u32) -> Option<Rank> {
        self.is(page, PLACED).then(|| (self.words[page as usize] >> HOME_SHIFT & HOME_MASK) as Rank)
    }

    pub(super) fn set_home(&mut self, page: u32, home: Rank) {
        let word = &mut self.words[page as usize];
        *word = *word & !(HOME_MASK << HOME_SHIFT) | u64::from(home) << HOME_SHIFT | PLACED.0;
    }

    pub(super) fn twin(&self, page: u32) -> Option<u32> {
        ((self.words[page as usize] >> TWIN_SHIFT) as u32).checked_sub(1)
    }

    pub(super) fn set_twin(&mut self, page: u32, twin: Option<u32>) {
        let word = &mut self.words[page as usize];
        *word = *word & ((1 << TWIN_SHIFT) - 1) | u64::from(twin.map_or(0, |twin| twin + 1)) << TWIN_SHIFT;
    }

    /// The application's access, once the actions that wait are carried out.
    pub(super) fn protection(&self, page: u32) -> Protection {
        protection(self.words[page as usize])
    }

    fn told(&self, page: u32) -> Protection {
        protection(self.words[page as usize] >> 2)
    }

    /// Changes the application's access. If it is greater than before, [`open`](Self::open) is to be called when the machine can allow it.
    pub(super) fn protect(&mut self, page: u32, to: Protection) {
        let word = &mut self.words[page as usize];
        *word = *word & !3 | to as u64;
        self.end = self.end.max(page + 1);
        if to < self.told(page) && !self.is(page, REDUCED) {
            self.set(page, REDUCED);
            self.to_reduce.push(&mut self.reduced, page);
        }
    }

    fn tell(&mut self, page: u32, to: Protection) -> Protection {
        let word = &mut self.words[page as usize];
        *word = *word & !(3 << 2) | (to as u64) << 2;
        to
    }

    /// The access that the machine is to allow when it has come so far that it could allow `most`; `None` if it does already.
    pub(super) fn open(&mut self, page: u32, most: Protection) -> Option<Protection> {
        self.opens(page, most).map(|to| self.tell(page, to))
    }

    /// What [`open`](Self::open) would give.
    pub(super) fn opens(&self, page: u32, most: Protection) -> Option<Protection> {
        Some(self.protection(page).min(most)).filter(|&to| to > self.told(page))
    }

    pub(super) fn has_reduced(&self) -> bool {
        !self.to_reduce.is_empty()
    }

    /// The next pages whose access the machine is to reduce. What was to be allowed before and is not allowed any more needs no look:
    /// these come first.
    pub(super) fn poll_reduced(&mut self) -> Option<(Minipage, Protection)> {
        loop {
            let first = self.to_reduce.pop(&self.reduced)?;
            self.clear(first, REDUCED);
            if self.protection(first) >= self.told(first) {
                continue;
            }
            let to = self.tell(first, self.protection(first));
            let mut count = 1;
            while let Some(next) = self.to_reduce.first()
                && next == first + count
                && self.protection(next) == to
                && to < self.told(next)
            {
                self.to_reduce.pop(&self.reduced);
                self.clear(next, REDUCED);
                self.tell(next, to);
                count += 1;
            }
            return Some((run(first, count), to));
        }
    }

    /// Adds a page to a list of written pages; it is on none.
    pub(super) fn push(&mut self, list: &mut List, page: u32) {
        list.push(&mut self.written, page);
    }

    pub(super) fn pop(&self, list: &mut List) -> Option<u32> {
        list.pop(&self.written)
    }

    /// Pages of a run that were ever accessible here.
    pub(super) fn accessible(&self, first: u32, count: u32) -> core::ops::Range<u32> {
        first..first.saturating_add(count).min(self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_whose_access_is_reduced_together_are_one_action_and_what_was_undone_none() {
        let mut pages = Pages::new(16).unwrap();
        for page in 2..10 {
            pages.protect(page, Protection::Write);
            assert_eq!(pages.open(page, Protection::Read), Some(Protection::Read));
            assert_eq!(pages.open(page, Protection::Write), Some(Protection::Write));
            assert_eq!(pages.open(page, Protection::Write), None);
        }
        for page in [2, 3, 4, 7, 6, 5] {
            pages.protect(page, if page == 4 { Protection::Read } else { Protection::None });
        }
        pages.protect(7, Protection::Write);
        let told: Vec<_> = core::iter::from_fn(|| pages.poll_reduced()).collect();
        let (none, read) = (Protection::None, Protection::Read);
        assert_eq!(told, [(run(2, 2), none), (run(4, 1), read), (run(6, 1), none), (run(5, 1), none)]);
        pages.protect(2, Protection::Read);
        assert_eq!(pages.open(2, Protection::Write), Some(Protection::Read));
    }

    #[test]
    fn the_fields_of_a_word_do_not_disturb_each_other() {
        let mut pages = Pages::new(1).unwrap();
        pages.set_twin(0, Some(u32::MAX - 1));
        pages.set_home(0, 1023);
        pages.set(0, ALONE);
        pages.protect(0, Protection::Write);
        assert_eq!((pages.twin(0), pages.home(0)), (Some(u32::MAX - 1), Some(1023)));
        pages.set_home(0, 1);
        pages.set_twin(0, None);
        assert!(pages.take(0, ALONE) && !pages.is(0, ALONE) && !pages.is(0, KNOWN));
        assert_eq!((pages.twin(0), pages.home(0), pages.protection(0)), (None, Some(1), Protection::Write));
    }
}
