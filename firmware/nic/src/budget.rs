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
#[derive(Clone, Debug, PartialEq, Eq)]
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
        write!(
            f,
            "{:>12} B  in use of {} B",
            self.used_bytes(),
            self.budget_bytes
        )
    }
}
