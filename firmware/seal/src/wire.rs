//! The layout of envelopes, little endian. Byte 0 is the type, byte 1 of a handshake the [`VERSION`].
//!
//! | bytes | 1: initiate | 2: respond | 3: cookie |
//! |---|---|---|---|
//! | 2–3 | node of the sender | the same | the same |
//! | 4–5 | node of the receiver | the same | the same |
//! | 6 | 1 if the sender has a session with the receiver, else 0 | 0 | 0 |
//! | 7 | 0 | 0 | 0 |
//! | 8–11 | job | the same | the same |
//! | 12–15 | index of the session to be, drawn by the sender | that index | that index |
//! | 16– | Noise message, 48 bytes | Noise message, 53 bytes: it carries the index that the responder drew, and 1 if the responder has a session with the initiator, else 0 | code of the initiate, 16 bytes; cookie, 24 bytes |
//! | then | cookie, 24 bytes, zeros while there is none | | |
//! | last 16 | code of all before, by the job's secret | the same | the same |
//!
//! Type 4, sealed: byte 1 is 0, 2–3 the length of the datagram, 4–7 the index of the receiver's session, 8–15 the counter; then the
//! encrypted bytes and the tag, whose additional data are the first 16 bytes.
//!
//! Type 5, plain: byte 1 is 0, 2–3 the length of the datagram, 4–5 the node of the sender, 6–7 are 0, 8–11 the job; then the bytes.
//!
//! The length shows where a datagram ends that the kernel has joined with others ([`first_length`]).

use mapwire_wire::NodeId;

use crate::aead::{NONCE_BYTES, TAG_BYTES};
use crate::mac::{MAC_BYTES, MacKey};

/// Bytes of a cookie: a time and a code.
pub(crate) const COOKIE_BYTES: usize = 8 + MAC_BYTES;

/// Version of the handshake's format.
pub const VERSION: u8 = 2;
/// Bytes before the content of a sealed envelope.
pub const SEALED_FRONT_BYTES: usize = 16;
/// Bytes behind the content of a sealed envelope.
pub const SEALED_BACK_BYTES: usize = TAG_BYTES;
/// Bytes before the content of a plain envelope.
pub const PLAIN_FRONT_BYTES: usize = 12;

/// Bytes of the shortest datagram of a link.
const LEAST_BYTES: usize = SEALED_FRONT_BYTES + SEALED_BACK_BYTES;

/// Types of envelopes.
pub(crate) const INITIATE: u8 = 1;
pub(crate) const RESPOND: u8 = 2;
pub(crate) const COOKIE: u8 = 3;
pub(crate) const SEALED: u8 = 4;
pub(crate) const PLAIN: u8 = 5;

pub(crate) const HEADER_BYTES: usize = 16;
/// Noise's first message: an ephemeral key, and the tag of an empty payload.
pub(crate) const FIRST_BYTES: usize = 32 + 16;
/// Payload of Noise's second message: an index, and 1 if the responder has a session with the initiator.
pub(crate) const GRANT_BYTES: usize = 5;
/// Noise's second message: an ephemeral key, its payload, and the tag.
pub(crate) const SECOND_BYTES: usize = 32 + GRANT_BYTES + 16;

pub const INITIATE_BYTES: usize = HEADER_BYTES + FIRST_BYTES + COOKIE_BYTES + MAC_BYTES;
pub const RESPOND_BYTES: usize = HEADER_BYTES + SECOND_BYTES + MAC_BYTES;
pub const COOKIE_DATAGRAM_BYTES: usize = HEADER_BYTES + MAC_BYTES + COOKIE_BYTES + MAC_BYTES;

// No answer to an unproven address is longer than the datagram from there.
const _: () = assert!(COOKIE_DATAGRAM_BYTES <= INITIATE_BYTES && RESPOND_BYTES <= INITIATE_BYTES);

/// The first 16 bytes of a handshake's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    kind: u8,
    from: NodeId,
    to: NodeId,
    continues: bool,
    job: u32,
    index: u32,
}

impl Header {
    /// The header of an initiate of the session `index`.
    pub(crate) const fn initiate(from: NodeId, to: NodeId, job: u32, index: u32, continues: bool) -> Self {
        Self { kind: INITIATE, from, to, continues, job, index }
    }

    /// The header of an answer to an initiate with this header.
    pub(crate) const fn answer(&self, kind: u8) -> Self {
        Self { kind, from: self.to, to: self.from, continues: false, job: self.job, index: self.index }
    }

    pub(crate) const fn from(&self) -> NodeId {
        self.from
    }

    pub(crate) const fn to(&self) -> NodeId {
        self.to
    }

    pub(crate) const fn continues(&self) -> bool {
        self.continues
    }

    pub(crate) const fn job(&self) -> u32 {
        self.job
    }

    pub(crate) const fn index(&self) -> u32 {
        self.index
    }

    /// Parses a header; `None` if any byte is illegal.
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let header = Self {
            kind: bytes[0],
            from: NodeId(u16::from_le_bytes([bytes[2], bytes[3]])),
            to: NodeId(u16::from_le_bytes([bytes[4], bytes[5]])),
            continues: bytes[6] == 1,
            job: u32_at(bytes, 8),
            index: u32_at(bytes, 12),
        };
        let legal = header.index != 0 && (header.kind == INITIATE || !header.continues);
        // Fields that were not read must have the one value that would be written.
        (legal && header.emit() == *bytes).then_some(header)
    }

    pub(crate) fn emit(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind;
        bytes[1] = VERSION;
        bytes[2..4].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[6] = self.continues.into();
        bytes[8..12].copy_from_slice(&self.job.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.index.to_le_bytes());
        bytes
    }
}

/// A handshake datagram with a valid code: its maker has the job's secret.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked<'a> {
    header: Header,
    body: &'a [u8],
    code: [u8; MAC_BYTES],
}

/// Why a datagram is rejected as a handshake's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotChecked {
    Malformed,
    Code,
}

impl<'a> Checked<'a> {
    /// Checks length and header, then the code.
    pub(crate) fn new(datagram: &'a [u8], key: &MacKey) -> Result<Self, NotChecked> {
        let bytes = match datagram.first() {
            Some(&INITIATE) => INITIATE_BYTES,
            Some(&RESPOND) => RESPOND_BYTES,
            Some(&COOKIE) => COOKIE_DATAGRAM_BYTES,
            _ => return Err(NotChecked::Malformed),
        };
        let (covered, code) =
            datagram.split_last_chunk().filter(|_| datagram.len() == bytes).ok_or(NotChecked::Malformed)?;
        let (header, body) = covered.split_first_chunk().ok_or(NotChecked::Malformed)?;
        let header = Header::parse(header).ok_or(NotChecked::Malformed)?;
        if !key.verifies(covered, code) {
            return Err(NotChecked::Code);
        }
        Ok(Self { header, body, code: *code })
    }

    pub(crate) const fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) const fn code(&self) -> &[u8; MAC_BYTES] {
        &self.code
    }

    /// Noise's message and the cookie in an initiate.
    pub(crate) fn initiate(&self) -> Option<(&'a [u8; FIRST_BYTES], &'a [u8; COOKIE_BYTES])> {
        let (first, cookie) = self.body.split_first_chunk()?;
        Some((first, cookie.try_into().ok()?))
    }

    pub(crate) fn respond(&self) -> Option<&'a [u8; SECOND_BYTES]> {
        self.body.try_into().ok()
    }

    /// The code of the initiate that it answers, and the cookie.
    pub(crate) fn cookie(&self) -> Option<(&'a [u8; MAC_BYTES], &'a [u8; COOKIE_BYTES])> {
        let (code, cookie) = self.body.split_first_chunk()?;
        Some((code, cookie.try_into().ok()?))
    }
}

/// A handshake's datagram: its header, the two parts of its body, and the code, `BYTES` in all.
pub(crate) fn datagram<const BYTES: usize>(header: &Header, body: [&[u8]; 2], key: &MacKey) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (to, byte) in bytes.iter_mut().zip(header.emit().iter().chain(body[0]).chain(body[1])) {
        *to = *byte;
    }
    if let Some((covered, code)) = bytes.split_last_chunk_mut() {
        *code = key.of(covered);
    }
    bytes
}

pub(crate) fn code_of(datagram: &[u8]) -> [u8; MAC_BYTES] {
    datagram.last_chunk().copied().unwrap_or_default()
}

/// The first four bytes of a link's datagram: its type and its length.
#[inline]
pub(crate) fn type_and_length(kind: u8, length: u16) -> [u8; 4] {
    let [low, high] = length.to_le_bytes();
    [kind, 0, low, high]
}

/// Writes the first 16 bytes of the sealed envelope of a datagram of `length` bytes.
#[inline]
pub(crate) fn write_sealed(front: &mut [u8; SEALED_FRONT_BYTES], index: u32, counter: u64, length: u16) {
    front[..4].copy_from_slice(&type_and_length(SEALED, length));
    front[4..8].copy_from_slice(&index.to_le_bytes());
    front[8..].copy_from_slice(&counter.to_le_bytes());
}

/// Index and counter in the sealed envelope of a datagram of `length` bytes.
#[inline]
pub(crate) fn read_sealed(front: &[u8; SEALED_FRONT_BYTES], length: usize) -> Option<(u32, u64)> {
    let length = u16::try_from(length).ok()?;
    let legal = front[..4] == type_and_length(SEALED, length);
    let counter = u64::from_le_bytes(*front.last_chunk()?);
    legal.then(|| (u32_at(front, 4), counter))
}

/// Length of the first of several datagrams that were received joined, as its header claims; all of them if it is not mapwire's. The
/// sender may lie: each datagram is checked by itself.
#[inline]
#[must_use]
pub fn first_length(joined: &[u8]) -> usize {
    let length = match *joined {
        [SEALED | PLAIN, _, low, high, ..] => usize::from(u16::from_le_bytes([low, high])),
        [INITIATE, ..] => INITIATE_BYTES,
        [RESPOND, ..] => RESPOND_BYTES,
        [COOKIE, ..] => COOKIE_DATAGRAM_BYTES,
        _ => joined.len(),
    };
    match length {
        ..LEAST_BYTES => joined.len(),
        length => length.min(joined.len()),
    }
}

/// The nonce of a counter, unique among the datagrams of a key.
#[inline]
pub(crate) fn nonce(counter: u64) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk);
    field.map_or(0, |field| u32::from_le_bytes(*field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_and_no_other_bytes_are_one() {
        let header = Header::initiate(NodeId(0x0102), NodeId(0x0304), 5, 6, true);
        let bytes = header.emit();
        assert_eq!(Header::parse(&bytes), Some(header));
        for (at, value) in [(1, 1), (6, 2), (7, 1)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(Header::parse(&other), None, "byte {at}");
        }
        let zero = Header::initiate(NodeId(1), NodeId(2), 5, 0, false);
        assert_eq!(Header::parse(&zero.emit()), None, "index 0");
        let mut answer = header.answer(RESPOND).emit();
        assert!(Header::parse(&answer).is_some());
        answer[6] = 1;
        assert_eq!(Header::parse(&answer), None);
    }

    #[test]
    fn a_sealed_envelope_has_one_value_for_each_byte_before_its_index() {
        let mut front = [0; SEALED_FRONT_BYTES];
        write_sealed(&mut front, 0x0102_0304, 5, 0x0708);
        assert_eq!(read_sealed(&front, 0x0708), Some((0x0102_0304, 5)));
        assert_eq!(read_sealed(&front, 0x0709), None);
        for at in 1..4 {
            let mut other = front;
            other[at] = 1;
            assert_eq!(read_sealed(&other, 0x0708), None, "byte {at}");
        }
    }

    #[test]
    fn joined_datagrams_say_where_the_first_ends_and_never_end_behind_all() {
        let mut joined = [0; 500];
        joined[..4].copy_from_slice(&type_and_length(PLAIN, 300));
        assert_eq!(first_length(&joined), 300);
        joined[..4].copy_from_slice(&type_and_length(SEALED, 501));
        assert_eq!(first_length(&joined), 500);
        for short in [0, 1, LEAST_BYTES as u16 - 1] {
            joined[..4].copy_from_slice(&type_and_length(SEALED, short));
            assert_eq!(first_length(&joined), 500);
        }
        for (kind, bytes) in
            [(INITIATE, INITIATE_BYTES), (RESPOND, RESPOND_BYTES), (COOKIE, COOKIE_DATAGRAM_BYTES), (99, 500)]
        {
            joined[0] = kind;
            assert_eq!(first_length(&joined), bytes);
        }
        for length in 0..4 {
            assert_eq!(first_length(&[SEALED; 4][..length]), length);
        }
    }
}
