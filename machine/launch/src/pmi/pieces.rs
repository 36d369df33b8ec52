//! Values as text: hexadecimal, cut where the launcher limits their length.
//!
//! A value is `LENGTH:DIGITS`, two digits a byte. What is longer than the launcher allows goes on under further keys:
//! `KEY`, `KEY.1`, `KEY.2` and so on.

use std::fmt::Write;

use crate::launcher::MAX_VALUE_BYTES;

/// The name of piece `at` of what `rank` put under `key`: unique in the job, at most 48 bytes.
pub(super) fn name(rank: u32, key: &str, at: usize) -> String {
    match at {
        0 => format!("mw-{rank}-{key}"),
        _ => format!("mw-{rank}-{key}.{at}"),
    }
}

/// Cuts `value` into pieces of up to `limit` characters.
pub(super) fn cut(value: &[u8], limit: usize) -> Vec<String> {
    let mut text = format!("{}:", value.len());
    for byte in value {
        let _ = write!(text, "{byte:02x}");
    }
    let pieces = text.as_bytes().chunks(limit.max(1));
    pieces.map(|piece| String::from_utf8_lossy(piece).into()).collect()
}

#[derive(Debug)]
pub(super) struct Joined {
    digits: String,
    bytes: usize,
}

/// A text that is no piece of a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoPiece;

impl Joined {
    pub(super) fn begin(piece: &str) -> Result<Self, NoPiece> {
        let (length, digits) = piece.split_once(':').ok_or(NoPiece)?;
        let bytes: usize = length.parse().map_err(|_| NoPiece)?;
        if bytes > MAX_VALUE_BYTES {
            return Err(NoPiece);
        }
        let mut joined = Self { digits: String::new(), bytes };
        joined.add(digits)?;
        Ok(joined)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.digits.len() == 2 * self.bytes
    }

    /// Adds the next piece, which may be empty only where it is the rest of the first.
    pub(super) fn add(&mut self, digits: &str) -> Result<(), NoPiece> {
        let is_text = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_text || self.digits.len() + digits.len() > 2 * self.bytes {
            return Err(NoPiece);
        }
        self.digits.push_str(digits);
        Ok(())
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default() as u8;
        let pairs = self.digits.as_bytes().chunks_exact(2);
        pairs.map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn join(pieces: &[String]) -> Result<Vec<u8>, NoPiece> {
        let mut joined = Joined::begin(&pieces[0])?;
        for piece in &pieces[1..] {
            joined.add(piece)?;
        }
        if joined.is_whole() { Ok(joined.into_bytes()) } else { Err(NoPiece) }
    }

    proptest! {
        #[test]
        fn a_value_reads_back_whatever_the_limit(value in prop::collection::vec(any::<u8>(), 0..500), limit in 8_usize..300) {
            let pieces = cut(&value, limit);
            prop_assert!(pieces.iter().all(|piece| piece.len() <= limit));
            prop_assert_eq!(join(&pieces), Ok(value));
        }

        #[test]
        fn random_text_never_panics(first in ".{0,60}", second in ".{0,60}") {
            let _ = join(&[first, second]);
        }
    }

    #[test]
    fn what_no_rank_writes_is_refused() {
        for piece in ["", "12", "-1:", "x:00", "1:0g", "1:0000", "65537:", "18446744073709551616:"] {
            assert!(Joined::begin(piece).is_err(), "{piece}");
        }
        assert_eq!(Joined::begin("0:").map(|joined| joined.is_whole()), Ok(true));
    }

    #[test]
    fn the_longest_name_fits_the_shortest_limit_on_keys() {
        let longest = name(u32::MAX, &"k".repeat(crate::MAX_KEY_BYTES), 1 << 17);
        assert!(longest.len() <= 48, "{}", longest.len());
    }
}
