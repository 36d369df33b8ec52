//! Memory that one end of a channel lends to the other, which reads payloads where they are: one copy, not two.
//!
//! Lent memory is a sealed memfd, known to both ends by a number below [`MAX_LENT`]. The lender passes the descriptor,
//! marks the number as live in a word of its own, and waits until the borrower has marked it as mapped in another. From
//! then on a packet may carry a [`Reference`] in place of its bytes. A number is taken back in the opposite order: no packet
//! under way, live unmarked, memory unmapped, mapped unmarked; then it may name other memory.
//!
//! The lender sees to it that the memory does not change until the packet is released, or the packet carries the change. The
//! borrower trusts nothing: numbers and ranges are checked against its own mappings, which nobody can make shorter.

use std::os::fd::AsFd;

use rustix::fs::SealFlags;

use super::PeerCorrupt;
use super::region::Region;

/// How much memory one end can lend at a time: one bit each in a word.
pub const MAX_LENT: u32 = 64;
/// Bytes of a reference in a slot.
pub(crate) const REFERENCE_BYTES: usize = 16;
/// The most bytes that follow the referenced ones inside the slot.
pub(crate) const MAX_TAIL_BYTES: usize = 16;

/// Where the bytes of a payload are in lent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Which memory, below [`MAX_LENT`].
    pub number: u32,
    /// First byte, from the memory's start.
    pub offset: u64,
    /// How many.
    pub len_bytes: u32,
}

impl Reference {
    /// As it stands in a slot.
    #[inline]
    pub(crate) fn to_bytes(self) -> [u8; REFERENCE_BYTES] {
        let mut bytes = [0; REFERENCE_BYTES];
        bytes[..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// The inverse. Any bytes are a reference; whether to anything is for [`Borrowed::find`].
    #[inline]
    pub(crate) fn from_bytes(bytes: [u8; REFERENCE_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, offset @ ..] = bytes;
        Self {
            number: u32::from_le_bytes([a, b, c, d]),
            len_bytes: u32::from_le_bytes([e, f, g, h]),
            offset: u64::from_le_bytes(offset),
        }
    }
}

/// Memory that cannot be borrowed.
#[derive(Debug, thiserror::Error)]
pub enum BorrowError {
    /// The descriptor is of no memory that stays readable.
    #[error("lent memory must be a memfd sealed against shrinking; this is {0}")]
    NotSealed(&'static str),
    /// A system call failed.
    #[error("lent memory of {len_bytes} bytes cannot be mapped: {source}")]
    System {
        /// Its length, 0 if that could not be learnt.
        len_bytes: usize,
        /// The kernel's answer.
        source: rustix::io::Errno,
    },
}

/// What the peer has lent to this end.
#[derive(Debug, Default)]
pub(crate) struct Borrowed {
    /// By number; allocated when the first memory comes.
    regions: Vec<Option<Region>>,
    mapped: u64,
}

impl Borrowed {
    /// Maps what a descriptor stands for, for reading.
    pub(crate) fn map(fd: impl AsFd) -> Result<Region, BorrowError> {
        let fd = fd.as_fd();
        let failed = |len_bytes| move |source| BorrowError::System { len_bytes, source };
        match rustix::fs::fcntl_get_seals(fd) {
            Ok(seals) if seals.contains(SealFlags::SHRINK) => {}
            Ok(_) => return Err(BorrowError::NotSealed("not sealed")),
            Err(_) => return Err(BorrowError::NotSealed("no memfd")),
        }
        // Huge pages can run out on a load, which then faults; no lender of ours uses them.
        const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
        if rustix::fs::fstatfs(fd).map_err(failed(0))?.f_type as u64 & 0xffff_ffff
            == HUGETLBFS_MAGIC
        {
            return Err(BorrowError::NotSealed("of huge pages"));
        }
        let len = rustix::fs::fstat(fd).map_err(failed(0))?.st_size;
        let len_bytes = usize::try_from(len).unwrap_or(0);
        if len_bytes == 0 || isize::try_from(len_bytes).is_err() {
            return Err(BorrowError::NotSealed("empty"));
        }
        Region::map_read_only(fd, len_bytes).map_err(failed(len_bytes))
    }

    /// Bit for each number that is mapped.
    pub(crate) fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Takes memory in under a number below [`MAX_LENT`] that names none yet.
    pub(crate) fn accept(&mut self, number: u32, region: Region) {
        if self.regions.is_empty() {
            self.regions.resize_with(MAX_LENT as usize, || None);
        }
        if let Some(place @ None) = self.regions.get_mut(number as usize) {
            *place = Some(region);
            self.mapped |= 1 << number;
        }
    }

    /// Unmaps what is no longer live. Whether anything was.
    pub(crate) fn retain(&mut self, live: u64) -> bool {
        let over = self.mapped & !live;
        for (number, region) in self.regions.iter_mut().enumerate() {
            if over >> number & 1 != 0 {
                *region = None;
            }
        }
        self.mapped &= live;
        over != 0
    }

    /// The memory under a number that [`check`](Self::check) approved.
    #[inline]
    pub(crate) fn region(&self, number: u32) -> Option<&Region> {
        self.regions.get(number as usize)?.as_ref()
    }

    /// Whether a reference of the peer lies inside memory that is mapped, and leaves a tail that a slot holds of a payload of
    /// `payload_bytes`.
    #[inline]
    pub(crate) fn check(
        &self,
        reference: Reference,
        payload_bytes: usize,
    ) -> Result<(), PeerCorrupt> {
        let body = u64::from(reference.len_bytes);
        let tail = (payload_bytes as u64).checked_sub(body);
        if tail.is_none_or(|tail| tail > MAX_TAIL_BYTES as u64) {
            return Err(PeerCorrupt {
                what: "length of a reference to lent memory",
                value: body,
            });
        }
        let Some(region) = self.region(reference.number) else {
            return Err(PeerCorrupt {
                what: "number of lent memory",
                value: u64::from(reference.number),
            });
        };
        let end = reference.offset.checked_add(body);
        if end.is_none_or(|end| end > region.len_bytes() as u64) {
            return Err(PeerCorrupt {
                what: "offset in lent memory",
                value: reference.offset,
            });
        }
        Ok(())
    }
}
