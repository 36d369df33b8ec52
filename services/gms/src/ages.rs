//! Ages of pages: kept as times of last use, told in milliseconds, counted in bins (Feeley §3).

use crate::message::AGE_BINS;

/// Times of last use are counted from long before a node's clock began.
const BEFORE_NS: u64 = 1 << 62;

/// When a page of this age was used last.
pub(crate) fn last_use_ns(now_ns: u64, age_ms: u32) -> u64 {
    now_ns.saturating_add(BEFORE_NS) - u64::from(age_ms) * 1_000_000
}

pub(crate) fn age_ms(now_ns: u64, last_use_ns: u64) -> u32 {
    let age_ns = now_ns.saturating_add(BEFORE_NS).saturating_sub(last_use_ns);
    u32::try_from(age_ns / 1_000_000).unwrap_or(u32::MAX)
}

pub(crate) fn bin_of(age_ms: u32) -> usize {
    ((u32::BITS - age_ms.leading_zeros()) as usize).min(AGE_BINS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_grows_with_time_even_from_before_the_clock_began() {
        let used_ns = last_use_ns(5, 10_000);
        assert_eq!(age_ms(5, used_ns), 10_000);
        assert_eq!(age_ms(3_000_005, used_ns), 10_003);
        assert_eq!(age_ms(u64::MAX, last_use_ns(0, u32::MAX)), u32::MAX);
    }

    #[test]
    fn each_bin_begins_at_a_power_of_two() {
        for (age_ms, bin) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (u32::MAX, 31)] {
            assert_eq!(bin_of(age_ms), bin);
        }
    }
}
