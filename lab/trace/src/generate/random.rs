//! Random numbers that are the same everywhere for the same seed.

/// xoshiro256++ (Blackman and Vigna, 2019), its state filled by SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct Random([u64; 4]);

/// Steps SplitMix64 and gives its number.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Random {
    /// The numbers of `seed`; each `stream` of it is another sequence.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut state = seed;
        let mut state = split_mix(&mut state) ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93);
        Self(std::array::from_fn(|_| split_mix(&mut state)))
    }

    pub(super) fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`, which is not 0. Its bias is below `bound` ÷ 2⁶⁴.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from 0 to 1, without 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // First numbers of xoshiro256++ from the state 1, 2, 3, 4, from its authors' code.
        let mut random = Random([1, 2, 3, 4]);
        let numbers = [(); 4].map(|()| random.next());
        assert_eq!(numbers, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
        // And of SplitMix64 from the state 1234567.
        let mut state = 1_234_567;
        assert_eq!(split_mix(&mut state), 6_457_827_717_110_365_317);
        assert_eq!(split_mix(&mut state), 3_203_168_211_198_807_973);
    }

    #[test]
    fn streams_and_seeds_differ_and_repeat() {
        let first = |seed, stream| Random::new(seed, stream).next();
        assert_eq!(first(7, 1), first(7, 1));
        assert_ne!(first(7, 1), first(7, 2));
        assert_ne!(first(7, 1), first(8, 1));
    }

    #[test]
    fn numbers_below_a_bound_are_even() {
        let mut random = Random::new(3, 0);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|c| (9_500..10_500).contains(c)), "{counts:?}");
        assert_eq!(random.below(1), 0);
        let mean = (0..10_000).map(|_| random.unit()).sum::<f64>() / 10_000.0;
        assert!((0.49..0.51).contains(&mean), "{mean}");
    }
}
