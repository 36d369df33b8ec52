//! Benches that take several ranks: the bench starts a job of itself, by the very launcher that users run, and its ranks go
//! through the same measurements in step. Rank 0 measures and reports; the others do what it says.

use std::process::{Command, ExitStatus};

use mapwire::{Buffer, Export, Import, Node, Rights};

use super::placement::quickest;
use super::words::Words;
use super::{BenchError, Plan};
use crate::Transport;
use mapwire_console::{programs, stdio};

/// Set in the environment of the ranks: they measure rather than start a job.
const ROLE: &str = "MAPWIRE_BENCH_RANK";

/// Bytes of the block by which rank 0 tells the others what to do.
const CONTROL_BYTES: usize = 4096;

/// A job of ranks of this program.
pub(crate) struct Job<'a> {
    pub(crate) bench: &'a str,
    pub(crate) ranks: usize,
    /// Options of `mapwire run`, such as `--wait poll`.
    pub(crate) options: &'a [&'a str],
    /// What the ranks are to measure, for benches that start several jobs.
    pub(crate) case: &'a str,
}

/// The case of this rank, when this process is one.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// The command `mapwire`, which users run.
pub(crate) fn launcher() -> Result<Command, BenchError> {
    let found = programs::find("mapwire").map(Command::new);
    found.ok_or_else(|| "a bench starts others by mapwire, which is neither beside mapwire-bench nor in PATH".into())
}

impl Job<'_> {
    /// Runs the job to its end. Its ranks print the rows.
    pub(crate) fn run(&self, plan: Plan, json: bool) -> Result<(), BenchError> {
        if !stdio::is_open() {
            return Ok(());
        }
        let status = self.command(plan, json)?.status()?;
        self.check(status)
    }

    /// Runs the job to its end. What its ranks print.
    pub(crate) fn output(&self, plan: Plan) -> Result<String, BenchError> {
        let mut command = self.command(plan, true)?;
        let output = command.stderr(std::process::Stdio::inherit()).output()?;
        self.check(output.status)?;
        Ok(String::from_utf8(output.stdout)?)
    }

    fn command(&self, plan: Plan, json: bool) -> Result<Command, BenchError> {
        let mut command = launcher()?;
        command.arg("run").arg("-n").arg(self.ranks.to_string()).arg("--no-tag");
        command.args(self.options);
        command.arg("--").arg(std::env::current_exe()?).arg("bench").arg(self.bench);
        if json {
            command.arg("--json");
        }
        if plan.quick {
            command.arg("--quick");
        }
        if plan.transport != Transport::Shm {
            command.args(["--transport", plan.transport_text]);
        }
        if plan.insecure {
            command.arg("--insecure");
        }
        command.env(ROLE, self.case);
        Ok(command)
    }

    fn check(&self, status: ExitStatus) -> Result<(), BenchError> {
        if status.success() {
            Ok(())
        } else if status.code() == Some(128 + libc::SIGPIPE) {
            // The ranks printed to our own standard output, which nobody reads any more.
            stdio::note(Err(std::io::ErrorKind::BrokenPipe.into()));
            Ok(())
        } else {
            Err(format!("the ranks of `bench {}` ended with {status}", self.bench).into())
        }
    }
}

/// What rank 0 says to the others: a number of their own choosing, and two parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// What to do; 0 ends.
    pub(crate) what: u64,
    /// How many bytes.
    pub(crate) bytes: u64,
    /// How often.
    pub(crate) times: u64,
}

/// The way by which ranks keep in step: words in memory of rank 0 that all have mapped.
pub(crate) struct Steps {
    rank: usize,
    size: usize,
    words: Words,
    turn: u64,
    /// What keeps the words mapped.
    _kept: Kept,
}

enum Kept {
    /// The caller's.
    Nothing,
    Own(#[allow(dead_code)] Buffer, #[allow(dead_code)] Export),
    Others(#[allow(dead_code)] Import),
}

/// An order that [`Steps`] carries out itself: flags between ranks 0 and 1.
const LOOK: u64 = u64::MAX;
/// How often a look measures, and how many round trips each time.
const LOOK_PARTS: u64 = 8;
const LOOK_TIMES: u64 = 8;

/// Words of the control block.
const TURN: usize = 0;
const WHAT: usize = 8;
const BYTES: usize = 16;
const TIMES: usize = 24;
/// A cache line for each direction of a flag.
const FLAG_THERE: usize = 64;
const FLAG_BACK: usize = 128;
/// One cache line for each rank's answer, from here on.
const ANSWERS: usize = 192;

impl Steps {
    /// Joins the ranks of the job. Collective.
    pub(crate) fn new(node: &Node) -> Result<Self, BenchError> {
        let (kept, words) = if node.rank() == 0 {
            let buffer = node.alloc(CONTROL_BYTES.max(ANSWERS + 64 * node.size()))?;
            let export = node.export_buffer(&buffer).name("bench.steps").start()?;
            let words = Words::new(buffer.as_ptr(), buffer.len());
            (Kept::Own(buffer, export), words)
        } else {
            let import = node.import(0, "bench.steps").rights(Rights::ALL).start()?;
            let words = Words::of_import(&import)?;
            (Kept::Others(import), words)
        };
        Ok(Self { rank: node.rank(), size: node.size(), words, turn: 0, _kept: kept })
    }

    /// Steps in memory that all ranks have mapped otherwise, of zeros, and keep.
    pub(crate) fn over(node: &Node, words: Words) -> Self {
        Self { rank: node.rank(), size: node.size(), words, turn: 0, _kept: Kept::Nothing }
    }

    /// Rank 0: tells the others what to do, and goes on at once.
    pub(crate) fn order(&mut self, order: Order) {
        self.turn += 1;
        self.words.store(WHAT, order.what);
        self.words.store(BYTES, order.bytes);
        self.words.store(TIMES, order.times);
        self.words.store(TURN, self.turn);
    }

    /// Others: the next order, running `idle` while there is none.
    pub(crate) fn next(&mut self, mut idle: impl FnMut()) -> Order {
        loop {
            self.turn += 1;
            while self.words.load(TURN) < self.turn {
                idle();
            }
            let order =
                Order { what: self.words.load(WHAT), bytes: self.words.load(BYTES), times: self.words.load(TIMES) };
            if order.what != LOOK {
                return order;
            }
            if self.rank == 1 {
                for turn in order.bytes + 1..=order.bytes + order.times {
                    while self.words.load(FLAG_THERE) < turn {}
                    self.words.store(FLAG_BACK, turn);
                }
            }
            self.answer();
        }
    }

    /// Rank 0: the round trip of a flag to rank 1 and back, in nanoseconds. Others answer in [`next`](Self::next).
    pub(crate) fn look(&mut self, idle: impl FnMut()) -> f64 {
        let base = self.words.load(FLAG_THERE);
        self.order(Order { what: LOOK, bytes: base, times: LOOK_PARTS * LOOK_TIMES });
        let look_ns = quickest(LOOK_PARTS, LOOK_TIMES, |turn| {
            self.words.store(FLAG_THERE, base + turn);
            while self.words.load(FLAG_BACK) < base + turn {}
        });
        self.gather(idle);
        look_ns
    }

    /// Others: whether the next order is there.
    pub(crate) fn has_next(&self) -> bool {
        self.words.load(TURN) > self.turn
    }

    /// Others: the order is carried out.
    pub(crate) fn answer(&self) {
        self.words.store(ANSWERS + 64 * self.rank, self.turn);
    }

    /// Rank 0: waits until all others have answered, running `idle` meanwhile.
    pub(crate) fn gather(&self, mut idle: impl FnMut()) {
        for rank in 1..self.size {
            while self.words.load(ANSWERS + 64 * rank) < self.turn {
                idle();
            }
        }
    }

    /// Rank 0: carries an order out together with the others.
    pub(crate) fn together<T>(&mut self, order: Order, mine: impl FnOnce() -> T, idle: impl FnMut()) -> T {
        self.order(order);
        let outcome = mine();
        self.gather(idle);
        outcome
    }
}
