//! What the heap holds: figures, leaks, and damage.

use std::collections::BTreeMap;

use super::Heap;
use super::classes::{CLASSES, TABLE};
use super::debug;
use super::error::{Allocated, HeapError};
use super::inner::Piece;
use super::units::{UNIT_BYTES, Use};
use crate::layout::DATA_AT;

/// What a heap holds, counted by a walk through it. What is allocated and freed meanwhile may count or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Blocks that are allocated.
    pub blocks: u64,
    /// Bytes of these blocks, with what was added to round them.
    pub allocated_bytes: u64,
    /// Bytes that blocks take, with what is kept for further ones: an upper limit of the memory they use.
    pub taken_bytes: u64,
    /// The most of the data that was ever in use, from its start, in bytes.
    pub highest_bytes: u64,
    /// All bytes for data.
    pub all_bytes: u64,
    /// By size of blocks, ascending; sizes without slabs are left out.
    pub classes: Vec<ClassStatistics>,
    /// Blocks that are longer than any class, and their bytes.
    pub long: (u64, u64),
}

/// The blocks of a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStatistics {
    /// Bytes of a block.
    pub bytes: u64,
    /// Blocks that are allocated.
    pub blocks: u64,
    /// Blocks that there is room for.
    pub room: u64,
}

/// Blocks that were never freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leak {
    /// Who allocated them; unknown without debug mode.
    pub by: Allocated,
    /// How many.
    pub blocks: u64,
    /// Their bytes: as asked for in debug mode, else as given.
    pub bytes: u64,
}

impl Heap {
    /// What the heap holds, of all ranks.
    pub fn statistics(&self) -> Statistics {
        let (units, segment) = (self.inner.units(), self.inner.segment());
        let mut classes =
            TABLE.each_ref().map(|class| ClassStatistics { bytes: class.bytes.into(), ..Default::default() });
        for unit in units.ever_taken(segment) {
            if let Use::Slab { class, back: 0 } = units.use_of(segment, unit) {
                classes[class.min(CLASSES - 1)].room += u64::from(TABLE[class].blocks);
            }
        }
        let mut it = Statistics {
            taken_bytes: units.taken(segment) * UNIT_BYTES,
            highest_bytes: units.highest(segment).saturating_sub(DATA_AT),
            all_bytes: units.bytes(),
            ..Default::default()
        };
        for piece in self.inner.pieces() {
            let (_, bytes) = self.inner.extent(piece);
            it.blocks += 1;
            it.allocated_bytes += bytes;
            match piece {
                Piece::Block { class, .. } => classes[class].blocks += 1,
                Piece::Run { .. } => it.long = (it.long.0 + 1, it.long.1 + bytes),
            }
        }
        it.classes = classes.into_iter().filter(|class| class.room > 0).collect();
        it
    }

    /// All blocks that are allocated, by who allocated them; most bytes first. What other ranks still use counts too: call it when all are
    /// done.
    pub fn leaks(&self) -> Vec<Leak> {
        let mut leaks = BTreeMap::new();
        for piece in self.inner.pieces() {
            let (offset, room) = self.inner.extent(piece);
            let record = self.inner.is_debug().then(|| debug::check(self.inner.segment(), offset, room));
            let (by, bytes) = match record {
                Some(Ok(record)) => (record.by, record.bytes),
                _ => (Allocated::UNKNOWN, room),
            };
            let leak = leaks.entry(by).or_insert(Leak { by, blocks: 0, bytes: 0 });
            leak.blocks += 1;
            leak.bytes += bytes;
        }
        let mut leaks: Vec<Leak> = leaks.into_values().collect();
        leaks.sort_by_key(|leak| core::cmp::Reverse(leak.bytes));
        leaks
    }

    /// The damage behind blocks that are allocated, by stores of any rank. Nothing is found without debug mode.
    pub fn damage(&self) -> Vec<HeapError> {
        if !self.inner.is_debug() {
            return Vec::new();
        }
        let extents = self.inner.pieces().map(|piece| self.inner.extent(piece));
        extents.filter_map(|(offset, room)| debug::check(self.inner.segment(), offset, room).err()).collect()
    }
}
