//! The options with their types.

use std::path::PathBuf;
use std::time::Duration;

use mapwire_settings::Transport;
use serde::{Deserialize, Serialize};

use super::layers::{ConfigError, Layers};
use super::options::{OPTIONS, seconds};
use crate::run::terminal::Stdout;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Bind {
    /// Wherever the kernel puts them.
    None,
    /// Rank r on the r-th of the processors that the launcher may use, in turn.
    Core,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) ranks: Option<u32>,
    pub(crate) timeout: Option<Duration>,
    /// A rank that is stopped for this long ends the job.
    pub(crate) stop_grace: Duration,
    pub(crate) bind: Bind,
    pub(crate) wdir: Option<PathBuf>,
    pub(crate) tag: bool,
    pub(crate) stdout: Stdout,
    /// The options that the ranks themselves read, as variables.
    pub(crate) environment: Vec<(String, String)>,
}

impl Settings {
    pub(crate) fn transport(&self) -> Transport {
        let mut given = self.environment.iter().filter(|(name, _)| name == "MAPWIRE_TRANSPORT");
        Transport::of(given.next().map_or("", |(_, text)| text))
    }

    pub(crate) fn from_layers(layers: &Layers) -> Result<Self, ConfigError> {
        let mut environment = Vec::new();
        for option in &OPTIONS {
            let Some((text, source)) = layers.get(option.key) else {
                continue;
            };
            let wrong = |why| ConfigError::Value { source_name: source.to_owned(), why };
            let text = (option.check)(text).map_err(wrong)?;
            if option.is_for_ranks {
                environment.push((option.variable(), text));
            }
        }
        let text = |key: &str| layers.get(key).map(|(text, _)| text.trim());
        let tag = text("tag") != Some("false");
        Ok(Self {
            ranks: text("ranks").and_then(|t| t.parse().ok()),
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

    fn outcome(key: &str, text: &str) -> Result<Settings, String> {
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
