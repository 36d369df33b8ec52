//! The trace file, byte by byte. Its name ends in `.mwt`; every number in it is little-endian.
//!
//! ```text
//! file     = header block* end?
//! header   = magic [8], version u16, zero u16, metadata length u32, metadata (JSON, UTF-8), CRC-32 u32 of all before it
//! block    = "MWTB", payload length u32, records u32, CRC-32 u32, first time u64, last time u64, payload
//! end      = "MWTE", 8 u32, blocks u32, CRC-32 u32, first time u64, last time u64, records u64
//! ```
//!
//! *Magic* is `8D 4D 57 54 0D 0A 1A 0A`: not text, `MWT`, and line ends that a transfer in text mode would change. The *version* is
//! 3. A reader takes versions 1 and 2 as well and refuses others; the versions differ only in the operations that there are:
//!
//! | version | operations |
//! |---|---|
//! | 1 | codes 1 to 9 of [`TraceOp`](mapwire_wire::TraceOp): transfers, and what the host pins |
//! | 2 | codes 10 to 21 besides: calls of the shared memory, and the processor time between them |
//! | 3 | codes 22 and 23 besides: between which ranks bytes of the shared memory move |
//!
//! The *metadata* is one JSON object ([`Metadata`](crate::Metadata)) of at most 1 MiB; unknown
//! members are left out by the reader.
//!
//! A *block* holds 1 to 65,536 records, in order of time, and can be decoded without any other. Times are nanoseconds; *first time*
//! is at least the last time of the block before. The CRC-32 (IEEE) covers the block's first 12 bytes, both times and the payload.
//! The writer here makes blocks of 16,384 records, the last one shorter.
//!
//! The *end* has the form of a block's head and an 8-byte payload; its times and its records are those of the whole file, 0 if it is
//! empty, and its blocks are counted modulo 2³². Nothing follows it. A file without it was not finished; its blocks are good.
//!
//! # The payload of a block
//!
//! ```text
//! payload  = streams, column of stream numbers, column of time steps, column of bytes, address mode u8, column of addresses
//! streams  = count - 1 u16, count × (node u16, process u16, op u8, flags u8)
//! ```
//!
//! A *stream* is one (node, process, op, flags) that occurs in the block; *stream numbers* count from 0, in order of first
//! occurrence. An op is a code of [`TraceOp`](mapwire_wire::TraceOp). *Time steps* are differences to the record before; the first
//! is 0, and they add up from first time to last time. The *address mode* is 0 if the column has the addresses themselves, 1 if
//! it has their differences, modulo 2⁶⁴, to the address before in the same stream (0 before the stream's first).
//!
//! # A column
//!
//! One `u64` for each record, in one of four kinds:
//!
//! ```text
//! column   = 0, value u64                                                           all values equal
//!          | 1, group*                                                              packed
//!          | 2, width u8, shift u8, zero u8, base u64, length u32, LZ4 block        bytes
//!          | 3, count - 1 u16, column of steps, column of places                    dictionary
//! group    = width u8, shift u8, exceptions u16, base u64, word u64*, exception*
//! exception = place u16, value u64
//! ```
//!
//! *Packed*: a group for each 1,024 values, the last one shorter. A value is `base + (packed << shift)`, modulo 2⁶⁴, where
//! packed has `width` bits (0 to 64). The bits stand in 16 lanes, so that 16 values are unpacked by the same steps at once: value `i` stands in
//! lane `i mod 16` at bit `(i div 16) × width`; bit `b` of lane `l` is bit `b mod 64` of word `(b div 64) × 16 + l`. There are
//! `16 × ceil(ceil(values ÷ 16) × width ÷ 64)` words. *Exceptions* then replace the values at their places in the group.
//!
//! *Bytes*: a value is `base + (entry << shift)`, modulo 2⁶⁴, where the entries are little-endian numbers of `width` bytes
//! (1, 2, 4 or 8), compressed together as one LZ4 block.
//!
//! *Dictionary*: 1 to 4,096 values in ascending order, given by steps from the one before (from 0 for the first), and for each record the place
//! of its value among them. The columns inside are of another kind than dictionary.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub const MAGIC: [u8; 8] = [0x8d, b'M', b'W', b'T', b'\r', b'\n', 0x1a, b'\n'];
/// The version that is written; those before it are read as well.
pub const VERSION: u16 = 3;
pub const MAX_BLOCK_RECORDS: usize = 65_536;
/// Records of the blocks that are written: decoded, they fit into a processor's second-level cache.
pub const BLOCK_RECORDS: usize = 16_384;
pub const MAX_METADATA_BYTES: usize = 1 << 20;
/// Most bytes of a block's payload: more than its records need in any encoding.
pub const MAX_PAYLOAD_BYTES: usize = 4 << 20;

pub(crate) const BLOCK_MARK: [u8; 4] = *b"MWTB";
pub(crate) const END_MARK: [u8; 4] = *b"MWTE";

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct FileHead {
    pub(crate) magic: [u8; 8],
    pub(crate) version: U16,
    pub(crate) zero: U16,
    pub(crate) metadata_bytes: U32,
}

/// The head of a block, or of the end.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct BlockHead {
    pub(crate) mark: [u8; 4],
    pub(crate) payload_bytes: U32,
    /// Of the end: blocks.
    pub(crate) records: U32,
    pub(crate) checksum: U32,
    pub(crate) first_ns: U64,
    pub(crate) last_ns: U64,
}

impl BlockHead {
    /// The checksum that belongs to this head and `payload`.
    pub(crate) fn checksum_with(&self, payload: &[u8]) -> u32 {
        let bytes = self.as_bytes();
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..12]);
        hasher.update(&bytes[16..]);
        hasher.update(payload);
        hasher.finalize()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Stream {
    pub(crate) node: U16,
    pub(crate) process: U16,
    pub(crate) op: u8,
    pub(crate) flags: u8,
}

pub(crate) const ADDRESS_PLAIN: u8 = 0;
pub(crate) const ADDRESS_STEPS: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_sizes_that_the_description_gives() {
        assert_eq!(size_of::<FileHead>(), 16);
        assert_eq!(size_of::<BlockHead>(), 32);
        assert_eq!(size_of::<Stream>(), 6);
    }

    #[test]
    fn the_checksum_covers_every_byte_but_itself() {
        let head = BlockHead::read_from_bytes(&[7; 32]).unwrap();
        let payload = [1, 2, 3];
        let good = head.checksum_with(&payload);
        for at in (0..32).filter(|at| !(12..16).contains(at)) {
            let mut bytes = [7; 32];
            bytes[at] ^= 0x10;
            let other = BlockHead::read_from_bytes(&bytes).unwrap();
            assert_ne!(other.checksum_with(&payload), good, "byte {at}");
        }
        assert_ne!(head.checksum_with(&[1, 2, 2]), good);
        let mut other = head;
        other.checksum = 0.into();
        assert_eq!(other.checksum_with(&payload), good);
    }
}
