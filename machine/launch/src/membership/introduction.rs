//! What ranks say of themselves before they are a job: lines of text, the first of which is `mapwire` and the version.

use std::collections::HashMap;

use mapwire_transport::net::{Carrier, NetConfig};

use crate::LaunchError;

const MAGIC: &str = "mapwire";
const MAX_BYTES: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Introduction {
    version: String,
    /// What carries packets to other hosts.
    carrier: Carrier,
    /// Datagrams there are not sealed.
    is_plain: bool,
    /// Equal for ranks that reach each other by sockets of the host.
    place: String,
    name: String,
}

impl Introduction {
    pub(super) fn of_this_process(net: &NetConfig) -> Self {
        let name = rustix::system::uname();
        let name = name.nodename().to_string_lossy().into_owned();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot = boot.unwrap_or_else(|_| name.clone());
        // Ranks in containers of one computer have each a network of their own, in which sockets have their names.
        let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
        let user = rustix::process::geteuid().as_raw();
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            carrier: net.carrier.clone(),
            is_plain: net.carrier == Carrier::Datagrams && net.insecure,
            place: format!("{} {} {user}", boot.trim(), network.display()),
            name,
        }
    }

    pub(super) fn to_text(&self) -> String {
        let between = match (&self.carrier, self.is_plain) {
            (Carrier::Datagrams, false) => "sealed".to_owned(),
            (Carrier::Datagrams, true) => "plain".to_owned(),
            (other, _) => other.to_string(),
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
        let (carrier, is_plain) = match &*between {
            "sealed" => (Carrier::Datagrams, false),
            "plain" => (Carrier::Datagrams, true),
            other => (other.parse().ok().filter(|carrier| *carrier != Carrier::Datagrams)?, false),
        };
        Some(Self {
            version: Some(version.to_owned()).filter(is_clean)?,
            carrier,
            is_plain,
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
        if said.version != self.version {
            return Err(differs("mapwire", &said.version, &self.version));
        }
        if said.carrier != self.carrier {
            return Err(differs("MAPWIRE_TRANSPORT", &said.carrier.to_string(), &self.carrier.to_string()));
        }
        if said.is_plain != self.is_plain {
            let value = |is_plain| if is_plain { "1" } else { "0" };
            return Err(differs("MAPWIRE_INSECURE", value(said.is_plain), value(self.is_plain)));
        }
        Ok(())
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
        Introduction { place: place.into(), ..Introduction::of_this_process(&NetConfig::default()) }
    }

    #[test]
    fn what_is_written_is_read() {
        for (carrier, insecure) in [("udp", false), ("udp", true), ("ofi:tcp;ofi_rxm", false)] {
            let net = NetConfig { carrier: carrier.parse().unwrap(), insecure, ..NetConfig::default() };
            let own = Introduction::of_this_process(&net);
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
        plain.is_plain = true;
        let text = own.check(1, &plain).unwrap_err().to_string();
        assert!(text.contains("MAPWIRE_INSECURE"), "{text}");
        plain.carrier = "ofi:tcp".parse().unwrap();
        let text = own.check(1, &plain).unwrap_err().to_string();
        assert!(text.contains("MAPWIRE_TRANSPORT ofi:tcp") && text.contains("udp"), "{text}");
        assert!(own.check(1, &own).is_ok());
    }
}
