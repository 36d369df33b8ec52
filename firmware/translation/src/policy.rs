//! Policies that choose a page to evict (UTLB §3.4).

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// Rule for choosing victims among the pinned pages that no transfer holds.
///
/// As text: `lru`, `mru`, `lfu`, `mfu`, `random`, `random:7` with a seed. The application's own policy is an object, and has no text form.
///
/// ```
/// use mapwire_translation::Policy;
/// assert_eq!("random:7".parse(), Ok(Policy::Random { seed: 7 }));
/// assert_eq!(Policy::Lfu.to_string(), "lfu");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Policy {
    /// The least recently used page.
    #[default]
    Lru,
    /// The most recently used page.
    Mru,
    /// The page used least often since it was pinned; of several, the least recently used.
    Lfu,
    /// The page used most often since it was pinned; of several, the least recently used.
    Mfu,
    /// A random page, uniformly.
    Random {
        /// Seed of the sequence of draws.
        seed: u64,
    },
    /// Pages that a [`ChooseVictims`](crate::ChooseVictims) names. If it names too few, or does not exist, the least recently used.
    Application,
}

impl Policy {
    /// The five policies that need no chooser (UTLB §3.4), with the seed 0.
    pub const PREDEFINED: [Policy; 5] =
        [Policy::Lru, Policy::Mru, Policy::Lfu, Policy::Mfu, Policy::Random { seed: 0 }];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Lru => "lru",
            Policy::Mru => "mru",
            Policy::Lfu => "lfu",
            Policy::Mfu => "mfu",
            Policy::Random { seed: 0 } => "random",
            Policy::Random { seed } => return write!(f, "random:{seed}"),
            Policy::Application => "application",
        })
    }
}

/// Unknown policy name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{found:?} is not a policy for unpinning; choose lru, mru, lfu, mfu, random or random:SEED with a number")]
pub struct ParsePolicyError {
    found: String,
}

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        if let Some(seed) = word.strip_prefix("random:")
            && let Ok(seed) = seed.parse()
        {
            return Ok(Policy::Random { seed });
        }
        let names = ["lru", "mru", "lfu", "mfu", "random"];
        let named = names.iter().position(|name| *name == word);
        named.map(|at| Self::PREDEFINED[at]).ok_or_else(|| ParsePolicyError { found: word.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn policies_are_read_as_they_are_printed() {
        let seeded = Policy::Random { seed: 9 };
        for policy in Policy::PREDEFINED.into_iter().chain([seeded]) {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        for word in ["", "LRU", "random:", "random:x", "random:-1", "application"] {
            let error = word.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains(&std::format!("{word:?}")), "{error}");
            assert!(error.contains("lru, mru"), "{error}");
        }
    }
}
