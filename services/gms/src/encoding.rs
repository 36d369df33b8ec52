//! Messages in bytes: a kind byte, then the fields in their order, little-endian and without padding.
//!
//! [`Message::parse`] accepts exactly what [`Message::encode`] writes, and never panics. Whether the numbers make sense is checked by the
//! state machine.

use alloc::vec::Vec;

use mapwire_wire::NodeId;
use thiserror::Error;

use crate::map::MapVersion;
use crate::message::{
    AgeReport, EpochInfo, FrameList, Listing, MAX_GRANTS, Message, Operation, PageInfo, Refusal, Request,
};
use crate::name::{PageHash, PageName};
use crate::nodes::{NodeSet, SET_BYTES};

/// The longest message in bytes.
pub const MAX_MESSAGE_BYTES: usize = 1 + 18 + 2 * 256;

/// Bytes that are no message of the global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{length_bytes} bytes of kind {kind:?} are no message of the global memory")]
pub struct ParseError {
    /// The first byte, if there is one.
    pub kind: Option<u8>,
    /// How many bytes there are.
    pub length_bytes: usize,
}

trait Field: Sized {
    fn write(&self, to: &mut Vec<u8>);
    fn read(from: &mut &[u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ident)*) => {
        $(impl Field for $number {
            fn write(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn read(from: &mut &[u8]) -> Option<Self> {
                let (field, rest) = from.split_first_chunk()?;
                *from = rest;
                Some($number::from_le_bytes(*field))
            }
        })*
    };
}
numbers! { u8 u16 u32 u64 }

impl Field for bool {
    fn write(&self, to: &mut Vec<u8>) {
        u8::from(*self).write(to);
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        match u8::read(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<const COUNT: usize, F: Field + Default + Copy> Field for [F; COUNT] {
    fn write(&self, to: &mut Vec<u8>) {
        self.iter().for_each(|field| field.write(to));
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        let mut fields = [F::default(); COUNT];
        for field in &mut fields {
            *field = F::read(from)?;
        }
        Some(fields)
    }
}

impl Field for NodeId {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.write(to);
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        u16::read(from).map(Self)
    }
}

impl Field for PageHash {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.write(to);
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        u32::read(from).map(Self)
    }
}

impl Field for MapVersion {
    fn write(&self, to: &mut Vec<u8>) {
        self.to_bits().write(to);
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        let version = Self::from_bits(u64::read(from)?);
        version.is_plausible().then_some(version)
    }
}

impl Field for NodeSet {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.to_bytes());
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        let bytes = <[u8; SET_BYTES]>::read(from)?;
        Some(Self::from_bytes(&bytes))
    }
}

/// A node or none: none is the number that no node has.
impl Field for Option<NodeId> {
    fn write(&self, to: &mut Vec<u8>) {
        self.unwrap_or(NodeId(u16::MAX)).write(to);
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        let node = NodeId::read(from)?;
        Some((node.0 != u16::MAX).then_some(node))
    }
}

/// A frame or none: none is the number that no frame has.
impl Field for Option<u32> {
    fn write(&self, to: &mut Vec<u8>) {
        self.unwrap_or(u32::MAX).write(to);
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        let frame = u32::read(from)?;
        Some((frame != u32::MAX).then_some(frame))
    }
}

impl Field for FrameList {
    fn write(&self, to: &mut Vec<u8>) {
        (self.as_slice().len() as u8).write(to);
        self.as_slice().iter().for_each(|frame| frame.write(to));
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        let count = usize::from(u8::read(from)?);
        let mut frames = [0; MAX_GRANTS];
        for frame in frames.get_mut(..count)? {
            *frame = u32::read(from)?;
        }
        Some(frames.into_iter().take(count).collect())
    }
}

macro_rules! choices {
    ($($name:ident { $($choice:ident)* })*) => {
        $(impl Field for $name {
            fn write(&self, to: &mut Vec<u8>) {
                (*self as u8).write(to);
            }

            fn read(from: &mut &[u8]) -> Option<Self> {
                let number = u8::read(from)?;
                [$(Self::$choice),*].into_iter().find(|&choice| choice as u8 == number)
            }
        })*
    };
}
choices! {
    Operation { Get Take Forward ForwardTake NotHere NotHereTake Absent Discard Discarded }
    Listing { Listed Older Copies Full }
    Refusal { Older Copies DirectoryFull NoFrame NoDonor Shrinking Gone Obsolete }
}

macro_rules! records {
    ($($name:ident { $($field:ident)* })*) => {
        $(impl Field for $name {
            fn write(&self, to: &mut Vec<u8>) {
                $(self.$field.write(to);)*
            }

            fn read(from: &mut &[u8]) -> Option<Self> {
                Some($name { $($field: Field::read(from)?),* })
            }
        })*
    };
}
records! {
    PageName { space page }
    PageInfo { name hash version checksum age_ms on_disk }
    Request { operation attempts requester sequence value map hash name }
    AgeReport { epoch free replaced bins }
    EpochInfo { epoch min_age_ms duration_ms budget next_initiator weights }
}

macro_rules! messages {
    ($($kind:literal $name:ident $( { $($field:ident)* } )? $( ( $record:ident ) )?;)*) => {
        /// Kinds of messages: they are numbered from 1.
        pub const KINDS: usize = [$($kind),*].len();

        impl Message {
            /// The kind's number, from 1.
            #[must_use]
            pub const fn kind(&self) -> u8 {
                match self {
                    $(Self::$name { .. } => $kind,)*
                }
            }

            /// The kind's name.
            #[must_use]
            pub const fn kind_name(kind: u8) -> &'static str {
                match kind {
                    $($kind => stringify!($name),)*
                    _ => "unknown",
                }
            }

            /// Writes the message at the end of `to`.
            pub fn encode(&self, to: &mut Vec<u8>) {
                self.kind().write(to);
                match self {
                    $(Self::$name $( { $($field),* } )? $( ($record) )? => {
                        $($($field.write(to);)*)?
                        $($record.write(to);)?
                    })*
                }
            }

            /// Reads a message that fills `bytes`.
            ///
            /// # Errors
            /// Bytes that [`encode`](Self::encode) does not write.
            pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
                let mut rest = bytes;
                Self::read(&mut rest).filter(|_| rest.is_empty()).ok_or(ParseError {
                    kind: bytes.first().copied(),
                    length_bytes: bytes.len(),
                })
            }

            fn read(from: &mut &[u8]) -> Option<Self> {
                Some(match u8::read(from)? {
                    $($kind => Self::$name $( { $($field: Field::read(from)?),* } )? $( ({
                        let $record = Field::read(from)?;
                        $record
                    }) )?,)*
                    _ => return None,
                })
            }
        }
    };
}
messages! {
    1 Request(request);
    2 Page { sequence page };
    3 Landed { sequence is_taken };
    4 Put { sequence frame moves page };
    5 Stored { sequence grant };
    6 Refused { sequence why grant };
    7 Insert { frame stamp version moved_from hash name };
    8 Listed { frame stamp listing };
    9 Remove { hash name };
    10 Spare { frame stamp on_disk hash name };
    11 Spared { frame stamp is_spared };
    12 Drop { below hash name };
    13 Want;
    14 Grant { frames };
    15 Recall;
    16 Return { frames };
    17 Map { version previous members };
    18 Reset { buckets };
    19 Reported { version free };
    20 Join;
    21 Leave;
    22 Gone { node };
    23 Free { frames };
    24 AgesWanted { epoch };
    25 Ages(report);
    26 Epoch(info);
}

impl Message {
    /// Whether these bytes, if they are a message, are for the receiver as a directory node: they make it look into its part of the
    /// directory.
    #[must_use]
    pub fn is_for_directory(bytes: &[u8]) -> bool {
        let Some((&kind, mut rest)) = bytes.split_first() else { return false };
        match Self::kind_name(kind) {
            "Request" => Operation::read(&mut rest).is_some_and(Operation::is_for_directory),
            "Insert" | "Remove" | "Spare" | "Reset" => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_for_the_directory_are_told_by_their_first_bytes() {
        let request = |operation| {
            let mut bytes = Vec::new();
            let (hash, name) = (PageHash(1), PageName::default());
            Message::Request(Request {
                operation,
                attempts: 0,
                requester: NodeId(1),
                sequence: 2,
                value: 3,
                map: MapVersion::default(),
                hash,
                name,
            })
            .encode(&mut bytes);
            bytes
        };
        assert!(Message::is_for_directory(&request(Operation::Get)));
        assert!(Message::is_for_directory(&request(Operation::NotHere)));
        assert!(!Message::is_for_directory(&request(Operation::Forward)));
        assert!(!Message::is_for_directory(&request(Operation::Absent)));
        assert!(Message::is_for_directory(&[9]) && Message::is_for_directory(&[18]));
        for other in [&[][..], &[1], &[1, 0], &[2, 1], &[13]] {
            assert!(!Message::is_for_directory(other), "{other:?}");
        }
    }
    use proptest::prelude::*;

    /// A message of each kind: the fields of random bytes, where such bytes are legal.
    fn messages() -> impl Strategy<Value = Message> {
        let bytes = proptest::collection::vec(0u8..8, MAX_MESSAGE_BYTES);
        (1..=KINDS as u8, bytes).prop_filter_map("illegal fields", |(kind, mut bytes)| {
            bytes[0] = kind;
            Message::read(&mut bytes.as_slice())
        })
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_it_was_written_and_not_if_cut_or_longer(message in messages()) {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            prop_assert!(bytes.len() <= MAX_MESSAGE_BYTES);
            prop_assert_eq!(Message::parse(&bytes), Ok(message));
            for short in 0..bytes.len() {
                prop_assert!(Message::parse(&bytes[..short]).is_err());
            }
            bytes.push(0);
            prop_assert!(Message::parse(&bytes).is_err());
        }

        #[test]
        fn whatever_is_read_is_what_would_be_written(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..80),
            kind in 0u8..30,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Ok(message) = Message::parse(&bytes) {
                let mut again = Vec::new();
                message.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn a_request_is_forwarded_by_changing_its_operation_alone() {
        let mut request = Request {
            operation: Operation::Get,
            attempts: 0,
            requester: NodeId(1),
            sequence: 2,
            value: 3,
            map: MapVersion::FIRST,
            hash: PageHash(4),
            name: PageName { space: 5, page: 6 },
        };
        let mut bytes = [Vec::new(), Vec::new()];
        Message::Request(request).encode(&mut bytes[0]);
        request.operation = Operation::Forward;
        Message::Request(request).encode(&mut bytes[1]);
        let differ = bytes[0].iter().zip(&bytes[1]).filter(|(a, b)| a != b);
        assert_eq!(differ.count(), 1);
    }
}
