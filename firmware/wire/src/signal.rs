//! The flag that is set after a message's data: "data, then flag" made explicit.

use core::fmt;

use crate::error::{WireError, known, must_not_overflow};
use crate::header::SIGNAL_TRAILER_BYTES;

codes! {
    /// How a signal changes its word.
    pub enum SignalOp: u8 {
        /// The word becomes the value.
        Set = 0,
        /// The value is added to the word, wrapping.
        Add = 1,
        /// The bits of the value are set in the word.
        Or = 2,
    }
}

/// A 64-bit word that the receiver writes once all data of the message is in place.
///
/// It travels as the last [`SIGNAL_TRAILER_BYTES`] bytes of the message's last packet: offset, then value. The low three bits of the
/// offset, which is a multiple of eight, hold the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signal {
    /// Offset of the word in the export, in bytes: a multiple of 8. `offset + 8` fits in 64 bits; the exporter's NIC checks that
    /// it lies in the export and is aligned in memory.
    pub offset: u64,
    /// Value to set, add or or.
    pub value: u64,
    /// Operation.
    pub op: SignalOp,
}

impl Signal {
    /// Bytes of the word that is written.
    pub const WORD_BYTES: u64 = 8;

    /// Bits of the offset on the wire that hold the operation.
    const OP_BITS: u64 = Self::WORD_BYTES - 1;

    /// A signal that sets the word at `offset` to `value`.
    #[inline]
    pub const fn set(offset: u64, value: u64) -> Signal {
        Signal { offset, value, op: SignalOp::Set }
    }

    /// Decodes a trailer.
    #[inline]
    pub fn from_bytes(trailer: &[u8; SIGNAL_TRAILER_BYTES]) -> Result<Signal, WireError> {
        let both = u128::from_le_bytes(*trailer);
        let (place, value) = (both as u64, (both >> 64) as u64);
        let code = place & Self::OP_BITS;
        let op = known("signal operation", code, SignalOp::from_code(code as u8))?;
        let offset = place & !Self::OP_BITS;
        let signal = Signal { offset, value, op };
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

    /// Encodes the trailer, to be put behind the data.
    #[inline]
    pub fn to_bytes(self) -> [u8; SIGNAL_TRAILER_BYTES] {
        let place = self.offset | self.op as u64;
        (u128::from(place) | u128::from(self.value) << 64).to_le_bytes()
    }

    #[inline]
    pub(crate) const fn check(self) -> Result<(), WireError> {
        if self.offset & Self::OP_BITS != 0 {
            return Err(WireError::Unaligned { field: "signal offset", value: self.offset, align: Self::WORD_BYTES });
        }
        must_not_overflow("signal offset", self.offset, Signal::WORD_BYTES)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.op {
            SignalOp::Set => "signal",
            SignalOp::Add => "signal of adding",
            SignalOp::Or => "signal of setting bits",
        };
        write!(f, "{what} {:#x} at {:#x}", self.value, self.offset)
    }
}
