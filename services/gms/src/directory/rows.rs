//! The memory that a directory lies in.

use alloc::vec;
use alloc::vec::Vec;

use super::entry::ENTRY_BYTES;

/// Entries in a row: how many are fetched at a time (GMS-NP §4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RowSize {
    /// 8 entries, 256 bytes.
    Eight,
    /// 32 entries, 1,024 bytes: what the paper's prototype uses.
    #[default]
    ThirtyTwo,
    /// 64 entries, 2,048 bytes.
    SixtyFour,
}

impl RowSize {
    /// Entries in a row.
    #[must_use]
    pub const fn entries(self) -> usize {
        match self {
            Self::Eight => 8,
            Self::ThirtyTwo => 32,
            Self::SixtyFour => 64,
        }
    }

    /// Bytes of a row.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.entries() * ENTRY_BYTES
    }
}

/// Where the rows of a directory lie. Its size is fixed; a row that is not in use holds zeros.
///
/// A row is read as a whole and written by single entries, as GMS-NP(HM) does by DMA (§3.3). Rows numbered below
/// [`primary`](Self::primary) are always in use.
pub trait Rows {
    /// Entries in a row.
    fn size(&self) -> RowSize;
    /// Rows that a hash may choose: a power of two.
    fn primary(&self) -> u32;
    /// Reads a row into `buffer`, which is as long as a row.
    fn read(&self, row: u32, buffer: &mut [u8]);
    /// Writes the entry at place `at` of a row.
    fn write(&mut self, row: u32, at: usize, entry: &[u8; ENTRY_BYTES]);
    /// Takes a row that is not in use, beyond the primary ones; `None` if there is none.
    fn allocate(&mut self) -> Option<u32>;
    /// Gives such a row back. Its entries are empty.
    fn free(&mut self, row: u32);
    /// Bytes that the rows take.
    fn bytes(&self) -> usize;
}

/// Rows in memory that this code reaches directly: of the host, or of the NIC for a handler that runs there.
#[derive(Clone, Debug)]
pub struct PlainRows {
    size: RowSize,
    primary: u32,
    bytes: Vec<u8>,
    unused: Vec<u32>,
}

impl PlainRows {
    /// As many rows as `budget_bytes` have room for; one at least. Half of them or more are primary.
    #[must_use]
    pub fn new(size: RowSize, budget_bytes: usize) -> Self {
        let rows = (budget_bytes / size.bytes()).clamp(1, 1 << 24);
        let power = 1 << rows.ilog2();
        let primary = if power == rows { power / 2 } else { power };
        let primary = primary.max(1);
        Self {
            size,
            primary: primary as u32,
            bytes: vec![0; rows * size.bytes()],
            unused: (primary as u32..rows as u32).rev().collect(),
        }
    }
}

impl Rows for PlainRows {
    fn size(&self) -> RowSize {
        self.size
    }

    fn primary(&self) -> u32 {
        self.primary
    }

    fn read(&self, row: u32, buffer: &mut [u8]) {
        let bytes = self.size.bytes();
        buffer.copy_from_slice(&self.bytes[row as usize * bytes..][..bytes]);
    }

    fn write(&mut self, row: u32, at: usize, entry: &[u8; ENTRY_BYTES]) {
        let first = row as usize * self.size.bytes() + at * ENTRY_BYTES;
        self.bytes[first..first + ENTRY_BYTES].copy_from_slice(entry);
    }

    fn allocate(&mut self) -> Option<u32> {
        self.unused.pop()
    }

    fn free(&mut self, row: u32) {
        self.unused.push(row);
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }
}
