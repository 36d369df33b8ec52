//! How a group of values is packed: in how many bits, from which base on, with which exceptions.

use super::packing;

pub(super) const EXCEPTION_BYTES: usize = 10;
const HEAD_BYTES: usize = 12;
const SAMPLE: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    pub(super) base: u64,
    /// Of the values' differences to the base, shifted.
    pub(super) width: u32,
    pub(super) shift: u32,
    pub(super) exceptions: usize,
    pub(super) bytes: usize,
}

const fn bits(span: u64) -> u32 {
    64 - span.leading_zeros()
}

const fn mask(width: u32) -> u64 {
    if width == 64 { u64::MAX } else { (1 << width) - 1 }
}

/// The common zeros at the low end of the differences between `values`.
pub(super) fn common_shift(values: &[u64]) -> u32 {
    let first = values[0];
    let set = values.iter().fold(0, |set, value| set | value.wrapping_sub(first));
    if set == 0 { 0 } else { set.trailing_zeros() }
}

impl Fit {
    /// `value` as it is packed; `None` if it is an exception.
    #[inline]
    pub(super) fn packed(&self, value: u64) -> Option<u64> {
        // What the shift would lose comes to the top.
        let turned = value.wrapping_sub(self.base).rotate_right(self.shift);
        (turned <= mask(self.width)).then_some(turned)
    }

    fn new(values: &[u64], (base, shift, width): (u64, u32, u32)) -> Self {
        let mut fit = Self { base, width, shift, exceptions: 0, bytes: 0 };
        let fits = values.iter().filter(|value| fit.packed(**value).is_some()).count();
        fit.exceptions = values.len() - fits;
        fit.bytes = HEAD_BYTES + packing::packed_bytes(values.len(), width) + fit.exceptions * EXCEPTION_BYTES;
        fit
    }

    /// The cheapest of a few ways to pack 1 to 1,024 values: without exceptions, or those around where a sample lies. Values
    /// are compared as signed numbers, so that small steps back and forth are neighbours.
    pub(super) fn of(values: &[u64]) -> Self {
        let (mut least, mut most) = (values[0] as i64, values[0] as i64);
        for value in values {
            least = least.min(*value as i64);
            most = most.max(*value as i64);
        }
        let shift = common_shift(values);
        let span = (most as u64).wrapping_sub(least as u64);
        let mut best = Self::new(values, (least as u64, shift, bits(span >> shift)));
        if best.width <= 2 || values.len() < 2 * SAMPLE {
            return best;
        }
        // From every part of the group, at places that follow no period.
        let step = values.len() / SAMPLE;
        let mut sample: [u64; SAMPLE] = std::array::from_fn(|i| values[i * step + ((i * 40_503) >> 5) % step]);
        let shift = common_shift(&sample);
        sample.sort_unstable_by_key(|value| *value as i64);
        let ends = (sample[0], sample[SAMPLE - 1]);
        let span = ends.1.wrapping_sub(ends.0) >> shift;
        for ((low, high), margin) in [(ends, span), (ends, 0), ((sample[2], sample[SAMPLE - 3]), span / 4)] {
            let span = high.wrapping_sub(low) >> shift;
            if bits(span) >= best.width || bits(span) + shift > 60 {
                continue;
            }
            // What lies around the sample is packed as tightly as it allows.
            let around = low.wrapping_sub((margin + 1) << shift);
            let (mut first, mut last) = (u64::MAX, 0);
            for value in values {
                let turned = value.wrapping_sub(around).rotate_right(shift);
                if turned <= span + 2 * (margin + 1) {
                    first = first.min(turned);
                    last = last.max(turned);
                }
            }
            let base = around.wrapping_add(first << shift);
            let fit = Self::new(values, (base, shift, bits(last - first)));
            if fit.bytes < best.bytes {
                best = fit;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_without_outliers_are_packed_without_exceptions() {
        let values: Vec<u64> = (0..1024).map(|i| 4096 * (i * 7 % 50) + 100).collect();
        let fit = Fit::of(&values);
        assert_eq!((fit.base, fit.shift, fit.width, fit.exceptions), (100, 12, 6, 0));
    }

    #[test]
    fn outliers_on_both_sides_and_between_steps_are_exceptions() {
        let mut values: Vec<u64> = (0..1024).map(|i| (1 << 40) + 4096 * (i * 7 % 50)).collect();
        values[3] = 0;
        values[500] = 1 << 60;
        values[700] += 1;
        let fit = Fit::of(&values);
        assert_eq!((fit.shift, fit.width, fit.exceptions), (12, 6, 3));
        assert!([3, 500, 700].iter().all(|at| fit.packed(values[*at]).is_none()));
    }

    #[test]
    fn steps_back_and_forth_are_neighbours() {
        let values: Vec<u64> = (0..1024_u64).map(|i| (i * 5 % 16).wrapping_sub(8)).collect();
        let fit = Fit::of(&values);
        assert_eq!((fit.base as i64, fit.width, fit.exceptions), (-8, 4, 0));
    }

    proptest! {
        #[test]
        fn what_is_packed_is_the_value_again(
            values in prop::collection::vec(any::<u64>(), 1..300),
            narrow in 0..64_u32,
        ) {
            let values: Vec<u64> = values.iter().map(|v| v >> narrow << (narrow / 3)).collect();
            let fit = Fit::of(&values);
            let mut exceptions = 0;
            for value in &values {
                match fit.packed(*value) {
                    Some(packed) => {
                        prop_assert!(bits(packed) <= fit.width);
                        prop_assert_eq!(fit.base.wrapping_add(packed << fit.shift), *value);
                    }
                    None => exceptions += 1,
                }
            }
            prop_assert_eq!(exceptions, fit.exceptions);
        }
    }
}
