//! Settings: defaults, then the `MAPWIRE_*` variables that the launcher sets, then what the program says.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use mapwire_driver::config::{DriverConfig, ParseChoiceError};
use mapwire_host::faults::FaultBackend;
use mapwire_settings::{parse_design, size};
use mapwire_transport::net::Addresses;
use thiserror::Error;

use crate::global::placement::DirectoryPlacement;

/// A setting that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name}={value}: {why}")]
pub struct ConfigError {
    /// The variable.
    pub name: String,
    /// Its value.
    pub value: String,
    /// What is wrong with it.
    pub why: String,
}

/// What keeps the shared memory of the ranks coherent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coherence {
    /// The processor, where all ranks are on one host: they map one segment, and no access costs a fault. Elsewhere, where `--transport`
    /// says that ranks of a host are to talk as if they were far, and in a job that is traced: [`Minipages`](Self::Minipages).
    #[default]
    Auto,
    /// The protocol of Millipage: an allocation moves between ranks as a whole, and memory is sequentially consistent.
    Minipages,
    /// Home-based lazy release consistency: what a rank has written is seen by those that synchronise with it by a lock or a barrier. Ranks
    /// may write neighbouring bytes of a page at the same time; accesses that are not synchronised may find old values for ever.
    Hlrc,
}

impl Coherence {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Auto, Self::Minipages, Self::Hlrc];
}

impl fmt::Display for Coherence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Minipages => "minipages",
            Self::Hlrc => "hlrc",
        })
    }
}

impl FromStr for Coherence {
    type Err = ParseChoiceError;

    fn from_str(text: &str) -> Result<Self, ParseChoiceError> {
        let found = Self::ALL.into_iter().find(|it| it.to_string() == text);
        found.ok_or_else(|| ParseChoiceError {
            what: "coherence",
            given: text.to_owned(),
            choices: "auto, minipages, hlrc",
        })
    }
}

/// The shape of the shared memory; the same in every rank.
#[derive(Clone, Debug)]
pub struct SharedConfig {
    /// Its length in bytes; memory is taken only as it is used.
    pub bytes: u64,
    /// What keeps it coherent.
    pub coherence: Coherence,
    /// Whether its heap looks for damage: stores beside allocations, and blocks used after they are freed.
    pub debug: bool,
    /// Whether memory of one host that is filled goes into huge pages, at barriers.
    pub huge: bool,
    /// Whether lazy release consistency looks for bytes that two ranks have changed without synchronising, and names them on standard error.
    pub races: bool,
    /// Application views, where a protocol keeps it coherent: the most allocations that share a page (Millipage §2.3: 32 cost under 4 %).
    pub views: u16,
    /// Where it lies; `None`: where all ranks have room. With views, the privileged view lies there, and the others after it.
    pub base: Option<u64>,
    /// How a protocol catches faults; `None`: the best that this computer allows.
    pub faults: Option<FaultBackend>,
    /// The folder in which this rank counts faults by the places of the program that allocate; `None`: it does not.
    pub profile: Option<std::path::PathBuf>,
}

impl Default for SharedConfig {
    fn default() -> Self {
        Self {
            bytes: 4 << 30,
            coherence: Coherence::Auto,
            debug: false,
            huge: false,
            races: false,
            views: 32,
            base: None,
            faults: None,
            profile: None,
        }
    }
}

/// How others reach the buffers that a node exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    /// They map those that can be mapped; everything else goes by the ring.
    #[default]
    Direct,
    /// All exports go by the ring, as those that [`ring_only`](crate::ExportBuilder::ring_only) asks for: the NIC translates all
    /// traffic. Minipages of the shared memory still travel by mapped memory.
    Ring,
}

impl FromStr for Path {
    type Err = ParseChoiceError;

    fn from_str(text: &str) -> Result<Self, ParseChoiceError> {
        match text {
            "direct" => Ok(Self::Direct),
            "ring" => Ok(Self::Ring),
            _ => Err(ParseChoiceError { what: "path", given: text.to_owned(), choices: "direct, ring" }),
        }
    }
}

/// What a node is made with.
#[derive(Clone, Debug, Default)]
pub struct NodeConfig {
    /// The address of the job's launcher; `None`: a job of this process alone.
    pub job: Option<String>,
    /// This process's rank.
    pub rank: u32,
    /// Driver, waiting, pinning, NIC.
    pub driver: DriverConfig,
    /// How others reach exported buffers.
    pub path: Path,
    /// Where this rank's part of the page directory of global memory is, if it lends memory or borrows it.
    pub directory: DirectoryPlacement,
    /// Shared memory.
    pub shared: SharedConfig,
}

impl NodeConfig {
    /// What the environment says.
    ///
    /// # Errors
    /// A variable that is not valid, by name.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// What `variable` says; for tests, and for programs with settings of their own.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let set = Settings(&given);
        let (driver, shared) = (&mut config.driver, &mut config.shared);
        config.job = given("MAPWIRE_JOB");
        set.parse("MAPWIRE_RANK", &mut config.rank)?;
        set.parse("MAPWIRE_WAIT", &mut driver.wait)?;
        set.parse("MAPWIRE_PATH", &mut config.path)?;
        set.parse(mapwire_settings::DIRECTORY, &mut config.directory)?;
        set.parse("MAPWIRE_DRIVER", &mut driver.mode)?;
        set.parse("MAPWIRE_PINNER", &mut driver.pinner)?;
        set.read("MAPWIRE_TRANSLATION", parse_design, &mut driver.translation)?;
        set.parse("MAPWIRE_POLICY", &mut driver.policy)?;
        set.parse("MAPWIRE_PREPIN", &mut driver.prepin_pages)?;
        set.parse("MAPWIRE_TRANSPORT", &mut driver.net.carrier)?;
        set.parse("MAPWIRE_INSECURE", &mut driver.net.insecure)?;
        set.read("MAPWIRE_ADDRESSES", |text| text.parse::<Addresses>()?.resolve(), &mut driver.net.addresses)?;
        driver.trace = given("MAPWIRE_TRACE_FOLDER").map(Into::into);
        driver.net.loss = set.get("MAPWIRE_LOSS", str::parse)?;
        driver.net.busy_poll_us = set.get("MAPWIRE_BUSY_POLL", str::parse)?;
        driver.net.capture = given("MAPWIRE_CAPTURE_FOLDER").map(Into::into);
        set.parse("MAPWIRE_VIEWS", &mut shared.views)?;
        driver.pin_limit_bytes = set.get("MAPWIRE_PIN_LIMIT", size::parse)?;
        driver.nic_memory_bytes = set.get("MAPWIRE_NIC_MEMORY", size::parse)?;
        set.read("MAPWIRE_SHARED", size::parse, &mut shared.bytes)?;
        shared.base = set.get("MAPWIRE_SHARED_BASE", address)?;
        set.parse("MAPWIRE_COHERENCE", &mut shared.coherence)?;
        set.parse("MAPWIRE_HEAP_DEBUG", &mut shared.debug)?;
        set.parse("MAPWIRE_HUGE", &mut shared.huge)?;
        set.parse("MAPWIRE_RACES", &mut shared.races)?;
        shared.faults = set.get("MAPWIRE_FAULTS", str::parse)?;
        shared.profile = given("MAPWIRE_PROFILE_FOLDER").map(Into::into);
        set.read("MAPWIRE_TIMEOUT", seconds, &mut driver.timeout)?;
        Ok(config)
    }
}

struct Settings<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Settings<'_> {
    /// What `read` makes of the variable, if that is set.
    fn get<T, E: fmt::Display>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = (self.0)(name) else {
            return Ok(None);
        };
        match read(&value) {
            Ok(read) => Ok(Some(read)),
            Err(why) => Err(ConfigError { name: name.to_owned(), value, why: why.to_string() }),
        }
    }

    fn read<T, E: fmt::Display>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
        into: &mut T,
    ) -> Result<(), ConfigError> {
        if let Some(value) = self.get(name, read)? {
            *into = value;
        }
        Ok(())
    }

    fn parse<T: FromStr<Err: fmt::Display>>(&self, name: &str, into: &mut T) -> Result<(), ConfigError> {
        self.read(name, str::parse, into)
    }
}

fn address(text: &str) -> Result<u64, &'static str> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(&hex.replace('_', ""), 16),
        None => text.replace('_', "").parse(),
    }
    .map_err(|_| "not a number; write it in decimal, or in hexadecimal after 0x")
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> Result<NodeConfig, ConfigError> {
        NodeConfig::from_variables(move |asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn sizes_are_read_with_their_suffixes() {
        assert_eq!(with("MAPWIRE_SHARED", "64K").unwrap().shared.bytes, 65_536);
        assert_eq!(with("MAPWIRE_SHARED", "2GiB").unwrap().shared.bytes, 2 << 30);
        assert_eq!(with("MAPWIRE_SHARED", "1.5 mb").unwrap().shared.bytes, 3 << 19);
        assert_eq!(with("MAPWIRE_PIN_LIMIT", "4096").unwrap().driver.pin_limit_bytes, Some(4096));
        assert_eq!(with("MAPWIRE_SHARED_BASE", "0x2000_0000_0000").unwrap().shared.base, Some(0x2000_0000_0000));
    }

    #[test]
    fn a_bad_value_is_refused_by_the_name_of_its_variable() {
        for (name, value) in [
            ("MAPWIRE_SHARED", "lots"),
            ("MAPWIRE_SHARED", "99999999T"),
            ("MAPWIRE_WAIT", "sometimes"),
            ("MAPWIRE_PINNER", "glue"),
            ("MAPWIRE_FAULTS", "none"),
            ("MAPWIRE_DRIVER", "daemon"),
            ("MAPWIRE_PATH", "shortest"),
            ("MAPWIRE_DIRECTORY", "disk"),
            ("MAPWIRE_RANK", "-1"),
            ("MAPWIRE_TIMEOUT", "-1"),
            ("MAPWIRE_SHARED_BASE", "0xzz"),
            ("MAPWIRE_ADDRESSES", "10.0.0.0/99"),
            ("MAPWIRE_BUSY_POLL", "50us"),
            ("MAPWIRE_TRANSPORT", "ofi:"),
        ] {
            let error = with(name, value).unwrap_err();
            assert_eq!(error.name, name, "{error}");
            assert!(error.to_string().contains(value), "{error}");
        }
    }

    #[test]
    fn an_empty_variable_is_as_good_as_none() {
        assert!(with("MAPWIRE_JOB", "").unwrap().job.is_none());
    }
}
