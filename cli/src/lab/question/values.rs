//! Values of options that several questions take.

use mapwire_study::questions::MemoryLimit;
use mapwire_study::sweep::parse_designs;
use mapwire_translation::{DesignConfig, PinLimit};

use super::super::{LabError, UsageError};
use mapwire_translation::size;

/// Most entries that a question tries: 256 MiB of them.
const MOST_ENTRIES: usize = 1 << 24;

/// Reads a limit: `none`, a part of a footprint (`1/4`), or a size (`4MiB`).
pub(super) fn limit(text: &str) -> Result<MemoryLimit, String> {
    if text == "none" || text.contains('/') {
        return text.parse().map_err(|error| format!("{error}"));
    }
    let bytes =
        size::parse(text).map_err(|error| format!("{error}; or a part of a footprint: 1/4"))?;
    match PinLimit::from_bytes(bytes).map_err(|error| error.to_string())? {
        PinLimit::Unlimited => Ok(MemoryLimit::None),
        PinLimit::Pages(pages) => Ok(MemoryLimit::Pages(pages)),
    }
}

/// Reads a limit that limits.
pub(super) fn some_limit(text: &str) -> Result<MemoryLimit, String> {
    match limit(text)? {
        MemoryLimit::None => Err(
            "without a limit nothing is unpinned; write a size or a part of a footprint: 4M, 1/4"
                .to_owned(),
        ),
        limit => Ok(limit),
    }
}

/// Reads a number of entries or ways: a power of two.
pub(super) fn entries(text: &str) -> Result<usize, String> {
    let number = size::parse(text)
        .ok()
        .and_then(|number| usize::try_from(number).ok());
    number
        .filter(|number| number.is_power_of_two() && *number <= MOST_ENTRIES)
        .ok_or_else(|| format!("`{text}` is no power of two up to 16M; write 64, 1K or 16K"))
}

/// Reads a part of a whole as a percentage or a fraction of one: `3%`, `0.03`.
pub(super) fn part(text: &str) -> Result<f64, String> {
    let (number, unit) = text
        .strip_suffix('%')
        .map_or((text, 1.0), |number| (number, 100.0));
    match number.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number / unit),
        _ => Err(format!(
            "`{text}` is no part; write a percentage or a number from 0 on: 3%, 0.03"
        )),
    }
}

/// Reads designs from the values of `--design`; none of them gives `default`.
pub(super) fn designs(
    texts: &[String],
    default: Vec<DesignConfig>,
) -> Result<Vec<DesignConfig>, LabError> {
    let mut designs = Vec::new();
    for text in texts {
        designs.extend(
            parse_designs(text).map_err(|error| UsageError(format!("--design {text}: {error}")))?,
        );
    }
    Ok(if designs.is_empty() { default } else { designs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_sizes_or_parts_of_a_footprint() {
        assert_eq!(limit("none"), Ok(MemoryLimit::None));
        assert_eq!(limit("1/4"), Ok(MemoryLimit::Share { parts: 1, of: 4 }));
        assert_eq!(limit("4MiB"), Ok(MemoryLimit::Pages(1024)));
        for wrong in ["4/1", "x/2", "100", "much"] {
            assert!(limit(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
        assert!(some_limit("none").is_err());
    }

    #[test]
    fn parts_and_entries_are_checked_as_they_are_read() {
        assert_eq!(
            (part("3%"), part("0.5"), part("0")),
            (Ok(0.03), Ok(0.5), Ok(0.0))
        );
        for wrong in ["", "%", "-1%", "NaN", "inf", "3 per cent"] {
            assert!(part(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
        assert_eq!((entries("64"), entries("16K")), (Ok(64), Ok(16384)));
        for wrong in ["0", "3000", "32M", "many"] {
            assert!(entries(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
