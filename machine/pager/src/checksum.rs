//! The checksum of a page: 64 bits of XXH3, seeded with a key of the pager and with the page's identity, so that a page returned in place
//! of another is detected.
//!
//! Cost: about 0.3 µs for 4096 bytes with SSE2. Two different contents of a page have the same sum with probability 2⁻⁶⁴.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::store::PageId;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Checksum {
    key: u64,
}

impl Checksum {
    /// Draws a key that is unknown outside this process.
    pub(crate) fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self { key: RandomState::new().hash_one(0) }
    }

    /// The sum of the bytes of `id`.
    pub(crate) fn of(self, id: PageId, bytes: &[u8]) -> u64 {
        let identity = id.packed().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        xxh3_64_with_seed(bytes, self.key ^ identity)
    }
}

/// Whether all bytes are 0. For other pages the first few bytes mostly decide.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(256).all(|part| part.iter().fold(0, |any, byte| any | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_another_page_and_another_key_change_the_sum() {
        let (sum, other) = (Checksum { key: 1 }, Checksum { key: 2 });
        let mut bytes = [7_u8; 4096];
        let id = PageId { region: 1, page: 9 };
        let first = sum.of(id, &bytes);
        assert_eq!(first, sum.of(id, &bytes));
        assert_ne!(first, other.of(id, &bytes));
        assert_ne!(first, sum.of(PageId { region: 1, page: 8 }, &bytes));
        assert_ne!(first, sum.of(PageId { region: 2, page: 9 }, &bytes));
        bytes[4095] ^= 1;
        assert_ne!(first, sum.of(id, &bytes));
    }

    #[test]
    fn a_page_is_zero_only_if_every_byte_is() {
        let mut bytes = [0_u8; 4096];
        assert!(is_zero(&bytes));
        for at in [0, 255, 256, 4095] {
            bytes[at] = 1;
            assert!(!is_zero(&bytes));
            bytes[at] = 0;
        }
    }
}
