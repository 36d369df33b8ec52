//! Names of pages: where a page lives on permanent storage (GMS-NP §2.2), as a four-word key (§4.4) and its hash.

/// What a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpaceId {
    File {
        /// The file system's device number.
        device: u64,
        /// The file's number there.
        inode: u64,
        /// Tells apart files that had the same number one after the other.
        generation: u32,
    },
    /// Memory without a file, which belongs to a node.
    Anonymous {
        node: u16,
        /// Tells apart runs of the node.
        incarnation: u64,
        /// The region, numbered by the node.
        region: u32,
    },
}

/// The finaliser of SplitMix64: each bit of the result depends on each bit of `word`.
pub(crate) const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

impl SpaceId {
    /// A digest of 64 bits, the same on every machine. Of a million spaces two have the same digest once in 37 million times.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        let (kind, first, second, third) = match *self {
            Self::File { device, inode, generation } => (1, device, inode, generation),
            Self::Anonymous { node, incarnation, region } => (2, node as u64, incarnation, region),
        };
        mix(mix(mix(mix(kind) ^ first) ^ second) ^ third as u64)
    }
}

/// The name of a page: 16 bytes, the four-word key of GMS-NP §4.4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageName {
    /// The digest of its [`SpaceId`].
    pub space: u64,
    /// Its number there, in pages of 4,096 bytes.
    pub page: u64,
}

/// The hash of a page's name. The requesting node computes it once and sends it along (GMS-NP §2.5, §3.2): its top bits choose the
/// bucket of the [map](crate::Map), and so the directory node, its low bits the row of the directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageHash(pub u32);

impl PageName {
    /// Names a page of a space.
    #[must_use]
    pub const fn new(space: &SpaceId, page: u64) -> Self {
        Self { space: space.digest(), page }
    }

    /// The hash of this name.
    #[must_use]
    pub const fn hash(&self) -> PageHash {
        PageHash((mix(self.space ^ mix(self.page)) >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_different_spaces_differ() {
        let file = |device, inode, generation| SpaceId::File { device, inode, generation };
        let anonymous = SpaceId::Anonymous { node: 1, incarnation: 2, region: 3 };
        let spaces = [file(1, 2, 3), file(2, 1, 3), file(1, 2, 4), anonymous];
        for (at, space) in spaces.iter().enumerate() {
            for other in &spaces[..at] {
                assert_ne!(space.digest(), other.digest());
            }
        }
    }

    #[test]
    fn pages_in_sequence_are_spread_evenly_by_their_hashes() {
        let mut top = [0u32; 256];
        let mut low = [0u32; 256];
        for page in 0..256 * 256 {
            let PageHash(hash) = PageName { space: 7, page }.hash();
            top[(hash >> 24) as usize] += 1;
            low[(hash & 255) as usize] += 1;
        }
        // 256 on average, with a standard deviation of 16.
        assert!(top.iter().chain(&low).all(|count| (176..336).contains(count)));
    }
}
