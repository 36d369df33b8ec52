//! Sizes as people write them: `4096`, `64K`, `1.5MiB`. The only grammar of sizes and of numbers of entries in mapwire.

use alloc::format;
use alloc::string::{String, ToString};

/// Text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// Not a number with a unit.
    #[error("invalid size `{0}`: expected a number with an optional K, M, G or T")]
    Invalid(String),
    /// More than 64 bits can hold.
    #[error("invalid size `{0}`: more than 64 bits can hold")]
    TooLarge(String),
}

/// Parses a number with an optional unit, in bytes or entries. Units are powers of 1024: `K`, `KB` and `KiB` are the same, as
/// are small letters. A number with a unit may have up to six decimals.
///
/// # Errors
/// The text that is not a size.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let invalid = || SizeError::Invalid(text.to_string());
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(invalid()),
    };
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let has_point = number.contains('.');
    if whole.is_empty() || has_point && (decimals.is_empty() || decimals.len() > 6 || shift == 0) {
        return Err(invalid());
    }
    let too_large = || SizeError::TooLarge(text.to_string());
    let scale = 10_u128.pow(decimals.len() as u32);
    if !decimals.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(invalid());
    }
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let decimals: u128 = match decimals {
        "" => 0,
        decimals => decimals.parse().map_err(|_| invalid())?,
    };
    let scaled = (u128::from(whole) * scale + decimals) << shift;
    u64::try_from(scaled / scale).map_err(|_| too_large())
}

/// Prints a size with the largest unit that leaves a whole number.
#[must_use]
pub fn show(bytes: u64) -> String {
    for (shift, unit) in [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("64K", 65536),
            ("64kb", 65536),
            ("64 KiB", 65536),
            ("4g", 4 << 30),
            ("1.5M", 3 << 19),
            ("16777215T", 16_777_215 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn text_that_is_not_a_size_is_refused_by_name() {
        for text in ["", "K", "-1", "1.G", ".5G", "1..5G", "1.5", "4 potatoes", "1.5.5M", "1.1234567M"] {
            let wanted = format!("invalid size `{text}`: expected a number with an optional K, M, G or T");
            assert_eq!(parse(text).unwrap_err().to_string(), wanted);
        }
        for text in ["16777216T", "99999999999999999999"] {
            let error = parse(text).unwrap_err();
            assert_eq!(error, SizeError::TooLarge(text.to_string()));
        }
    }

    #[test]
    fn a_shown_size_reads_back() {
        for bytes in [0, 1, 1023, 1024, 1536, 4 << 30, u64::MAX] {
            assert_eq!(parse(&show(bytes)), Ok(bytes));
        }
    }
}
