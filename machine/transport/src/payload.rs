//! What a packet carries: up to two pieces of memory on the way out, a view that must be copied on the way in.

use mapwire_host::mapping::Mapping;
use mapwire_host::memory::raw;
/// A range of memory to send from, valid for `'a`. Unlike a slice it may change meanwhile (a frame of the
/// application's memory, a mapping shared with a peer); then the packet carries some mix of old and new bytes. It is no part of
/// a transport's own rings.
pub use mapwire_host::memory::raw::Source as Piece;

/// A payload to send: the bytes of its pieces in order.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    pieces: [Piece<'a>; 2],
    count: usize,
}

impl<'a> Payload<'a> {
    pub const EMPTY: Self = Self { pieces: [Piece::EMPTY; 2], count: 0 };

    #[inline(always)]
    pub fn one(piece: impl Into<Piece<'a>>) -> Self {
        Self { pieces: [piece.into(), Piece::EMPTY], count: 1 }
    }

    /// Two pieces, for a chunk that crosses into another frame, or a prefix and its data.
    #[inline(always)]
    pub fn two(first: impl Into<Piece<'a>>, second: impl Into<Piece<'a>>) -> Self {
        Self { pieces: [first.into(), second.into()], count: 2 }
    }

    #[inline(always)]
    pub fn pieces(&self) -> &[Piece<'a>] {
        &self.pieces[..self.count]
    }

    /// Length in bytes of all pieces together.
    #[inline(always)]
    pub fn len_bytes(&self) -> usize {
        total_bytes(self.pieces())
    }
}

/// Length in bytes of all pieces together, at most `usize::MAX`.
#[inline(always)]
pub(crate) fn total_bytes(pieces: &[Piece<'_>]) -> usize {
    pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.len()))
}

#[derive(Clone, Copy, Debug)]
pub enum Received<'a> {
    /// A private copy, which the peer can no longer change: safe to parse in place.
    Inline(&'a [u8]),
    /// Bytes in memory that the peer may still change: copy first, then parse the copy.
    Bulk(BulkPayload<'a>),
}

impl Received<'_> {
    /// Length in bytes.
    #[inline(always)]
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::Bulk(bulk) => bulk.len_bytes(),
        }
    }

    /// Copies `[offset, offset + len_bytes)` of the payload to `to`. Panics when that is not inside the payload.
    ///
    /// # Safety
    /// `to` is valid for writes of `len_bytes` and is no part of a transport's own rings.
    #[inline(always)]
    pub unsafe fn copy_to(&self, offset: usize, to: *mut u8, len_bytes: usize) {
        match self {
            Self::Inline(bytes) => {
                let from = &bytes[offset..][..len_bytes];
                // SAFETY: `from` has `len_bytes`; the caller vouches for `to`, which cannot overlap our copy.
                unsafe { raw::copy_in(to, from) };
            }
            // SAFETY: the caller's promise, passed on.
            Self::Bulk(bulk) => unsafe { bulk.copy_to(offset, to, len_bytes) },
        }
    }

    /// Copies `into.len()` bytes from `offset` on. Panics when they are not inside the payload.
    #[inline]
    pub fn copy_to_slice(&self, offset: usize, into: &mut [u8]) {
        // SAFETY: an exclusive slice is valid for writes of its length and cannot lie in a ring.
        unsafe { self.copy_to(offset, into.as_mut_ptr(), into.len()) };
    }
}

/// A payload that still lies in the ring's bulk area.
#[derive(Clone, Copy, Debug)]
pub struct BulkPayload<'a> {
    pub(crate) region: &'a Mapping,
    pub(crate) offset: usize,
    pub(crate) len_bytes: usize,
}

impl BulkPayload<'_> {
    /// Length in bytes.
    #[inline(always)]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Copies `[offset, offset + len_bytes)` of the payload to `to`. Panics when that is not inside the payload.
    ///
    /// # Safety
    /// `to` is valid for writes of `len_bytes` and is no part of a transport's own rings.
    #[inline(always)]
    pub unsafe fn copy_to(&self, offset: usize, to: *mut u8, len_bytes: usize) {
        assert!(offset <= self.len_bytes && len_bytes <= self.len_bytes - offset, "range outside the payload");
        let from = self.region.at(self.offset + offset, len_bytes);
        // SAFETY: `at` checked the source; the caller vouches for the destination, which is outside the region.
        unsafe { raw::copy(from, to, len_bytes) };
    }
}
