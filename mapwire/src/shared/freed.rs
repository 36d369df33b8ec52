//! Blocks of a protocol's memory that this rank has freed, for its next allocations, and the heads by which any rank knows them.
//!
//! A minipage keeps its place and length for as long as the memory is open, since every rank that ever mapped it would have to agree to
//! another. So whoever frees a block keeps its address, and gives it to the next that wants as many bytes: no other rank needs to hear of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Bytes of a head, which lies before its block.
pub(super) const HEAD_BYTES: u64 = 16;

/// Marks of heads, mixed with the block's address: other data is unlikely to look like one.
const IN_USE: u64 = 0x6d77_6865_6170_2121;
const FREED: u64 = 0x6d77_6672_6565_6421;

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Its length, with the head and what lies before it.
    pub(super) bytes: u64,
    /// From its start to the user's part, which follows the head.
    pub(super) offset: u64,
    pub(super) is_freed: bool,
}

impl Head {
    /// The words of the head of the block whose user's part is at `address`.
    pub(super) fn words(self, address: u64) -> [u64; 2] {
        let mark = if self.is_freed { FREED } else { IN_USE };
        [mark ^ address, self.bytes << 16 | self.offset]
    }

    /// The head in these words, if they are one.
    pub(super) fn of(address: u64, words: [u64; 2]) -> Option<Self> {
        let is_freed = match words[0] ^ address {
            IN_USE => false,
            FREED => true,
            _ => return None,
        };
        let (bytes, offset) = (words[1] >> 16, words[1] & 0xffff);
        (offset >= HEAD_BYTES && bytes > offset).then_some(Self { bytes, offset, is_freed })
    }

    /// Where the block begins.
    pub(super) fn start(&self, address: u64) -> u64 {
        address - self.offset
    }
}

/// Blocks by length.
#[derive(Debug, Default)]
pub(super) struct Freed(Mutex<BTreeMap<u64, Vec<u64>>>);

/// The length of a block for `bytes`: so few lengths that a freed one fits the next block of about that size.
pub(super) fn block_bytes(bytes: u64) -> u64 {
    let step = match bytes {
        ..=128 => 16,
        129..=4096 => (bytes.next_power_of_two() / 8).max(16),
        _ => 4096,
    };
    bytes.checked_next_multiple_of(step).unwrap_or(bytes)
}

impl Freed {
    /// A freed block of just so many bytes.
    pub(super) fn take(&self, bytes: u64) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&bytes)?.pop()
    }

    /// Keeps a block.
    pub(super) fn keep(&self, start: u64, bytes: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(bytes).or_default().push(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_given_to_the_next_of_its_length() {
        let freed = Freed::default();
        freed.keep(64, 48);
        freed.keep(128, 48);
        freed.keep(256, 64);
        assert_eq!((freed.take(48), freed.take(48), freed.take(48)), (Some(128), Some(64), None));
        assert_eq!(freed.take(64), Some(256));
    }

    #[test]
    fn blocks_have_few_lengths_and_waste_an_eighth_at_most_beyond_small_ones() {
        for bytes in 1..20_000 {
            let block = block_bytes(bytes);
            assert!(block >= bytes && block.is_multiple_of(16) && block_bytes(block) == block);
            assert!(bytes <= 128 || bytes > 4096 || (block - bytes) * 8 <= bytes.next_power_of_two());
        }
        assert_eq!(block_bytes(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_head_is_read_back_and_other_words_are_none() {
        for head in
            [Head { bytes: 64, offset: 16, is_freed: false }, Head { bytes: 1 << 40, offset: 4096, is_freed: true }]
        {
            assert_eq!(Head::of(0x5000, head.words(0x5000)), Some(head));
            assert_eq!(Head::of(0x5010, head.words(0x5000)), None);
        }
        for words in [[0, 0], [IN_USE ^ 0x5000, 0], [IN_USE ^ 0x5000, 8 << 16 | 16], [IN_USE ^ 0x5000, 64 << 16 | 8]] {
            assert_eq!(Head::of(0x5000, words), None);
        }
    }
}
