//! Where blocks are found, taken and given back, whatever is written around them.

use core::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

use super::cache::{self, Block, Run, uncached};
use super::classes::{GRAIN_BYTES, TABLE, aligned_class};
use super::error::{Allocated, HeapError};
use super::slabs::Slabs;
use super::units::{UNIT_BYTES, Units, Use};
use crate::layout::{ALIGN_BYTES, HEAP_AT};
use crate::segment::Segment;

/// Word of the heap: how it was first opened.
const MODE_AT: u64 = HEAP_AT;

/// State of a block that nobody has had: it reads as zeros.
const FRESH: u8 = 0;
/// The program has it.
const LIVE: u8 = 1;
/// The program had it.
const FREED: u8 = 2;

/// Units of 2 MiB: runs of so many begin at such a multiple, for the sake of huge pages.
const HUGE_UNITS: u64 = ALIGN_BYTES as u64 / UNIT_BYTES;

/// Attempts to find room while other threads hold back what they look through.
const ATTEMPTS: usize = 8;
/// Blocks in a row that are in use already, as only another process's stores can make them.
const STRAYS: usize = 64;

/// What a process has of a heap.
#[derive(Debug)]
pub(super) struct Inner {
    segment: Arc<Segment>,
    units: Units,
    is_debug: bool,
}

/// Memory that the program has, or is about to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Block { class: usize, block: Block },
    Run { unit: u64, units: u64 },
}

/// Memory just taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) offset: u64,
    /// Its length in bytes: what was asked for, or more.
    pub(super) room: u64,
    /// It reads as zeros.
    pub(super) is_fresh: bool,
}

impl Inner {
    pub(super) fn new(segment: Arc<Segment>, is_debug: bool) -> Result<Self, HeapError> {
        let mode = 1 + u32::from(is_debug);
        let word = segment.word32(MODE_AT).ok_or(HeapError::Damaged { at: MODE_AT })?;
        let before = word.compare_exchange(0, mode, Ordering::AcqRel, Ordering::Acquire).unwrap_or_else(|other| other);
        if before != 0 && before != mode {
            return Err(HeapError::Differs { ours: is_debug });
        }
        let units = Units::new(segment.bytes());
        Ok(Self { segment, units, is_debug })
    }

    #[inline(always)]
    pub(super) fn is_debug(&self) -> bool {
        self.is_debug
    }

    #[inline(always)]
    pub(super) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    pub(super) fn units(&self) -> &Units {
        &self.units
    }

    #[inline(always)]
    pub(super) fn slabs(&self) -> Slabs<'_> {
        Slabs { segment: &self.segment, units: &self.units }
    }

    /// Address of an offset, in all ranks.
    pub(super) fn address(&self, offset: u64) -> usize {
        self.segment.base().wrapping_add(offset as usize)
    }

    fn state(&self, block: Block) -> Result<&AtomicU8, HeapError> {
        self.segment.byte(block.state_at).ok_or(HeapError::Damaged { at: block.state_at })
    }

    /// Offset and length of a piece.
    pub(super) fn extent(&self, piece: Piece) -> (u64, u64) {
        match piece {
            Piece::Block { class, block } => (block.offset, TABLE[class].bytes.into()),
            Piece::Run { unit, units } => (self.units.offset_of(unit), units * UNIT_BYTES),
        }
    }

    /// A block of the class that the calling thread keeps, and its state.
    #[inline(always)]
    fn pop_kept(self: &Arc<Self>, class: usize) -> Option<(Block, &AtomicU8)> {
        cache::with_last(self, |bins| {
            let block = bins.bin(class)?.pop()?;
            Some((block, self.segment.byte_in_use(block.state_at)?))
        })
    }

    /// A block of the class that the calling thread keeps; its content may be anything.
    #[inline(always)]
    pub(super) fn take_kept(self: &Arc<Self>, class: usize) -> Option<u64> {
        let (block, state) = self.pop_kept(class)?;
        state.store(LIVE, Ordering::Relaxed);
        Some(block.offset)
    }

    /// Says that the program has a block. `None`: it has it already, and that block is lost.
    fn hand_out(block: Block, class: usize, state: &AtomicU8) -> Option<Taken> {
        let before = state.load(Ordering::Relaxed);
        if before == LIVE {
            return None;
        }
        state.store(LIVE, Ordering::Relaxed);
        Some(Taken { offset: block.offset, room: TABLE[class].bytes.into(), is_fresh: before == FRESH })
    }

    /// A block of the class. `None`: there are no units left.
    fn take_block(self: &Arc<Self>, class: usize) -> Result<Option<Taken>, HeapError> {
        let slabs = self.slabs();
        for _ in 0..STRAYS {
            let taken = cache::with_bin(self, class, |bin| bin.take(slabs));
            let Some(block) = taken.unwrap_or_else(|| uncached::take(class, slabs))? else { return Ok(None) };
            if let Some(taken) = Self::hand_out(block, class, self.state(block)?) {
                return Ok(Some(taken));
            }
        }
        Err(HeapError::Damaged { at: self.segment.bytes() })
    }

    /// `bytes` at a multiple of `align`.
    pub(super) fn take(self: &Arc<Self>, bytes: u64, align: u64) -> Result<Taken, HeapError> {
        if let Some(class) = aligned_class(bytes, align)
            && let Some((block, state)) = self.pop_kept(class)
            && let Some(taken) = Self::hand_out(block, class, state)
        {
            return Ok(taken);
        }
        let mut refused = None;
        for attempt in 0..ATTEMPTS {
            match self.try_take(bytes, align) {
                Ok(Some(taken)) => return Ok(taken),
                Ok(None) => {}
                // The file cannot grow; there may be room further in front.
                Err(error @ HeapError::Segment(_)) => refused = Some(error),
                Err(error) => return Err(error),
            }
            if attempt > 0 {
                std::thread::yield_now();
            }
            cache::empty(self);
            self.slabs().dissolve_all_empty();
        }
        let used_bytes = self.units.taken(&self.segment) * UNIT_BYTES;
        Err(refused.unwrap_or(HeapError::OutOfMemory { bytes, used_bytes, all_bytes: self.units.bytes() }))
    }

    fn try_take(self: &Arc<Self>, bytes: u64, align: u64) -> Result<Option<Taken>, HeapError> {
        if let Some(class) = aligned_class(bytes, align)
            && let Some(taken) = self.take_block(class)?
        {
            return Ok(Some(taken));
        }
        self.take_run(bytes, align)
    }

    fn take_run(self: &Arc<Self>, bytes: u64, align: u64) -> Result<Option<Taken>, HeapError> {
        let units = bytes.div_ceil(UNIT_BYTES);
        let least = (align / UNIT_BYTES).max(1);
        let best = if units >= HUGE_UNITS { HUGE_UNITS } else { least };
        let suits = |run: Run| self.units.offset_of(run.unit).is_multiple_of(best * UNIT_BYTES);
        if let Some(Run { unit, units }) = cache::bins_of(self).and_then(|bins| bins.take_run(units, suits)) {
            self.units.set_run(&self.segment, unit, units);
            let offset = self.units.offset_of(unit);
            return Ok(Some(Taken { offset, room: units * UNIT_BYTES, is_fresh: false }));
        }
        let mut taken = self.units.take(&self.segment, units, best)?;
        if taken.is_none() && best > least {
            taken = self.units.take(&self.segment, units, least)?;
        }
        let Some(unit) = taken else { return Ok(None) };
        // Words of an earlier use, which only another process can have left there, must not stay.
        self.units.set_run(&self.segment, unit, units);
        Ok(Some(Taken { offset: self.units.offset_of(unit), room: units * UNIT_BYTES, is_fresh: true }))
    }

    /// What the program has at `offset`.
    ///
    /// # Errors
    /// It has nothing there.
    pub(super) fn find(&self, offset: u64) -> Result<Piece, HeapError> {
        let Some(unit) = self.units.unit_of(offset) else { return Err(self.outside(offset)) };
        self.units.note_known(&self.segment);
        match self.units.use_of(&self.segment, unit) {
            Use::Slab { class, back } => {
                let start =
                    unit.checked_sub(back.into()).ok_or(HeapError::NotAllocated { address: self.address(offset) })?;
                let slab_at = self.units.offset_of(start);
                let kind = &TABLE[class];
                let number = match kind.block_at(offset.wrapping_sub(slab_at)) {
                    Ok(number) => number,
                    Err(holder) => return Err(self.no_block(offset, class, slab_at, holder)),
                };
                if !self.segment.is_in_use(slab_at, kind.slab_bytes.into()) {
                    return Err(HeapError::Damaged { at: slab_at });
                }
                let block = Block::of(slab_at, class, number);
                match self.state(block)?.load(Ordering::Relaxed) {
                    LIVE => Ok(Piece::Block { class, block }),
                    state => Err(self.not_live(Piece::Block { class, block }, state)),
                }
            }
            used => self.find_run(offset, unit, used),
        }
    }

    #[cold]
    fn find_run(&self, offset: u64, unit: u64, used: Use) -> Result<Piece, HeapError> {
        let start = match used {
            Use::Run(units) => Some((unit, Use::Run(units))),
            _ => self.units.start_of(&self.segment, unit),
        };
        let address = self.address(offset);
        let Some((start, Use::Run(units))) = start else { return Err(HeapError::NotAllocated { address }) };
        let at = self.units.offset_of(start);
        if !self.units.are_usable(&self.segment, start, units) || units == 0 {
            return Err(HeapError::Damaged { at });
        }
        if at != offset {
            return Err(HeapError::Inside { address, block: self.address(at) });
        }
        Ok(Piece::Run { unit, units })
    }

    #[cold]
    fn outside(&self, offset: u64) -> HeapError {
        let data = self.address(self.units.offset_of(0))..self.address(self.segment.bytes());
        HeapError::Outside { address: self.address(offset), data }
    }

    #[cold]
    fn no_block(&self, offset: u64, class: usize, slab_at: u64, holder: Option<u32>) -> HeapError {
        let address = self.address(offset);
        let block = holder.map(|number| Block::of(slab_at, class, number));
        let is_live = |&block: &Block| self.state(block).is_ok_and(|it| it.load(Ordering::Relaxed) == LIVE);
        match block.filter(is_live) {
            Some(block) => HeapError::Inside { address, block: self.address(block.offset) },
            None => HeapError::NotAllocated { address },
        }
    }

    #[cold]
    fn not_live(&self, piece: Piece, state: u8) -> HeapError {
        let (at, bytes) = self.extent(piece);
        let address = self.address(at);
        if state != FREED {
            return HeapError::NotAllocated { address };
        }
        let by = if self.is_debug { super::debug::by(&self.segment, at, bytes) } else { Allocated::UNKNOWN };
        HeapError::FreedTwice { address, by }
    }

    /// Gives back a small block that the calling thread has room to keep. `None`, and nothing is done, in all other cases.
    #[inline(always)]
    pub(super) fn give_kept(self: &Arc<Self>, offset: u64) -> Option<()> {
        cache::with_last(self, |bins| {
            let class = self.units.small_class(&self.segment, offset)?;
            // The first zone has less than 2^32 grains.
            let grain = (offset / GRAIN_BYTES) as u32;
            let state = self.segment.byte_in_use(Block::small(grain).state_at)?;
            let is_live = state.load(Ordering::Relaxed) == LIVE && offset.is_multiple_of(GRAIN_BYTES);
            let is_kept = is_live && bins.bin(class)?.push_small(grain);
            is_kept.then(|| state.store(FREED, Ordering::Relaxed))
        })
    }

    /// Gives back what [`find`](Self::find) has found.
    ///
    /// # Errors
    /// Another thread has done so meanwhile.
    pub(super) fn give(self: &Arc<Self>, piece: Piece) -> Result<(), HeapError> {
        let Piece::Block { class, block } = piece else { return self.give_run(piece) };
        if self.state(block)?.swap(FREED, Ordering::AcqRel) != LIVE {
            return Err(self.not_live(piece, FREED));
        }
        let slabs = self.slabs();
        if cache::with_bin(self, class, |bin| bin.keep(block, slabs)).is_none() {
            uncached::keep(class, block, slabs);
        }
        Ok(())
    }

    #[cold]
    fn give_run(self: &Arc<Self>, piece: Piece) -> Result<(), HeapError> {
        let Piece::Run { unit, units } = piece else { return Ok(()) };
        if !self.units.change_run(&self.segment, unit, units, 0) {
            return Err(HeapError::NotAllocated { address: self.address(self.units.offset_of(unit)) });
        }
        let run = Run { unit, units };
        let all_units = self.units.bytes() / UNIT_BYTES;
        let bins = if self.is_debug { None } else { cache::bins_of(self) };
        if let Some(run) = bins.map_or(Some(run), |bins| bins.keep_run(run, all_units)) {
            self.units.give(&self.segment, run.unit, run.units);
        }
        Ok(())
    }

    /// Changes the length of a piece where it lies. False: it has no room there.
    ///
    /// # Errors
    /// Another thread has given it back meanwhile; the file cannot grow.
    pub(super) fn resize(&self, piece: Piece, bytes: u64) -> Result<bool, HeapError> {
        match piece {
            Piece::Block { class, .. } => {
                let has = u64::from(TABLE[class].bytes);
                Ok(bytes <= has && bytes > has / 2)
            }
            // Blocks of classes are shorter than that.
            Piece::Run { .. } if aligned_class(bytes, 1).is_some() => Ok(false),
            Piece::Run { unit, units } => {
                let wanted = bytes.div_ceil(UNIT_BYTES);
                if wanted > units && !self.units.take_at(&self.segment, unit + units, wanted - units)? {
                    return Ok(false);
                }
                if wanted != units && !self.units.change_run(&self.segment, unit, units, wanted) {
                    if wanted > units {
                        self.units.give(&self.segment, unit + units, wanted - units);
                    }
                    return Err(HeapError::NotAllocated { address: self.address(self.units.offset_of(unit)) });
                }
                if wanted < units {
                    self.units.give(&self.segment, unit + wanted, units - wanted);
                }
                Ok(true)
            }
        }
    }

    /// All pieces that the program has, unless some come and go meanwhile.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Piece> {
        self.units.ever_taken(&self.segment).flat_map(|unit| {
            let (class, run) = match self.units.use_of(&self.segment, unit) {
                Use::Slab { class, back: 0 } => (Some(class), None),
                Use::Run(units) if self.units.are_usable(&self.segment, unit, units) => (None, Some(units)),
                _ => (None, None),
            };
            let slab_at = self.units.offset_of(unit);
            let blocks = class.into_iter().flat_map(move |class| {
                let numbers = 0..TABLE[class].blocks;
                numbers.map(move |number| (class, Block::of(slab_at, class, number)))
            });
            let is_live = |&(_, block): &(usize, Block)| {
                self.state(block).is_ok_and(|state| state.load(Ordering::Relaxed) == LIVE)
            };
            let blocks = blocks.filter(is_live).map(|(class, block)| Piece::Block { class, block });
            blocks.chain(run.map(|units| Piece::Run { unit, units }))
        })
    }
}
