//! Synthetic traces: made up by a pattern, the same for the same options and seed on every computer.
//!
//! Every rank is a process of a node. It has a buffer from which it sends and into which it fetches, and an export into which
//! others store and from which they fetch; programs of several processes have them all at the same addresses, as copies of one program
//! without address randomisation do. A transfer makes two records: one when it begins, and one `recv` at the other side later.

mod pattern;
mod random;
mod zipf;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use mapwire_wire::{TraceOp, TraceRecord};

pub use pattern::Pattern;
use pattern::{Position, Program, Transfer};
use random::Random;

pub const BUFFER_ADDRESS: u64 = 0x5600_0000_0000;
pub const EXPORT_ADDRESS: u64 = 0x7f00_0000_0000;
/// Ranks with places of their own have them up to so many bytes further up.
const SPREAD_BYTES: u64 = 1 << 38;
/// Longest buffer: what fits between the two addresses, at any place.
pub const MAX_BUFFER_BYTES: u64 = 1 << 40;
pub const MAX_RANKS: u64 = 1 << 20;

/// A transfer arrives so long after it began, at the earliest.
const LATENCY_NS: u64 = 3_000;
const BYTES_A_NS: u64 = 4;

#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The pattern, or several: each process of a node then takes the next in turn, and only processes of one pattern are one
    /// program, which communicates with nobody else.
    pub patterns: Vec<Pattern>,
    pub records: u64,
    pub nodes: u16,
    pub processes: u16,
    pub seed: u64,
    /// Bytes of each rank's buffer and of its export.
    pub buffer_bytes: u64,
    /// Bytes of a transfer; a task's data are several such.
    pub piece_bytes: u64,
    /// Pieces from one to the next, of the strided pattern.
    pub stride: u64,
    /// The exponent of Zipf's law.
    pub skew: f64,
    /// Mean time from one transfer of a rank to its next.
    pub gap_ns: u64,
    /// Every rank has its memory at a place of its own, as with address randomisation.
    pub scatter: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patterns: vec![Pattern::Sequential],
            records: 1_000_000,
            nodes: 4,
            processes: 4,
            seed: 1,
            buffer_bytes: 16 << 20,
            piece_bytes: 4096,
            stride: 16,
            skew: 0.99,
            gap_ns: 10_000,
            scatter: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{option} is {value}: {mend}")]
pub struct OptionError {
    /// Its name on the command line.
    pub option: &'static str,
    pub value: String,
    pub mend: &'static str,
}

impl Options {
    /// Checks that all options make sense together.
    pub fn check(&self) -> Result<(), OptionError> {
        let ranks = u64::from(self.nodes) * u64::from(self.processes);
        let (patterns, processes) = (self.patterns.len(), usize::from(self.processes));
        let mixed = format!("{patterns} patterns for {processes} processes");
        // Whether an option cannot be, its name and value, and what it may be.
        let options: [(bool, &'static str, &dyn ToString, &'static str); 10] = [
            (self.records == 0, "--records", &self.records, "a trace has at least one"),
            (self.nodes == 0, "--nodes", &self.nodes, "there must be at least one"),
            (processes == 0, "--processes", &processes, "each node must have at least one"),
            (ranks > MAX_RANKS, "--nodes times --processes", &ranks, "at most 1,048,576 ranks can be generated"),
            (
                !(1..=processes).contains(&patterns),
                "--mix",
                &mixed,
                "every pattern needs a process on each node; raise --processes",
            ),
            (
                !(1..=self.buffer_bytes).contains(&self.piece_bytes),
                "--bytes",
                &self.piece_bytes,
                "a transfer has at least one byte, and at most those of --buffer",
            ),
            (self.buffer_bytes > MAX_BUFFER_BYTES, "--buffer", &self.buffer_bytes, "a buffer has at most 1 TiB"),
            (self.stride == 0, "--stride", &self.stride, "it must be at least 1"),
            (!(self.skew > 0.0 && self.skew <= 10.0), "--skew", &self.skew, "it must be above 0, and at most 10"),
            (
                !(1..=1_000_000_000).contains(&self.gap_ns),
                "--gap",
                &self.gap_ns,
                "it must be from 1 to 1,000,000,000 ns",
            ),
        ];
        match options.into_iter().find(|option| option.0) {
            None => Ok(()),
            Some((_, option, value, mend)) => Err(OptionError { option, value: value.to_string(), mend }),
        }
    }

    /// The options as a command line, all of them: it generates the same trace wherever it is run.
    pub fn command(&self) -> Vec<String> {
        let mut words = vec!["mapwire".to_owned(), "lab".to_owned(), "generate".to_owned()];
        match &self.patterns[..] {
            [one] => words.push(one.to_string()),
            many => {
                let names: Vec<_> = many.iter().map(|p| p.name()).collect();
                words.extend(["--mix".to_owned(), names.join(",")]);
            }
        }
        for (option, value) in [
            ("--records", self.records.to_string()),
            ("--nodes", self.nodes.to_string()),
            ("--processes", self.processes.to_string()),
            ("--seed", self.seed.to_string()),
            ("--buffer", self.buffer_bytes.to_string()),
            ("--bytes", self.piece_bytes.to_string()),
            ("--stride", self.stride.to_string()),
            ("--skew", self.skew.to_string()),
            ("--gap", self.gap_ns.to_string()),
        ] {
            words.extend([option.to_owned(), value]);
        }
        if self.scatter {
            words.push("--scatter".to_owned());
        }
        words
    }
}

#[derive(Debug)]
struct Rank {
    node: u16,
    process: u16,
    program: usize,
    /// Its number in the program.
    number: usize,
    position: Position,
    random: Random,
    /// How far up its memory is.
    place: u64,
    exported: bool,
}

/// The records of a synthetic trace, in order of time.
#[derive(Debug)]
pub struct Generator {
    options: Options,
    programs: Vec<Program>,
    members: Vec<Vec<usize>>,
    ranks: Vec<Rank>,
    /// What happens next: (time, number, slot). Slots below the number of ranks are turns, others arrivals.
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    arrivals: Vec<TraceRecord>,
    free: Vec<usize>,
    event: u64,
    left: u64,
}

impl Generator {
    pub fn new(options: &Options) -> Result<Self, OptionError> {
        options.check()?;
        let kinds = options.patterns.len();
        let mut members = vec![Vec::new(); kinds];
        let mut ranks = Vec::new();
        for node in 0..options.nodes {
            for process in 0..options.processes {
                let program = usize::from(process) % kinds;
                let mut random = Random::new(options.seed, ranks.len() as u64);
                let place = random.below(SPREAD_BYTES) & !0xfff;
                members[program].push(ranks.len());
                ranks.push(Rank {
                    node,
                    process,
                    program,
                    number: members[program].len() - 1,
                    position: Position::default(),
                    random,
                    place: if options.scatter { place } else { 0 },
                    exported: false,
                });
            }
        }
        let sizes = (options.buffer_bytes, options.piece_bytes);
        let programs = options
            .patterns
            .iter()
            .zip(&members)
            .map(|(pattern, members)| Program::new(*pattern, members.len(), sizes, options.stride, options.skew))
            .collect();
        let mut generator = Self {
            options: options.clone(),
            programs,
            members,
            ranks,
            events: BinaryHeap::new(),
            arrivals: Vec::new(),
            free: Vec::new(),
            event: 0,
            left: options.records,
        };
        // All export at once; then they begin one after the other.
        for rank in 0..generator.ranks.len() {
            generator.at(0, rank);
        }
        Ok(generator)
    }

    fn at(&mut self, time_ns: u64, slot: usize) {
        self.events.push(Reverse((time_ns, self.event, slot)));
        self.event += 1;
    }

    /// A time around the mean of `gaps` gaps.
    fn gap(&mut self, rank: usize, gaps: u64) -> u64 {
        let mean = self.options.gap_ns.saturating_mul(gaps);
        let half = mean / 2;
        half + self.ranks[rank].random.below(mean - half + half.max(1))
    }

    fn turn(&mut self, now_ns: u64, index: usize) -> TraceRecord {
        let rank = &mut self.ranks[index];
        let record = |rank: &Rank, op: TraceOp, address: u64, bytes: u64, time_ns: u64| TraceRecord {
            time_ns: time_ns.into(),
            address: (address + rank.place).into(),
            bytes: bytes.into(),
            node: rank.node.into(),
            process: rank.process.into(),
            op: op as u8,
            flags: 0,
            reserved: 0.into(),
        };
        if !std::mem::replace(&mut rank.exported, true) {
            let exported = record(rank, TraceOp::Export, EXPORT_ADDRESS, self.options.buffer_bytes, now_ns);
            let gap = self.gap(index, 1);
            self.at(now_ns + gap, index);
            return exported;
        }
        let Transfer { op, local, peer, remote, bytes, gaps } =
            self.programs[rank.program].next(rank.number, &mut rank.position, &mut rank.random);
        let begun = record(rank, op, BUFFER_ADDRESS + local, bytes, now_ns);
        let moved_ns = bytes / BYTES_A_NS;
        let arrives_ns = now_ns + LATENCY_NS + moved_ns + rank.random.below(LATENCY_NS);
        let peer = self.members[rank.program][peer];
        let arrival = record(&self.ranks[peer], TraceOp::Receive, EXPORT_ADDRESS + remote, bytes, arrives_ns);
        let slot = self.free.pop().unwrap_or(self.arrivals.len());
        if slot == self.arrivals.len() {
            self.arrivals.push(arrival);
        } else {
            self.arrivals[slot] = arrival;
        }
        self.at(arrives_ns, self.ranks.len() + slot);
        let gap = self.gap(index, gaps) + moved_ns;
        self.at(now_ns + gap, index);
        begun
    }
}

impl Iterator for Generator {
    type Item = TraceRecord;

    fn next(&mut self) -> Option<TraceRecord> {
        self.left = self.left.checked_sub(1)?;
        let Reverse((now_ns, _, slot)) = self.events.pop()?;
        Some(match slot.checked_sub(self.ranks.len()) {
            None => self.turn(now_ns, slot),
            Some(arrival) => {
                self.free.push(arrival);
                self.arrivals[arrival]
            }
        })
    }
}

#[cfg(test)]
mod tests;
