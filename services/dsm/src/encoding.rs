//! Messages in bytes.
//!
//! A message is a kind byte followed by its fields in little-endian order without padding; a minipage is view
//! (2), offset (8) and length (8). [`Message::parse`] accepts exactly what [`Message::encode`] writes and never
//! panics; whether the numbers make sense in the job is checked by
//! [`Dsm::handle_message`](crate::Dsm::handle_message).

use crate::{Access, Message, Minipage, Thread};
use thiserror::Error;

/// The longest message in bytes.
pub const MAX_MESSAGE_BYTES: usize = 26;

/// Bytes that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The first byte names no kind of message.
    #[error("kind {0} is no shared-memory message; the peer speaks another version")]
    Kind(u8),
    /// There is no first byte.
    #[error("an empty shared-memory message")]
    Empty,
    /// The message is longer or shorter than its kind.
    #[error("a shared-memory message of kind {kind} cannot be {length_bytes} bytes long")]
    Length {
        /// Its first byte.
        kind: u8,
        /// Its length.
        length_bytes: usize,
    },
    /// Flag bits that mean nothing are set.
    #[error("flags {flags:#04x} mean nothing in a shared-memory message of kind {kind}")]
    Flags {
        /// Its first byte.
        kind: u8,
        /// Its flags.
        flags: u8,
    },
}

const WRITE: u8 = 1;
const DATA: u8 = 2;
const DONE: u8 = 4;

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Message::Request { .. } => 1,
            Message::Refuse { .. } => 2,
            Message::Forward { .. } => 3,
            Message::Grant { .. } => 4,
            Message::Invalidate { .. } => 5,
            Message::InvalidateAck { .. } => 6,
            Message::Done { .. } => 7,
            Message::Register { .. } => 8,
            Message::Registered { .. } => 9,
            Message::ChunkRequest { .. } => 10,
            Message::ChunkGrant { .. } => 11,
            Message::ChunkRefuse { .. } => 12,
            Message::LockRequest { .. } => 13,
            Message::LockForward { .. } => 14,
            Message::LockToken { .. } => 15,
            Message::BarrierArrive { .. } => 16,
            Message::BarrierRelease { .. } => 17,
        }
    }

    /// Writes the message at the start of `bytes` and returns its length.
    pub fn encode(&self, bytes: &mut [u8; MAX_MESSAGE_BYTES]) -> usize {
        let mut w = Writer { bytes, at: 0 };
        w.u8(self.kind());
        match *self {
            Message::Request {
                thread,
                view,
                page,
                access,
            } => {
                w.u8(flag(access == Access::Write, WRITE));
                w.target(thread, view, page);
            }
            Message::Refuse { thread, view, page }
            | Message::InvalidateAck { thread, view, page }
            | Message::Done { thread, view, page } => w.target(thread, view, page),
            Message::Forward {
                minipage,
                requester,
                thread,
                access,
                acks,
            } => {
                w.u8(flag(access == Access::Write, WRITE));
                w.u16(thread);
                w.minipage(minipage);
                w.u16(requester);
                w.u16(acks);
            }
            Message::Grant {
                minipage,
                thread,
                access,
                acks,
                data,
                done,
            } => {
                w.u8(flag(access == Access::Write, WRITE) | flag(data, DATA) | flag(done, DONE));
                w.u16(thread);
                w.minipage(minipage);
                w.u16(acks);
            }
            Message::Invalidate {
                view,
                page,
                requester,
                thread,
            } => {
                w.target(thread, view, page);
                w.u16(requester);
            }
            Message::Register { minipage, thread } => {
                w.u16(thread);
                w.minipage(minipage);
            }
            Message::Registered { thread } => w.u16(thread),
            Message::ChunkRequest {
                thread,
                need_pages,
                want_pages,
            } => {
                w.u16(thread);
                w.u32(need_pages);
                w.u32(want_pages);
            }
            Message::ChunkGrant {
                thread,
                first_page,
                pages,
            } => {
                w.u16(thread);
                w.u32(first_page);
                w.u32(pages);
            }
            Message::ChunkRefuse { thread, left_pages } => {
                w.u16(thread);
                w.u32(left_pages);
            }
            Message::LockRequest { lock } | Message::LockToken { lock } => w.u32(lock),
            Message::LockForward { lock, successor } => {
                w.u32(lock);
                w.u16(successor);
            }
            Message::BarrierArrive {
                barrier,
                epoch,
                root,
                value,
            } => {
                w.u32(barrier);
                w.u32(epoch);
                w.u16(root);
                w.u64(value);
            }
            Message::BarrierRelease {
                barrier,
                epoch,
                root,
                value,
            } => {
                w.u32(barrier);
                w.u32(epoch);
                w.u16(root);
                w.u64(value);
            }
        }
        w.at
    }

    /// Reads a message that fills `bytes` exactly.
    pub fn parse(bytes: &[u8]) -> Result<Message, ParseError> {
        let &[kind, ref fields @ ..] = bytes else {
            return Err(ParseError::Empty);
        };
        let bad_length = ParseError::Length {
            kind,
            length_bytes: bytes.len(),
        };
        let mut r = Reader { bytes: fields };
        let message = r.message(kind)?.ok_or(bad_length)?;
        if r.bytes.is_empty() {
            Ok(message)
        } else {
            Err(bad_length)
        }
    }
}

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

struct Writer<'a> {
    bytes: &'a mut [u8; MAX_MESSAGE_BYTES],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, field: &[u8]) {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
    }
    fn u8(&mut self, field: u8) {
        self.put(&[field]);
    }
    fn u16(&mut self, field: u16) {
        self.put(&field.to_le_bytes());
    }
    fn u32(&mut self, field: u32) {
        self.put(&field.to_le_bytes());
    }
    fn u64(&mut self, field: u64) {
        self.put(&field.to_le_bytes());
    }
    fn target(&mut self, thread: Thread, view: u16, page: u32) {
        self.u16(thread);
        self.u16(view);
        self.u32(page);
    }
    fn minipage(&mut self, minipage: Minipage) {
        self.u16(minipage.view);
        self.u64(minipage.offset_bytes);
        self.u64(minipage.length_bytes);
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*field)
    }
    fn u8(&mut self) -> Option<u8> {
        Some(self.take::<1>()?[0])
    }
    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take()?))
    }
    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take()?))
    }
    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take()?))
    }
    fn minipage(&mut self) -> Option<Minipage> {
        Some(Minipage {
            view: self.u16()?,
            offset_bytes: self.u64()?,
            length_bytes: self.u64()?,
        })
    }

    /// The fields of a message; `None` if they end early.
    fn message(&mut self, kind: u8) -> Result<Option<Message>, ParseError> {
        let known_flags = match kind {
            1 | 3 => WRITE,
            4 => WRITE | DATA | DONE,
            2 | 5..=17 => 0,
            _ => return Err(ParseError::Kind(kind)),
        };
        let mut flags = 0;
        if known_flags != 0 {
            match self.u8() {
                None => return Ok(None),
                Some(byte) if byte & !known_flags != 0 => {
                    return Err(ParseError::Flags { kind, flags: byte });
                }
                Some(byte) => flags = byte,
            }
        }
        Ok(self.fields(kind, flags))
    }

    fn fields(&mut self, kind: u8, flags: u8) -> Option<Message> {
        let access = if flags & WRITE != 0 {
            Access::Write
        } else {
            Access::Read
        };
        Some(match kind {
            1 => Message::Request {
                thread: self.u16()?,
                view: self.u16()?,
                page: self.u32()?,
                access,
            },
            2 => Message::Refuse {
                thread: self.u16()?,
                view: self.u16()?,
                page: self.u32()?,
            },
            3 => Message::Forward {
                thread: self.u16()?,
                minipage: self.minipage()?,
                requester: self.u16()?,
                access,
                acks: self.u16()?,
            },
            4 => Message::Grant {
                thread: self.u16()?,
                minipage: self.minipage()?,
                access,
                acks: self.u16()?,
                data: flags & DATA != 0,
                done: flags & DONE != 0,
            },
            5 => Message::Invalidate {
                thread: self.u16()?,
                view: self.u16()?,
                page: self.u32()?,
                requester: self.u16()?,
            },
            6 => Message::InvalidateAck {
                thread: self.u16()?,
                view: self.u16()?,
                page: self.u32()?,
            },
            7 => Message::Done {
                thread: self.u16()?,
                view: self.u16()?,
                page: self.u32()?,
            },
            8 => Message::Register {
                thread: self.u16()?,
                minipage: self.minipage()?,
            },
            9 => Message::Registered {
                thread: self.u16()?,
            },
            10 => Message::ChunkRequest {
                thread: self.u16()?,
                need_pages: self.u32()?,
                want_pages: self.u32()?,
            },
            11 => Message::ChunkGrant {
                thread: self.u16()?,
                first_page: self.u32()?,
                pages: self.u32()?,
            },
            12 => Message::ChunkRefuse {
                thread: self.u16()?,
                left_pages: self.u32()?,
            },
            13 => Message::LockRequest { lock: self.u32()? },
            14 => Message::LockForward {
                lock: self.u32()?,
                successor: self.u16()?,
            },
            15 => Message::LockToken { lock: self.u32()? },
            16 => Message::BarrierArrive {
                barrier: self.u32()?,
                epoch: self.u32()?,
                root: self.u16()?,
                value: self.u64()?,
            },
            _ => Message::BarrierRelease {
                barrier: self.u32()?,
                epoch: self.u32()?,
                root: self.u16()?,
                value: self.u64()?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn minipages() -> impl Strategy<Value = Minipage> {
        (any::<u16>(), any::<u64>(), any::<u64>()).prop_map(|(view, offset_bytes, length_bytes)| {
            Minipage {
                view,
                offset_bytes,
                length_bytes,
            }
        })
    }

    fn accesses() -> impl Strategy<Value = Access> {
        prop_oneof![Just(Access::Read), Just(Access::Write)]
    }

    fn messages() -> impl Strategy<Value = Message> {
        let target = (any::<u16>(), any::<u16>(), any::<u32>());
        let words = (any::<u16>(), any::<u32>(), any::<u32>(), any::<u64>());
        prop_oneof![
            (target, accesses()).prop_map(|((thread, view, page), access)| {
                Message::Request {
                    thread,
                    view,
                    page,
                    access,
                }
            }),
            (target, any::<u16>(), 0..4).prop_map(|((thread, view, page), requester, kind)| {
                match kind {
                    0 => Message::Refuse { thread, view, page },
                    1 => Message::InvalidateAck { thread, view, page },
                    2 => Message::Done { thread, view, page },
                    _ => Message::Invalidate {
                        view,
                        page,
                        requester,
                        thread,
                    },
                }
            }),
            (
                minipages(),
                any::<u16>(),
                any::<u16>(),
                accesses(),
                any::<u16>()
            )
                .prop_map(|(minipage, requester, thread, access, acks)| {
                    Message::Forward {
                        minipage,
                        requester,
                        thread,
                        access,
                        acks,
                    }
                }),
            (
                minipages(),
                any::<u16>(),
                accesses(),
                any::<u16>(),
                any::<bool>(),
                any::<bool>()
            )
                .prop_map(|(minipage, thread, access, acks, data, done)| {
                    Message::Grant {
                        minipage,
                        thread,
                        access,
                        acks,
                        data,
                        done,
                    }
                }),
            (minipages(), any::<u16>())
                .prop_map(|(minipage, thread)| Message::Register { minipage, thread }),
            (words, 0..9).prop_map(|((a, b, c, d), kind)| match kind {
                0 => Message::Registered { thread: a },
                1 => Message::ChunkRequest {
                    thread: a,
                    need_pages: b,
                    want_pages: c
                },
                2 => Message::ChunkGrant {
                    thread: a,
                    first_page: b,
                    pages: c
                },
                3 => Message::ChunkRefuse {
                    thread: a,
                    left_pages: b
                },
                4 => Message::LockRequest { lock: b },
                5 => Message::LockForward {
                    lock: b,
                    successor: a
                },
                6 => Message::LockToken { lock: b },
                7 => Message::BarrierArrive {
                    barrier: b,
                    epoch: c,
                    root: a,
                    value: d
                },
                _ => Message::BarrierRelease {
                    barrier: b,
                    epoch: c,
                    root: a,
                    value: d
                },
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_it_was_written_and_not_if_cut_or_padded(message in messages()) {
            let mut bytes = [0xAA; MAX_MESSAGE_BYTES];
            let length = message.encode(&mut bytes);
            prop_assert_eq!(Message::parse(&bytes[..length]), Ok(message));
            for short in 0..length {
                prop_assert!(Message::parse(&bytes[..short]).is_err());
            }
            if length < MAX_MESSAGE_BYTES {
                prop_assert!(Message::parse(&bytes[..length + 1]).is_err());
            }
        }

        #[test]
        fn whatever_is_read_is_what_would_be_written(bytes in proptest::collection::vec(any::<u8>(), 0..60), kind in 0u8..20) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Ok(message) = Message::parse(&bytes) {
                let mut again = [0; MAX_MESSAGE_BYTES];
                let length = message.encode(&mut again);
                prop_assert_eq!(&again[..length], &bytes[..]);
            }
        }
    }

    #[test]
    fn the_longest_message_fits_a_packet_that_needs_no_bulk_area() {
        let minipage = Minipage {
            view: 1,
            offset_bytes: 2,
            length_bytes: 3,
        };
        let longest = Message::Forward {
            minipage,
            requester: 4,
            thread: 5,
            access: Access::Write,
            acks: 6,
        };
        assert_eq!(
            longest.encode(&mut [0; MAX_MESSAGE_BYTES]),
            MAX_MESSAGE_BYTES
        );
    }

    #[test]
    fn bytes_that_are_no_message_are_told_apart() {
        assert_eq!(Message::parse(&[]), Err(ParseError::Empty));
        assert_eq!(Message::parse(&[99, 1]), Err(ParseError::Kind(99)));
        assert_eq!(
            Message::parse(&[1, 2]),
            Err(ParseError::Flags { kind: 1, flags: 2 })
        );
        assert_eq!(
            Message::parse(&[13, 2]),
            Err(ParseError::Length {
                kind: 13,
                length_bytes: 2
            })
        );
    }
}
