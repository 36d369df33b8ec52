//! The options with their types.

use std::path::PathBuf;
use std::time::Duration;

use mapwire_host::waiting::WaitStrategy;
use mapwire_translation::Policy;
use mapwire_transport::board::MAX_RANKS;
use mapwire_transport::net::{Addresses, Carrier};

use super::layers::{ConfigError, Layers, OPTIONS};
use crate::run::terminal::Stdout;
use mapwire_settings::{DesignText, parse_design, size};

/// Where ranks may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bind {
    /// Wherever the kernel puts them.
    None,
    /// Rank r on the r-th of the processors that the launcher may use, in turn.
    Core,
}

/// How ranks of one host reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// By shared memory.
    Shm,
    /// As if each were on a host of its own.
    Udp,
    /// The same, by libfabric.
    Ofi,
}

impl Transport {
    /// What a text means that was [checked](check).
    pub(crate) fn of(text: &str) -> Self {
        match text {
            "udp" => Self::Udp,
            text if text.starts_with("ofi") => Self::Ofi,
            _ => Self::Shm,
        }
    }
}

/// What a job gets.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Number of ranks, if given.
    pub(crate) ranks: Option<u32>,
    pub(crate) transport: Transport,
    /// How long set-up steps wait for others, if given.
    pub(crate) timeout: Option<Duration>,
    /// A rank that is stopped for this long ends the job.
    pub(crate) stop_grace: Duration,
    pub(crate) bind: Bind,
    pub(crate) wdir: Option<PathBuf>,
    /// Whether output lines begin with the rank.
    pub(crate) tag: bool,
    /// What ranks write their output to.
    pub(crate) stdout: Stdout,
    /// The options that the ranks themselves read, as variables.
    pub(crate) environment: Vec<(String, String)>,
}

/// Options that only the launcher reads.
const LAUNCHERS_OWN: &[&str] = &["ranks", "stop_grace", "bind", "wdir", "tag", "stdout"];

type Checked = Result<String, String>;

fn one_of(allowed: &[&str], text: &str) -> Checked {
    if allowed.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("`{text}` is not one of {}", allowed.join(", ")))
}

fn number(text: &str, low: u64, high: u64) -> Checked {
    match text.trim().parse::<u64>() {
        Ok(n) if (low..=high).contains(&n) => Ok(n.to_string()),
        _ => Err(format!("`{text}` is not a number from {low} to {high}")),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    size::parse(text).map_err(|error| error.to_string())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a number of seconds from 0 to 1000000000");
    let value: f64 = text.trim().parse().map_err(|_| wrong())?;
    if !(0.0..=1e9).contains(&value) {
        return Err(wrong());
    }
    Ok(Duration::from_secs_f64(value))
}

/// Checks one option and gives the text that ranks read.
fn check(key: &str, text: &str) -> Checked {
    match key {
        "ranks" => match text.trim().parse::<u64>() {
            Ok(0) => Err("a job needs at least one rank; give -n 1 or more".into()),
            Ok(n) if n <= u64::from(MAX_RANKS) => Ok(n.to_string()),
            Ok(n) => Err(format!("{n} ranks are too many; a job has at most {MAX_RANKS}")),
            Err(_) => Err(format!("`{text}` is not a number of ranks from 1 to {MAX_RANKS}")),
        },
        "transport" => match text.trim().parse::<Carrier>() {
            Ok(_) => Ok(text.trim().to_owned()),
            Err(error) => Err(error.to_string()),
        },
        "addresses" => match text.trim().parse::<Addresses>() {
            Ok(_) => Ok(text.trim().to_owned()),
            Err(error) => Err(error.to_string()),
        },
        "wait" => match text.trim().parse::<WaitStrategy>() {
            Ok(strategy) => Ok(strategy.to_string()),
            Err(error) => Err(error.to_string()),
        },
        "path" => one_of(&["direct", "ring"], text),
        "faults" => one_of(&["userfaultfd", "sigsegv"], text),
        "pinner" => one_of(&["cheapest", "mlock", "io_uring"], text),
        "bind" => one_of(&["none", "core"], text),
        "stdout" => one_of(&["auto", "pty", "pipe"], text),
        "tag" | "insecure" => one_of(&["true", "false"], text),
        "pin_limit" => Ok(bytes(text)?.to_string()),
        "shared" => match bytes(text)? {
            0 => Err("the shared memory cannot be empty".into()),
            bytes => Ok(bytes.to_string()),
        },
        // `MAX_VIEWS` of the shared memory, which ranks check too.
        "views" => number(text, 1, 512),
        "translation" => match parse_design(text) {
            Ok(design) => Ok(DesignText(design).to_string()),
            Err(error) => Err(error.to_string()),
        },
        "policy" => match text.parse::<Policy>() {
            Ok(policy) => Ok(policy.to_string()),
            Err(error) => Err(error.to_string()),
        },
        "prepin" => number(text, 1, 32),
        "timeout" | "stop_grace" => seconds(text).map(|_| text.trim().to_owned()),
        _ if text.is_empty() => Err("must not be empty".into()),
        _ => Ok(text.to_owned()),
    }
}

/// Whether an option can have a value.
#[cfg(test)]
pub(crate) fn is_possible(key: &str, text: &str) -> bool {
    check(key, text).is_ok()
}

impl Settings {
    /// Checks all layers and gives them their types.
    pub(crate) fn from_layers(layers: &Layers) -> Result<Self, ConfigError> {
        let mut environment = Vec::new();
        for row in OPTIONS {
            let Some((text, source)) = layers.get(row.key) else {
                continue;
            };
            let text =
                check(row.key, text).map_err(|why| ConfigError::Value { source_name: source.to_owned(), why })?;
            if !LAUNCHERS_OWN.contains(&row.key) {
                environment.push((row.variable.to_owned(), text));
            }
        }
        let text = |key: &str| layers.get(key).map(|(text, _)| text.trim());
        let tag = text("tag") != Some("false");
        Ok(Self {
            ranks: text("ranks").and_then(|t| t.parse().ok()),
            transport: Transport::of(text("transport").unwrap_or_default()),
            timeout: text("timeout").and_then(|text| seconds(text).ok()),
            stop_grace: text("stop_grace").and_then(|t| seconds(t).ok()).unwrap_or_default(),
            bind: if text("bind") == Some("core") { Bind::Core } else { Bind::None },
            wdir: layers.get("wdir").map(|(text, _)| text.into()),
            tag,
            stdout: match text("stdout") {
                Some("pty") => Stdout::Terminal,
                Some("pipe") => Stdout::Pipe,
                // Without tags the output may be data, which a program gives to a pipe as it is.
                _ if tag => Stdout::Terminal,
                _ => Stdout::Pipe,
            },
            environment,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(key: &'static str, text: &str) -> Result<Settings, String> {
        Settings::from_layers(&Layers::of(key, text)).map_err(|e| e.to_string())
    }

    #[test]
    fn wrong_values_are_refused_and_name_their_source_and_the_choices() {
        for (key, text, says) in [
            ("ranks", "0", "at least one rank"),
            ("ranks", "100000", "at most 4096"),
            ("ranks", "-3", "`-3` is not a number of ranks"),
            ("wait", "spin", "poll, event, adaptive"),
            ("wait", "adaptive:", "adaptive:N"),
            ("transport", "tcp", "shm, udp, ofi"),
            ("transport", "ofi:", "ofi:tcp"),
            ("path", "both", "direct, ring"),
            ("shared", "4X", "--shared"),
            ("views", "0", "from 1 to 512"),
            ("views", "513", "from 1 to 512"),
            ("translation", "guess", "hierarchical"),
            ("translation", "hierarchical,entries=1000", "power of two"),
            ("policy", "oldest", "lru"),
            ("prepin", "33", "from 1 to 32"),
            ("timeout", "soon", "seconds"),
            ("timeout", "NaN", "seconds"),
            ("stop_grace", "-1", "seconds"),
            ("addresses", "10.0.0.0/64", "network"),
            ("bind", "socket", "none, core"),
        ] {
            let error = outcome(key, text).unwrap_err();
            assert!(error.contains(says), "{key}={text}: {error}");
        }
    }

    #[test]
    fn sizes_reach_the_ranks_in_bytes_and_launcher_options_do_not() {
        let settings = outcome("shared", "1G").unwrap();
        let value = |name| settings.environment.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str());
        assert_eq!(value("MAPWIRE_SHARED"), Some("1073741824"));
        assert_eq!(value("MAPWIRE_WAIT"), Some("adaptive"));
        assert_eq!(value("MAPWIRE_STOP_GRACE"), None);
        assert!(outcome("wait", "adaptive:500").is_ok());
        assert_eq!(value("MAPWIRE_FAULTS"), None, "left to each rank");
        assert_eq!(outcome("stop_grace", "0.5").unwrap().stop_grace, Duration::from_millis(500));
    }
}
