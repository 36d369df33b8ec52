//! Where a node carries out what its part of the page directory is asked.

use core::fmt;
use core::str::FromStr;

use mapwire_driver::config::ParseChoiceError;

/// Where a node carries out what its part of the page directory is asked, and where that part lies (GMS-NP §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DirectoryPlacement {
    /// On the host: a thread of the process is woken for each message, and answers (GMS).
    Host,
    /// On the NIC, which fetches rows from the process's memory as far as a scan gets, and writes single entries back (GMS-NP(HM)).
    #[default]
    NicHostMemory,
    /// On the NIC, in its own memory: as many rows as that has room for, and the pages of no more can be stored (GMS-NP(NM)).
    NicMemory,
}

impl DirectoryPlacement {
    /// All of them, in the paper's order.
    pub const ALL: [Self; 3] = [Self::Host, Self::NicHostMemory, Self::NicMemory];

    /// How it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::NicHostMemory => "nic-hm",
            Self::NicMemory => "nic-nm",
        }
    }
}

impl fmt::Display for DirectoryPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DirectoryPlacement {
    type Err = ParseChoiceError;

    fn from_str(text: &str) -> Result<Self, ParseChoiceError> {
        Self::ALL.into_iter().find(|it| it.name() == text).ok_or_else(|| ParseChoiceError {
            what: "place of the page directory",
            given: text.to_owned(),
            choices: "host, nic-hm, nic-nm",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_read_as_it_is_written_and_others_are_refused_with_the_choices() {
        for place in DirectoryPlacement::ALL {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for wrong in ["", "nic", "HOST", "nic-hm "] {
            let error = wrong.parse::<DirectoryPlacement>().unwrap_err().to_string();
            assert!(error.contains("host, nic-hm, nic-nm"), "{error}");
        }
    }
}
