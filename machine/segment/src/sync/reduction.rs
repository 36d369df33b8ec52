//! Sums, least and greatest values over threads that meet, of any that use it: there may be more of them than it counts.
//!
//! Values are added up in a word that is 0 before, whatever is asked for: greatest values as numbers in the order of their type, least
//! ones as the greatest complement. A thread enters a round before it brings its value, and as many enter as meet. The next round is
//! entered once this one has ended, and the one after that once all have taken the result of this one, whose place it needs.

use core::sync::atomic::Ordering;

use crate::sync::barrier::checked;
use crate::sync::bell::Bell;
use crate::sync::deque::Word64;
use crate::sync::error::{Object, SyncError};
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

/// A number as a word, and its type: 1 for `u64`, 2 for `i64`, 3 for `f64`.
pub fn word_of<T: Number>(number: T) -> (u32, u64) {
    (T::TYPE, number.to_word())
}

/// The number of this type that a word is.
pub fn number_of<T: Number>(word: u64) -> T {
    T::of_word(word)
}

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

/// Bits of what a round makes: a type and a reduction.
const KIND_BITS: u32 = 4;

/// A barrier whose threads each bring a value. It has a count of threads before its first use.
#[derive(Debug)]
pub(crate) struct Reduction<'a, S: Waits, W> {
    /// How many have ever entered; in the lower bits, what the round makes that was entered last.
    pub(crate) entered: &'a W,
    pub(crate) bell: Bell<'a, S>,
    /// Threads that meet.
    pub(crate) count: &'a S::Word,
    /// What is made so far, in this round.
    pub(crate) value: &'a W,
    /// How many have brought their value, in this round.
    pub(crate) arrived: &'a S::Word,
    /// Rounds that have ended.
    pub(crate) ended: &'a W,
    /// For two successive rounds.
    pub(crate) results: [&'a W; 2],
    /// For each result, how many are yet to take it.
    pub(crate) takers: [&'a S::Word; 2],
    pub(crate) object: Object,
}

impl<S: Waits, W: Word64> Reduction<'_, S, W> {
    pub(crate) fn reduce<T: Number>(&self, what: Reduce, value: T) -> Result<T, SyncError> {
        let count = checked(self.count.load(), self.object)?;
        let round = self.enter(count.into(), u64::from(T::TYPE << 2 | what as u32))?;
        let (own, combine): (u64, fn(u64, u64) -> u64) = match what {
            Reduce::Sum => (value.to_word(), |a, b| T::of_word(a).plus(T::of_word(b)).to_word()),
            Reduce::Min => (!value.to_ordered(), u64::max),
            Reduce::Max => (value.to_ordered(), u64::max),
        };
        let mut rounds = Rounds::default();
        loop {
            let seen = self.value.load(Ordering::Acquire);
            if self.value.replace(seen, combine(seen, own)) {
                break;
            }
            rounds.next(self.bell.waits)?;
        }
        if self.arrived.add(1).saturating_add(1) >= count {
            self.end(round, count);
        } else {
            let has_ended = || self.ended.load(Ordering::SeqCst) > round;
            self.bell.wait_until(has_ended, None, &mut || Ok(()))?;
        }
        let word = self.take(round);
        Ok(match what {
            Reduce::Sum => T::of_word(word),
            Reduce::Min => T::of_ordered(!word),
            Reduce::Max => T::of_ordered(word),
        })
    }

    /// Enters a round, one of `count` threads that do; the round.
    fn enter(&self, count: u64, kind: u64) -> Result<u64, SyncError> {
        let mut rounds = Rounds::default();
        loop {
            let seen = self.entered.load(Ordering::Acquire);
            let (entered, others) = (seen >> KIND_BITS, seen & ((1 << KIND_BITS) - 1));
            let round = entered / count;
            if entered % count != 0 {
                if others != kind {
                    return Err(SyncError::OtherReduction(self.object));
                }
            } else if !self.is_open(round) {
                let may_enter = || self.is_open(round) || self.entered.load(Ordering::SeqCst) != seen;
                self.bell.wait_until(may_enter, None, &mut || Ok(()))?;
            }
            if self.entered.replace(seen, (entered + 1) << KIND_BITS | kind) {
                return Ok(round);
            }
            rounds.next(self.bell.waits)?;
        }
    }

    /// Whether a round that nobody has entered can be.
    fn is_open(&self, round: u64) -> bool {
        self.ended.load(Ordering::SeqCst) >= round && self.takers[(round % 2) as usize].load_in_order() == 0
    }

    /// Ends a round, in which all have arrived.
    fn end(&self, round: u64, count: u32) {
        let here = (round % 2) as usize;
        self.results[here].store(self.value.load(Ordering::Acquire), Ordering::Release);
        self.takers[here].store(count);
        self.value.store(0, Ordering::Release);
        self.arrived.store(0);
        self.ended.replace(round, round + 1);
        self.bell.ring();
    }

    /// Takes the result of a round that has ended.
    fn take(&self, round: u64) -> u64 {
        let here = (round % 2) as usize;
        let result = self.results[here].load(Ordering::Acquire);
        if self.takers[here].sub(1) == 1 {
            self.bell.ring();
        }
        result
    }
}
