//! Limits on a process's pinned pages, and errors of pinning.

use crate::page::{PAGE_BYTES, Page, RangeError};
use crate::policy::Policy;
use core::fmt;

/// How many pages a process may have pinned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PinLimit {
    /// As many as the system allows. Nothing is unpinned to make room, and no order of use is kept.
    #[default]
    Unlimited,
    /// No more than this many.
    Pages(u64),
}

impl PinLimit {
    /// The limit of the whole pages within `bytes`.
    ///
    /// # Errors
    /// `bytes` is less than one page.
    ///
    /// ```
    /// use mapwire_translation::PinLimit;
    /// assert_eq!(PinLimit::from_bytes(4 << 20)?, PinLimit::Pages(1024));
    /// assert!(PinLimit::from_bytes(100).is_err());
    /// # Ok::<(), mapwire_translation::PinError>(())
    /// ```
    pub fn from_bytes(bytes: u64) -> Result<Self, PinError> {
        match bytes / PAGE_BYTES as u64 {
            0 => Err(PinError::LimitBelowPage { limit_bytes: bytes }),
            pages => Ok(PinLimit::Pages(pages)),
        }
    }

    /// The stricter of this limit and `pages`, if given.
    #[must_use]
    pub const fn and(self, pages: Option<u64>) -> Self {
        match (self, pages) {
            (limit, None) => limit,
            (PinLimit::Pages(ours), Some(theirs)) if ours < theirs => PinLimit::Pages(ours),
            (_, Some(theirs)) => PinLimit::Pages(theirs),
        }
    }
}

impl fmt::Display for PinLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PinLimit::Unlimited => f.write_str("no limit on pinned pages"),
            PinLimit::Pages(pages) => write!(f, "at most {pages} pinned pages"),
        }
    }
}

/// Rules for the pinning of a process.
///
/// ```
/// use mapwire_translation::{PinLimit, PinRules, Policy};
/// let rules = PinRules::default().with_limit(PinLimit::from_bytes(4 << 20)?).with_prepin_pages(16);
/// assert_eq!((rules.limit, rules.policy), (PinLimit::Pages(1024), Policy::Lru));
/// # Ok::<(), mapwire_translation::PinError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct PinRules {
    /// Most pinned pages. Default: no limit.
    pub limit: PinLimit,
    /// Policy that chooses pages to unpin. Default: least recently used.
    pub policy: Policy,
    /// Pages that a check miss pins, from the missed one on, as far as the limit allows (UTLB §6.5). Default: 1, nothing ahead; 0 counts
    /// as 1.
    pub prepin_pages: u64,
}

impl Default for PinRules {
    fn default() -> Self {
        PinRules { limit: PinLimit::Unlimited, policy: Policy::default(), prepin_pages: 1 }
    }
}

impl PinRules {
    /// The same with another limit.
    #[must_use]
    pub const fn with_limit(self, limit: PinLimit) -> Self {
        PinRules { limit, ..self }
    }

    /// The same with another policy.
    #[must_use]
    pub const fn with_policy(self, policy: Policy) -> Self {
        PinRules { policy, ..self }
    }

    /// The same with another number of pages that a check miss pins.
    #[must_use]
    pub const fn with_prepin_pages(self, prepin_pages: u64) -> Self {
        PinRules { prepin_pages, ..self }
    }
}

/// Why pages cannot be pinned, held or released.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PinError {
    /// The transfer does not fit, even after unpinning all that can be.
    #[error(
        "a transfer of {needed_pages} pages does not fit: {limit_pages} pages may be pinned, {held_pages} of them are in outstanding transfers; raise the limit, send less at once or wait for transfers to complete"
    )]
    LimitTooSmall {
        /// Pages of the transfer.
        needed_pages: u64,
        limit_pages: u64,
        /// Pages that other transfers hold.
        held_pages: u64,
    },
    /// The limit is less than one page.
    #[error("a limit of {limit_bytes} bytes is less than one page of {PAGE_BYTES}; raise it")]
    LimitBelowPage {
        /// The limit that was requested, in bytes.
        limit_bytes: u64,
    },
    /// A hold on a page that is not pinned.
    #[error("{page} is not pinned; pin it before a transfer holds it")]
    NotPinned { page: Page },
    /// A release of a page that no transfer holds.
    #[error("{page} is held by no transfer; release each hold once")]
    NotHeld { page: Page },
    /// The pages can never be pinned.
    #[error(transparent)]
    Range(#[from] RangeError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn errors_name_the_numbers_and_the_way_out() {
        let text = PinError::LimitTooSmall { needed_pages: 9, limit_pages: 8, held_pages: 3 }.to_string();
        for part in ["9 pages", "8 pages", "3 of them", "raise the limit"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(PinLimit::from_bytes(4095), Err(PinError::LimitBelowPage { limit_bytes: 4095 }));
    }
}
