//! The NIC's memory: every table is charged to it, and the breakdown is there to be read.

use alloc::vec::Vec;
use core::fmt;

/// One table's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetRow {
    /// Which table.
    pub what: &'static str,
    /// Its bytes.
    pub bytes: u64,
}

/// What the NIC's memory holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryBreakdown {
    /// Bytes that the NIC has.
    pub budget_bytes: u64,
    /// Bytes a table.
    pub rows: Vec<BudgetRow>,
}

impl MemoryBreakdown {
    /// Bytes in use.
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

/// What a NIC holds now, by number. All but exports and imports are 0 when nothing is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Exports that stand.
    pub exports: usize,
    /// Imports that are entered.
    pub imports: usize,
    /// Fetches and atomic operations that are not answered.
    pub fetches: usize,
    /// Fetches that are served to peers, and word of refused stores that they are owed.
    pub owed: usize,
    /// Packets that wait, or are not acked.
    pub packets: usize,
    /// Bytes of packets that came before their turn.
    pub early_bytes: usize,
    /// Messages of peers of which more packets are to come.
    pub messages: usize,
    /// Commands that are not cut to their end.
    pub commands: usize,
    /// What the host is asked for, and what waits for it.
    pub misses: usize,
    /// Moves and completions that were not taken.
    pub actions: usize,
}
