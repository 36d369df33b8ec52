//! Limits on the memory that a process may have pinned, as questions have them: none, so much, or a part of a footprint.

use std::fmt;
use std::str::FromStr;

use mapwire_translation::PinLimit;

/// A limit on the pinned pages of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemoryLimit {
    /// None.
    None,
    /// A part of the largest footprint that a process of the traces has.
    Share {
        /// So many
        parts: u64,
        /// of so many equal parts.
        of: u64,
    },
    /// Pages.
    Pages(u64),
}

/// What is no part of a footprint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{text}` is no part of a footprint; write a fraction above 0 and up to 1 with numbers below 10000: 1/16, 3/4"
)]
pub struct ShareError {
    text: String,
}

/// Largest number in a fraction.
const MOST_PARTS: u64 = 9999;

impl MemoryLimit {
    /// Parts that questions try unless told otherwise: 1/16, 1/8, 1/4, 1/2 and 3/4.
    pub const SHARES: [MemoryLimit; 5] = [
        share(1, 16),
        share(1, 8),
        share(1, 4),
        share(1, 2),
        share(3, 4),
    ];

    /// The limit, where the largest footprint of a process has so many pages; parts of it are rounded up to whole pages.
    pub fn of_footprint(self, footprint_pages: u64) -> PinLimit {
        match self {
            MemoryLimit::None => PinLimit::Unlimited,
            MemoryLimit::Share { parts, of } => {
                let pages =
                    (u128::from(footprint_pages) * u128::from(parts)).div_ceil(u128::from(of));
                PinLimit::Pages(u64::try_from(pages).unwrap_or(u64::MAX).max(1))
            }
            MemoryLimit::Pages(pages) => PinLimit::Pages(pages),
        }
    }
}

const fn share(parts: u64, of: u64) -> MemoryLimit {
    MemoryLimit::Share { parts, of }
}

impl FromStr for MemoryLimit {
    type Err = ShareError;

    /// Reads `none` or a fraction; sizes are for whoever knows their units.
    fn from_str(text: &str) -> Result<Self, ShareError> {
        if text == "none" {
            return Ok(MemoryLimit::None);
        }
        let wrong = || ShareError {
            text: text.to_owned(),
        };
        let (parts, of) = text.split_once('/').ok_or_else(wrong)?;
        let number = |text: &str| {
            text.parse::<u64>()
                .ok()
                .filter(|number| (1..=MOST_PARTS).contains(number))
        };
        match (number(parts), number(of)) {
            (Some(parts), Some(of)) if parts <= of => Ok(share(parts, of)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryLimit::None => f.write_str("none"),
            MemoryLimit::Share { parts, of } => write!(f, "{parts}/{of}"),
            MemoryLimit::Pages(pages) => write!(f, "{pages} pages"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_rounded_up_to_whole_pages_and_are_never_nothing() {
        for (limit, footprint, pages) in [
            (share(1, 16), 4096, 256),
            (share(1, 3), 100, 34),
            (share(1, 16), 3, 1),
            (share(1, 1), 7, 7),
        ] {
            assert_eq!(
                limit.of_footprint(footprint),
                PinLimit::Pages(pages),
                "{limit} of {footprint}"
            );
        }
        assert_eq!(MemoryLimit::None.of_footprint(9), PinLimit::Unlimited);
        assert_eq!(MemoryLimit::Pages(5).of_footprint(9), PinLimit::Pages(5));
    }

    #[test]
    fn fractions_are_read_as_they_are_printed_and_others_are_named() {
        for text in ["none", "1/16", "3/4", "1/1"] {
            assert_eq!(text.parse::<MemoryLimit>().unwrap().to_string(), text);
        }
        for text in [
            "", "0/4", "5/4", "1/0", "a/b", "1/2/3", "-1/4", "1/10000", "half",
        ] {
            let error = text.parse::<MemoryLimit>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}`")), "{error}");
        }
    }
}
