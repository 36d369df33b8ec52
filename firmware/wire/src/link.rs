//! The header of a datagram on a transport that may lose, repeat, reorder or delay packets. Lossless transports do not carry it.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | [`LinkKind`] |
//! | 2 | path |
//! | 3 | 0 |
//! | 4–7 | sequence number that the sender expects next; 0 in hello and welcome |
//! | 8–15 | epoch of the sender |
//! | 16–23 | epoch of the receiver, as the sender knows it; 0 in hello |
//! | 24–31 | transmission number; in hello a challenge, in welcome the challenge that it answers |
//! | 32–35 | sequence number of the packet; 0 in all but data |
//!
//! A packet ([`crate::Packet`]) follows in [`LinkKind::Data`], a [`LinkAck`] in [`LinkKind::Ack`], nothing in the others.

use core::fmt;

/// Bytes of a [`LinkHeader`].
pub const LINK_HEADER_BYTES: usize = 36;
/// Version of this layout.
pub const LINK_VERSION: u8 = 1;
/// Ranges that a [`LinkAck`] carries at most.
pub const MAX_ACK_RANGES: usize = 16;
/// Bytes of a [`LinkAck`] before its ranges.
const ACK_FIXED_BYTES: usize = 8;
/// Bytes of one range in a [`LinkAck`].
const RANGE_BYTES: usize = 16;
/// Bytes of the longest [`LinkAck`].
pub const MAX_ACK_BYTES: usize = ACK_FIXED_BYTES + MAX_ACK_RANGES * RANGE_BYTES;

codes! {
    /// Kind of a datagram.
    pub enum LinkKind: u8 {
        /// Asks the receiver for its epoch.
        Hello = 1,
        /// Answers a hello.
        Welcome = 2,
        /// Carries a packet.
        Data = 3,
        /// Acknowledges data.
        Ack = 4,
        /// Asks for the packet that is expected next: the receiver dropped it and can now take it.
        Again = 5,
    }
}

/// Why bytes are not a valid datagram of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It ends before its header or its ranges do; its length in bytes.
    #[error("a datagram of {0} bytes ends before its fields do")]
    Short(usize),
    /// Bytes follow its last field; how many.
    #[error("a datagram has {0} bytes behind its last field")]
    Trailing(usize),
    /// It has another version.
    #[error("link version {0}: expected {LINK_VERSION}")]
    Version(u8),
    /// Its kind is unknown.
    #[error("link kind {0}: expected 1 to 5")]
    Kind(u8),
    /// A field has a value that its kind does not allow.
    #[error("link field {0} has the value {1}, which its kind does not allow")]
    Field(&'static str, u64),
    /// The ranges of an ack do not descend, or one is inverted.
    #[error("ack range {0} does not lie below the one before it")]
    Range(usize),
}

/// The header of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkHeader {
    /// Kind of the datagram.
    pub kind: LinkKind,
    /// Number of the path on which it was sent.
    pub path: u8,
    /// Sequence number that the sender expects next: all earlier packets have arrived. 0 in hello and welcome.
    pub expected: u32,
    /// Random number of the sender's incarnation, not 0.
    pub epoch: u64,
    /// Epoch of the receiver as the sender knows it; 0 in hello.
    pub peer_epoch: u64,
    /// Transmission number, or the challenge of hello and welcome.
    pub number: u64,
    /// Sequence number of the packet on the link: its place in order. 0 in all but data.
    pub sequence: u32,
}

impl LinkHeader {
    /// Parses a header and also returns what follows it.
    ///
    /// # Errors
    /// [`LinkError`] names the field that is wrong, with its value.
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), LinkError> {
        let short = LinkError::Short(datagram.len());
        let (fixed, rest) = datagram.split_first_chunk::<LINK_HEADER_BYTES>().ok_or(short)?;
        if fixed[0] != LINK_VERSION {
            return Err(LinkError::Version(fixed[0]));
        }
        let kind = LinkKind::from_code(fixed[1]).ok_or(LinkError::Kind(fixed[1]))?;
        if fixed[3] != 0 {
            return Err(LinkError::Field("reserved", fixed[3].into()));
        }
        let header = Self {
            kind,
            path: fixed[2],
            expected: u32_at(fixed, 4),
            epoch: u64_at(fixed, 8),
            peer_epoch: u64_at(fixed, 16),
            number: u64_at(fixed, 24),
            sequence: u32_at(fixed, 32),
        };
        let greeting = matches!(kind, LinkKind::Hello | LinkKind::Welcome);
        if header.epoch == 0 {
            return Err(LinkError::Field("epoch", 0));
        }
        if (header.peer_epoch == 0) != (kind == LinkKind::Hello) {
            return Err(LinkError::Field("peer epoch", header.peer_epoch));
        }
        if greeting && header.expected != 0 {
            return Err(LinkError::Field("expected", header.expected.into()));
        }
        if kind != LinkKind::Data && header.sequence != 0 {
            return Err(LinkError::Field("sequence", header.sequence.into()));
        }
        if (greeting || kind == LinkKind::Again) && !rest.is_empty() {
            return Err(LinkError::Trailing(rest.len()));
        }
        Ok((header, rest))
    }

    /// Encodes the header.
    #[must_use]
    pub fn emit(&self) -> [u8; LINK_HEADER_BYTES] {
        let mut bytes = [0; LINK_HEADER_BYTES];
        bytes[0] = LINK_VERSION;
        bytes[1] = self.kind as u8;
        bytes[2] = self.path;
        bytes[4..8].copy_from_slice(&self.expected.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.peer_epoch.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }
}

impl fmt::Display for LinkHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {} seq {} path {} epoch {:x}→{:x} expects {}",
            self.kind, self.number, self.sequence, self.path, self.epoch, self.peer_epoch, self.expected
        )
    }
}

/// Transmissions that have arrived. Its ranges descend, do not touch, and number at most [`MAX_ACK_RANGES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkAck {
    /// Nanoseconds between the arrival of the newest transmission and this ack.
    pub delay_ns: u32,
    count: u16,
    /// First and last number of each range, inclusive.
    ranges: [(u64, u64); MAX_ACK_RANGES],
}

impl LinkAck {
    /// Makes an ack of `ranges` (first and last number, newest first); keeps only the first [`MAX_ACK_RANGES`].
    ///
    /// # Errors
    /// [`LinkError::Range`] if they do not descend or one is inverted.
    pub fn new(delay_ns: u32, ranges: impl IntoIterator<Item = (u64, u64)>) -> Result<Self, LinkError> {
        let mut ack = Self { delay_ns, count: 0, ranges: [(0, 0); MAX_ACK_RANGES] };
        let mut below = None;
        for (at, (first, last)) in ranges.into_iter().take(MAX_ACK_RANGES).enumerate() {
            // Merges a range that touches the one above.
            if first > last || below.is_some_and(|below: u64| last >= below.saturating_sub(1)) {
                return Err(LinkError::Range(at));
            }
            below = Some(first);
            ack.ranges[at] = (first, last);
            ack.count += 1;
        }
        Ok(ack)
    }

    /// First and last number of each range, newest first.
    #[must_use]
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges[..usize::from(self.count)]
    }

    /// Parses what follows the header of an ack.
    ///
    /// # Errors
    /// [`LinkError`] for bytes that are missing or left over, too many ranges, and ranges that do not descend.
    pub fn parse(bytes: &[u8]) -> Result<Self, LinkError> {
        let short = LinkError::Short(bytes.len());
        let (fixed, rest) = bytes.split_first_chunk::<ACK_FIXED_BYTES>().ok_or(short)?;
        let word = u64::from_le_bytes(*fixed);
        let count = (word >> 32) as u32;
        if count as usize > MAX_ACK_RANGES {
            return Err(LinkError::Field("ranges", count.into()));
        }
        let wanted = count as usize * RANGE_BYTES;
        if rest.len() < wanted {
            return Err(short);
        }
        if rest.len() > wanted {
            return Err(LinkError::Trailing(rest.len() - wanted));
        }
        let ranges = rest.chunks_exact(RANGE_BYTES).map(|range| (u64_at(range, 0), u64_at(range, 8)));
        Self::new(word as u32, ranges)
    }

    /// Encodes the ack at the start of `bytes`, and returns its length.
    pub fn emit(&self, bytes: &mut [u8; MAX_ACK_BYTES]) -> usize {
        bytes[..4].copy_from_slice(&self.delay_ns.to_le_bytes());
        bytes[4..8].copy_from_slice(&u32::from(self.count).to_le_bytes());
        let mut at = ACK_FIXED_BYTES;
        for (first, last) in self.ranges() {
            bytes[at..at + 8].copy_from_slice(&first.to_le_bytes());
            bytes[at + 8..at + 16].copy_from_slice(&last.to_le_bytes());
            at += RANGE_BYTES;
        }
        at
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: LinkHeader = LinkHeader {
        kind: LinkKind::Data,
        path: 2,
        expected: 0x0403_0201,
        epoch: 0x11,
        peer_epoch: 0x22,
        number: 0x33,
        sequence: 0x44,
    };

    #[test]
    fn the_layout_does_not_move() {
        let mut bytes = [0; LINK_HEADER_BYTES];
        bytes[..8].copy_from_slice(&[1, 3, 2, 0, 1, 2, 3, 4]);
        (bytes[8], bytes[16], bytes[24], bytes[32]) = (0x11, 0x22, 0x33, 0x44);
        assert_eq!(DATA.emit(), bytes);
        assert_eq!(LinkHeader::parse(&bytes), Ok((DATA, &[][..])));
    }

    #[test]
    fn each_field_that_is_wrong_is_named() {
        let with = |at: usize, value: u8| {
            let mut bytes = DATA.emit();
            bytes[at] = value;
            LinkHeader::parse(&bytes).map(|_| ())
        };
        assert_eq!(with(0, 2), Err(LinkError::Version(2)));
        assert_eq!(with(1, 6), Err(LinkError::Kind(6)));
        assert_eq!(with(3, 7), Err(LinkError::Field("reserved", 7)));
        assert_eq!(with(8, 0), Err(LinkError::Field("epoch", 0)));
        assert_eq!(with(16, 0), Err(LinkError::Field("peer epoch", 0)));
        assert_eq!(with(1, 1), Err(LinkError::Field("peer epoch", 0x22)));
        assert_eq!(with(1, 2), Err(LinkError::Field("expected", 0x0403_0201)));
        assert_eq!(with(1, 4), Err(LinkError::Field("sequence", 0x44)));
        for length in 0..LINK_HEADER_BYTES {
            let bytes = DATA.emit();
            assert_eq!(LinkHeader::parse(&bytes[..length]), Err(LinkError::Short(length)));
        }
    }

    #[test]
    fn an_ack_comes_back_as_it_was_written() {
        let ack = LinkAck::new(5, (0..40).map(|n| (1000 - 10 * n, 1003 - 10 * n))).unwrap();
        assert_eq!(ack.ranges().len(), MAX_ACK_RANGES);
        let mut bytes = [0xee; MAX_ACK_BYTES];
        let length = ack.emit(&mut bytes);
        assert_eq!(LinkAck::parse(&bytes[..length]), Ok(ack));
        assert_eq!(LinkAck::parse(&bytes[..length - 1]), Err(LinkError::Short(length - 1)));
        assert_eq!(LinkAck::parse(&[0; 9]), Err(LinkError::Trailing(1)));
        let many = [0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(LinkAck::parse(&many), Err(LinkError::Field("ranges", 1 << 24)));
    }

    #[test]
    fn ranges_that_are_inverted_overlap_or_touch_are_refused() {
        assert_eq!(LinkAck::new(0, [(5, 4)]), Err(LinkError::Range(0)));
        assert_eq!(LinkAck::new(0, [(5, 9), (2, 5)]), Err(LinkError::Range(1)));
        assert_eq!(LinkAck::new(0, [(5, 9), (2, 4)]), Err(LinkError::Range(1)));
        assert_eq!(LinkAck::new(0, [(5, 9), (10, 11)]), Err(LinkError::Range(1)));
        assert_eq!(LinkAck::new(0, [(0, 9), (0, 0)]), Err(LinkError::Range(1)));
        assert!(LinkAck::new(0, [(5, u64::MAX), (2, 3)]).is_ok());
    }
}
