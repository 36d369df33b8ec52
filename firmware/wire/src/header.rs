//! The 48 bytes in front of every packet, and the sizes that all layers share.

use core::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::Key;
use crate::kind::Kind;

/// Bytes of a [`Header`].
pub const HEADER_BYTES: usize = 48;
/// The version of the packet format that this build speaks.
pub const VERSION: u8 = 1;
/// Most data a short send carries inside its command (VMMC §4.5).
pub const SHORT_BYTES: usize = 128;
/// Most data a short send carries when a signal travels with it.
pub const SHORT_SIGNAL_BYTES: usize = SHORT_BYTES - SIGNAL_TRAILER_BYTES;
/// Most data in one packet. A NIC cuts long transfers into shorter pieces where its transport asks for that.
pub const CHUNK_BYTES: usize = 64 << 10;
/// Bytes that a signal adds at the end of a payload.
pub const SIGNAL_TRAILER_BYTES: usize = 16;
/// Largest payload of any packet: a chunk and a signal.
pub const MAX_PAYLOAD_BYTES: usize = CHUNK_BYTES + SIGNAL_TRAILER_BYTES;
/// Payloads up to this size lie beside their header, in ring slots and in command queues.
pub const INLINE_BYTES: usize = 136;

/// The flag bits of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u16);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// The last packet of its message or fetch.
    pub const LAST: Flags = Flags(1);
    /// A notification follows delivery. Only on the last packet.
    pub const NOTIFY: Flags = Flags(2);
    /// The payload ends in a [`Signal`](crate::Signal). Only on the last packet.
    pub const SIGNAL: Flags = Flags(4);

    /// Whether every bit of `other` is set.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// `self`, with `other` too when `condition` holds.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Flags, condition: bool) -> Flags {
        Flags(self.0 | if condition { other.0 } else { 0 })
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        let mut separator = "";
        for (flag, word) in [(Flags::LAST, "last"), (Flags::NOTIFY, "notify"), (Flags::SIGNAL, "signal")] {
            if self.contains(flag) {
                write!(f, "{separator}{word}")?;
                separator = "+";
                rest &= !flag.0;
            }
        }
        match rest {
            0 if self.0 == 0 => f.write_str("none"),
            0 => Ok(()),
            _ => write!(f, "{separator}{rest:#x}"),
        }
    }
}

/// The bytes in front of a payload, little endian, of any alignment. Any 48 bytes are a `Header`;
/// only [`Repr::parse`](crate::Repr::parse) says whether they are a legal one.
///
/// | bytes | field |
/// |---|---|
/// | 0 | version |
/// | 1 | kind |
/// | 2..4 | flags |
/// | 4..8 | payload length |
/// | 8..12 | sequence number |
/// | 12..16 | 0 |
/// | 16..32 | key |
/// | 32..36 | export |
/// | 36..40 | message, fetch or handler |
/// | 40..48 | offset, or the code of a refusal |
///
/// Fields that a kind does not use are zero. Any `sequence` is legal here. A NIC numbers the packets to each peer from 0 and
/// accepts none out of order, even over transports that lose nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// [`VERSION`] of the sender.
    pub version: u8,
    /// The code of a [`Kind`].
    pub kind: u8,
    /// [`Flags`].
    pub flags: U16,
    /// Bytes of payload behind the header, with the signal trailer if there is one.
    pub length: U32,
    /// The link's number for this packet.
    pub sequence: U32,
    /// Must be 0.
    pub reserved: U32,
    /// Key that proves the right to do this.
    pub key: Key,
    /// An [`ExportId`](crate::ExportId).
    pub export: U32,
    /// A [`MessageId`](crate::MessageId), [`FetchId`](crate::FetchId) or [`HandlerId`](crate::HandlerId).
    pub message: U32,
    /// Offset in the export or fetch, in bytes; in a refusal, the reason's code.
    pub offset: U64,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES && align_of::<Header>() == 1);

impl Header {
    /// All zero: what a ring's unused slot holds. Its version, 0, is never legal.
    pub const ZERO: Header = Header {
        version: 0,
        kind: 0,
        flags: U16::ZERO,
        length: U32::ZERO,
        sequence: U32::ZERO,
        reserved: U32::ZERO,
        key: Key::ZERO,
        export: U32::ZERO,
        message: U32::ZERO,
        offset: U64::ZERO,
    };

    /// Payload bytes as the header claims them; untrusted until parsed.
    #[inline]
    pub const fn payload_bytes(&self) -> u32 {
        self.length.get()
    }

    /// The flag bits, unchecked.
    #[inline]
    pub const fn flags(&self) -> Flags {
        Flags(self.flags.get())
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Kind::from_code(self.kind) {
            Some(kind) => write!(f, "{kind}")?,
            None => write!(f, "kind {}", self.kind)?,
        }
        write!(
            f,
            " v{} seq {} flags {} key {} export {} message {} offset {:#x}, {} bytes",
            self.version,
            self.sequence,
            self.flags(),
            self.key,
            self.export,
            self.message,
            self.offset.get(),
            self.length,
        )
    }
}
