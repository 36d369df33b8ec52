//! Limits that are too small for what a trace does, told to whoever studies it.

use std::fmt;

use mapwire_translation::{DesignConfig, PinError, PinLimit};

use crate::config::Configuration;
use crate::decode::Totals;
use crate::fast::LimitTooSmall;
use crate::replay::ReplayError;

/// A process needs more pages pinned at once than it may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DoesNotFit {
    /// Pages of the operation.
    pub needed_pages: u64,
    /// Pages that a process may have pinned.
    pub limit_pages: u64,
    /// Pages that must stay pinned meanwhile.
    pub held_pages: u64,
    /// Whether a table in the NIC is too small, rather than the limit on pinned pages.
    pub is_table: bool,
    /// Whether there are exports or receives, whose pages count too, and for long.
    pub receives: bool,
}

impl DoesNotFit {
    /// What a fast engine found. There are no exports and no tables then.
    pub(super) fn fast(error: LimitTooSmall) -> Self {
        DoesNotFit {
            needed_pages: error.needed_pages,
            limit_pages: error.limit_pages,
            held_pages: 0,
            is_table: false,
            receives: false,
        }
    }

    /// What a replay of the configuration ended with on a node with these totals, if it was that.
    pub(crate) fn replayed(
        configuration: &Configuration,
        error: ReplayError,
        totals: &Totals,
    ) -> Result<Self, ReplayError> {
        match error {
            ReplayError::Limit(PinError::LimitTooSmall { needed_pages, limit_pages, held_pages }) => Ok(DoesNotFit {
                needed_pages,
                limit_pages,
                held_pages,
                is_table: is_table(configuration, limit_pages),
                receives: totals.exports > 0 || totals.receive_lookups > 0,
            }),
            other => Err(other),
        }
    }
}

/// Whether so few pages may be pinned since a process's table has no more entries.
fn is_table(configuration: &Configuration, limit_pages: u64) -> bool {
    matches!(configuration.design, DesignConfig::PerProcess(_))
        && configuration.rules.limit != PinLimit::Pages(limit_pages)
}

impl fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages are needed at once, but ", self.needed_pages)?;
        if self.is_table {
            write!(f, "a process's table has {} entries", self.limit_pages)?;
        } else {
            write!(f, "a process may have only {} pinned", self.limit_pages)?;
        }
        if self.held_pages > 0 {
            write!(f, ", {} of them for what goes on besides", self.held_pages)?;
        }
        let option = if self.is_table { "entries" } else { "limit" };
        write!(f, "; choose a larger --{option}")?;
        if self.receives {
            f.write_str(", or leave exports and receives out with --ops send,fetch")?;
        }
        Ok(())
    }
}
