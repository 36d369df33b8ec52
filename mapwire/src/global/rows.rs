//! Rows of the page directory in memory of the host, for a handler on the NIC (GMS-NP §3.3).

use core::ops::Range;

use mapwire_gms::{CheckPoints, ENTRY_BYTES, RowNumbers, RowSize, Rows};

use crate::buffer::Buffer;
use crate::error::Result;

/// What an entry takes to fetch, and to scan meanwhile, in nanoseconds (GMS-NP §4.4): a scan looks for more after entries 1, 7 and 37.
const FETCH_NS: u64 = 250;
const SCAN_NS: u64 = 1_600;

/// Rows in a buffer of the process. The NIC copies each piece of a row into memory of its own before it looks at it, by the copy that
/// moves the payload of packets, and writes single entries back. On this computer the processor does both: the pieces cost what they cost
/// there, but nothing is copied while it scans.
///
/// The buffer is this process's alone, and stays at its address; it is not pinned, since no other engine reads it.
#[derive(Debug)]
pub(super) struct HostRows {
    numbers: RowNumbers,
    buffer: Buffer,
}

impl HostRows {
    /// As many rows as `budget_bytes` have room for.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn new(size: RowSize, budget_bytes: usize) -> Result<Self> {
        let numbers = RowNumbers::new(size, budget_bytes);
        Ok(Self {
            buffer: Buffer::allocate(numbers.bytes())?,
            numbers,
        })
    }
}

impl Rows for HostRows {
    fn size(&self) -> RowSize {
        self.numbers.size()
    }

    fn primary(&self) -> u32 {
        self.numbers.primary()
    }

    fn check_points(&self) -> CheckPoints {
        CheckPoints::new(FETCH_NS, SCAN_NS, self.size().entries() as u64)
    }

    fn read(&self, row: u32, places: Range<usize>, buffer: &mut [u8]) {
        let offset = self.numbers.offset(row, places.start);
        let read = self.buffer.read(offset, buffer);
        debug_assert!(read.is_ok(), "row {row}: {read:?}");
    }

    fn write(&mut self, row: u32, at: usize, entry: &[u8; ENTRY_BYTES]) {
        let offset = self.numbers.offset(row, at);
        let written = self.buffer.write(offset, entry);
        debug_assert!(written.is_ok(), "row {row}: {written:?}");
    }

    fn allocate(&mut self) -> Option<u32> {
        self.numbers.allocate()
    }

    fn free(&mut self, row: u32) {
        self.numbers.free(row);
    }

    fn bytes(&self) -> usize {
        self.numbers.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_host_memory_pass_the_suite() {
        mapwire_gms::conformance::suite(|size, bytes| HostRows::new(size, bytes).unwrap());
    }
}
