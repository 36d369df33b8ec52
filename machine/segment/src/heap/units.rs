//! The heap's pages, in units of 64 KiB: who has taken them, and what for.
//!
//! A bit a unit says whether it is taken; an entry of 4 bytes says what begins there. All bits are set and cleared by single atomic
//! operations, so a process that dies in the middle costs the units that it was about to take, and nobody waits for it.
//!
//! Free units read as zeros: they are fresh, or were given back to the kernel.
//!
//! **Zones.** The words of the first 32 GiB lie before the data. Those of the rest lie at its start, 32 GiB behind the first, so that the
//! file only becomes so long when that much is used. No run of units crosses from one zone to the other.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::classes::{CLASSES, SMALL_CLASSES};
use super::error::HeapError;
use crate::layout::{ALIGN_BYTES, DATA_AT, HEAP_AT, HEAP_BYTES};
use crate::segment::Segment;

/// Bytes of a unit.
pub(super) const UNIT_BYTES: u64 = 64 << 10;

/// First free unit, or an earlier one: a word a zone.
const HINTS_AT: u64 = HEAP_AT + 64;
/// Farthest end of taken units so far, in bytes from the start of the segment.
const HIGHEST_AT: u64 = HEAP_AT + 192;
/// The words of the first zone.
const FIRST_AT: u64 = HEAP_AT + (16 << 10);
const FIRST_UNITS: u64 = 1 << 19;
const FIRST_ENTRIES_AT: u64 = FIRST_AT + FIRST_UNITS / 8;

const _: () = assert!(FIRST_ENTRIES_AT + FIRST_UNITS * 4 <= HEAP_AT + HEAP_BYTES);

/// Entries: the low byte says what the unit is.
const IS: u32 = 0xff;
/// Bits of the number in an entry.
const NUMBER_BITS: u32 = 24;
/// The first of a run; the number is its length, modulo 2^24.
const RUN: u32 = 0xff;
/// The second of a run; the number is its length, divided by 2^24.
const MORE: u32 = 0xfe;

/// Entry of a unit of a slab that begins `back` units earlier, less than 256. The first unit's has the slab's state, others' have 0.
pub(super) const fn slab_entry(class: usize, back: u32, state: u32) -> u32 {
    (class as u32 + 1) | (back | state << 8) << (u32::BITS - NUMBER_BITS)
}

/// What begins at a unit, or holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Free, or in a run that begins earlier.
    Nothing,
    /// A slab of this class, which begins so many units earlier.
    Slab { class: usize, back: u32 },
    /// A run of so many units.
    Run(u64),
}

/// Units that lie one behind the other.
#[derive(Clone, Copy, Debug)]
struct Zone {
    /// Number of the first.
    first: u64,
    units: u64,
    bits_at: u64,
    entries_at: u64,
    data_at: u64,
    hint_at: u64,
}

/// The units of a segment. Numbers of units are checked where they come from the segment, not here.
#[derive(Debug)]
pub(super) struct Units {
    /// Bytes of the first zone that this process knows to be in use.
    known_bytes: AtomicU64,
    zones: [Zone; 2],
}

impl Units {
    pub(super) fn new(segment_bytes: u64) -> Self {
        let fit = |bytes_from: u64| segment_bytes.saturating_sub(bytes_from) / UNIT_BYTES;
        let first = Zone {
            first: 0,
            units: fit(DATA_AT).min(FIRST_UNITS),
            bits_at: FIRST_AT,
            entries_at: FIRST_ENTRIES_AT,
            data_at: DATA_AT,
            hint_at: HINTS_AT,
        };
        let bits_at = DATA_AT + FIRST_UNITS * UNIT_BYTES;
        let most = fit(bits_at);
        let entries_at = bits_at + most.div_ceil(64) * 8;
        let data_at = (entries_at + most * 4).next_multiple_of(ALIGN_BYTES as u64);
        let second =
            Zone { first: first.units, units: fit(data_at), bits_at, entries_at, data_at, hint_at: HINTS_AT + 64 };
        Self { known_bytes: AtomicU64::new(0), zones: [first, second] }
    }

    /// Bytes of all units.
    pub(super) fn bytes(&self) -> u64 {
        self.zones.iter().map(|zone| zone.units * UNIT_BYTES).sum()
    }

    #[inline(always)]
    fn zone(&self, unit: u64) -> &Zone {
        let [first, second] = &self.zones;
        if unit < first.units { first } else { second }
    }

    /// Offset of a unit.
    #[inline(always)]
    pub(super) fn offset_of(&self, unit: u64) -> u64 {
        let zone = self.zone(unit);
        zone.data_at + (unit - zone.first) * UNIT_BYTES
    }

    /// The unit that holds an offset.
    #[inline(always)]
    pub(super) fn unit_of(&self, offset: u64) -> Option<u64> {
        let [first, second] = &self.zones;
        let zone = if offset < second.data_at { first } else { second };
        let unit = offset.checked_sub(zone.data_at)? / UNIT_BYTES;
        (unit < zone.units).then_some(zone.first + unit)
    }

    /// The class of the slab of small blocks in the unit that holds an offset; the whole unit is in use then. `None`: there is none, or it is
    /// not in the first zone, or this process does not know of it.
    #[inline(always)]
    pub(super) fn small_class(&self, segment: &Segment, offset: u64) -> Option<usize> {
        // The entries of the units before the data, as it were, precede the others.
        const ENTRIES_AT: u64 = FIRST_ENTRIES_AT - DATA_AT / UNIT_BYTES * 4;
        if offset.wrapping_sub(DATA_AT) >= self.known_bytes.load(Ordering::Relaxed) {
            return None;
        }
        // The words of the first zone are always in use.
        let entry = segment.word32_in_use(ENTRIES_AT + offset / UNIT_BYTES * 4)?.load(Ordering::Relaxed);
        // Such a slab is one unit.
        let class = usize::from(entry as u8).wrapping_sub(1);
        (class < SMALL_CLASSES).then_some(class)
    }

    /// Takes note of how much of the first zone is in use.
    pub(super) fn note_known(&self, segment: &Segment) {
        let known = segment.known_bytes().saturating_sub(DATA_AT).min(self.zones[0].units * UNIT_BYTES);
        self.known_bytes.store(known - known % UNIT_BYTES, Ordering::Relaxed);
    }

    /// Whether `units` from `unit` on lie in one zone, and accesses to them do not fault.
    pub(super) fn are_usable(&self, segment: &Segment, unit: u64, units: u64) -> bool {
        let zone = self.zone(unit);
        let end = zone.first + zone.units;
        unit < end && units <= end - unit && segment.is_in_use(self.offset_of(unit), units * UNIT_BYTES)
    }

    /// The entry of a unit.
    #[inline(always)]
    pub(super) fn entry<'a>(&self, segment: &'a Segment, unit: u64) -> Option<&'a AtomicU32> {
        let zone = self.zone(unit);
        segment.word32(zone.entries_at + (unit - zone.first) * 4)
    }

    /// What a unit is used for, as its entry says: anything, where a hostile process has written it.
    #[inline(always)]
    pub(super) fn use_of(&self, segment: &Segment, unit: u64) -> Use {
        let entry = self.entry(segment, unit).map_or(0, |entry| entry.load(Ordering::Relaxed));
        let number = entry >> (u32::BITS - NUMBER_BITS);
        match entry & IS {
            0 | MORE => Use::Nothing,
            RUN => Use::Run(u64::from(number) | self.more(segment, unit)),
            class if class as usize <= CLASSES => Use::Slab { class: class as usize - 1, back: number & 0xff },
            _ => Use::Nothing,
        }
    }

    #[cold]
    fn more(&self, segment: &Segment, unit: u64) -> u64 {
        let entry = self.entry(segment, unit + 1).map_or(0, |entry| entry.load(Ordering::Relaxed));
        if entry & IS == MORE { u64::from(entry >> (u32::BITS - NUMBER_BITS)) << NUMBER_BITS } else { 0 }
    }

    /// Says of units just taken that they are a slab in this state.
    pub(super) fn set_slab(&self, segment: &Segment, unit: u64, units: u32, class: usize, state: u32) {
        for back in 0..units {
            if let Some(entry) = self.entry(segment, unit + u64::from(back)) {
                let state = if back == 0 { state } else { 0 };
                entry.store(slab_entry(class, back, state), Ordering::SeqCst);
            }
        }
    }

    /// Says of units of a slab that nothing begins there.
    pub(super) fn clear_slab(&self, segment: &Segment, unit: u64, units: u32) {
        for unit in (unit..).take(units as usize) {
            if let Some(entry) = self.entry(segment, unit) {
                entry.store(0, Ordering::SeqCst);
            }
        }
    }

    /// Says of units just taken that they are a run.
    pub(super) fn set_run(&self, segment: &Segment, unit: u64, units: u64) {
        if let Some(entry) = self.entry(segment, unit) {
            entry.store(0, Ordering::Relaxed);
        }
        self.change_run(segment, unit, 0, units);
    }

    /// Changes the length of the run that begins at `unit`, in units; 0: there is none. False if it was not `from` any more.
    pub(super) fn change_run(&self, segment: &Segment, unit: u64, from: u64, to: u64) -> bool {
        let of = |units: u64| if units == 0 { 0 } else { RUN | (units as u32) << (u32::BITS - NUMBER_BITS) };
        let Some(entry) = self.entry(segment, unit) else { return false };
        let changed = entry.compare_exchange(of(from), of(to), Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let (more_from, more_to) = ((from >> NUMBER_BITS) as u32, (to >> NUMBER_BITS) as u32);
        if changed
            && (more_from > 0 || more_to > 0)
            && let Some(second) = self.entry(segment, unit + 1)
        {
            let more = if more_to > 0 { MORE | more_to << (u32::BITS - NUMBER_BITS) } else { 0 };
            second.store(more, Ordering::Release);
        }
        changed
    }

    /// The unit where what holds `unit` begins, as far as entries say: for messages.
    pub(super) fn start_of(&self, segment: &Segment, unit: u64) -> Option<(u64, Use)> {
        let zone = self.zone(unit);
        let found = (zone.first..=unit).rev().find_map(|at| match self.use_of(segment, at) {
            Use::Nothing => None,
            used => Some((at, used)),
        })?;
        let holds = match found.1 {
            Use::Run(units) => unit - found.0 < units,
            _ => unit == found.0,
        };
        holds.then_some(found)
    }

    /// Takes `units` that lie one behind the other, the first a multiple of `align` units. `None` if there are none.
    ///
    /// # Errors
    /// The file cannot become so long.
    pub(super) fn take(&self, segment: &Segment, units: u64, align: u64) -> Result<Option<u64>, HeapError> {
        for zone in &self.zones {
            if zone.units < units {
                continue;
            }
            if zone.data_at > DATA_AT {
                segment.grow_to(zone.data_at)?;
            }
            let Some(at) = zone.take(segment, units, align) else { continue };
            let end = zone.data_at + (at + units) * UNIT_BYTES;
            if let Err(error) = segment.grow_to(end) {
                zone.clear(segment, at, units);
                return Err(error.into());
            }
            note_highest(segment, end);
            return Ok(Some(zone.first + at));
        }
        Ok(None)
    }

    /// Takes exactly the `units` from `unit` on, which follows a unit of the caller's, if they are free.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) fn take_at(&self, segment: &Segment, unit: u64, units: u64) -> Result<bool, HeapError> {
        let zone = self.zone(unit - 1);
        let at = unit - zone.first;
        if units > zone.units - at || zone.set(segment, at, units).is_err() {
            return Ok(false);
        }
        let end = zone.data_at + (at + units) * UNIT_BYTES;
        if let Err(error) = segment.grow_to(end) {
            zone.clear(segment, at, units);
            return Err(error.into());
        }
        note_highest(segment, end);
        Ok(true)
    }

    /// Gives units back, and their pages to the kernel.
    pub(super) fn give(&self, segment: &Segment, unit: u64, units: u64) {
        let (offset, bytes) = (self.offset_of(unit), units * UNIT_BYTES);
        if segment.discard(offset, bytes).is_err() {
            segment.fill(offset, bytes, 0);
        }
        let zone = self.zone(unit);
        zone.clear(segment, unit - zone.first, units);
    }

    /// All units up to the farthest that was ever taken.
    pub(super) fn ever_taken(&self, segment: &Segment) -> impl Iterator<Item = u64> {
        let highest = self.highest(segment);
        let ends = self.zones.map(|zone| (zone.first, highest.saturating_sub(zone.data_at) / UNIT_BYTES, zone.units));
        ends.into_iter().flat_map(|(first, used, all)| first..first + used.min(all))
    }

    /// Farthest end of taken units so far, in bytes from the start of the segment.
    pub(super) fn highest(&self, segment: &Segment) -> u64 {
        let highest = segment.word64(HIGHEST_AT).map_or(0, |word| word.load(Ordering::Relaxed));
        highest.min(segment.bytes())
    }

    /// Number of units that are taken.
    pub(super) fn taken(&self, segment: &Segment) -> u64 {
        let of = |zone: &Zone| -> u64 {
            let words = (0..zone.units.div_ceil(64)).map_while(|word| segment.word64(zone.bits_at + word * 8));
            words.map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
        };
        self.zones.iter().map(|zone| of(zone).min(zone.units)).sum()
    }
}

fn note_highest(segment: &Segment, end: u64) {
    if let Some(word) = segment.word64(HIGHEST_AT) {
        word.fetch_max(end, Ordering::Relaxed);
    }
}

/// Numbers of units are counted from the zone's first here.
impl Zone {
    fn word<'a>(&self, segment: &'a Segment, unit: u64) -> Option<&'a AtomicU64> {
        segment.word64(self.bits_at + unit / 64 * 8)
    }

    /// The bits from that of `unit` on, of one word: set where a unit is taken.
    fn bits_from(&self, segment: &Segment, unit: u64) -> u64 {
        self.word(segment, unit).map_or(u64::MAX, |word| word.load(Ordering::Relaxed)) >> (unit % 64)
    }

    /// The first unit from `from` on that is taken or not; `end` if there is none before.
    fn first(&self, segment: &Segment, from: u64, end: u64, is_taken: bool) -> u64 {
        let mut at = from;
        while at < end {
            let bits = self.bits_from(segment, at);
            let bits = if is_taken { bits } else { !bits & (u64::MAX >> (at % 64)) };
            if bits != 0 {
                return (at + u64::from(bits.trailing_zeros())).min(end);
            }
            at = (at / 64 + 1) * 64;
        }
        end
    }

    fn take(&self, segment: &Segment, units: u64, align: u64) -> Option<u64> {
        let hint = segment.word32(self.hint_at)?;
        let hinted = hint.load(Ordering::Relaxed);
        let from = u64::from(hinted).min(self.units);
        let first_free = self.first(segment, from, self.units, false);
        if let Some(at) = self.take_from(segment, first_free, units, align) {
            let next = if at == first_free { at + units } else { first_free };
            // If another has changed it, a unit before it may have become free.
            let _ = hint.compare_exchange(hinted, next as u32, Ordering::Relaxed, Ordering::Relaxed);
            return Some(at);
        }
        // Any process may have written the hint.
        if from > 0 { self.take_from(segment, 0, units, align) } else { None }
    }

    /// One walk through the zone.
    fn take_from(&self, segment: &Segment, from: u64, units: u64, align: u64) -> Option<u64> {
        let mut at = from.next_multiple_of(align);
        while at + units <= self.units {
            let mut taken = self.first(segment, at, at + units, true);
            if taken == at + units {
                match self.set(segment, at, units) {
                    Ok(()) => return Some(at),
                    Err(unit) => taken = unit,
                }
            }
            at = self.first(segment, taken + 1, self.units, false).next_multiple_of(align);
        }
        None
    }

    /// The words that hold the bits of units: the first unit of each, and its bits.
    fn words(at: u64, units: u64) -> impl Iterator<Item = (u64, u64)> {
        let end = at + units;
        (at / 64..end.div_ceil(64)).map(move |word| {
            let (from, to) = (at.max(word * 64), end.min(word * 64 + 64));
            (from, (u64::MAX >> (64 - (to - from))) << (from % 64))
        })
    }

    /// Takes the units from `at` on; if one of them is taken, none, and says which.
    fn set(&self, segment: &Segment, at: u64, units: u64) -> Result<(), u64> {
        for (first, bits) in Self::words(at, units) {
            let word = self.word(segment, first).ok_or(first)?;
            let before = word.fetch_or(bits, Ordering::AcqRel) & bits;
            if before != 0 {
                word.fetch_and(!(bits & !before), Ordering::Release);
                self.unset(segment, at, first - at);
                return Err(first - first % 64 + u64::from(before.trailing_zeros()));
            }
        }
        Ok(())
    }

    fn unset(&self, segment: &Segment, at: u64, units: u64) {
        if units == 0 {
            return;
        }
        for (first, bits) in Self::words(at, units) {
            if let Some(word) = self.word(segment, first) {
                word.fetch_and(!bits, Ordering::Release);
            }
        }
    }

    fn clear(&self, segment: &Segment, at: u64, units: u64) {
        self.unset(segment, at, units);
        if let Some(hint) = segment.word32(self.hint_at) {
            hint.fetch_min(at as u32, Ordering::Release);
        }
    }
}
