//! Sizes as people write them: `4096`, `64K`, `4G`, `1.5MiB`. Units are powers of 1024.

/// Reads a size in bytes.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is no size; write bytes, or a number with K, M, G or T: 64K, 4G");
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let too_large = || format!("`{text}` is more than 64 bits can count");
    if let Some((whole, part)) = number.split_once('.') {
        if part.is_empty() || part.len() > 6 || part.contains('.') {
            return Err(wrong());
        }
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        let scale = 10_u128.pow(part.len() as u32);
        let part: u128 = part.parse().map_err(|_| wrong())?;
        let bytes = (u128::from(whole) * scale + part) << shift;
        return u64::try_from(bytes / scale).map_err(|_| too_large());
    }
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(too_large)
}

/// Writes a size with the largest unit that leaves a whole number.
pub(crate) fn show(bytes: u64) -> String {
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
            ("64K", 65536),
            ("64 KiB", 65536),
            ("4g", 4 << 30),
            ("1.5M", 3 << 19),
            ("16777215T", 16_777_215 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_or_too_large_is_refused_by_name() {
        for text in [
            "",
            "K",
            "-1",
            "1.G",
            "1..5G",
            "4 potatoes",
            "16777216T",
            "99999999999999999999",
            "1.5.5",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(text.trim()), "{error}");
        }
    }

    #[test]
    fn a_shown_size_reads_back() {
        for bytes in [0, 1, 1023, 1024, 1536, 4 << 30, u64::MAX] {
            assert_eq!(parse(&show(bytes)), Ok(bytes));
        }
    }
}
