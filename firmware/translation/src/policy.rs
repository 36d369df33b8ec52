//! Which page to give up when another needs its place (UTLB §3.4).

use core::fmt;
use core::str::FromStr;

/// How victims are chosen among the pinned pages that no transfer holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Least recently used.
    #[default]
    Lru,
}

impl Policy {
    /// Every policy by its name.
    pub const ALL: [(&'static str, Policy); 1] = [("lru", Policy::Lru)];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Lru => f.write_str("lru"),
        }
    }
}

/// A word that names no policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no such policy for unpinning; choose lru")]
pub struct ParsePolicyError;

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.iter().find(|(name, _)| *name == word);
        named.map(|(_, policy)| *policy).ok_or(ParsePolicyError)
    }
}
