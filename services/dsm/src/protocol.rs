//! The names of the coherence protocols.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

use crate::Rank;

/// A coherence protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// Sequential consistency of minipages (Millipage).
    #[default]
    Minipages,
    /// Home-based lazy release consistency of pages (Zhou, Iftode, Li 1996).
    Hlrc,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Minipages, Self::Hlrc];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Minipages => "minipages",
            Self::Hlrc => "hlrc",
        }
    }

    /// Its number where ranks compare what they were started with.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Minipages => 0,
            Self::Hlrc => 1,
        }
    }

    /// Checks that rank `rank`, which has sent its [`code`](Self::code), goes by the same protocol.
    ///
    /// # Errors
    /// It goes by another, or by one that is unknown here.
    pub fn meet(self, rank: Rank, code: u8) -> Result<(), ProtocolMismatch> {
        if code == self.code() {
            return Ok(());
        }
        let theirs = Self::ALL.into_iter().find(|other| other.code() == code);
        Err(ProtocolMismatch { rank, theirs: theirs.map_or("an unknown protocol", Self::name), ours: self.name() })
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    fn from_str(name: &str) -> Result<Self, UnknownProtocol> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == name).ok_or(UnknownProtocol)
    }
}

/// Two ranks of a job go by different protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "rank {rank} keeps the shared memory coherent by {theirs}, this one by {ours}; start all ranks with the same protocol"
)]
pub struct ProtocolMismatch {
    /// The other rank.
    pub rank: Rank,
    /// Name of its protocol.
    pub theirs: &'static str,
    /// Name of this rank's.
    pub ours: &'static str,
}

/// A name of no protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected minipages or hlrc")]
pub struct UnknownProtocol;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_rank_with_another_protocol_is_refused_with_both_names() {
        for protocol in Protocol::ALL {
            assert_eq!(protocol.name().parse(), Ok(protocol));
            assert_eq!(protocol.meet(1, protocol.code()), Ok(()));
        }
        let error = Protocol::Hlrc.meet(3, Protocol::Minipages.code()).unwrap_err().to_string();
        assert!(
            error.starts_with("rank 3 keeps the shared memory coherent by minipages, this one by hlrc;"),
            "{error}"
        );
        assert!(Protocol::Hlrc.meet(3, 77).unwrap_err().to_string().contains("unknown"));
    }
}
