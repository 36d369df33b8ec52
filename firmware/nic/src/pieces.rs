//! Runs of bytes in frames.

use mapwire_translation::{Frame, PAGE_BYTES};

/// A run of bytes in one frame, or in several whose numbers are consecutive: those are neighbours in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First frame. The garbage frame has no successor.
    pub frame: Frame,
    /// Offset of the first byte in the first frame.
    pub offset: u32,
    /// Length in bytes, at most [`mapwire_wire::CHUNK_BYTES`].
    pub length: u32,
}

impl Piece {
    /// An empty piece.
    pub const EMPTY: Self = Self { frame: Frame::GARBAGE, offset: 0, length: 0 };

    /// Number of frames that it touches.
    #[must_use]
    pub const fn frames(&self) -> u32 {
        (self.offset + self.length).div_ceil(PAGE_BYTES as u32)
    }

    /// Appends `next`, the bytes of the following page, if its frame follows. Returns whether it does.
    #[inline]
    pub(crate) fn extend(&mut self, next: &Self) -> bool {
        let end = self.offset + self.length;
        debug_assert!(end.is_multiple_of(PAGE_BYTES as u32) && next.offset == 0);
        let frame = self.frame.0.checked_add(u64::from(self.frames()));
        let extends = frame == Some(next.frame.0) && !next.frame.is_garbage();
        if extends {
            self.length += next.length;
        }
        extends
    }
}
