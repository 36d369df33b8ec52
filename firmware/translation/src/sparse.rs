//! A map from sparse numbers to small positions: the first level of every two-level structure here.
//!
//! Open addressing with linear probing over a power-of-two number of slots, at most half of them used. A lookup reads 1.5 slots on average
//! for a present key, 2.5 for an absent one; slots are 16 bytes, four to a cache line.

use alloc::boxed::Box;
use alloc::vec;

const NO_KEY: u64 = u64::MAX;

/// Bytes of one slot: the key and the position.
pub(crate) const SLOT_BYTES: usize = core::mem::size_of::<Slot>();

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    value: usize,
}

const FREE: Slot = Slot { key: NO_KEY, value: 0 };

/// Keys are numbers other than `u64::MAX`.
#[derive(Clone, Debug)]
pub(crate) struct SparseIndex {
    slots: Box<[Slot]>,
    used: usize,
    shift: u32,
}

impl SparseIndex {
    /// `slots` is a power of two, at least 2.
    pub(crate) fn with_slots(slots: usize) -> Self {
        debug_assert!(slots.is_power_of_two() && slots >= 2);
        SparseIndex { slots: vec![FREE; slots].into_boxed_slice(), used: 0, shift: 64 - slots.trailing_zeros() }
    }

    /// Slots that exist, used or not: the memory cost.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// All keys with their values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, usize)> {
        let used = self.slots.iter().filter(|slot| slot.key != NO_KEY);
        used.map(|slot| (slot.key, slot.value))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Multiplicative hashing: neighbouring keys land far apart, and any run of keys spreads evenly.
    #[inline]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        loop {
            let slot = self.slots[at & mask];
            if slot.key == key {
                return Some(slot.value);
            }
            if slot.key == NO_KEY {
                return None;
            }
            at += 1;
        }
    }

    /// The key must be absent.
    pub(crate) fn insert(&mut self, key: u64, value: usize) {
        debug_assert!(key != NO_KEY && self.get(key).is_none());
        if (self.used + 1) * 2 > self.slots.len() {
            let mut larger = SparseIndex::with_slots(self.slots.len() * 2);
            for slot in self.slots.iter().filter(|slot| slot.key != NO_KEY) {
                larger.place(*slot);
            }
            *self = larger;
        }
        self.place(Slot { key, value });
    }

    /// Changes the value of the key, which must be present.
    pub(crate) fn replace(&mut self, key: u64, value: usize) {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key) & mask;
        while self.slots[at].key != key {
            debug_assert!(self.slots[at].key != NO_KEY);
            at = (at + 1) & mask;
        }
        self.slots[at].value = value;
    }

    fn place(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut at = self.home(slot.key) & mask;
        while self.slots[at].key != NO_KEY {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
        self.used += 1;
    }

    /// Removes the key, and moves later keys of the same probe run forward, so that no tombstone slows a search.
    pub(crate) fn remove(&mut self, key: u64) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut hole = self.home(key) & mask;
        while self.slots[hole].key != key {
            if self.slots[hole].key == NO_KEY {
                return None;
            }
            hole = (hole + 1) & mask;
        }
        let value = self.slots[hole].value;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.key == NO_KEY {
                break;
            }
            // The slot may fill the hole only if its search passes there on the way from home.
            let distance = at.wrapping_sub(self.home(slot.key)) & mask;
            if distance >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = FREE;
        self.used -= 1;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn it_agrees_with_an_ordered_map(ops in prop::collection::vec((0u64..40, any::<bool>()), 0..300)) {
            let mut index = SparseIndex::with_slots(2);
            let mut oracle = BTreeMap::new();
            for (turn, (key, insert)) in ops.into_iter().enumerate() {
                // Keys a power of two apart hash to the same slots.
                let key = (key % 8) << 40 | key;
                if insert && !oracle.contains_key(&key) {
                    index.insert(key, turn);
                    oracle.insert(key, turn);
                } else if insert {
                    index.replace(key, turn);
                    oracle.insert(key, turn);
                } else {
                    prop_assert_eq!(index.remove(key), oracle.remove(&key));
                }
                prop_assert_eq!(index.len(), oracle.len());
                for (key, value) in &oracle {
                    prop_assert_eq!(index.get(*key), Some(*value));
                }
                prop_assert!(index.len() * 2 <= index.slots());
            }
        }
    }
}
