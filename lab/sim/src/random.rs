//! Random numbers that a seed repeats: xoshiro256**, its state filled by SplitMix64.

#[derive(Clone, Debug)]
pub struct Random([u64; 4]);

/// One step of SplitMix64 from `state`. Different states give different numbers.
pub const fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Default for Random {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Random {
    /// The source that `seed` names.
    pub fn new(seed: u64) -> Self {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        Self(core::array::from_fn(|word| mix(seed.wrapping_add(STEP.wrapping_mul(word as u64)))))
    }

    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let drawn = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        drawn
    }

    /// A number below `end`; 0 if that is 0.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// From `start` to `end`, both included.
    #[inline]
    pub fn within(&mut self, start: u64, end: u64) -> u64 {
        start + self.below(end - start + 1)
    }

    /// True `percent` times in 100.
    #[inline]
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// A number between `start` and `end` whose logarithm is evenly spread: small ones are as likely as large ones.
    pub fn spread(&mut self, start: u64, end: u64) -> u64 {
        let bits = |number: u64| u64::from(u64::BITS - number.leading_zeros());
        let width = self.within(bits(start), bits(end));
        let low = 1u64.checked_shl(width.saturating_sub(1) as u32).unwrap_or(0);
        let high = low.saturating_mul(2).saturating_sub(1);
        self.within(low.max(start).min(end), high.min(end).max(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_and_another_gives_others() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            core::array::from_fn::<_, 8, _>(|_| random.next())
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn numbers_stay_within_their_bounds_and_reach_them() {
        let mut random = Random::new(1);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[random.within(3, 7) as usize - 3] += 1;
            let spread = random.spread(1, 100);
            assert!((1..=100).contains(&spread), "{spread}");
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
