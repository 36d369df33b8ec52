//! What ranks say of themselves before they are a job: lines of text, the first of which is `mapwire` and the version.

use std::collections::HashMap;

use crate::LaunchError;

const MAGIC: &str = "mapwire";
const MAX_BYTES: usize = 1024;

/// How a rank reaches those of other hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Between {
    /// By datagrams that are sealed.
    Sealed,
    /// By datagrams that are not.
    Plain,
    /// Otherwise, as its user has it in MAPWIRE_TRANSPORT.
    Other(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Introduction {
    /// Of mapwire.
    version: String,
    between: Between,
    /// Equal for ranks that reach each other by sockets of the host.
    place: String,
    name: String,
}

impl Introduction {
    pub(super) fn of_this_process(between: Between) -> Self {
        let name = rustix::system::uname();
        let name = name.nodename().to_string_lossy().into_owned();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot = boot.unwrap_or_else(|_| name.clone());
        // Ranks in containers of one computer have each a network of their own, in which sockets have their names.
        let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
        let user = rustix::process::geteuid().as_raw();
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            between,
            place: format!("{} {} {user}", boot.trim(), network.display()),
            name,
        }
    }

    pub(super) fn to_text(&self) -> String {
        let between = match &self.between {
            Between::Sealed => "sealed",
            Between::Plain => "plain",
            Between::Other(name) => name,
        };
        format!("{MAGIC} {}\n{between}\n{}\n{}", self.version, self.place, self.name)
    }

    /// What `bytes` say, which another process has put.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        if text.len() > MAX_BYTES {
            return None;
        }
        let mut lines = text.lines().map(ToOwned::to_owned);
        let (magic, between) = (lines.next()?, lines.next()?);
        let version = magic.strip_prefix(MAGIC)?.strip_prefix(' ')?;
        let is_clean = |text: &String| !text.contains(char::is_control);
        Some(Self {
            version: Some(version.to_owned()).filter(is_clean)?,
            between: match &*between {
                "plain" => Between::Plain,
                "sealed" => Between::Sealed,
                name if name.starts_with("ofi") && is_clean(&between) => Between::Other(name.to_owned()),
                _ => return None,
            },
            place: lines.next()?,
            name: lines.next().filter(is_clean)?,
        })
    }

    /// Checks that a process which has said this can be `peer` of the job.
    pub(super) fn check(&self, peer: u32, said: &Self) -> Result<(), LaunchError> {
        let differs = |what, theirs: &str, ours: &str| LaunchError::Differs {
            rank: peer,
            host: said.name.clone(),
            what,
            theirs: theirs.into(),
            ours: ours.into(),
        };
        let sealing = |between: &Between| match between {
            Between::Plain => "1",
            _ => "0",
        };
        if said.version != self.version {
            return Err(differs("mapwire", &said.version, &self.version));
        }
        match (&said.between, &self.between) {
            (theirs, ours) if theirs == ours => Ok(()),
            (Between::Other(_), _) | (_, Between::Other(_)) => {
                let (theirs, ours) = (carrier(&said.between), carrier(&self.between));
                Err(differs("MAPWIRE_TRANSPORT", theirs, ours))
            }
            (theirs, ours) => {
                let (theirs, ours) = (sealing(theirs), sealing(ours));
                Err(differs("MAPWIRE_INSECURE", theirs, ours))
            }
        }
    }
}

/// What the user has said, or what is meant where nothing was said.
fn carrier(between: &Between) -> &str {
    match between {
        Between::Other(name) => name,
        _ => "udp",
    }
}

/// The number of each rank's host, in the order in which hosts appear.
pub(super) fn number_hosts(all: &[Introduction]) -> Vec<u32> {
    let mut numbers = HashMap::new();
    all.iter()
        .map(|one| {
            let next = numbers.len() as u32;
            *numbers.entry(&one.place).or_insert(next)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(place: &str) -> Introduction {
        Introduction { place: place.into(), ..Introduction::of_this_process(Between::Sealed) }
    }

    #[test]
    fn what_is_written_is_read() {
        let other = Between::Other("ofi:tcp;ofi_rxm".into());
        for between in [Between::Sealed, Between::Plain, other] {
            let own = Introduction::of_this_process(between);
            assert_eq!(Introduction::parse(own.to_text().as_bytes()), Some(own));
        }
    }

    #[test]
    fn what_is_no_introduction_is_none() {
        let long = format!("mapwire 1\nsealed\nhere\n{}", "x".repeat(MAX_BYTES));
        for text in [
            "",
            "mapwire",
            "mapwire 1\nsealed\nhere",
            "mapwire 1\nsecret\nhere\nname",
            "other 1\nsealed\nhere\nname",
            "mapwire 1\nsealed\nhere\na\u{1b}[31m",
            &long,
        ] {
            assert_eq!(Introduction::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Introduction::parse(&[0xff; 8]), None);
    }

    #[test]
    fn hosts_are_numbered_as_they_appear_also_when_ranks_take_turns() {
        let all = ["b", "a", "b", "c", "a"].map(at);
        assert_eq!(number_hosts(&all), [0, 1, 0, 2, 1]);
    }

    #[test]
    fn who_has_another_version_or_does_not_seal_is_named() {
        let own = at("here");
        let mut other = own.clone();
        other.version = "9.9.9".into();
        other.name = "far".into();
        let text = own.check(3, &other).unwrap_err().to_string();
        for part in ["rank 3", "far", "9.9.9", &own.version] {
            assert!(text.contains(part), "{text}");
        }
        let mut plain = own.clone();
        plain.between = Between::Plain;
        let text = own.check(1, &plain).unwrap_err().to_string();
        assert!(text.contains("MAPWIRE_INSECURE"), "{text}");
        plain.between = Between::Other("ofi:tcp".into());
        let text = own.check(1, &plain).unwrap_err().to_string();
        assert!(text.contains("MAPWIRE_TRANSPORT ofi:tcp") && text.contains("udp"), "{text}");
        assert!(own.check(1, &own).is_ok());
    }
}
