//! Which hosts a job runs on: `--hosts a,b:4`, or a file with a host a line.
//!
//! A line of a hostfile is a name, or `name:SLOTS`, or `name slots=SLOTS`, as Open MPI and MPICH read them. A `#` begins a comment. A host
//! that stands there twice has the slots of both.

use std::fmt;
use std::path::Path;

/// Hosts of a job at most; each costs the launcher a process and a thread.
pub(crate) const MAX_HOSTS: usize = 512;
const LONGEST_LINE: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) slots: Option<u32>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HostsError {
    #[error("{origin}: {why}")]
    Malformed { origin: Origin, why: String },
    #[error("cannot read the hostfile {path}")]
    Read { path: String, source: std::io::Error },
    #[error("the hostfile {path} names no host: write one a line")]
    Empty { path: String },
}

#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Option,
    Line { path: String, number: usize },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option => f.write_str("--hosts"),
            Self::Line { path, number } => write!(f, "{path}, line {number}"),
        }
    }
}

pub(crate) fn of_option(text: &str) -> Result<Vec<Host>, HostsError> {
    let mut hosts = Vec::new();
    for word in text.split(',') {
        add(&mut hosts, &Origin::Option, one(word.trim()))?;
    }
    Ok(hosts)
}

pub(crate) fn of_file(path: &Path) -> Result<Vec<Host>, HostsError> {
    let shown = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|source| HostsError::Read { path: shown.clone(), source })?;
    of_text(&bytes, &shown)
}

fn of_text(bytes: &[u8], path: &str) -> Result<Vec<Host>, HostsError> {
    let mut hosts = Vec::new();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let origin = Origin::Line { path: path.to_owned(), number: number + 1 };
        let line = line.split(|byte| *byte == b'#').next().unwrap_or(&[]);
        let text = match std::str::from_utf8(line) {
            Ok(text) if text.len() <= LONGEST_LINE => text.trim(),
            Ok(_) => {
                return add(&mut hosts, &origin, Err("the line is too long".into())).map(|()| hosts);
            }
            Err(_) => {
                return add(&mut hosts, &origin, Err("not text in UTF-8".into())).map(|()| hosts);
            }
        };
        if !text.is_empty() {
            add(&mut hosts, &origin, line_of(text))?;
        }
    }
    if hosts.is_empty() {
        return Err(HostsError::Empty { path: path.into() });
    }
    Ok(hosts)
}

fn line_of(text: &str) -> Result<Host, String> {
    let mut words = text.split_whitespace();
    let mut host = one(words.next().unwrap_or(""))?;
    for word in words {
        match word.split_once('=') {
            Some(("slots", value)) if host.slots.is_none() => host.slots = Some(slots(value)?),
            Some(("slots", _)) => return Err("slots are given twice".into()),
            // Open MPI's: more ranks than slots may come only when somebody asks for them, as here.
            Some(("max_slots" | "max-slots", value)) => _ = slots(value)?,
            _ => {
                return Err(format!("`{word}` is not understood; write: {} slots=4", host.name));
            }
        }
    }
    Ok(host)
}

/// `name` or `name:slots`. A name with more than one colon is an IPv6 address, whose slots follow a bracket: `[fd00::1]:4`.
fn one(text: &str) -> Result<Host, String> {
    let (name, count) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, "")) => (name, None),
        Some((name, rest)) => {
            (name, Some(rest.strip_prefix(':').ok_or_else(|| format!("`{text}`: expected [ADDRESS]:SLOTS"))?))
        }
        None => match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => (text, None),
            Some((name, count)) => (name, Some(count)),
            None => (text, None),
        },
    };
    if name.is_empty() {
        return Err("a host's name is missing".into());
    }
    // It becomes a word of a command, so it must not be taken for an option of it, nor for several words.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:@%".contains(c);
    if name.starts_with('-') || !name.chars().all(is_plain) {
        let shown: String = name.chars().take(64).collect();
        return Err(format!(
            "`{shown}` is not the name of a host: write letters, digits and ._-:@% only, without a - in front"
        ));
    }
    let slots = count.map(slots).transpose()?;
    Ok(Host { name: name.into(), slots })
}

fn slots(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("a host has at least one slot, not 0; leave the host out".into()),
        Ok(slots) if slots <= mapwire_transport::board::MAX_RANKS => Ok(slots),
        _ => Err(format!("`{text}` is not a number of slots from 1 to {}", mapwire_transport::board::MAX_RANKS)),
    }
}

fn add(hosts: &mut Vec<Host>, origin: &Origin, host: Result<Host, String>) -> Result<(), HostsError> {
    let wrong = |why| HostsError::Malformed { origin: origin.clone(), why };
    let host = host.map_err(wrong)?;
    let is_full = hosts.len() == MAX_HOSTS;
    match hosts.iter_mut().find(|known| known.name == host.name) {
        // Named twice without a count is what some schedulers write for two slots.
        Some(known) => {
            let sum = known.slots.unwrap_or(1).saturating_add(host.slots.unwrap_or(1));
            known.slots = Some(sum);
        }
        None if is_full => return Err(wrong(format!("more than {MAX_HOSTS} hosts"))),
        None => hosts.push(host),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, slots: Option<u32>) -> Host {
        Host { name: name.into(), slots }
    }

    #[test]
    fn hosts_are_read_with_and_without_slots() {
        let hosts = of_option("a,b:4, user@c.example ,[fd00::1]:2,fd00::2").unwrap();
        let expected = [
            host("a", None),
            host("b", Some(4)),
            host("user@c.example", None),
            host("fd00::1", Some(2)),
            host("fd00::2", None),
        ];
        assert_eq!(hosts, expected);
    }

    #[test]
    fn a_hostfile_of_open_mpi_or_mpich_reads_the_same() {
        let text = b"# our cluster\nnode1 slots=2 max_slots=4\nnode2:3 # the old one\n\nnode1\r\n";
        let expected = [host("node1", Some(3)), host("node2", Some(3))];
        assert_eq!(of_text(text, "h").unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_in_a_hostfile_is_named_with_its_line() {
        for (text, says) in [
            ("a\nb slots=0\n", "h, line 2: a host has at least one slot"),
            ("a\n\n-oProxyCommand=x\n", "h, line 3: `-oProxyCommand=x` is not the name of a host"),
            ("a;reboot\n", "h, line 1: `a;reboot`"),
            ("a cores=4\n", "h, line 1: `cores=4` is not understood"),
            ("a:x\n", "h, line 1: `x` is not a number of slots"),
            ("a slots=2 slots=3\n", "twice"),
            ("# nothing\n", "names no host"),
        ] {
            let error = of_text(text.as_bytes(), "h").unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
        let error = of_text(b"a\n\xff\xfe\n", "h").unwrap_err().to_string();
        assert!(error.contains("h, line 2: not text"), "{error}");
        assert!(of_option("a,,b").unwrap_err().to_string().contains("--hosts: a host's name is missing"));
    }
}
