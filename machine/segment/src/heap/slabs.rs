//! The slabs of the segment: made of units, held, listed, and given back as units.

use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU32, AtomicU64};

use super::classes::{CLASSES, Class, TABLE};
use super::error::HeapError;
use super::sharing::{self, Given, HELD, LISTED, ListWords, SlabWords};
use super::units::{Units, Use};
use crate::layout::HEAP_AT;
use crate::segment::Segment;

/// The lists of classes: a line each.
const LISTS_AT: u64 = HEAP_AT + 4096;
const LIST_BYTES: u64 = 64;
/// In a line: slabs that became empty since such were last looked for.
const EMPTIED: u64 = 8;

/// Word of a slab: its link.
const NEXT: u64 = 0;

/// So many slabs of a class become empty before their units are given back.
const EMPTIES: u32 = 8;
/// Slabs with blocks that are passed over in the search for empty ones.
const PASSED: usize = 16;
/// Slabs taken from a list in a row that were none.
const STRAYS: usize = 256;

/// A slab: its offset, and its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slab {
    pub(super) at: u64,
    pub(super) class: usize,
}

/// The segment and its units, which slabs are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slabs<'a> {
    pub(super) segment: &'a Segment,
    pub(super) units: &'a Units,
}

impl<'a> Slabs<'a> {
    fn words(self, slab: Slab) -> Words<'a> {
        let entry = self.units.unit_of(slab.at).and_then(|unit| self.units.entry(self.segment, unit));
        Words { segment: self.segment, entry, slab }
    }

    fn list(self, class: usize) -> List<'a> {
        List { slabs: self, class }
    }

    /// A slab of the class with room, which the caller holds: from the list, or fresh. `None`: there are no units left.
    ///
    /// # Errors
    /// The file cannot grow.
    pub(super) fn hold(self, class: usize) -> Result<Option<Slab>, HeapError> {
        if let Some(slab) = self.hold_listed(class) {
            return Ok(Some(slab));
        }
        let units = TABLE[class].units();
        let Some(unit) = self.units.take(self.segment, units.into(), 1)? else { return Ok(None) };
        let slab = Slab { at: self.units.offset_of(unit), class };
        self.units.set_slab(self.segment, unit, units, class, HELD);
        Ok(Some(slab))
    }

    fn hold_listed(self, class: usize) -> Option<Slab> {
        for _ in 0..STRAYS {
            let unit = u64::from(sharing::pop(&self.list(class))?) - 1;
            let slab = Slab { at: self.units.offset_of(unit), class };
            let is_whole = self.units.are_usable(self.segment, unit, TABLE[class].units().into());
            if is_whole && sharing::change_state(&self.words(slab), LISTED, HELD) {
                return Some(slab);
            }
        }
        None
    }

    /// Takes blocks of a slab that the caller holds: a word of bits, from word `from` on in turn, and those blocks in it.
    pub(super) fn take(self, slab: Slab, from: u32) -> Option<(u32, u64)> {
        sharing::take(&self.words(slab), from)
    }

    /// The caller holds the slab no more, unless it has room again: then false.
    pub(super) fn leave_full(self, slab: Slab) -> bool {
        sharing::leave_full(&self.words(slab))
    }

    /// The caller holds the slab no more, which may have room.
    pub(super) fn leave(self, slab: Slab) {
        let is_empty = sharing::is_empty(&self.words(slab));
        self.list_held(slab);
        if is_empty {
            self.note_empty(slab.class);
        }
    }

    fn list_held(self, slab: Slab) {
        if sharing::change_state(&self.words(slab), HELD, LISTED) {
            self.push(slab);
        }
    }

    /// Puts a slab whose state the caller has made [`LISTED`] on its list.
    fn push(self, slab: Slab) {
        let unit = self.units.unit_of(slab.at).and_then(|unit| u32::try_from(unit + 1).ok());
        if let Some(number) = unit {
            sharing::push(&self.list(slab.class), number);
        }
    }

    /// Gives a slab that the caller holds back as units; no block of it is taken.
    fn dissolve(self, slab: Slab) {
        let units = TABLE[slab.class].units();
        let Some(unit) = self.units.unit_of(slab.at) else { return };
        self.units.clear_slab(self.segment, unit, units);
        self.units.give(self.segment, unit, units.into());
    }

    /// Gives blocks of a slab back: those of these bits of a word.
    pub(super) fn give(self, slab: Slab, word: u32, bits: u64) {
        match sharing::give(&self.words(slab), word, bits) {
            Given::Done => {}
            Given::List => self.push(slab),
            Given::Empty => self.note_empty(slab.class),
        }
    }

    /// A slab on the list of a class is empty. Where there are several, their units are given back.
    #[cold]
    fn note_empty(self, class: usize) {
        let emptied = self.segment.word32(LISTS_AT + class as u64 * LIST_BYTES + EMPTIED);
        if let Some(emptied) = emptied.filter(|word| word.fetch_add(1, SeqCst) >= EMPTIES - 1) {
            emptied.store(0, SeqCst);
            self.dissolve_empty(class, PASSED);
        }
    }

    /// Gives empty slabs on the list of a class back as units, until `passed` slabs with blocks were seen.
    fn dissolve_empty(self, class: usize, passed: usize) {
        let mut others = Vec::new();
        while others.len() <= passed {
            let Some(slab) = self.hold_listed(class) else { break };
            if sharing::is_empty(&self.words(slab)) {
                self.dissolve(slab);
            } else {
                others.push(slab);
            }
        }
        for slab in others.into_iter().rev() {
            self.list_held(slab);
        }
    }

    /// Gives all empty slabs on lists back as units.
    pub(super) fn dissolve_all_empty(self) {
        // No more slabs than there are units: a hostile process may keep adding some.
        let most = self.units.taken(self.segment) as usize;
        for class in 0..CLASSES {
            self.dissolve_empty(class, most);
        }
    }
}

/// The words of a slab. What is not in use counts as taken.
struct Words<'a> {
    segment: &'a Segment,
    entry: Option<&'a AtomicU32>,
    slab: Slab,
}

impl Words<'_> {
    fn kind(&self) -> &'static Class {
        &TABLE[self.slab.class]
    }

    fn bits(&self, word: u32) -> Option<&AtomicU64> {
        self.segment.word64(self.slab.at + u64::from(self.kind().bits_at + word * 8))
    }
}

impl SlabWords for Words<'_> {
    fn words(&self) -> u32 {
        self.kind().words()
    }

    fn all_bits(&self, word: u32) -> u64 {
        self.kind().bits(word)
    }

    fn class(&self) -> usize {
        self.slab.class
    }

    fn load_entry(&self) -> u32 {
        self.entry.map_or(0, |entry| entry.load(SeqCst))
    }

    fn change_entry(&self, from: u32, to: u32) -> bool {
        self.entry.is_some_and(|entry| entry.compare_exchange(from, to, SeqCst, SeqCst).is_ok())
    }

    fn load_bits(&self, word: u32) -> u64 {
        self.bits(word).map_or(u64::MAX, |bits| bits.load(SeqCst))
    }

    fn set_bits(&self, word: u32) -> u64 {
        self.bits(word).map_or(u64::MAX, |bits| bits.swap(u64::MAX, SeqCst))
    }

    fn clear_bits(&self, word: u32, cleared: u64) -> u64 {
        self.bits(word).map_or(u64::MAX, |bits| bits.fetch_and(!cleared, SeqCst))
    }
}

/// The words of a class's list. A slab's number is that of its first unit, plus one.
struct List<'a> {
    slabs: Slabs<'a>,
    class: usize,
}

impl List<'_> {
    fn head(&self) -> Option<&AtomicU64> {
        self.slabs.segment.word64(LISTS_AT + self.class as u64 * LIST_BYTES)
    }

    fn next(&self, slab: u32) -> Option<&AtomicU32> {
        let Slabs { segment, units } = self.slabs;
        let unit = u64::from(slab) - 1;
        let is_one = units.use_of(segment, unit) == Use::Slab { class: self.class, back: 0 };
        is_one.then(|| segment.word32(units.offset_of(unit) + NEXT)).flatten()
    }
}

impl ListWords for List<'_> {
    fn load_head(&self) -> u64 {
        self.head().map_or(0, |head| head.load(SeqCst))
    }

    fn change_head(&self, from: u64, to: u64) -> bool {
        self.head().is_some_and(|head| head.compare_exchange(from, to, SeqCst, SeqCst).is_ok())
    }

    fn load_next(&self, slab: u32) -> Option<u32> {
        Some(self.next(slab)?.load(SeqCst))
    }

    fn store_next(&self, slab: u32, next: u32) {
        if let Some(word) = self.next(slab) {
            word.store(next, SeqCst);
        }
    }
}
