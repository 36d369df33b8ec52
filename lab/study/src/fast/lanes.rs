//! Sets of a cache as lanes of a word, the line used last in the lowest lane, vacant lanes (0) highest.
//!
//! With `slot` in all lanes, the lane that equals it becomes the lowest non-zero mark of a difference; the ones up to
//! that mark are the lanes that move up by one, and `slot` takes the lowest. Without such a lane all of them move, and
//! the highest falls out: the line that was used least recently.

use std::hint::select_unpredictable;

use super::keys::slot;

/// A set, or counts of its lanes. Nothing here branches on whether a line is there: that cannot be foretold.
pub trait Lanes: Copy + PartialEq {
    const LANES: usize;
    /// Most that a lane counts up to.
    const MOST: usize;
    /// Vacant lanes.
    const ZERO: Self;

    /// The set after the use of `slot`, and a count of 1 in the lane where it was, or nowhere.
    fn used(self, slot: u16) -> (Self, Self);

    /// The set without `slot`. Slot 0 is no line's.
    fn without(self, slot: u16) -> Self;

    fn first(self, lanes: usize) -> Self;

    fn lane(self, at: usize) -> u16;

    fn plus(self, counts: Self) -> Self;
}

macro_rules! lanes {
    ($name:ident, $word:ty, $width:literal) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name(pub(super) $word);

        impl Lanes for $name {
            const LANES: usize = (<$word>::BITS / $width) as usize;
            const MOST: usize = (1 << $width) - 1;
            const ZERO: Self = Self(0);

            #[inline(always)]
            fn used(self, slot: u16) -> (Self, Self) {
                const LOW: $word = <$word>::MAX / ((1 << $width) - 1);
                let set = self.0;
                let half = u64::from(slot) * LOW as u64;
                let differences = set ^ (half as $word | (half as $word).checked_shl(64).unwrap_or(0));
                // Marks above the lowest mean nothing.
                let marks = differences.wrapping_sub(LOW) & !differences & (LOW << ($width - 1));
                let moved = marks ^ marks.wrapping_sub(1);
                let used = set & !moved | (set << $width | <$word>::from(slot)) & moved;
                (Self(used), Self((marks & marks.wrapping_neg()) >> ($width - 1)))
            }

            #[inline(always)]
            fn without(self, slot: u16) -> Self {
                // Without the slot, everything is below it.
                let below = self.used(slot).1.0.wrapping_sub(1);
                Self(self.0 & below | self.0 >> $width & !below)
            }

            #[inline(always)]
            fn first(self, lanes: usize) -> Self {
                Self(self.0 & <$word>::MAX >> (<$word>::BITS - $width * lanes as u32))
            }

            #[inline(always)]
            fn lane(self, at: usize) -> u16 {
                (self.0 >> ($width * at)) as u16 & Self::MOST as u16
            }

            #[inline(always)]
            fn plus(self, counts: Self) -> Self {
                Self(self.0 + counts.0)
            }
        }
    };
}

lanes!(Four, u64, 16);
lanes!(EightBytes, u64, 8);
lanes!(Eight, u128, 16);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct One(u16);

impl Lanes for One {
    const LANES: usize = 1;
    const MOST: usize = u16::MAX as usize;
    const ZERO: Self = Self(0);

    #[inline(always)]
    fn used(self, slot: u16) -> (Self, Self) {
        (Self(slot), Self(u16::from(self.0 == slot)))
    }

    #[inline(always)]
    fn without(self, slot: u16) -> Self {
        Self(select_unpredictable(self.0 == slot, 0, self.0))
    }

    #[inline(always)]
    fn first(self, _: usize) -> Self {
        self
    }

    #[inline(always)]
    fn lane(self, _: usize) -> u16 {
        self.0
    }

    #[inline(always)]
    fn plus(self, counts: Self) -> Self {
        Self(self.0 + counts.0)
    }
}

/// Makes the key's line the one used last of its set of so many ways, in place of the one used least recently if it is not there.
/// Returns whether it was there.
#[inline(always)]
pub fn touch<L: Lanes>(sets: &mut [L], ways: usize, key: u32) -> bool {
    let mask = sets.len() - 1;
    let set = &mut sets[key as usize & mask];
    let (used, found) = set.used(slot(key));
    *set = used.first(ways);
    found != L::ZERO
}

/// Forgets the key's line, if it is there.
#[inline(always)]
pub fn remove<L: Lanes>(sets: &mut [L], key: u32) {
    let mask = sets.len() - 1;
    let set = &mut sets[key as usize & mask];
    *set = set.without(slot(key));
}

/// The sets of a cache, in words as short as its ways and slots allow.
#[derive(Clone, Debug)]
pub enum Sets {
    One(Vec<One>),
    Four(Vec<Four>),
    /// Eight ways, while no slot exceeds 255.
    EightBytes(Vec<EightBytes>),
    Eight(Vec<Eight>),
}

/// The same for sets of any width.
macro_rules! of_any_width {
    ($sets:expr, $all:ident => $value:expr) => {
        match $sets {
            Sets::One($all) => $value,
            Sets::Four($all) => $value,
            Sets::EightBytes($all) => $value,
            Sets::Eight($all) => $value,
        }
    };
}
pub(super) use of_any_width;

impl Sets {
    /// Empty sets with room for at least so many ways, 1 to 8.
    pub fn new(sets: usize, ways: usize) -> Self {
        match ways {
            1 => Sets::One(vec![One::ZERO; sets]),
            2..=4 => Sets::Four(vec![Four::ZERO; sets]),
            _ => Sets::EightBytes(vec![EightBytes::ZERO; sets]),
        }
    }

    /// Makes room for slots up to `most_slot`.
    pub fn widen(&mut self, most_slot: u32) {
        if let Sets::EightBytes(sets) = self
            && most_slot as usize > EightBytes::MOST
        {
            *self = Sets::Eight(sets.iter().map(|set| set.widened()).collect());
        }
    }
}

impl EightBytes {
    fn widened(self) -> Eight {
        let lanes = (0..Self::LANES).rev();
        Eight(lanes.fold(0, |wide, lane| wide << 16 | u128::from(self.lane(lane))))
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

    fn agrees<L: Lanes>(sets: usize, ways: usize, ops: &[(u32, bool)]) {
        let (mut cache, mut lists) = (vec![L::ZERO; sets], Lists::new(sets, ways));
        for (key, removes) in ops {
            if *removes {
                remove(&mut cache, *key);
                remove(&mut cache, key & ((1 << PLACE_BITS) - 1));
                lists.remove(*key);
            } else {
                assert_eq!(touch(&mut cache, ways, *key), lists.touch(*key));
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
            agrees::<One>(sets, 1, &ops);
            for ways in 1..=4 {
                agrees::<Four>(sets, ways, &ops);
            }
            agrees::<Eight>(sets, 8, &ops);
            let small: Vec<_> = ops.iter().copied().filter(|(key, _)| slot(*key) < 256).collect();
            agrees::<EightBytes>(sets, 8, &small);
        }

        #[test]
        fn bytes_do_what_wide_lanes_do_until_they_are_widened(
            slots in prop::collection::vec(1_u16..20, 0..200),
            large in prop::collection::vec(250_u16..256, 0..50),
        ) {
            let (mut bytes, mut wide) = (EightBytes::ZERO, Eight::ZERO);
            for slot in slots.into_iter().chain(large) {
                let (used, found) = bytes.used(slot);
                bytes = used;
                let (used, wide_found) = wide.used(slot);
                wide = used;
                prop_assert_eq!(found.widened(), wide_found);
                prop_assert_eq!(bytes.widened(), wide);
            }
        }
    }
}
