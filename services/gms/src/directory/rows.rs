//! The memory that a directory lies in: of the host, in which case rows cross the bus in pieces, or of the NIC, whose budget is charged for
//! it.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::ops::Range;

use super::entry::ENTRY_BYTES;
use super::scan::CheckPoints;

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
/// A row is read in pieces and written by single entries, as GMS-NP(HM) does by DMA (§3.3, §4.4). Rows numbered below
/// [`primary`](Self::primary) are always in use.
pub trait Rows: Debug + Send {
    /// Entries in a row.
    fn size(&self) -> RowSize;
    /// Rows that a hash may choose: a power of two.
    fn primary(&self) -> u32;
    /// When a scan asks for the next piece of its row.
    fn check_points(&self) -> CheckPoints;
    /// Reads the entries at these places of a row into `buffer`, which is as long as they are.
    fn read(&self, row: u32, places: Range<usize>, buffer: &mut [u8]);
    /// Writes the entry at place `at` of a row.
    fn write(&mut self, row: u32, at: usize, entry: &[u8; ENTRY_BYTES]);
    /// Takes a row that is not in use, beyond the primary ones; `None` if there is none.
    fn allocate(&mut self) -> Option<u32>;
    /// Gives such a row back. Its entries are empty.
    fn free(&mut self, row: u32);
    /// Bytes that the rows take.
    fn bytes(&self) -> usize;
}

impl Rows for Box<dyn Rows> {
    fn size(&self) -> RowSize {
        (**self).size()
    }

    fn primary(&self) -> u32 {
        (**self).primary()
    }

    fn check_points(&self) -> CheckPoints {
        (**self).check_points()
    }

    fn read(&self, row: u32, places: Range<usize>, buffer: &mut [u8]) {
        (**self).read(row, places, buffer);
    }

    fn write(&mut self, row: u32, at: usize, entry: &[u8; ENTRY_BYTES]) {
        (**self).write(row, at, entry);
    }

    fn allocate(&mut self) -> Option<u32> {
        (**self).allocate()
    }

    fn free(&mut self, row: u32) {
        (**self).free(row);
    }

    fn bytes(&self) -> usize {
        (**self).bytes()
    }
}

/// What an entry takes the paper's NIC to fetch, and to scan meanwhile, in nanoseconds (GMS-NP §4.4).
const FETCH_NS: u64 = 250;
const SCAN_NS: u64 = 1_600;

/// Rows in memory of this process.
#[derive(Clone, Debug)]
pub struct PlainRows {
    size: RowSize,
    primary: u32,
    points: CheckPoints,
    bytes: Vec<u8>,
    unused: Vec<u32>,
}

impl PlainRows {
    /// As many rows as `budget_bytes` have room for; one at least. Half of them or more are primary. They are read in place: of the host, for
    /// code that runs there, or of the NIC, for a handler there.
    #[must_use]
    pub fn new(size: RowSize, budget_bytes: usize) -> Self {
        let rows = (budget_bytes / size.bytes()).clamp(1, 1 << 24);
        let power = 1 << rows.ilog2();
        let primary = if power == rows { power / 2 } else { power };
        let primary = primary.max(1);
        Self {
            size,
            primary: primary as u32,
            points: CheckPoints::new(1, 1, size.entries() as u64),
            bytes: vec![0; rows * size.bytes()],
            unused: (primary as u32..rows as u32).rev().collect(),
        }
    }

    /// The same in memory of the host, for a handler on the NIC, which copies the pieces of a row between the paper's check points into
    /// memory of its own, as far as its scan gets: after entries 1, 7 and 37. The processor that scans also copies, here: a piece costs what
    /// it costs, but nothing is copied while it scans.
    #[must_use]
    pub fn across_bus(size: RowSize, budget_bytes: usize) -> Self {
        Self { points: CheckPoints::new(FETCH_NS, SCAN_NS, size.entries() as u64), ..Self::new(size, budget_bytes) }
    }
}

impl Rows for PlainRows {
    fn size(&self) -> RowSize {
        self.size
    }

    fn primary(&self) -> u32 {
        self.primary
    }

    fn check_points(&self) -> CheckPoints {
        self.points
    }

    fn read(&self, row: u32, places: Range<usize>, buffer: &mut [u8]) {
        let first = row as usize * self.size.bytes() + places.start * ENTRY_BYTES;
        buffer.copy_from_slice(&self.bytes[first..][..places.len() * ENTRY_BYTES]);
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
