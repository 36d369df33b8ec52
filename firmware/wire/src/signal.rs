//! The flag that is set after a message's data: "data, then flag" made explicit.

use core::fmt;

use crate::error::{WireError, must_not_overflow};
use crate::header::SIGNAL_TRAILER_BYTES;

/// A 64-bit word that the receiver writes once all data of the message is in place.
///
/// It travels as the last [`SIGNAL_TRAILER_BYTES`] bytes of the message's last packet: offset, then value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signal {
    /// Where in the export the word lies, in bytes. `offset + 8` fits in 64 bits; that it lies in
    /// the export, and aligned, is for the exporter's NIC to check.
    pub offset: u64,
    /// What is written there.
    pub value: u64,
}

impl Signal {
    /// Bytes of the word that is written.
    pub const WORD_BYTES: u64 = 8;

    /// Reads a trailer.
    #[inline]
    pub fn from_bytes(trailer: &[u8; SIGNAL_TRAILER_BYTES]) -> Result<Signal, WireError> {
        let both = u128::from_le_bytes(*trailer);
        let signal = Signal {
            offset: both as u64,
            value: (both >> 64) as u64,
        };
        signal.check()?;
        Ok(signal)
    }

    /// Reads the trailer at the end of a payload that carries one.
    #[inline]
    pub fn from_payload(payload: &[u8]) -> Result<Signal, WireError> {
        match payload.last_chunk::<SIGNAL_TRAILER_BYTES>() {
            Some(trailer) => Signal::from_bytes(trailer),
            None => Err(WireError::Truncated {
                field: "signal trailer",
                needed_bytes: SIGNAL_TRAILER_BYTES as u64,
                found_bytes: payload.len() as u64,
            }),
        }
    }

    /// The trailer, to be put behind the data.
    #[inline]
    pub fn to_bytes(self) -> [u8; SIGNAL_TRAILER_BYTES] {
        (u128::from(self.offset) | u128::from(self.value) << 64).to_le_bytes()
    }

    #[inline]
    pub(crate) const fn check(self) -> Result<(), WireError> {
        must_not_overflow("signal offset", self.offset, Signal::WORD_BYTES)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signal {:#x} at {:#x}", self.value, self.offset)
    }
}
