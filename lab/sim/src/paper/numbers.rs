//! Times and rates in thousandths.

use super::Published;
use crate::hardware::Ps;

/// Microseconds, in thousandths.
pub(super) const fn us(ps: Ps) -> i64 {
    ((ps + 500) / 1000) as i64
}

/// The same, rounded down.
pub(super) const fn us_down(ps: Ps) -> i64 {
    (ps / 1000) as i64
}

/// Bytes in a time as MB/s, in thousandths.
pub(super) fn mb_s(bytes: u64, ps: Ps) -> i64 {
    let per_s = u128::from(bytes) * 1_000_000_000 + u128::from(ps / 2);
    (per_s / u128::from(ps.max(1))) as i64
}

/// Thousandths as text with one decimal.
pub(super) fn one_decimal(milli: i64) -> String {
    let tenths = (milli.abs() + 50) / 100;
    let sign = if milli < 0 && tenths > 0 { "-" } else { "" };
    format!("{sign}{}.{}", tenths / 10, tenths % 10)
}

/// A published figure of so many thousandths, printed to one decimal.
pub(super) const fn tenths(milli: i64) -> Published {
    Published { milli, digit_milli: 100 }
}

/// A published figure of so many thousandths, printed as a whole number, or as a range of whole numbers with this middle.
pub(super) const fn about(milli: i64) -> Published {
    Published { milli, digit_milli: 1000 }
}

pub(super) const fn whole(number: i64) -> Published {
    about(1000 * number)
}

pub(super) const fn count(number: i64) -> Published {
    Published { milli: 1000 * number, digit_milli: 0 }
}

/// A published figure of so many thousandths, printed to hundredths.
pub(super) const fn hundredths(milli: i64) -> Published {
    Published { milli, digit_milli: 10 }
}

/// The value of a cost between 0 and `most` at which it changes who `wins`, to within `precision`; `None` if it does not change.
pub(super) fn break_even<E>(most: Ps, precision: Ps, wins: impl Fn(Ps) -> Result<bool, E>) -> Result<Option<Ps>, E> {
    let wins_at_zero = wins(0)?;
    if wins_at_zero == wins(most)? {
        return Ok(None);
    }
    let (mut low, mut high) = (0, most);
    while high - low > precision {
        let middle = low.midpoint(high);
        if wins(middle)? == wins_at_zero {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(Some(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_microseconds_are_megabytes_a_second() {
        assert_eq!(mb_s(4096, 37_236_364), 110_000);
        assert_eq!(us(9_800_499), 9_800);
        let texts = [105_799, 10_290, -49, -50].map(one_decimal);
        assert_eq!(texts, ["105.8", "10.3", "0.0", "-0.1"]);
    }
}
