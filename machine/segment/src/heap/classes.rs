//! Classes of sizes, and how a slab of a class is laid out.
//!
//! Sizes grow in steps of 16 bytes up to 128, then in eight steps from one power of two to the next: a block is at most an eighth longer than
//! what was asked for. A slab is a run of [units](super::units) that holds blocks of one class:
//!
//! | part | begins at |
//! |---|---|
//! | its link ([`slabs`](super::slabs)) | 0 |
//! | a byte a block: what the program has done with it | of *small* blocks, up to 1 KiB, at 1/16 of the block's own offset: nothing is divided to find it; of others behind the next |
//! | a bit a block: taken, by a program or a thread's cache | 4096 for small blocks, else 64 |
//! | the blocks, aligned to the largest power of two in their size, to a page at most | behind these |
//!
//! A slab of small blocks is one unit.

use super::units::UNIT_BYTES;

/// Number of classes.
pub(super) const CLASSES: usize = 88;
/// Longest block of a class. What is longer is a run of units of its own.
pub(super) const LONGEST_BYTES: u64 = 128 << 10;
/// Blocks are aligned to this at least.
pub(super) const LEAST_ALIGN: u64 = 16;
/// The largest alignment that classes give.
pub(super) const CLASS_ALIGN: u64 = 4096;

/// Longest small block, and the number of their classes.
pub(super) const SMALL_BYTES: u64 = 1024;
pub(super) const SMALL_CLASSES: usize = 32;
/// Small blocks begin at multiples of this, and each such multiple has a state.
pub(super) const GRAIN_BYTES: u64 = 16;

/// How slabs of a class are laid out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    /// 2^40 / `bytes`, rounded up.
    reciprocal: u64,
    /// Bytes of a block.
    pub(super) bytes: u32,
    /// Blocks of a slab.
    pub(super) blocks: u32,
    /// Offset of the bits in a slab.
    pub(super) bits_at: u32,
    /// Offset of the blocks' states in a slab, unless they are small.
    states_at: u32,
    /// Offset of the first block in a slab.
    pub(super) first_at: u32,
    /// Bytes of a slab.
    pub(super) slab_bytes: u32,
}

/// All classes, by ascending size.
pub(super) static TABLE: [Class; CLASSES] = table();

const fn table() -> [Class; CLASSES] {
    let mut table = [Class::of(16); CLASSES];
    let mut at = 0;
    while at < CLASSES {
        table[at] = Class::of(bytes_of(at));
        at += 1;
    }
    table
}

const fn bytes_of(class: usize) -> u32 {
    if class < 8 {
        return (class as u32 + 1) * 16;
    }
    let (doubling, step) = ((class as u32 - 8) / 8, (class as u32 - 8) % 8);
    (128 << doubling) + (step + 1) * (16 << doubling)
}

impl Class {
    const fn of(bytes: u32) -> Self {
        let units = match bytes {
            ..=1024 => 1,
            1025..=8192 => 4,
            8193..=32768 => 8,
            _ => 16,
        };
        let all = units * UNIT_BYTES as u32;
        let align = 1 << bytes.trailing_zeros();
        let align = if align > CLASS_ALIGN as u32 { CLASS_ALIGN as u32 } else { align };
        let mut blocks = all / bytes;
        let is_small = bytes <= SMALL_BYTES as u32;
        let bits_at = if is_small { (UNIT_BYTES / GRAIN_BYTES) as u32 } else { 64 };
        loop {
            let states_at = bits_at + blocks.div_ceil(64) * 8;
            let end = if is_small { states_at } else { states_at + blocks };
            let first_at = end.next_multiple_of(align);
            if first_at + blocks * bytes <= all {
                let reciprocal = (1_u64 << 40).div_ceil(bytes as u64);
                return Self { reciprocal, bytes, blocks, bits_at, states_at, first_at, slab_bytes: all };
            }
            blocks -= 1;
        }
    }

    /// Offset of a block's state from the start of its slab.
    #[inline(always)]
    pub(super) fn state_of(&self, block: u32) -> u64 {
        match u64::from(self.bytes) {
            ..=SMALL_BYTES => self.offset_of(block) / GRAIN_BYTES,
            _ => u64::from(self.states_at) + u64::from(block),
        }
    }

    /// Words of bits in a slab.
    pub(super) fn words(&self) -> u32 {
        self.blocks.div_ceil(64)
    }

    /// The bits of a word that stand for blocks.
    pub(super) fn bits(&self, word: u32) -> u64 {
        match self.blocks - word * 64 {
            64.. => u64::MAX,
            blocks => (1 << blocks) - 1,
        }
    }

    /// Units of a slab.
    pub(super) fn units(&self) -> u32 {
        self.slab_bytes / UNIT_BYTES as u32
    }

    /// The block that begins `delta` bytes from the start of its slab; else the one that holds this byte, or `None` if none does.
    #[inline(always)]
    pub(super) fn block_at(&self, delta: u64) -> Result<u32, Option<u32>> {
        let from_first = delta.wrapping_sub(self.first_at.into());
        // Exact within a slab, where `from_first` times `bytes` is less than 2^40; elsewhere it is anything.
        let block = (from_first.wrapping_mul(self.reciprocal) >> 40) as u32;
        if block < self.blocks && u64::from(block) * u64::from(self.bytes) == from_first {
            return Ok(block);
        }
        Err((from_first < u64::from(self.blocks) * u64::from(self.bytes)).then_some(block))
    }

    /// Offset of a block from the start of its slab.
    #[inline(always)]
    pub(super) fn offset_of(&self, block: u32) -> u64 {
        u64::from(self.first_at) + u64::from(block) * u64::from(self.bytes)
    }
}

/// The least class whose blocks hold `bytes`, from 1 to [`LONGEST_BYTES`].
#[inline(always)]
pub(super) fn class_of(bytes: u64) -> usize {
    let last = bytes - 1;
    if last < 128 {
        return (last / 16) as usize;
    }
    let doubling = 56 - last.leading_zeros();
    let step = (last >> (doubling + 4)) & 7;
    8 + doubling as usize * 8 + step as usize
}

/// The least class whose blocks hold `bytes` and are aligned to `align`; `None` if there is none.
#[inline]
pub(super) fn aligned_class(bytes: u64, align: u64) -> Option<usize> {
    if align <= LEAST_ALIGN {
        return (bytes <= LONGEST_BYTES).then(|| class_of(bytes));
    }
    if align > CLASS_ALIGN || bytes > LONGEST_BYTES {
        return None;
    }
    let least = class_of(bytes.next_multiple_of(align));
    (least..CLASSES).find(|&class| u64::from(TABLE[class].bytes).is_multiple_of(align))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_what_is_asked_for_and_wastes_an_eighth_at_most() {
        for bytes in 1..=LONGEST_BYTES {
            let class = class_of(bytes);
            let given = u64::from(TABLE[class].bytes);
            assert!(given >= bytes && (class == 0 || u64::from(TABLE[class - 1].bytes) < bytes), "{bytes}: {given}");
            assert!(given < bytes + 16 || given <= bytes + bytes / 8, "{bytes}: {given}");
        }
    }

    #[test]
    fn every_block_of_a_slab_is_found_by_its_first_byte_and_no_other() {
        for class in &TABLE {
            for block in 0..class.blocks {
                let at = class.offset_of(block);
                assert_eq!(class.block_at(at), Ok(block), "{class:?}");
                assert_eq!(class.block_at(at + 1), Err(Some(block)), "{class:?}");
                assert_eq!(class.block_at(at + u64::from(class.bytes) - 1), Err(Some(block)), "{class:?}");
            }
            assert_eq!(class.block_at(u64::from(class.first_at) - 1), Err(None));
            assert_eq!(class.block_at(class.offset_of(class.blocks)), Err(None));
            assert!(class.offset_of(class.blocks) <= u64::from(class.slab_bytes));
        }
    }

    #[test]
    fn aligned_blocks_are_aligned_in_their_slab() {
        for align in (4..=12).map(|shift| 1_u64 << shift) {
            for bytes in [1, 15, 16, 17, 64, 65, 100, 4095, 4096, 4097, 9000, 130_000, LONGEST_BYTES] {
                let class = &TABLE[aligned_class(bytes, align).unwrap()];
                assert!(u64::from(class.bytes) >= bytes);
                assert!((0..class.blocks).all(|block| class.offset_of(block).is_multiple_of(align)), "{class:?}");
            }
        }
        assert_eq!(aligned_class(16, 8192), None);
    }

    #[test]
    fn every_block_of_a_slab_has_a_state_of_its_own_in_the_first_unit() {
        for (number, class) in TABLE.iter().enumerate() {
            let states: Vec<u64> = (0..class.blocks).map(|block| class.state_of(block)).collect();
            assert!(states.is_sorted_by(|a, b| a < b), "{class:?}");
            let is_small = number < SMALL_CLASSES;
            assert_eq!(
                (is_small, is_small),
                (u64::from(class.bytes) <= SMALL_BYTES, class.slab_bytes == 65536),
                "{class:?}"
            );
            let (first, end) = (states[0], states[states.len() - 1] + 1);
            let bits = (u64::from(class.bits_at), u64::from(class.bits_at + class.words() * 8));
            assert!(first >= 8 && (end <= bits.0 || first >= bits.1), "{class:?}");
            assert!(end.max(bits.1) <= class.first_at.into() && class.first_at < 65536, "{class:?}");
        }
    }

    #[test]
    fn a_slab_gives_seven_eighths_of_its_bytes_to_blocks() {
        for class in &TABLE {
            let blocks = u64::from(class.blocks) * u64::from(class.bytes);
            assert!(blocks * 8 >= u64::from(class.slab_bytes) * 7 - 64, "{class:?}");
        }
    }
}
