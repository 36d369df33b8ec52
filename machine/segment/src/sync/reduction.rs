//! Sums, least and greatest values over the threads of a barrier.
//!
//! Values are added up in a word that is 0 before, whatever is asked for: greatest values as numbers in the order of their type, least
//! ones as the greatest complement. There are two such words, for two successive rounds. The last thread of a round clears the other.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::sync::barrier::Barrier;
use crate::sync::error::SyncError;
use crate::sync::objects::Objects;
use crate::sync::round::parity;
use crate::sync::words::{Rounds, Waits, Word};

/// What is made of all values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Their sum: integers wrap, the order of floating-point numbers varies.
    Sum,
    /// The least. Floating-point numbers are in IEEE's total order, with NaNs at both ends.
    Min,
    /// The greatest, in the same order.
    Max,
}

/// A type of numbers that can be reduced: `i64`, `u64` and `f64`.
pub trait Number: Copy + sealed::Bits {}

impl<T: Copy + sealed::Bits> Number for T {}

mod sealed {
    /// Numbers as words.
    pub trait Bits {
        /// Tells types apart, from 1.
        const TYPE: u32;
        fn to_word(self) -> u64;
        fn of_word(word: u64) -> Self;
        /// A word that is ordered as its numbers are.
        fn to_ordered(self) -> u64;
        fn of_ordered(word: u64) -> Self;
        fn plus(self, other: Self) -> Self;
    }

    const SIGN: u64 = 1 << 63;

    impl Bits for u64 {
        const TYPE: u32 = 1;
        fn to_word(self) -> u64 {
            self
        }
        fn of_word(word: u64) -> Self {
            word
        }
        fn to_ordered(self) -> u64 {
            self
        }
        fn of_ordered(word: u64) -> Self {
            word
        }
        fn plus(self, other: Self) -> Self {
            self.wrapping_add(other)
        }
    }

    impl Bits for i64 {
        const TYPE: u32 = 2;
        fn to_word(self) -> u64 {
            self as u64
        }
        fn of_word(word: u64) -> Self {
            word as i64
        }
        fn to_ordered(self) -> u64 {
            self as u64 ^ SIGN
        }
        fn of_ordered(word: u64) -> Self {
            (word ^ SIGN) as i64
        }
        fn plus(self, other: Self) -> Self {
            self.wrapping_add(other)
        }
    }

    impl Bits for f64 {
        const TYPE: u32 = 3;
        fn to_word(self) -> u64 {
            self.to_bits()
        }
        fn of_word(word: u64) -> Self {
            f64::from_bits(word)
        }
        fn to_ordered(self) -> u64 {
            let bits = self.to_bits();
            if bits & SIGN == 0 { bits | SIGN } else { !bits }
        }
        fn of_ordered(word: u64) -> Self {
            f64::from_bits(if word & SIGN == 0 { !word } else { word & !SIGN })
        }
        fn plus(self, other: Self) -> Self {
            self + other
        }
    }
}

/// A barrier whose threads each bring a value.
#[derive(Debug)]
pub(crate) struct Reduction<'a> {
    pub(crate) barrier: Barrier<'a, Objects>,
    /// Which reduction a round makes: 0 before its first value.
    pub(crate) kinds: [&'a <Objects as Waits>::Word; 2],
    pub(crate) values: [&'a AtomicU64; 2],
}

impl Reduction<'_> {
    pub(crate) fn reduce<T: Number>(&self, what: Reduce, value: T) -> Result<T, SyncError> {
        let here = parity(self.barrier.now()?) as usize;
        let kind = T::TYPE << 8 | what as u32;
        if let Err(others) = self.kinds[here].replace(0, kind)
            && others != kind
        {
            return Err(SyncError::OtherReduction(self.barrier.object));
        }
        let (own, combine): (u64, fn(u64, u64) -> u64) = match what {
            Reduce::Sum => (value.to_word(), |a, b| T::of_word(a).plus(T::of_word(b)).to_word()),
            Reduce::Min => (!value.to_ordered(), u64::max),
            Reduce::Max => (value.to_ordered(), u64::max),
        };
        let all = self.values[here];
        let mut seen = all.load(Ordering::Acquire);
        let mut rounds = Rounds::default();
        while let Err(other) = all.compare_exchange(seen, combine(seen, own), Ordering::AcqRel, Ordering::Acquire) {
            seen = other;
            rounds.next(self.barrier.round.waits)?;
        }
        self.barrier.wait(|| {
            Word::store(self.kinds[1 - here], 0);
            self.values[1 - here].store(0, Ordering::Release);
        })?;
        let word = all.load(Ordering::Acquire);
        Ok(match what {
            Reduce::Sum => T::of_word(word),
            Reduce::Min => T::of_ordered(!word),
            Reduce::Max => T::of_ordered(word),
        })
    }
}
