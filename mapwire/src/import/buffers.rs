//! Sends from buffers of [`crate::Node::alloc`], which other ranks may store to at any time, so that no slice can be had of them.

use core::ops::Range;

use mapwire_wire::Signal;

use super::Import;
use crate::buffer::Buffer;
use crate::error::Result;

impl Import {
    /// As [`send`](Self::send), from the bytes `range` of a buffer. What others store there meanwhile may be sent or not.
    ///
    /// # Errors
    /// As [`send`](Self::send), and a range outside the buffer.
    #[inline]
    pub fn send_from(&self, source: &Buffer, range: Range<usize>, offset: u64) -> Result<()> {
        self.send_source(source.bytes(range)?, offset)
    }

    /// As [`put_signal`](Self::put_signal), from the bytes `range` of a buffer.
    ///
    /// # Errors
    /// As [`put_signal`](Self::put_signal), and a range outside the buffer.
    #[inline]
    pub fn put_signal_from(
        &self,
        source: &Buffer,
        range: Range<usize>,
        offset: u64,
        signal_offset: u64,
        value: u64,
    ) -> Result<()> {
        let signal = Signal::set(signal_offset, value);
        self.put_signal_source(source.bytes(range)?, offset, signal)
    }
}
