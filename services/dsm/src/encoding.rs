//! The encoding of messages.
//!
//! A message is a kind byte followed by its fields in little-endian order without padding; an access and a truth value are a
//! byte of 0 or 1. The views of a message about several minipages or pages are 8 bytes, and the highest bit of its kind byte says that they are there.
//! The fields of messages of locks, barriers and objects may be followed by the *payload*: what the coherence protocol tells
//! the receiver.
//!
//! [`Message::parse`] accepts exactly what [`Dsm::encode`](crate::Dsm::encode) writes and never panics;
//! [`Dsm::handle_message`](crate::Dsm::handle_message) checks whether the numbers are valid in the job.

use crate::{Access, Key, Message, Minipage, Round, Units, Views, objects};
use thiserror::Error;

/// Longest message without its payload, in bytes.
pub const MAX_FIELDS_BYTES: usize = 34;
/// Longest payload, in bytes.
pub const MAX_PAYLOAD_BYTES: usize = 1024;
/// Longest message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = MAX_FIELDS_BYTES + MAX_PAYLOAD_BYTES;

/// Malformed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The first byte names no kind of message.
    #[error("kind {0} is not a shared-memory message; the peer speaks another version")]
    Kind(u8),
    /// The message is empty.
    #[error("an empty shared-memory message")]
    Empty,
    /// The message is longer or shorter than its kind.
    #[error("a shared-memory message of kind {kind} cannot be {length_bytes} bytes long")]
    Length { kind: u8, length_bytes: usize },
    /// Undefined flag bits are set.
    #[error("flags {flags:#04x} mean nothing in a shared-memory message of kind {kind}")]
    Flags { kind: u8, flags: u8 },
    /// A message about several minipages names fewer than two, or not the first.
    #[error("views {mask:#x} name no set of minipages in a shared-memory message of kind {kind}")]
    Views { kind: u8, mask: u64 },
}

macro_rules! layouts {
    ($($kind:literal $name:ident { $($field:ident)* })*) => {
        impl Message {
            fn kind(&self) -> u8 {
                match self {
                    $(Message::$name { .. } => $kind,)*
                }
            }

            fn write(&self, to: &mut Writer<'_>) {
                match *self {
                    $(Message::$name { $($field),* } => { $($field.write(to);)* })*
                }
            }

            fn read(kind: u8, from: &mut Reader<'_>) -> Result<Message, Malformed> {
                Ok(match kind {
                    $($kind => Message::$name { $($field: Field::read(from)?),* },)*
                    _ => return Err(Malformed::Kind),
                })
            }
        }
    };
}

// The kind byte of each message, and its fields in their order.
layouts! {
    1 Request { access thread key views }
    2 Refuse { thread key views }
    3 Forward { access thread minipage requester acks views }
    4 Grant { access data done thread minipage acks views }
    5 Invalidate { thread key requester views }
    6 InvalidateAck { thread key views }
    7 Done { thread key views }
    8 Register { thread minipage }
    9 Registered { thread }
    10 ChunkRequest { thread need_pages want_pages }
    11 ChunkGrant { thread first_page pages }
    12 ChunkRefuse { thread left_pages }
    13 LockRequest { lock }
    14 LockForward { lock successor }
    15 LockToken { lock }
    16 BarrierArrive { round }
    17 BarrierRelease { round }
    18 Notices { }
    19 RegisterAt { thread home minipage }
    20 HomeRequest { page views }
    21 Home { page home views }
    22 HomeRefuse { page }
    23 Diff { page }
    24 Fence { number }
    25 FenceAck { number }
    26 HomeMove { page to }
    27 HomeClose { page views }
    28 HomeClosed { page views }
    29 HomeTake { page from }
    30 HomeTaken { page }
    31 Changed { page interval }
    32 Overlap { page other interval start length }
    33 RegisterUnits { thread units }
    34 Push { run }
    35 ObjectRequest { thread kind verb object argument }
    36 ObjectAnswer { thread result value }
    37 ObjectCancel { thread object }
}

impl Message {
    /// Whether these bytes are a message of locks, barriers, objects or lazy consistency, which no hold delays.
    #[inline]
    pub(crate) fn synchronises(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|first| matches!(first & !SEVERAL, 13..=32 | 35..=37))
    }

    /// Whether a payload may follow the fields.
    pub(crate) fn carries_payload(&self) -> bool {
        carries_payload(self.kind())
    }

    /// Whether it is of lazy consistency.
    pub(crate) fn is_lazy(&self) -> bool {
        matches!(self.kind(), 18..=32)
    }

    /// Whether its receiver acquires what its sender has released.
    pub(crate) fn releases(&self) -> bool {
        match *self {
            Message::LockToken { .. } | Message::BarrierArrive { .. } | Message::BarrierRelease { .. } => true,
            Message::ObjectRequest { kind, verb, .. } => objects::releases(kind, verb),
            Message::ObjectAnswer { .. } => true,
            _ => false,
        }
    }

    /// Encodes the message without a payload at the start of `bytes` and returns its length.
    pub fn encode(&self, bytes: &mut [u8; MAX_MESSAGE_BYTES]) -> usize {
        let mut to = Writer { bytes, at: 0 };
        let several = if self.views() == Views::ONE { 0 } else { SEVERAL };
        (self.kind() | several).write(&mut to);
        self.write(&mut to);
        to.at
    }

    /// Parses a message that fills `bytes` exactly, and its payload.
    pub fn parse(bytes: &[u8]) -> Result<(Message, &[u8]), ParseError> {
        let &[first, ref fields @ ..] = bytes else {
            return Err(ParseError::Empty);
        };
        let kind = first & !SEVERAL;
        let bad_length = ParseError::Length { kind, length_bytes: bytes.len() };
        let mut from = Reader { bytes: fields, has_views: first != kind };
        let message = Message::read(kind, &mut from).map_err(|malformed| match malformed {
            Malformed::Kind => ParseError::Kind(first),
            Malformed::Short => bad_length,
            Malformed::Flags(flags) => ParseError::Flags { kind, flags },
            Malformed::Views(mask) => ParseError::Views { kind, mask },
        })?;
        if from.has_views {
            // No message of that kind has any.
            return Err(ParseError::Kind(first));
        }
        let payload = from.bytes;
        let most = if carries_payload(kind) { MAX_PAYLOAD_BYTES } else { 0 };
        if payload.len() > most {
            return Err(bad_length);
        }
        Ok((message, payload))
    }
}

/// The bit of the kind byte of a message about several minipages.
const SEVERAL: u8 = 0x80;

/// Whether a payload may follow the fields of a message of that kind: of locks, barriers, objects, notices and changes.
const fn carries_payload(kind: u8) -> bool {
    matches!(kind, 13..=18 | 31 | 35 | 36)
}

enum Malformed {
    Kind,
    Short,
    Flags(u8),
    Views(u64),
}

struct Writer<'a> {
    bytes: &'a mut [u8; MAX_MESSAGE_BYTES],
    at: usize,
}

struct Reader<'a> {
    bytes: &'a [u8],
    /// Views are there, and have not been read.
    has_views: bool,
}

trait Field: Sized {
    fn write(self, to: &mut Writer<'_>);
    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed>;
}

macro_rules! numbers {
    ($($number:ident)*) => {
        $(impl Field for $number {
            fn write(self, to: &mut Writer<'_>) {
                let field = self.to_le_bytes();
                to.bytes[to.at..][..field.len()].copy_from_slice(&field);
                to.at += field.len();
            }

            fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                let (field, rest) = from.bytes.split_first_chunk().ok_or(Malformed::Short)?;
                from.bytes = rest;
                Ok($number::from_le_bytes(*field))
            }
        })*
    };
}
numbers! { u8 u16 u32 u64 }

impl Field for bool {
    fn write(self, to: &mut Writer<'_>) {
        u8::from(self).write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::read(from)? {
            0 => Ok(false),
            1 => Ok(true),
            flags => Err(Malformed::Flags(flags)),
        }
    }
}

impl Field for Access {
    fn write(self, to: &mut Writer<'_>) {
        (self == Access::Write).write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let write = bool::read(from)?;
        Ok(if write { Access::Write } else { Access::Read })
    }
}

impl Field for Views {
    fn write(self, to: &mut Writer<'_>) {
        if self != Views::ONE {
            self.mask().write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        if !core::mem::take(&mut from.has_views) {
            return Ok(Views::ONE);
        }
        let mask = u64::read(from)?;
        Views::new(mask).filter(|&views| views != Views::ONE).ok_or(Malformed::Views(mask))
    }
}

macro_rules! records {
    ($($name:ident { $($field:ident)* })*) => {
        $(impl Field for $name {
            fn write(self, to: &mut Writer<'_>) {
                $(self.$field.write(to);)*
            }

            fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok($name { $($field: Field::read(from)?),* })
            }
        })*
    };
}
records! {
    Key { view page }
    Minipage { view offset_bytes length_bytes }
    Units { view first_page length_bytes unit_bytes }
    Round { barrier epoch root value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// Any message: fields from random bytes; those that may be flags are made legal.
    fn messages() -> impl Strategy<Value = Message> {
        let bytes = proptest::collection::vec(any::<u8>(), MAX_FIELDS_BYTES);
        (1u8..=37, bytes).prop_map(|(kind, mut bytes)| {
            if matches!(kind, 1 | 3 | 4) {
                bytes[..3].iter_mut().for_each(|flag| *flag &= 1);
            }
            let read = |has_views| Message::read(kind, &mut Reader { bytes: &bytes, has_views });
            // Every second mask lacks its first bit.
            read(true).or_else(|_| read(false)).unwrap_or_else(|_| unreachable!())
        })
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_it_was_written_and_not_if_cut(
            message in messages(),
            payload in proptest::collection::vec(any::<u8>(), 0..=MAX_PAYLOAD_BYTES),
        ) {
            let mut bytes = [0xAA; MAX_MESSAGE_BYTES];
            let length = message.encode(&mut bytes);
            prop_assert!(length <= MAX_FIELDS_BYTES);
            prop_assert_eq!(Message::parse(&bytes[..length]), Ok((message, &[][..])));
            for short in 0..length {
                prop_assert!(Message::parse(&bytes[..short]).is_err());
            }
            let mut bytes = Vec::from(&bytes[..length]);
            bytes.extend(&payload);
            if message.carries_payload() {
                prop_assert_eq!(Message::parse(&bytes), Ok((message, &payload[..])));
            } else if !payload.is_empty() {
                prop_assert!(Message::parse(&bytes).is_err());
            }
            bytes.resize(length + MAX_PAYLOAD_BYTES + 1, 0);
            let error = ParseError::Length { kind: message.kind(), length_bytes: bytes.len() };
            prop_assert_eq!(Message::parse(&bytes), Err(error));
        }

        #[test]
        fn whatever_is_read_is_what_would_be_written(bytes in proptest::collection::vec(any::<u8>(), 0..60), kind in 0u8..40, several: bool) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind | if several { SEVERAL } else { 0 };
            }
            if let Ok((message, payload)) = Message::parse(&bytes) {
                let mut again = [0; MAX_MESSAGE_BYTES];
                let length = message.encode(&mut again);
                prop_assert_eq!(&again[..length], &bytes[..length]);
                prop_assert_eq!(payload, &bytes[length..]);
            }
        }
    }

    #[test]
    fn bytes_that_are_no_message_are_told_apart() {
        assert_eq!(Message::parse(&[]), Err(ParseError::Empty));
        assert_eq!(Message::parse(&[99, 1]), Err(ParseError::Kind(99)));
        assert_eq!(Message::parse(&[1, 2]), Err(ParseError::Flags { kind: 1, flags: 2 }));
        assert_eq!(Message::parse(&[13, 2]), Err(ParseError::Length { kind: 13, length_bytes: 2 }));
        assert_eq!(Message::parse(&[SEVERAL | 13, 0, 0, 0, 0]), Err(ParseError::Kind(SEVERAL | 13)));
        for mask in [0u64, 1, 6] {
            let mut bytes = Vec::from([SEVERAL | 7; 9]);
            bytes.extend(mask.to_le_bytes());
            assert_eq!(Message::parse(&bytes), Err(ParseError::Views { kind: 7, mask }));
        }
    }
}
