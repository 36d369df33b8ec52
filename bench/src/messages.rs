//! What messages say: all ways send the same, from memory that was just written, and all receivers read it.

use super::BenchError;
use super::words::Words;

/// Each message is all of one byte, which its number tells.
fn byte_of(number: u64) -> u8 {
    number as u8
}

/// A sender's own memory.
pub(crate) struct Source(Vec<u8>);

impl Source {
    /// Room for messages of `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(vec![0; bytes])
    }

    /// Writes message `number` of `bytes`: its lines are in this processor's cache then.
    #[inline(always)]
    pub(crate) fn rewrite(&mut self, bytes: usize, number: u64) {
        self.0[..bytes].fill(byte_of(number));
    }

    #[inline(always)]
    pub(crate) fn data(&self, bytes: usize) -> &[u8] {
        &self.0[..bytes]
    }
}

/// Reads message `number` of `bytes`, a multiple of 8, at `offset`.
///
/// # Errors
/// It is not what was sent.
#[inline(always)]
pub(crate) fn read(memory: Words, offset: usize, bytes: usize, number: u64) -> Result<(), BenchError> {
    check(memory.sum(offset, bytes), bytes, number)
}

/// The same of a message that a library holds.
#[inline(always)]
pub(crate) fn read_slice(message: &[u8], number: u64) -> Result<(), BenchError> {
    let words = message.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
    check(words.fold(0, u64::wrapping_add), message.len(), number)
}

#[inline(always)]
fn check(read: u64, bytes: usize, number: u64) -> Result<(), BenchError> {
    let word = u64::from_ne_bytes([byte_of(number); 8]);
    let sent = word.wrapping_mul(bytes as u64 / 8);
    if read == sent {
        Ok(())
    } else {
        Err(format!("message {number} of {bytes} bytes came wrong: its words add up to {read:#x} and not to {sent:#x}")
            .into())
    }
}
