//! Sets of a cache as lanes of a word, the line used last in the lowest lane, vacant lanes (0) highest.
//!
//! With `slot` in all lanes, the lane that equals it becomes the lowest non-zero mark of a difference; the ones up to
//! that mark are the lanes that move up by one, and `slot` takes the lowest. Without such a lane all of them move, and
//! the highest falls out: the line that was used least recently.

use std::hint::select_unpredictable;

use super::keys::slot;

const LOW: u64 = 0x0001_0001_0001_0001;
const HIGH: u64 = 0x8000_8000_8000_8000;
const LOW_BYTES: u64 = 0x0101_0101_0101_0101;
const HIGH_BYTES: u64 = 0x8080_8080_8080_8080;
const LOW_8: u128 = 0x0001_0001_0001_0001_0001_0001_0001_0001;

/// What a cache holds, as sets of lanes.
pub trait Sets {
    /// Makes the key's line the one used last of its set, in place of the one used least recently if it is not there. Returns
    /// whether it was there, and does not branch on it: that cannot be foretold.
    fn touch(&mut self, key: u32) -> bool;

    /// Forgets the key's line, if it is there. A key with slot 0 is no line's.
    fn remove(&mut self, key: u32);
}

#[derive(Clone, Debug)]
pub struct One(pub(super) Vec<u16>);

#[derive(Clone, Debug)]
pub struct Four {
    pub(super) sets: Vec<u64>,
    /// The lanes that there are.
    lanes: u64,
}

/// Eight ways, while no slot exceeds 255.
#[derive(Clone, Debug)]
pub struct EightBytes(pub(super) Vec<u64>);

#[derive(Clone, Debug)]
pub struct Eight(pub(super) Vec<u128>);

/// Lanes of four, after the use of `slot`; and a mark in the highest bit of the lane where it was, 0 if nowhere. Marks above
/// the lowest mean nothing.
#[inline(always)]
pub(super) fn use_four(set: u64, slot: u64) -> (u64, u64) {
    let differences = set ^ (slot * LOW);
    let marks = differences.wrapping_sub(LOW) & !differences & HIGH;
    let moved = marks ^ marks.wrapping_sub(1);
    (set & !moved | (set << 16 | slot) & moved, marks)
}

/// As [`use_four`], of eight bytes.
#[inline(always)]
pub(super) fn use_eight_bytes(set: u64, slot: u64) -> (u64, u64) {
    let differences = set ^ (slot * LOW_BYTES);
    let marks = differences.wrapping_sub(LOW_BYTES) & !differences & HIGH_BYTES;
    let moved = marks ^ marks.wrapping_sub(1);
    (set & !moved | (set << 8 | slot) & moved, marks)
}

/// As [`use_four`], of eight lanes.
#[inline(always)]
pub(super) fn use_eight(set: u128, slot: u64) -> (u128, u128) {
    let four = u128::from(slot * LOW);
    let differences = set ^ (four << 64 | four);
    let marks = differences.wrapping_sub(LOW_8) & !differences & (LOW_8 << 15);
    let moved = marks ^ marks.wrapping_sub(1);
    (set & !moved | (set << 16 | u128::from(slot)) & moved, marks)
}

/// Lanes of so many bits without the lowest marked one, those above it one lower.
#[inline(always)]
fn without(set: u64, marks: u64, width: u32) -> u64 {
    // Without a mark, everything is below it.
    let below = ((marks & marks.wrapping_neg()) >> (width - 1)).wrapping_sub(1);
    set & below | set >> width & !below
}

/// As [`without`], of eight lanes.
#[inline(always)]
fn without_of_eight(set: u128, marks: u128) -> u128 {
    let below = ((marks & marks.wrapping_neg()) >> 15).wrapping_sub(1);
    set & below | set >> 16 & !below
}

fn lanes_of(set: u64, width: u32) -> impl Iterator<Item = u64> {
    (0..64 / width).map(move |lane| set >> (lane * width) & ((1 << width) - 1))
}

impl One {
    /// An empty cache of so many sets.
    pub fn new(sets: usize) -> Self {
        One(vec![0; sets])
    }

    pub fn resident(&self) -> u64 {
        self.0.iter().filter(|lane| **lane != 0).count() as u64
    }
}

impl Sets for One {
    #[inline(always)]
    fn touch(&mut self, key: u32) -> bool {
        let mask = self.0.len() - 1;
        let lane = &mut self.0[key as usize & mask];
        let found = *lane == slot(key);
        *lane = slot(key);
        found
    }

    #[inline(always)]
    fn remove(&mut self, key: u32) {
        let mask = self.0.len() - 1;
        let lane = &mut self.0[key as usize & mask];
        *lane = select_unpredictable(*lane == slot(key), 0, *lane);
    }
}

impl Four {
    /// An empty cache of so many sets of `ways`, 1 to 4.
    pub fn new(sets: usize, ways: usize) -> Self {
        Four { sets: vec![0; sets], lanes: u64::MAX >> (64 - 16 * ways) }
    }
}

impl Sets for Four {
    #[inline(always)]
    fn touch(&mut self, key: u32) -> bool {
        let mask = self.sets.len() - 1;
        let set = &mut self.sets[key as usize & mask];
        let (used, marks) = use_four(*set, u64::from(slot(key)));
        *set = used & self.lanes;
        marks != 0
    }

    #[inline(always)]
    fn remove(&mut self, key: u32) {
        let mask = self.sets.len() - 1;
        let set = &mut self.sets[key as usize & mask];
        let (_, marks) = use_four(*set, u64::from(slot(key)));
        *set = without(*set, marks, 16);
    }
}

impl EightBytes {
    /// An empty cache of so many sets.
    pub fn new(sets: usize) -> Self {
        EightBytes(vec![0; sets])
    }

    /// The same with room for all slots.
    pub fn widened(&self) -> Eight {
        let widen = |set: &u64| {
            lanes_of(*set, 8).enumerate().fold(0, |wide, (lane, slot)| wide | u128::from(slot) << (16 * lane))
        };
        Eight(self.0.iter().map(widen).collect())
    }
}

impl Sets for EightBytes {
    #[inline(always)]
    fn touch(&mut self, key: u32) -> bool {
        let mask = self.0.len() - 1;
        let set = &mut self.0[key as usize & mask];
        let (used, marks) = use_eight_bytes(*set, u64::from(slot(key)));
        *set = used;
        marks != 0
    }

    #[inline(always)]
    fn remove(&mut self, key: u32) {
        let mask = self.0.len() - 1;
        let set = &mut self.0[key as usize & mask];
        let (_, marks) = use_eight_bytes(*set, u64::from(slot(key)));
        *set = without(*set, marks, 8);
    }
}

impl Eight {
    /// An empty cache of so many sets.
    pub fn new(sets: usize) -> Self {
        Eight(vec![0; sets])
    }
}

impl Sets for Eight {
    #[inline(always)]
    fn touch(&mut self, key: u32) -> bool {
        let mask = self.0.len() - 1;
        let set = &mut self.0[key as usize & mask];
        let (used, marks) = use_eight(*set, u64::from(slot(key)));
        *set = used;
        marks != 0
    }

    #[inline(always)]
    fn remove(&mut self, key: u32) {
        let mask = self.0.len() - 1;
        let set = &mut self.0[key as usize & mask];
        let (_, marks) = use_eight(*set, u64::from(slot(key)));
        *set = without_of_eight(*set, marks);
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::{PLACE_BITS, SLOT_BITS};
    use super::*;
    use proptest::prelude::*;

    /// A list for each set, the line used last first.
    struct Lists {
        sets: Vec<Vec<u32>>,
        ways: usize,
    }

    impl Lists {
        fn new(sets: usize, ways: usize) -> Self {
            Lists { sets: vec![Vec::new(); sets], ways }
        }

        fn remove(&mut self, key: u32) -> bool {
            let sets = self.sets.len();
            let set = &mut self.sets[key as usize % sets];
            let found = set.iter().position(|it| *it == key);
            found.map(|at| set.remove(at)).is_some()
        }

        fn touch(&mut self, key: u32) -> bool {
            let found = self.remove(key);
            let sets = self.sets.len();
            let set = &mut self.sets[key as usize % sets];
            set.insert(0, key);
            set.truncate(self.ways);
            found
        }
    }

    /// A key with a small slot or one of the largest. Those of one set differ in their slots.
    fn key() -> impl Strategy<Value = u32> {
        let most = 1_u32 << SLOT_BITS;
        let slot = prop_oneof![1_u32..40, most - 9..most, 0x7c_u32..0x84, 0xfe_u32..0x104];
        slot.prop_map(|slot| (slot << PLACE_BITS) | (slot % 8))
    }

    fn agrees(cache: &mut impl Sets, mut lists: Lists, ops: &[(u32, bool)]) {
        for (key, remove) in ops {
            if *remove {
                cache.remove(*key);
                cache.remove(key & ((1 << PLACE_BITS) - 1));
                lists.remove(*key);
            } else {
                assert_eq!(cache.touch(*key), lists.touch(*key));
            }
        }
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn lanes_do_what_a_list_for_each_set_does(
            ops in prop::collection::vec((key(), prop::bool::weighted(0.2)), 0..400),
            shift in 0_u32..4,
        ) {
            let sets = 1 << shift;
            agrees(&mut One::new(sets), Lists::new(sets, 1), &ops);
            for ways in 1..=4 {
                agrees(&mut Four::new(sets, ways), Lists::new(sets, ways), &ops);
            }
            agrees(&mut Eight::new(sets), Lists::new(sets, 8), &ops);
            let small: Vec<_> = ops.iter().copied().filter(|(key, _)| slot(*key) < 256).collect();
            agrees(&mut EightBytes::new(sets), Lists::new(sets, 8), &small);
        }

        #[test]
        fn bytes_do_what_wide_lanes_do_until_they_are_widened(
            slots in prop::collection::vec(1_u64..20, 0..200),
            large in prop::collection::vec(250_u64..256, 0..50),
        ) {
            let (mut bytes, mut wide) = (EightBytes::new(1), Eight::new(1));
            for slot in slots.into_iter().chain(large) {
                let (used, marks) = use_eight_bytes(bytes.0[0], slot);
                bytes.0[0] = used;
                let (used, wide_marks) = use_eight(wide.0[0], slot);
                wide.0[0] = used;
                prop_assert_eq!(marks == 0, wide_marks == 0);
                if marks != 0 {
                    prop_assert_eq!(marks.trailing_zeros() / 8, wide_marks.trailing_zeros() / 16);
                }
                prop_assert_eq!(bytes.widened().0[0], wide.0[0]);
            }
        }
    }
}
