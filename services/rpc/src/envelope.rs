//! Messages between the services of two nodes: offers of memory, records with what went before them, and word of what is done with.
//!
//! Numbers are little-endian; the records within are as RFC 5531 has them.

use alloc::vec::Vec;

use crate::message::{CallHeader, ReplyStatus, write_call, write_reply};

const VERSION: u8 = 1;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const RECORD: u8 = 3;
const RELEASE: u8 = 4;
const BYE: u8 = 5;

/// The body lies in the receiver's memory.
const STORED: u8 = 1;
/// No reply is wanted.
const ONE_WAY: u8 = 2;

/// Bytes before a record, and before the record's xid, which is its first word.
pub const ENVELOPE_BYTES: usize = 32;

/// Where a call's procedure is: behind its xid, kind, version of the protocol, program, and version.
const PROCEDURE_AT: usize = ENVELOPE_BYTES + 20;

/// Nothing is released.
const NOTHING: u64 = u64::MAX;

/// What a node says of itself to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Names this connection; another after each restart.
    pub session: u64,
    /// Bytes of the memory that the peer may store records into; 0 where there is none.
    pub area_bytes: u64,
    /// Bytes of the longest arguments or results that the node takes.
    pub max_record_bytes: u64,
    /// Calls that the peer may have under way here before it is told that they were taken.
    pub window: u32,
}

/// Where a body lies in the receiver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// First byte, counted from the begin of the memory.
    pub at: u64,
    /// How many.
    pub bytes: u64,
}

/// Room that was reserved in a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// First byte, counted from the begin of the memory.
    pub at: u64,
    /// How many.
    pub bytes: u64,
    /// The peer's session: the memory of another is another.
    pub session: u64,
}

/// A body that was written into room of a peer's memory, or is to be moved there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Where.
    pub room: Room,
    /// How many bytes of it are used, from the first on.
    pub bytes: u64,
    /// The body lies at the same place of this node's memory for the peer, and is to be moved. Else it is there.
    pub moves: bool,
}

/// What the peer has done with earlier records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// How many calls it has taken since the connection began, modulo 2^32.
    pub taken: u32,
    /// Where one lay that it is done with.
    pub released: Option<u64>,
}

/// Says which of a node's sessions a message belongs to: sessions that follow each other differ in it.
pub(crate) const fn tag_of(session: u64) -> u16 {
    session as u16
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Envelope<'a> {
    Hello(Offer),
    /// The offer, and the session of the hello that it answers.
    Welcome(Offer, u64),
    Record {
        tag: u16,
        progress: Progress,
        stored: Option<Stored>,
        is_one_way: bool,
        record: &'a [u8],
    },
    Release {
        tag: u16,
        progress: Progress,
    },
    /// The session of the sender that is over.
    Bye {
        tag: u16,
    },
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn offer(bytes: &[u8]) -> Option<Offer> {
    Some(Offer {
        window: u32_at(bytes, 4)?,
        session: u64_at(bytes, 8)?,
        area_bytes: u64_at(bytes, 16)?,
        max_record_bytes: u64_at(bytes, 24)?,
    })
}

/// Reads a message; `None`: it is malformed.
pub(crate) fn read(bytes: &[u8]) -> Option<Envelope<'_>> {
    let &[kind, flags, low, high] = bytes.first_chunk()?;
    let tag = u16::from_le_bytes([low, high]);
    let progress = || {
        let released = u64_at(bytes, 8)?;
        Some(Progress { taken: u32_at(bytes, 4)?, released: (released != NOTHING).then_some(released) })
    };
    let is_long = |wanted| bytes.len() == wanted;
    Some(match kind {
        HELLO if is_long(32) && flags == VERSION => Envelope::Hello(offer(bytes)?),
        WELCOME if is_long(40) && flags == VERSION => Envelope::Welcome(offer(bytes)?, u64_at(bytes, 32)?),
        RECORD if flags & !(STORED | ONE_WAY) == 0 => {
            let stored = match flags & STORED {
                0 => None,
                _ => Some(Stored { at: u64_at(bytes, 16)?, bytes: u64_at(bytes, 24)? }),
            };
            Envelope::Record {
                tag,
                progress: progress()?,
                stored,
                is_one_way: flags & ONE_WAY != 0,
                record: bytes.get(ENVELOPE_BYTES..)?,
            }
        }
        RELEASE if is_long(16) && flags == 0 => Envelope::Release { tag, progress: progress()? },
        BYE if is_long(4) && flags == 0 => Envelope::Bye { tag },
        _ => return None,
    })
}

fn write_offer(kind: u8, offer: &Offer) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(40);
    bytes.extend([kind, VERSION, 0, 0]);
    bytes.extend(offer.window.to_le_bytes());
    bytes.extend(offer.session.to_le_bytes());
    bytes.extend(offer.area_bytes.to_le_bytes());
    bytes.extend(offer.max_record_bytes.to_le_bytes());
    bytes
}

pub(crate) fn hello(offer: &Offer) -> Vec<u8> {
    write_offer(HELLO, offer)
}

pub(crate) fn welcome(offer: &Offer, echo: u64) -> Vec<u8> {
    let mut bytes = write_offer(WELCOME, offer);
    bytes.extend(echo.to_le_bytes());
    bytes
}

pub(crate) fn release(session: u64, progress: Progress) -> Vec<u8> {
    let mut bytes = alloc::vec![0; 16];
    bytes[0] = RELEASE;
    address(&mut bytes, session);
    patch(&mut bytes, progress);
    bytes
}

/// Says that a session of the sender is over.
pub(crate) fn bye(tag: u16) -> Vec<u8> {
    let [low, high] = tag.to_le_bytes();
    alloc::vec![BYE, 0, low, high]
}

/// Writes for which session of the receiver a record or a release is.
pub(crate) fn address(message: &mut [u8], session: u64) {
    message[2..4].copy_from_slice(&tag_of(session).to_le_bytes());
}

/// Writes the newest progress into a record or a release.
pub(crate) fn patch(message: &mut [u8], progress: Progress) {
    message[4..8].copy_from_slice(&progress.taken.to_le_bytes());
    message[8..16].copy_from_slice(&progress.released.unwrap_or(NOTHING).to_le_bytes());
}

/// A record about to be sent: its header is written, and its body goes behind that or into the peer's memory.
#[derive(Debug)]
pub struct Draft {
    message: Vec<u8>,
    body_at: usize,
}

impl Draft {
    fn begin(mut memory: Vec<u8>) -> Vec<u8> {
        memory.clear();
        memory.resize(ENVELOPE_BYTES, 0);
        memory[0] = RECORD;
        memory
    }

    /// A call; its xid is given when it begins. `memory` is used again, whatever it holds.
    #[must_use]
    pub fn call(header: &CallHeader, memory: Vec<u8>) -> Self {
        let mut message = Self::begin(memory);
        write_call(header, &mut message);
        Self { body_at: message.len(), message }
    }

    /// A reply to the call `xid`.
    #[must_use]
    pub fn reply(xid: u32, status: ReplyStatus, memory: Vec<u8>) -> Self {
        let mut message = Self::begin(memory);
        write_reply(xid, status, &mut message);
        Self { body_at: message.len(), message }
    }

    /// Another call that differs in its procedure only, without a body.
    #[must_use]
    pub fn repeated(&self, procedure: u32, mut memory: Vec<u8>) -> Self {
        memory.clear();
        memory.extend_from_slice(&self.message[..self.body_at]);
        memory[PROCEDURE_AT..PROCEDURE_AT + 4].copy_from_slice(&procedure.to_be_bytes());
        Self { message: memory, body_at: self.body_at }
    }

    /// The message, to append the body to.
    pub fn body(&mut self) -> &mut Vec<u8> {
        &mut self.message
    }

    /// Bytes of the body that are in the message so far.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.message.len() - self.body_at
    }

    /// The body so far.
    #[must_use]
    pub fn written(&self) -> &[u8] {
        &self.message[self.body_at..]
    }

    /// Takes the body out again.
    pub fn clear_body(&mut self) {
        self.message.truncate(self.body_at);
    }

    /// Ends it, with its body in the receiver's memory.
    pub(crate) fn set_stored(&mut self, stored: Stored) {
        self.clear_body();
        self.message[1] |= STORED;
        self.message[16..24].copy_from_slice(&stored.at.to_le_bytes());
        self.message[24..32].copy_from_slice(&stored.bytes.to_le_bytes());
    }

    pub(crate) fn set_one_way(&mut self) {
        self.message[1] |= ONE_WAY;
    }

    pub(crate) fn set_xid(&mut self, xid: u32) {
        self.message[ENVELOPE_BYTES..ENVELOPE_BYTES + 4].copy_from_slice(&xid.to_be_bytes());
    }

    pub(crate) fn into_message(self) -> Vec<u8> {
        self.message
    }
}
