//! The NIC's memory: every table is charged to it, and the breakdown can be read.

use alloc::vec::Vec;
use core::fmt;

/// One table's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetRow {
    /// Name of the table.
    pub what: &'static str,
    /// Size in bytes.
    pub bytes: u64,
}

/// How the NIC's memory is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryBreakdown {
    /// Size of the NIC's memory, in bytes.
    pub budget_bytes: u64,
    /// Use by each table.
    pub rows: Vec<BudgetRow>,
}

impl MemoryBreakdown {
    /// Sum of all rows, in bytes.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.rows.iter().map(|row| row.bytes).sum()
    }
}

impl fmt::Display for MemoryBreakdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            writeln!(f, "{:>12} B  {}", row.bytes, row.what)?;
        }
        write!(f, "{:>12} B  in use of {} B", self.used_bytes(), self.budget_bytes)
    }
}

/// Numbers of what a NIC holds now. All but exports and imports are 0 when nothing is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    pub exports: usize,
    pub imports: usize,
    /// Fetches and atomic operations without an answer yet.
    pub fetches: usize,
    /// Fetches being served to peers, and reports of refused stores.
    pub owed: usize,
    /// Packets that wait or are unacked.
    pub packets: usize,
    /// Bytes of packets that arrived early.
    pub early_bytes: usize,
    /// Incomplete messages of peers.
    pub messages: usize,
    /// Commands not yet fully cut into packets.
    pub commands: usize,
    /// Requests to the host, and what waits for them.
    pub misses: usize,
    /// Moves and completions that the driver has not taken.
    pub actions: usize,
}
