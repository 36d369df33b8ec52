//! Minipages that this rank has freed, for its next allocations.
//!
//! A minipage keeps its place and length for as long as the memory is open, since every rank that ever mapped it would have to agree to
//! another. So whoever frees one keeps its address, and gives it to the next that wants as many bytes: no other rank needs to hear of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks by length, and all of them by address.
#[derive(Debug, Default)]
pub(super) struct Freed(Mutex<Blocks>);

#[derive(Debug, Default)]
struct Blocks {
    by_bytes: BTreeMap<u64, Vec<u64>>,
    all: BTreeSet<u64>,
}

/// The length of the minipage for a block of `bytes`: so few lengths that a freed one fits the next block of about that size.
pub(super) fn block_bytes(bytes: u64) -> u64 {
    let step = match bytes {
        ..=128 => 16,
        ..=4096 => (bytes.next_power_of_two() / 8).max(16),
        _ => 4096,
    };
    bytes.checked_next_multiple_of(step).unwrap_or(bytes)
}

impl Freed {
    /// A freed block of just so many bytes.
    pub(super) fn take(&self, bytes: u64) -> Option<u64> {
        let mut blocks = self.blocks();
        let address = blocks.by_bytes.get_mut(&bytes)?.pop()?;
        blocks.all.remove(&address);
        Some(address)
    }

    /// Keeps a block; false if it is here already.
    pub(super) fn keep(&self, address: u64, bytes: u64) -> bool {
        let mut blocks = self.blocks();
        if !blocks.all.insert(address) {
            return false;
        }
        blocks.by_bytes.entry(bytes).or_default().push(address);
        true
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_kept_once_and_given_to_the_next_of_its_length() {
        let freed = Freed::default();
        assert!(freed.keep(64, 48) && freed.keep(128, 48) && freed.keep(256, 64));
        assert!(!freed.keep(64, 48));
        assert_eq!((freed.take(48), freed.take(48), freed.take(48)), (Some(128), Some(64), None));
        assert!(freed.keep(64, 48));
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
}
