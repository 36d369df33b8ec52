//! The frames that a piece of a transfer covers: one, or two where it crosses a page boundary (VMMC §4.5).

use mapwire_translation::Frame;

/// A run of bytes within one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The frame.
    pub frame: Frame,
    /// First byte within the frame.
    pub offset: u32,
    /// Length in bytes; `offset + length` is at most a page.
    pub length: u32,
}

impl Piece {
    /// A piece of no bytes.
    pub const EMPTY: Self = Self {
        frame: Frame::GARBAGE,
        offset: 0,
        length: 0,
    };
}

/// One or two pieces, in the order of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// The bytes up to the page boundary.
    pub first: Piece,
    /// The bytes after it; empty when none is crossed.
    pub second: Piece,
}

impl Pieces {
    /// No bytes at all.
    pub const EMPTY: Self = Self {
        first: Piece::EMPTY,
        second: Piece::EMPTY,
    };

    /// Total length in bytes.
    #[must_use]
    pub const fn length(&self) -> u32 {
        self.first.length + self.second.length
    }
}
