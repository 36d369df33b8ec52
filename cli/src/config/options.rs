//! The options of a job. Each is declared here, once: the flag, the variable, the key in the file, the help, the default and the check
//! follow from its row.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use mapwire_host::waiting::WaitStrategy;
use mapwire_settings::{DesignText, parse_design, size};
use mapwire_translation::Policy;
use mapwire_transport::board::MAX_RANKS;
use mapwire_transport::net::{Addresses, Carrier};

use crate::args::{COMMON, HOSTS, INTERFACE};

/// The text that ranks read, or what is wrong with the given one.
type Checked = Result<String, String>;

pub(crate) struct JobOption {
    /// The key in the file, from which follow the variable and the flag.
    pub(super) key: &'static str,
    heading: &'static str,
    /// What the help calls the value; empty for a switch.
    value_name: &'static str,
    help: &'static str,
    details: &'static str,
    /// `None` leaves the choice to each rank, or asks for nothing.
    pub(super) default: Option<&'static str>,
    pub(super) check: fn(&str) -> Checked,
    /// Whether ranks read it, and not the launcher alone.
    pub(super) is_for_ranks: bool,
}

const fn option(
    key: &'static str,
    heading: &'static str,
    value_name: &'static str,
    check: fn(&str) -> Checked,
    help: &'static str,
) -> JobOption {
    JobOption { key, heading, value_name, help, details: "", default: None, check, is_for_ranks: true }
}

impl JobOption {
    const fn details(mut self, details: &'static str) -> Self {
        self.details = details;
        self
    }

    const fn default(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    const fn of_launcher(mut self) -> Self {
        self.is_for_ranks = false;
        self
    }

    pub(super) fn variable(&self) -> String {
        format!("MAPWIRE_{}", self.key.to_ascii_uppercase())
    }

    /// The long flag, without dashes. A switch that is on by default is turned off by it.
    fn long(&self) -> String {
        let no = if self.is_switch() && self.default == Some("true") { "no-" } else { "" };
        format!("{no}{}", self.key.replace('_', "-"))
    }

    pub(super) fn flag(&self) -> String {
        match self.key {
            "ranks" => "-n".into(),
            _ => format!("--{}", self.long()),
        }
    }

    fn is_switch(&self) -> bool {
        self.value_name.is_empty()
    }

    fn arg(&self) -> Arg {
        // clap keeps names as long as the process lives.
        let arg = Arg::new(self.key).long(&*self.long().leak()).help_heading(self.heading).help(self.help);
        let arg = match self.details {
            "" => arg,
            details => arg.long_help(format!("{}\n\n{details}", self.help)),
        };
        let arg = match self.key {
            "ranks" => arg.short('n').alias("np"),
            _ => arg,
        };
        match self.is_switch() {
            true => arg.action(ArgAction::SetTrue),
            false => arg.value_name(self.value_name).allow_negative_numbers(true),
        }
    }

    fn given(&self, matches: &ArgMatches) -> Option<String> {
        if !self.is_switch() {
            return matches.get_one::<String>(self.key).cloned();
        }
        let opposite = self.default != Some("true");
        matches.get_flag(self.key).then(|| opposite.to_string())
    }
}

/// All options, in the order in which `mapwire config` prints them.
pub(super) static OPTIONS: [JobOption; 24] = [
    option("ranks", COMMON, "N", ranks, "Number of ranks").of_launcher(),
    option("transport", HOSTS, "shm|udp|ofi[:PROVIDER]", as_given::<Carrier>, "How ranks reach each other")
        .details(
            "udp and ofi (libfabric, not sealed): as if each were on a host of its own. With several hosts, ofi carries what goes between them in place of sealed UDP.",
        )
        .default("shm"),
    option(
        "addresses",
        HOSTS,
        "auto|ADDRESS|NETWORK|INTERFACE,…",
        as_given::<Addresses>,
        "Where ranks take what comes from other hosts",
    )
    .details(
        "Addresses, networks (10.0.0.0/8) or interfaces, the preferred first. The default is the loopback address; with several hosts auto, every address that others could reach.",
    ),
    option(
        "insecure",
        HOSTS,
        "",
        |text| one_of(&["true", "false"], text),
        "Neither seal nor authenticate what goes to other hosts: for measurements only",
    )
    .default("false"),
    option(
        "wait",
        INTERFACE,
        "poll|event|adaptive[:NS]",
        |text| as_shown::<WaitStrategy>(text.trim()),
        "How a rank waits: spin, sleep, or spin and then sleep",
    )
    .details("adaptive spins for NS nanoseconds, or for as long as a wake-up takes here.")
    .default("adaptive"),
    option(
        "path",
        INTERFACE,
        "direct|ring",
        |text| one_of(&["direct", "ring"], text),
        "How exported buffers are reached: mapped, or through the NIC",
    )
    .details("direct maps them where that is possible; ring always goes through the NIC, as for a trace.")
    .default("direct"),
    option(
        "faults",
        INTERFACE,
        "userfaultfd|sigsegv",
        |text| one_of(&["userfaultfd", "sigsegv"], text),
        "How a protocol notices accesses to shared memory",
    )
    .details("The default is the best that this computer allows."),
    option(
        "pinner",
        INTERFACE,
        "cheapest|mlock|io_uring",
        |text| one_of(&["cheapest", "mlock", "io_uring"], text),
        "How pages are pinned",
    )
    .details("The default, cheapest, is io_uring while it has room and is allowed, else mlock."),
    option(
        "pin_limit",
        INTERFACE,
        "SIZE",
        |text| Ok(bytes(text)?.to_string()),
        "Most memory that a rank may keep pinned [default: the system's limit]",
    ),
    option("shared", INTERFACE, "SIZE", shared, "Size of the shared memory; only used pages take memory").default("4G"),
    option(
        "coherence",
        INTERFACE,
        "auto|minipages|hlrc",
        |text| one_of(&["auto", "minipages", "hlrc"], text),
        "What keeps shared memory coherent: the processor, or a protocol",
    )
    .details(
        "auto is the processor where all ranks are on one host: they map the same memory. Between hosts, with --transport udp or ofi, and \
         with --trace it is minipages: allocations move between ranks by page faults. hlrc moves what has changed, for programs that \
         synchronise by locks and barriers.",
    )
    .default("auto"),
    option(
        "heap_debug",
        INTERFACE,
        "",
        |text| one_of(&["true", "false"], text),
        "Look for stores beside allocations of shared memory, and after they are freed",
    )
    .details("On one host. Allocations take 48 bytes more, and freeing them takes longer.")
    .default("false"),
    option(
        "huge",
        INTERFACE,
        "",
        |text| one_of(&["true", "false"], text),
        "Put shared memory that is filled into huge pages",
    )
    .details("On one host, at the first, second, fourth, … barrier; with any setting of transparent huge pages, from Linux 6.1 on.")
    .default("false"),
    option(
        "races",
        INTERFACE,
        "",
        |text| one_of(&["true", "false"], text),
        "With --coherence hlrc: name bytes that two ranks changed without synchronising",
    )
    .default("false"),
    // `MAX_VIEWS` of the shared memory, which ranks check too.
    option("views", INTERFACE, "V", |text| number(text, 1, 512), "Views of minipages: allocations that may share a page")
        .default("32"),
    option(
        "translation",
        INTERFACE,
        "DESIGN[,OPTION=VALUE]…",
        |text| parse_design(text).map(|design| DesignText(design).to_string()).map_err(|error| error.to_string()),
        "How the NIC translates addresses: hierarchical,entries=8K",
    )
    .default("hierarchical"),
    option(
        "policy",
        INTERFACE,
        "lru|mru|lfu|mfu|random",
        as_shown::<Policy>,
        "Which pages are unpinned when --pin-limit wants it",
    )
    .default("lru"),
    option(
        "prepin",
        INTERFACE,
        "N",
        |text| number(text, 1, 32),
        "Pages that are pinned at once where one is not, 1 to 32",
    )
    .default("1"),
    option("timeout", COMMON, "S", valid_seconds, "Seconds to wait for another rank to join or to export"),
    option("stop_grace", COMMON, "S", valid_seconds, "Seconds that a rank may be stopped before the job ends")
        .default("10")
        .of_launcher(),
    option("bind", COMMON, "none|core", |text| one_of(&["none", "core"], text), "Bind each rank to a core, in turn")
        .default("none")
        .of_launcher(),
    option("wdir", COMMON, "FOLDER", not_empty, "Start the ranks in this folder").of_launcher(),
    option("tag", COMMON, "", |text| one_of(&["true", "false"], text), "Print lines without `[rank] ` before them")
        .default("true")
        .of_launcher(),
    option(
        "stdout",
        COMMON,
        "auto|pty|pipe",
        |text| one_of(&["auto", "pty", "pipe"], text),
        "Where ranks print: a terminal (by lines) or a pipe (in blocks)",
    )
    .details("auto is a pipe with --no-tag.")
    .default("auto")
    .of_launcher(),
];

pub(super) fn find(key: &str) -> Option<&'static JobOption> {
    OPTIONS.iter().find(|option| option.key == key)
}

/// Whether an option can have a value.
#[cfg(test)]
pub(crate) fn is_possible(key: &str, text: &str) -> bool {
    find(key).is_some_and(|option| (option.check)(text).is_ok())
}

/// Those that `mapwire ping` takes for its job.
const OF_PING: [&str; 5] = ["transport", "addresses", "insecure", "wait", "timeout"];

/// What a command line gives of the options, by their keys; of all, or of those of `mapwire ping`. The values are checked with those of file
/// and variables, where an error can say where a wrong one comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobOptions<const OF_PING_ONLY: bool = false>(BTreeMap<&'static str, String>);

impl<const OF_PING_ONLY: bool> JobOptions<OF_PING_ONLY> {
    fn options() -> impl Iterator<Item = &'static JobOption> {
        OPTIONS.iter().filter(|option| !OF_PING_ONLY || OF_PING.contains(&option.key))
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The words that give the same to another command.
    pub(crate) fn words(&self) -> Vec<String> {
        let given = Self::options().filter_map(|option| Some((option, self.get(option.key)?)));
        let words = given.map(|(option, text)| (option.flag(), (!option.is_switch()).then(|| text.to_owned())));
        words.flat_map(|(flag, text)| [Some(flag), text]).flatten().collect()
    }
}

impl<const OF_PING_ONLY: bool> clap::Args for JobOptions<OF_PING_ONLY> {
    fn augment_args(command: Command) -> Command {
        command.args(Self::options().map(JobOption::arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const OF_PING_ONLY: bool> clap::FromArgMatches for JobOptions<OF_PING_ONLY> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = Self::options().filter_map(|option| Some((option.key, option.given(matches)?)));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn one_of(allowed: &[&str], text: &str) -> Checked {
    match allowed.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is not one of {}", allowed.join(", "))),
    }
}

fn number(text: &str, low: u64, high: u64) -> Checked {
    match text.trim().parse::<u64>() {
        Ok(n) if (low..=high).contains(&n) => Ok(n.to_string()),
        _ => Err(format!("`{text}` is not a number from {low} to {high}")),
    }
}

fn ranks(text: &str) -> Checked {
    match text.trim().parse::<u64>() {
        Ok(0) => Err("a job needs at least one rank; give -n 1 or more".into()),
        Ok(n) if n <= u64::from(MAX_RANKS) => Ok(n.to_string()),
        Ok(n) => Err(format!("{n} ranks are too many; a job has at most {MAX_RANKS}")),
        Err(_) => Err(format!("`{text}` is not a number of ranks from 1 to {MAX_RANKS}")),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    size::parse(text).map_err(|error| error.to_string())
}

fn shared(text: &str) -> Checked {
    match bytes(text)? {
        0 => Err("the shared memory cannot be empty".into()),
        bytes => Ok(bytes.to_string()),
    }
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let value = text.trim().parse::<f64>().ok().filter(|value| (0.0..=1e9).contains(value));
    let value = value.ok_or_else(|| format!("`{text}` is not a number of seconds from 0 to 1000000000"))?;
    Ok(Duration::from_secs_f64(value))
}

fn valid_seconds(text: &str) -> Checked {
    seconds(text).map(|_| text.trim().to_owned())
}

fn not_empty(text: &str) -> Checked {
    if text.is_empty() { Err("must not be empty".into()) } else { Ok(text.to_owned()) }
}

fn as_shown<T: FromStr<Err: Display> + Display>(text: &str) -> Checked {
    text.parse::<T>().map(|value| value.to_string()).map_err(|error| error.to_string())
}

/// The text as it was given, if it is a `T`.
fn as_given<T: FromStr<Err: Display>>(text: &str) -> Checked {
    text.trim().parse::<T>().map(|_| text.trim().to_owned()).map_err(|error| error.to_string())
}
