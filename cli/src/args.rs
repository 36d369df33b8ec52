//! The command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use mapwire::global::DirectoryPlacement;

use crate::config::JobOptions;

/// Headings under which `mapwire run --help` groups its options.
pub(crate) const COMMON: &str = "Common options";
pub(crate) const HOSTS: &str = "Hosts and the network between them";
const OBSERVING: &str = "Observing the job";
pub(crate) const INTERFACE: &str = "Waiting, shared memory and the network interface";

/// Joins the memory of separate processes: run parallel programs on one memory, measure, diagnose.
#[derive(Debug, Parser)]
#[command(
    name = "mapwire",
    version,
    propagate_version = true,
    after_help = "Examples:\n  mapwire run -n 4 -- ./prog input.txt\n  mapwire doctor\n  mapwire bench --list"
)]
pub(crate) struct Cli {
    /// Read options from this TOML file, not from ./mapwire.toml or ~/.config/mapwire/config.toml
    #[arg(long, global = true, value_name = "FILE", env = "MAPWIRE_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a parallel program: N processes that share memory
    ///
    /// Starts N copies of a program, the ranks 0 to N-1 of a job. Each finds its number in
    /// MAPWIRE_RANK and the number of ranks in MAPWIRE_SIZE (also RANK, WORLD_SIZE, LOCAL_RANK).
    /// Output appears line by line behind the rank's number. Standard input goes to rank 0.
    /// The first rank that fails ends all others, and its exit code is passed on (128 + signal
    /// if a signal killed it). When the command ends, however it ends, no process of the job is
    /// left, nor any of its shared memory.
    #[command(
        after_help = "Examples:\n  mapwire run -n 4 -- ./prog input.txt\n  mapwire run -n 2 --wait poll --bind core -- tsp --cities 19\n  mapwire run -n 2 --trace sor.mwt -- sor\n  mapwire run -n 2 --transport udp --capture sor.pcapng -- sor\n  mapwire run --hosts node1:2,node2:2 --launch-agent 'ssh {host}' -- ./prog\n  mapwire run --names mapwire://node1 --job sor -n 2 --of 4 -- ./prog\n  mapwire run -n 2 -x LEVEL=3 --wdir /tmp -- sh -c 'echo rank $MAPWIRE_RANK of $MAPWIRE_SIZE'"
    )]
    Run(Box<RunArgs>),
    /// Show what the jobs on this host do, live
    ///
    /// Bytes, packets, fetches, faults and losses a second, of each rank, and the round-trip time of its slowest link. Stores into mapped
    /// memory are the processor's own, and no figure counts them. Where standard output is no terminal, it prints once.
    #[command(
        after_help = "Examples:\n  mapwire top\n  mapwire top --once\n  mapwire top --json | jq .figures.link_rtt_ns"
    )]
    Top(TopArgs),
    /// Show what the far memory of a process does, live
    ///
    /// What is in RAM and what is not, page faults and their latencies, pages fetched, stored and read ahead: since the process began, or
    /// by --watch each second. The process runs under `mapwire far`, or asks for far memory by itself. It is not slowed down by this.
    /// Children of it have figures of their own.
    #[command(
        after_help = "Examples:\n  mapwire stats 4711\n  mapwire stats 4711 --watch\n  mapwire stats $(pgrep -n sort) --json | jq .hit_ratio"
    )]
    Stats(StatsArgs),
    /// Print the options that a job would get, and where each comes from
    #[command(
        after_help = "Example:\n  MAPWIRE_WAIT=poll mapwire config --shared 1G\n\nOrder: file, then MAPWIRE_* variables, then flags; the later wins. A file:\n  [run]\n  wait = \"adaptive\"\n  shared = \"1G\""
    )]
    Config(Box<ConfigArgs>),
    /// Check what this computer allows, and how to mend what it does not
    #[command(
        after_help = "Example:\n  mapwire doctor --json\n\nThe exit code is 0 unless mapwire cannot work at all here."
    )]
    Doctor(DoctorArgs),
    /// Find out whether ranks here and on another host reach each other, and how fast
    ///
    /// Starts a rank here and one there, as `mapwire run --hosts` does, over udp unless --transport says otherwise. One stores some bytes and a signal into the memory of the other, which
    /// answers likewise. With two hosts, the ranks run on these.
    #[command(
        after_help = "Examples:\n  mapwire ping node2\n  mapwire ping node1 node2 -c 1000 -i 0 --wait poll\n  mapwire ping blue --launch-agent 'ip netns exec {host}' --addresses 10.0.0.0/8\n  mapwire ping localhost"
    )]
    Ping(PingArgs),
    /// Keep names for jobs whose processes no common launcher starts
    ///
    /// A daemon that `mapwire run --job` and processes with MAPWIRE_JOB_NAME find each other by. It keeps everything in memory, and
    /// carries none of what ranks send each other. Clients prove that they have the secret, and all they say is sealed; a
    /// secret is made when there is none. With --donate it also lends memory to programs that `mapwire far --donors` starts; a donor gives
    /// memory back when its host runs short. Ctrl-C and SIGTERM end it.
    #[command(
        after_help = "Examples:\n  mapwire serve\n  mapwire serve --listen 10.0.0.1\n  mapwire serve --new-secret\n  mapwire serve --donate 4G\n  mapwire serve --donate 4G --idle-only --names mapwire://10.0.0.1\n  scp -p ~/.config/mapwire/secret node2:.config/mapwire/secret"
    )]
    Serve(ServeArgs),
    /// Lends memory to one program; `mapwire serve --donate` starts it
    #[command(hide = true, after_help = "Example:\n  mapwire serve --donate 4G")]
    Lend(LendArgs),
    /// List the jobs that have a name, and where their ranks are
    #[command(
        after_help = "Examples:\n  mapwire names\n  mapwire names --names mapwire://node1 --json\n  mapwire names --names etcd://node1,node2"
    )]
    Names(NamesArgs),
    /// Start a program whose memory may be larger than what it gets of the RAM
    ///
    /// Of what the program allocates, --local bytes are in RAM. The rest lies in a file that has no name and goes with the program. The
    /// program is as it is: this works by a library that is preloaded. It needs root, or userfaultfd for all users (`mapwire doctor` says how
    /// to allow that). Programs that it starts get as much each.
    #[command(
        after_help = "Examples:\n  mapwire far --local 1G -- sort -S 8G huge.txt\n  mapwire far --local 512M --stats -- python3 multiply.py\n  mapwire far --local 2G --disk /mnt/nvme -- ./prog\n  mapwire far --local 1G --donors=mapwire://node1 -- ./prog\n  mapwire far --local 1G --donors --copies 2 --stats -- ./prog\n  mapwire far --local 1G --files -- ./search index.bin"
    )]
    Far(FarArgs),
    /// Measure; every figure stands beside the raw limit measured in the same run
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  mapwire bench --help\n  mapwire bench --list\n\nThis is the program mapwire-bench."
    )]
    Bench(Passed),
    /// Traces of communication: import, export, look at them, make them up
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  mapwire lab --help\n  mapwire lab info fft.mwt\n\nThis is the program mapwire-lab."
    )]
    Lab(Passed),
    /// Clusters in virtual time: faults, checks, seeds
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  mapwire sim --help\n  mapwire sim run --seed 7\n\nThis is the program mapwire-lab."
    )]
    Sim(Passed),
    /// Run the ranks of one host for `mapwire run --hosts`, which starts this
    #[command(
        hide = true,
        after_help = "Example:\n  ssh host mapwire agent\n\nIt talks to `mapwire run` by its standard input and output."
    )]
    Agent,
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  mapwire completions bash > ~/.local/share/bash-completion/completions/mapwire")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    #[command(after_help = "Example:\n  mapwire man ~/.local/share/man/man1")]
    Man {
        /// The folder; made if it does not exist
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) options: JobOptions,
    /// Hosts on which the ranks run, with the most ranks of each
    ///
    /// Ranks of one host have numbers in a row. Without a number of ranks, each slot has one, and each host without a number of slots.
    #[arg(help_heading = HOSTS, long, value_name = "HOST[:SLOTS],…", conflicts_with = "hostfile")]
    pub(crate) hosts: Option<String>,
    /// The same from a file, a host a line: `a`, `b:4` or `b slots=4`
    #[arg(help_heading = HOSTS, long, value_name = "FILE")]
    pub(crate) hostfile: Option<PathBuf>,
    /// The command that reaches {host} [default: ssh]
    ///
    /// `mapwire agent` is put behind it, of the same path as here, unless it ends in a word `agent` itself. It must ask nothing, and carry
    /// standard input and output.
    #[arg(help_heading = HOSTS, long, value_name = "COMMAND")]
    pub(crate) launch_agent: Option<String>,
    /// Start some ranks of the job of this name
    ///
    /// Other such commands, here or on other hosts, start the others.
    /// They meet by `mapwire serve` or etcd. The ranks here have numbers in a row, which are claimed in the order in which the commands
    /// come.
    #[arg(help_heading = HOSTS, long, value_name = "NAME", requires = "of", conflicts_with_all = ["hosts", "hostfile", "trace", "capture", "summary", "metrics"])]
    pub(crate) job: Option<String>,
    /// With --job: ranks in the whole job; -n is the number of those here
    #[arg(help_heading = HOSTS, long, value_name = "N", requires = "job", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) of: Option<u32>,
    /// With --job: where the commands meet
    ///
    /// The default is MAPWIRE_NAMES, else a server on this host.
    #[arg(help_heading = HOSTS,
        long,
        value_name = "mapwire://HOST[:PORT]|etcd://HOST[:PORT],…",
        requires = "job"
    )]
    pub(crate) names: Option<String>,
    /// With --job: the file of the secret that all of them have
    ///
    /// The default is MAPWIRE_SECRET_FILE, else ~/.config/mapwire/secret.
    #[arg(help_heading = HOSTS, long, value_name = "FILE", requires = "job")]
    pub(crate) secret_file: Option<PathBuf>,
    /// Write a trace of all sends, fetches and receives for `mapwire lab`
    #[arg(help_heading = OBSERVING, long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// In the trace, take each N ranks for the processes of one node
    ///
    /// They share one NIC: rank r is process r % N of node r / N. The job runs as ever.
    #[arg(help_heading = OBSERVING, long, value_name = "N", requires = "trace", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) procs_per_node: Option<u16>,
    /// Write the datagrams between ranks, opened, as a pcapng file
    ///
    /// For Wireshark: see contrib/wireshark/mapwire.lua. Who reads the file reads data of the job.
    #[arg(help_heading = OBSERVING, long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    /// At the end, print what each rank has counted; with =FILE, as JSON
    ///
    /// With --coherence minipages or hlrc, and between hosts: also the ten places that allocate shared memory with most faults, and what
    /// to do about them.
    #[arg(help_heading = OBSERVING, long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub(crate) summary: Option<Option<PathBuf>>,
    /// While the job runs, answer Prometheus at this loopback port
    #[arg(help_heading = OBSERVING, long, value_name = "PORT|ADDRESS:PORT")]
    pub(crate) metrics: Option<String>,
    /// Set a variable for the ranks, or insist that it is set here
    ///
    /// Ranks get the whole environment.
    #[arg(help_heading = COMMON, short = 'x', value_name = "VAR[=VALUE]")]
    pub(crate) variables: Vec<OsString>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

impl RunArgs {
    /// The names of the variables that `-x` sets.
    pub(crate) fn names(&self) -> impl Iterator<Item = OsString> {
        self.variables.iter().map(|text| {
            let name = text.as_bytes().split(|byte| *byte == b'=').next();
            OsStr::from_bytes(name.unwrap_or_default()).to_owned()
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Only the job of which this process is a rank, or the command
    pub(crate) pid: Option<u32>,
    /// Print once what was counted so far
    #[arg(long)]
    pub(crate) once: bool,
    /// The same, one JSON object a line: a rank
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// The process
    pub(crate) pid: u32,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Go on, with a line each second of what that second brought, until the process ends
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    pub(crate) options: JobOptions,
    /// One JSON object a line: option, value, source
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// One JSON object a line: check, state, finding, mend
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// The host; or from which to which
    #[arg(required = true, num_args = 1..=2, value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
    /// Round trips
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) count: u64,
    /// Seconds between them; with 0, only the summary is printed
    #[arg(short, long, value_name = "S", default_value_t = 0.2)]
    pub(crate) interval: f64,
    /// Bytes each way
    #[arg(short = 's', long = "size", value_name = "BYTES", default_value_t = 56, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) bytes: u32,
    /// The command by which hosts are reached, as of `mapwire run`
    #[arg(long, value_name = "COMMAND")]
    pub(crate) launch_agent: Option<String>,
    #[command(flatten)]
    pub(crate) options: JobOptions<true>,
    /// One JSON object a line: a round trip; at the end, all of them
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen (default: 127.0.0.1:6277, which other hosts do not reach)
    #[arg(long, value_name = "ADDRESS[:PORT]|PORT")]
    pub(crate) listen: Option<String>,
    /// The file of the secret, of mode 0600 (default: ~/.config/mapwire/secret)
    #[arg(long, value_name = "FILE", env = "MAPWIRE_SECRET_FILE", hide_env_values = true)]
    pub(crate) secret_file: Option<PathBuf>,
    /// Only make a secret, for etcd or for a server elsewhere
    #[arg(long)]
    pub(crate) new_secret: bool,
    /// Lend memory of this host, at most so much, to programs of `mapwire far --donors`
    #[arg(long, value_name = "SIZE")]
    pub(crate) donate: Option<String>,
    /// Lend only while others leave the processors of this host idle
    #[arg(long, requires = "donate")]
    pub(crate) idle_only: bool,
    /// Who answers for the donor's part of the page directory: a thread of the host, the network interface with the table in the host's
    /// memory, or the network interface with the table in its own, which MAPWIRE_NIC_MEMORY limits (default: MAPWIRE_DIRECTORY, else nic-hm)
    #[arg(long, requires = "donate", value_name = "host|nic-hm|nic-nm")]
    pub(crate) directory: Option<DirectoryPlacement>,
    /// Serve no names here: the donor is found by this store
    #[arg(
        long,
        requires = "donate",
        conflicts_with = "listen",
        value_name = "mapwire://HOST[:PORT]|etcd://HOST[:PORT],…"
    )]
    pub(crate) names: Option<String>,
    /// One JSON object when it listens, one for each program that gets memory, and one with what it has counted at the end
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LendArgs {
    /// Pages that may be lent
    #[arg(long)]
    pub(crate) pages: u32,
    /// Pages of all donors of the program
    #[arg(long)]
    pub(crate) of: u64,
}

#[derive(Debug, Args)]
pub(crate) struct NamesArgs {
    /// The store (default: MAPWIRE_NAMES, else a server on this host)
    #[arg(long, value_name = "mapwire://HOST[:PORT]|etcd://HOST[:PORT],…")]
    pub(crate) names: Option<String>,
    /// The file of the secret (default: MAPWIRE_SECRET_FILE, else ~/.config/mapwire/secret)
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// One JSON object a line: a process that has ranks
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FarArgs {
    /// How much of its memory is in RAM
    #[arg(long, value_name = "SIZE")]
    pub(crate) local: String,
    /// The folder of the file that holds the rest (default: /var/tmp)
    #[arg(long, value_name = "FOLDER")]
    pub(crate) disk: Option<PathBuf>,
    /// Keep what is not in RAM in the memory of donors, which this store of names knows, as well (default: a server on this host)
    #[arg(long, num_args = 0..=1, default_missing_value = "", value_name = "mapwire://HOST[:PORT]|etcd://HOST[:PORT],…")]
    pub(crate) donors: Option<String>,
    /// Donors that have each page: with 1 the file has it too, with 2 only where donors are missing
    #[arg(long, requires = "donors", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) copies: u8,
    /// Who answers for the program's part of the page directory: a thread of the host, the network interface with the table in the host's
    /// memory, or the network interface with the table in its own, which MAPWIRE_NIC_MEMORY limits (default: MAPWIRE_DIRECTORY, else nic-hm)
    #[arg(long, requires = "donors", value_name = "host|nic-hm|nic-nm")]
    pub(crate) directory: Option<DirectoryPlacement>,
    /// The file of the secret that donors have too (default: ~/.config/mapwire/secret)
    #[arg(long, requires = "donors", value_name = "FILE", env = "MAPWIRE_SECRET_FILE", hide_env_values = true)]
    pub(crate) secret_file: Option<PathBuf>,
    /// Count private mappings of files too: what the program does not change of them is read from the file again, and never stored
    #[arg(long)]
    pub(crate) files: bool,
    /// Print page faults, what was stored and fetched, and how long it took, when the program ends
    #[arg(long)]
    pub(crate) stats: bool,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

/// The words behind a command that is a program of its own.
#[derive(Debug, Args)]
pub(crate) struct Passed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub(crate) words: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example_in_its_help() {
        let none: [&str; 0] = [];
        assert_eq!(mapwire_console::without_example(Cli::command()), none);
    }

    #[test]
    fn what_follows_the_program_is_its_own() {
        let cli = Cli::parse_from(["mapwire", "run", "-n", "2", "prog", "-n", "9", "--help"]);
        let Command::Run(run) = cli.command else { panic!() };
        assert_eq!(run.options.get("ranks"), Some("2"));
        assert_eq!(run.program, ["prog", "-n", "9", "--help"]);
    }
}
