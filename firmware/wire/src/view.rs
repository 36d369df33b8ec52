//! A whole packet in memory, checked.

use core::fmt;

use zerocopy::FromBytes;

use crate::error::WireError;
use crate::header::{HEADER_BYTES, Header};
use crate::packet::Repr;
use crate::signal::Signal;

/// A whole packet in memory: header and payload of the length that the header gives.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    header: &'a Header,
    payload: &'a [u8],
    repr: Repr,
}

impl<'a> Packet<'a> {
    /// Checks one packet as it arrived, header first, with nothing behind the payload.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Packet<'a>, WireError> {
        match Header::ref_from_prefix(bytes) {
            Ok((header, payload)) => Packet::from_parts(header, payload),
            Err(_) => Err(WireError::Truncated {
                field: "packet header",
                needed_bytes: HEADER_BYTES as u64,
                found_bytes: bytes.len() as u64,
            }),
        }
    }

    /// Checks one packet whose payload lies apart from its header.
    pub fn from_parts(header: &'a Header, payload: &'a [u8]) -> Result<Packet<'a>, WireError> {
        let repr = Repr::parse(header, payload)?;
        if payload.len() as u64 != u64::from(repr.payload_bytes()) {
            return Err(WireError::Length {
                field: "payload",
                expected_bytes: u64::from(repr.payload_bytes()),
                found_bytes: payload.len() as u64,
            });
        }
        if let Repr::Store { signal: true, .. } = repr {
            Signal::from_payload(payload)?;
        }
        Ok(Packet { header, payload, repr })
    }

    /// The header, including the link's numbers.
    pub const fn header(&self) -> &'a Header {
        self.header
    }

    /// The legal state that the bytes stand for.
    pub const fn repr(&self) -> Repr {
        self.repr
    }

    /// All bytes behind the header.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The payload without the signal trailer.
    pub fn data(&self) -> &'a [u8] {
        match self.repr {
            Repr::Store { length, .. } => &self.payload[..length as usize],
            _ => self.payload,
        }
    }

    /// The signal at the end of a store, if it carries one.
    pub fn signal(&self) -> Option<Signal> {
        match self.repr {
            Repr::Store { signal: true, .. } => Signal::from_payload(self.payload).ok(),
            _ => None,
        }
    }
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[seq {}] {}", self.header.sequence, self.repr)?;
        match self.signal() {
            Some(signal) => write!(f, ", then {signal}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the payload: some payloads contain keys.
        f.debug_struct("Packet").field("header", self.header).field("repr", &self.repr).finish()
    }
}
