//! The keys of the NAS benchmark IS: sums of four numbers of its linear congruential generator.
//!
//! The generator is x ← 5¹³ x mod 2⁴⁶ from x = 314159265. A key is a quarter of the sum of four successive x, as fractions
//! of 2⁴⁶, scaled to the number of values: an even bell around the middle. NAS computes in floating point that is exact at
//! these sizes; here the same integers come from integer arithmetic. Worker after worker starts in the middle of the
//! sequence by raising the multiplier to the right power.

const MULTIPLIER: u64 = 1_220_703_125;
const SEED: u64 = 314_159_265;
const MODULUS_BITS: u32 = 46;
const MASK: u64 = (1 << MODULUS_BITS) - 1;

/// Keys from the sequence, each below a number of values.
#[derive(Clone, Debug)]
pub struct Keys {
    state: u64,
    /// Shift from a sum of four numbers to a key.
    shift: u32,
}

impl Keys {
    /// The sequence from key number `first` on, for `values` values: a power of two from 4 on.
    pub fn from(first: usize, values: u32) -> Self {
        debug_assert!(values.is_power_of_two() && values >= 4);
        Self {
            state: times(power(MULTIPLIER, 4 * first as u64), SEED),
            shift: MODULUS_BITS + 2 - values.trailing_zeros(),
        }
    }
}

impl Iterator for Keys {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let mut sum = 0;
        for _ in 0..4 {
            self.state = times(MULTIPLIER, self.state);
            sum += self.state;
        }
        Some((sum >> self.shift) as u32)
    }
}

fn times(a: u64, b: u64) -> u64 {
    // The low 46 bits of a product depend on the low 46 bits of its factors only.
    a.wrapping_mul(b) & MASK
}

fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut result = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = times(result, base);
        }
        base = times(base, base);
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_exact_arithmetic() {
        let mut state = u128::from(SEED);
        let mut expected = Vec::new();
        for _ in 0..100 {
            let mut sum = 0;
            for _ in 0..4 {
                state = state * u128::from(MULTIPLIER) % (1 << 46);
                sum += state;
            }
            // A quarter of the values times the sum as a fraction.
            expected.push((sum * (2048 / 4) / (1 << 46)) as u32);
        }
        let keys: Vec<_> = Keys::from(0, 2048).take(100).collect();
        assert_eq!(keys, expected);
    }

    #[test]
    fn keys_crowd_around_the_middle_and_stay_in_range() {
        let keys: Vec<_> = Keys::from(0, 512).take(1 << 16).collect();
        assert!(keys.iter().all(|&k| k < 512));
        let mean = keys.iter().map(|&k| f64::from(k)).sum::<f64>() / keys.len() as f64;
        assert!((mean - 255.5).abs() < 1.0, "{mean}");
        let inner = keys.iter().filter(|&&k| (128..384).contains(&k)).count();
        // The sum of four even numbers lies within a quarter of the range of its mean with probability 11/12.
        assert!((inner as f64 / keys.len() as f64 - 11.0 / 12.0).abs() < 0.005);
    }

    proptest! {
        #[test]
        fn starting_in_the_middle_gives_the_same_sequence(first in 0usize..5000, bits in 2u32..24) {
            let values = 1 << bits;
            let whole: Vec<_> = Keys::from(0, values).skip(first).take(20).collect();
            let part: Vec<_> = Keys::from(first, values).take(20).collect();
            prop_assert_eq!(whole, part);
        }
    }
}
