//! Counts as people write them: `5000`, `64K`, `10M`. Units are powers of 1000, unlike those of sizes.

pub(super) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "`{text}` is not a count; write a number, or one with K, M or G (thousands, millions, billions): 5000, 10M"
        )
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).ok_or_else(|| format!("`{text}` is more than 64 bits can count"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_read_as_people_write_them() {
        for (text, count) in [("0", 0), ("5000", 5000), ("64K", 64_000), ("10m", 10_000_000), ("2G", 2_000_000_000)] {
            assert_eq!(parse(text), Ok(count), "{text}");
        }
    }

    #[test]
    fn what_is_no_count_is_refused_by_name() {
        for text in ["", "K", "-1", "1.5M", "4 M", "3T", "99999999999999999999", "18446744073709552K"] {
            assert!(parse(text).unwrap_err().contains(text), "{text}");
        }
    }
}
