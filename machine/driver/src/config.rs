//! What a driver is made with. The launcher says it by `MAPWIRE_*` variables; programs may say it themselves.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

pub use mapwire_host::pinning::PinnerKind;
use mapwire_host::waiting::WaitStrategy;
use mapwire_translation::{DesignConfig, Policy};
pub use mapwire_transport::net::NetConfig;

/// Who runs the duty cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverMode {
    /// The thread that sends or waits; a service thread wakes only when packets come while no thread waits.
    #[default]
    Inline,
    /// A thread of its own, which polls; other threads only write commands and read completion words.
    Thread,
}

impl FromStr for DriverMode {
    type Err = ParseChoiceError;

    fn from_str(text: &str) -> Result<Self, ParseChoiceError> {
        match text {
            "inline" => Ok(Self::Inline),
            "thread" => Ok(Self::Thread),
            _ => Err(ParseChoiceError { what: "driver mode", given: text.to_owned(), choices: "inline, thread" }),
        }
    }
}

impl fmt::Display for DriverMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inline => "inline",
            Self::Thread => "thread",
        })
    }
}

/// A word that is not one of the choices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a {what}; choose one of: {choices}")]
pub struct ParseChoiceError {
    /// What was to be chosen.
    pub what: &'static str,
    pub given: String,
    /// What there is.
    pub choices: &'static str,
}

/// What a driver is made with.
#[derive(Clone, Debug)]
pub struct DriverConfig {
    /// Who runs the duty cycle.
    pub mode: DriverMode,
    /// How threads wait.
    pub wait: WaitStrategy,
    /// Ranks come and go while the job runs, and most have not come or have gone.
    pub is_open: bool,
    /// Who pins pages.
    pub pinner: PinnerKind,
    /// Bytes that the process may have pinned at a time; `None`: what the operating system allows.
    pub pin_limit_bytes: Option<u64>,
    /// How the NIC translates addresses; the same in every rank.
    pub translation: DesignConfig,
    /// Which pages are unpinned when the limit wants it.
    pub policy: Policy,
    /// Pages that are pinned at once where one is not: from 1, itself alone, to 32 (UTLB §6.5).
    pub prepin_pages: u64,
    /// Bytes of NIC memory; `None`: 4 MiB, and 16 KiB for each rank beyond 256, since queues to each peer lie there.
    pub nic_memory_bytes: Option<u64>,
    /// The folder in which this rank writes down what it communicates; `None`: it does not.
    pub trace: Option<std::path::PathBuf>,
    /// The way to ranks of other hosts.
    pub net: NetConfig,
    /// How long joining, connecting and collective set-up may take, and how long an import waits if it does not say.
    pub timeout: Duration,
}

impl DriverConfig {
    /// Bytes of NIC memory in a job of `nodes` nodes.
    pub(crate) fn nic_memory(&self, nodes: usize) -> u64 {
        let many = nodes.saturating_sub(256) as u64;
        self.nic_memory_bytes.unwrap_or((4 << 20) + many * (16 << 10))
    }
}

impl Default for DriverConfig {
    fn default() -> Self {
        Self {
            mode: DriverMode::Inline,
            wait: WaitStrategy::default(),
            is_open: false,
            pinner: PinnerKind::Cheapest,
            pin_limit_bytes: None,
            translation: DesignConfig::default(),
            policy: Policy::Lru,
            prepin_pages: 1,
            nic_memory_bytes: None,
            trace: None,
            net: NetConfig::default(),
            timeout: Duration::from_secs(30),
        }
    }
}
