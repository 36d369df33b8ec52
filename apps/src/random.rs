//! Numbers that depend on nothing but their place, so that every worker makes its own part of a problem.

/// The finaliser of SplitMix64: an even spread of bits from any number.
#[inline]
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number in [-1, 1) from any number.
pub(crate) fn even(number: u64) -> f64 {
    (mix(number) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}
