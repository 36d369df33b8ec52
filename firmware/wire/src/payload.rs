//! The one payload that a packet's fields determine: that of a fetch request.

use core::fmt;
use core::ops::Deref;

use crate::error::WireError;
use crate::ids::Key;

/// Payload of a fetch request: bytes wanted, then the key that the reply must show.
pub(crate) const FETCH_REQUEST_BYTES: usize = 24;

pub(crate) fn read_fetch_request(length: u32, inline: &[u8]) -> Result<(u64, Key), WireError> {
    if length as usize != FETCH_REQUEST_BYTES {
        return Err(WireError::Length {
            field: "fetch request payload",
            expected_bytes: FETCH_REQUEST_BYTES as u64,
            found_bytes: u64::from(length),
        });
    }
    let truncated = WireError::Truncated {
        field: "fetch request payload",
        needed_bytes: FETCH_REQUEST_BYTES as u64,
        found_bytes: inline.len() as u64,
    };
    let (want_bytes, rest) = inline.split_first_chunk::<8>().ok_or(truncated)?;
    let reply_key = rest.first_chunk::<16>().ok_or(truncated)?;
    Ok((u64::from_le_bytes(*want_bytes), Key(*reply_key)))
}

/// A payload that [`Repr::emit`](crate::Repr::emit) made itself: empty, or that of a fetch request. Dereferences to its bytes.
#[derive(Clone, Copy)]
pub struct InlinePayload {
    bytes: [u8; FETCH_REQUEST_BYTES],
    used: u8,
}

impl InlinePayload {
    pub(crate) const EMPTY: InlinePayload = InlinePayload {
        bytes: [0; FETCH_REQUEST_BYTES],
        used: 0,
    };

    pub(crate) fn of_fetch_request(want_bytes: u64, reply_key: Key) -> InlinePayload {
        let mut bytes = [0; FETCH_REQUEST_BYTES];
        bytes[..8].copy_from_slice(&want_bytes.to_le_bytes());
        bytes[8..].copy_from_slice(&reply_key.0);
        InlinePayload {
            bytes,
            used: FETCH_REQUEST_BYTES as u8,
        }
    }
}

impl Deref for InlinePayload {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.used)]
    }
}

impl fmt::Debug for InlinePayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes hold a reply key.
        write!(f, "InlinePayload({} bytes)", self.used)
    }
}
