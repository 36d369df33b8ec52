//! The payloads that a packet's fields determine: those of a fetch request, a refused store and an atomic.

use core::fmt;
use core::ops::Deref;

use crate::atomic::{ATOMIC_BYTES, Atomic};
use crate::error::WireError;
use crate::ids::Key;

/// Bytes of the first two: three words.
pub(crate) const WORDS_BYTES: usize = 24;
/// Bytes of the last: the operation, then the reply key.
pub(crate) const ATOMIC_REQUEST_BYTES: usize = ATOMIC_BYTES + 16;

/// Reads a fetch request: bytes wanted, then the key that the reply must show.
pub(crate) fn read_fetch_request(length: u32, inline: &[u8]) -> Result<(u64, Key), WireError> {
    let [want_bytes, low, high] = read_words("fetch request payload", length, inline)?;
    let mut key = [0; 16];
    key[..8].copy_from_slice(&low);
    key[8..].copy_from_slice(&high);
    Ok((u64::from_le_bytes(want_bytes), Key(key)))
}

/// Reads a refused store: its offset and length, then the number of stores that the packet tells of.
pub(crate) fn read_store_refused(length: u32, inline: &[u8]) -> Result<[u64; 3], WireError> {
    Ok(read_words("refused store payload", length, inline)?.map(u64::from_le_bytes))
}

/// Reads an atomic: the operation, then the key that the reply must show.
pub(crate) fn read_atomic(length: u32, inline: &[u8]) -> Result<(Atomic, Key), WireError> {
    let field = "atomic payload";
    if length as usize != ATOMIC_REQUEST_BYTES {
        return Err(WireError::Length {
            field,
            expected_bytes: ATOMIC_REQUEST_BYTES as u64,
            found_bytes: u64::from(length),
        });
    }
    let key = inline.get(ATOMIC_BYTES..).and_then(<[u8]>::first_chunk);
    match key {
        Some(key) => Ok((Atomic::from_bytes(inline)?, Key(*key))),
        None => Err(WireError::Truncated {
            field,
            needed_bytes: ATOMIC_REQUEST_BYTES as u64,
            found_bytes: inline.len() as u64,
        }),
    }
}

fn read_words(field: &'static str, length: u32, inline: &[u8]) -> Result<[[u8; 8]; 3], WireError> {
    if length as usize != WORDS_BYTES {
        return Err(WireError::Length { field, expected_bytes: WORDS_BYTES as u64, found_bytes: u64::from(length) });
    }
    match inline.as_chunks::<8>().0 {
        [first, second, third, ..] => Ok([*first, *second, *third]),
        _ => Err(WireError::Truncated { field, needed_bytes: WORDS_BYTES as u64, found_bytes: inline.len() as u64 }),
    }
}

/// A payload that [`Repr::emit`](crate::Repr::emit) made itself: empty, three words, or five. Dereferences to its bytes.
#[derive(Clone, Copy)]
pub struct InlinePayload {
    bytes: [u8; ATOMIC_REQUEST_BYTES],
    used: u8,
}

impl InlinePayload {
    pub(crate) const EMPTY: InlinePayload = InlinePayload { bytes: [0; ATOMIC_REQUEST_BYTES], used: 0 };

    pub(crate) fn of_fetch_request(want_bytes: u64, reply_key: Key) -> InlinePayload {
        let mut bytes = [0; WORDS_BYTES];
        bytes[..8].copy_from_slice(&want_bytes.to_le_bytes());
        bytes[8..].copy_from_slice(&reply_key.0);
        Self::full(bytes)
    }

    pub(crate) fn of_store_refused(words: [u64; 3]) -> InlinePayload {
        let mut bytes = [0; WORDS_BYTES];
        for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        Self::full(bytes)
    }

    pub(crate) fn of_atomic(atomic: Atomic, reply_key: Key) -> InlinePayload {
        let mut payload = Self::EMPTY;
        payload.bytes[..ATOMIC_BYTES].copy_from_slice(&atomic.to_bytes());
        payload.bytes[ATOMIC_BYTES..].copy_from_slice(&reply_key.0);
        payload.used = ATOMIC_REQUEST_BYTES as u8;
        payload
    }

    fn full(words: [u8; WORDS_BYTES]) -> InlinePayload {
        let mut payload = Self::EMPTY;
        payload.bytes[..WORDS_BYTES].copy_from_slice(&words);
        payload.used = WORDS_BYTES as u8;
        payload
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
