//! Benches that take several ranks: the bench starts a job of itself, by the very launcher that users run, and its ranks go
//! through the same measurements in step. Rank 0 measures and reports; the others do what it says.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use mapwire::Node;
use mapwire_console::{programs, stdio};
use mapwire_host::mapping::{Mapping, Rights};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::measure::{Effort, Samples, Step, sampled};
use super::placement::{Placements, quickest};
use super::row::Report;
use super::words::Words;
use super::{BenchError, Plan, Transport};

/// The memory of a job and the case of its ranks: a process that has them in its environment measures rather than starts a job.
const ROLE: &str = "MAPWIRE_BENCH_RANK";

/// Bytes by which rank 0 tells the others what to do, at the start of the shared memory.
const CONTROL_BYTES: usize = 16 << 10;
/// Bytes of memory that ranks share outside of mapwire, for the raw baselines.
pub(crate) const SHARED_BYTES: usize = 8 << 20;

/// A job of ranks of this program.
pub(crate) struct Job<'a> {
    pub(crate) bench: &'a str,
    pub(crate) ranks: usize,
    /// Options of `mapwire run`, such as `--wait poll`.
    pub(crate) options: &'a [&'a str],
    /// The ranks' task, for benches that start several jobs.
    pub(crate) case: &'a str,
}

/// The case of this rank, when this process is one.
pub(crate) fn role() -> Option<String> {
    Some(file_and_case()?.1)
}

/// The file that the ranks of this process's job share, and their case.
pub(crate) fn file_and_case() -> Option<(String, String)> {
    let role = std::env::var(ROLE).ok()?;
    role.split_once(' ').map(|(file, case)| (file.to_owned(), case.to_owned()))
}

/// The command `mapwire`, which users run.
pub(crate) fn launcher() -> Result<Command, BenchError> {
    let found = programs::find("mapwire").map(Command::new);
    found.ok_or_else(|| "a bench starts others by mapwire, which is neither beside mapwire-bench nor in PATH".into())
}

impl Job<'_> {
    /// Runs the job to its end. Its ranks print the rows.
    pub(crate) fn run(&self, plan: &Plan, report: &Report) -> Result<(), BenchError> {
        if !stdio::is_open() {
            return Ok(());
        }
        let (mut command, _memory) = self.command(plan, report.is_json())?;
        self.check(command.status()?)
    }

    /// Runs the job to its end. What its ranks print.
    pub(crate) fn output(&self, plan: &Plan) -> Result<String, BenchError> {
        let (mut command, _memory) = self.command(plan, true)?;
        let output = command.stderr(Stdio::inherit()).output()?;
        self.check(output.status)?;
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The command, and the memory of its ranks.
    fn command(&self, plan: &Plan, json: bool) -> Result<(Command, OwnedFd), BenchError> {
        let memory = memfd_create("mapwire-bench", MemfdFlags::CLOEXEC)?;
        let mut command = launcher()?;
        command.arg("run").arg("-n").arg(self.ranks.to_string()).arg("--no-tag").args(self.options);
        if plan.insecure && self.options.contains(&"--transport") {
            command.arg("--insecure");
        }
        command.arg("--").arg(std::env::current_exe()?).arg("bench").arg(self.bench);
        for (flag, is_set) in [("--json", json), ("--quick", plan.quick), ("--insecure", plan.insecure)] {
            command.args(is_set.then_some(flag));
        }
        if plan.transport() != Transport::Shm {
            command.args(["--transport", &plan.transport_text]);
        }
        // Ranks of different hosts share no memory of mapwire's, and open this.
        command.env(ROLE, format!("/proc/{}/fd/{} {}", std::process::id(), memory.as_raw_fd(), self.case));
        Ok((command, memory))
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

/// An order of rank 0 to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// A number of the bench's own choosing, but for [`END`].
    pub(crate) what: u64,
    pub(crate) bytes: u64,
    pub(crate) times: u64,
}

impl Order {
    pub(crate) fn of(what: u64) -> Self {
        Self { what, bytes: 0, times: 0 }
    }
}

/// Ends the other ranks.
pub(crate) const END: u64 = 0;
/// Flags between ranks 0 and 1, which [`Steps`] carries out itself.
const FLAGS: u64 = u64::MAX;
/// How often a look measures, and how many round trips each time.
const LOOK_PARTS: u64 = 8;
const LOOK_TIMES: u64 = 8;

/// Words of the control block, each direction of a flag in a cache line of its own.
const TURN: usize = 0;
const WHAT: usize = 8;
const BYTES: usize = 16;
const TIMES: usize = 24;
const FLAG_THERE: usize = 64;
const FLAG_BACK: usize = 128;
/// The line of rank 0's answers; those of the others follow.
const ANSWERS: usize = 192;

/// Keeps ranks in step by words that all have mapped.
pub(crate) struct Steps {
    rank: usize,
    size: usize,
    words: Words,
    turn: u64,
}

impl Steps {
    fn order(&mut self, order: Order) {
        self.turn += 1;
        self.words.store(WHAT, order.what);
        self.words.store(BYTES, order.bytes);
        self.words.store(TIMES, order.times);
        self.words.store(TURN, self.turn);
    }

    /// The next order for a rank other than 0, running `idle` while there is none.
    pub(crate) fn next(&mut self, mut idle: impl FnMut()) -> Order {
        loop {
            while !self.has_next() {
                idle();
            }
            self.turn += 1;
            let of = |word| self.words.load(word);
            let order = Order { what: of(WHAT), bytes: of(BYTES), times: of(TIMES) };
            if order.what != FLAGS {
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

    /// Whether the next order is there, for a rank other than 0.
    pub(crate) fn has_next(&self) -> bool {
        self.words.load(TURN) > self.turn
    }

    /// Says that the last order is carried out.
    pub(crate) fn answer(&self) {
        self.words.store(ANSWERS + 64 * self.rank, self.turn);
    }

    fn gather(&self, mut idle: impl FnMut()) {
        for rank in 1..self.size {
            while self.words.load(ANSWERS + 64 * rank) < self.turn {
                idle();
            }
        }
    }

    /// Has the others carry an order out while rank 0 does its own part, and runs `idle` until all have.
    pub(crate) fn together<T>(&mut self, order: Order, mine: impl FnOnce() -> T, idle: impl FnMut()) -> T {
        self.order(order);
        let outcome = mine();
        self.gather(idle);
        outcome
    }

    /// Nanoseconds of a flag's round trip from rank 0 to rank 1, the quickest of `parts`, each the mean of `times`.
    fn flag_ns(&mut self, parts: u64, times: u64, idle: impl FnMut()) -> f64 {
        let words = self.words;
        let base = words.load(FLAG_THERE);
        let trips = || {
            quickest(parts, times, |turn| {
                words.store(FLAG_THERE, base + turn);
                while words.load(FLAG_BACK) < base + turn {}
            })
        };
        self.together(Order { what: FLAGS, bytes: base, times: parts * times }, trips, idle)
    }
}

/// Joins the job. Its node, what keeps its ranks in step, and memory of zeros that all of them have mapped.
pub(crate) fn join() -> Result<(Node, Steps, Words), BenchError> {
    let node = Node::join()?;
    let (steps, words) = steps(node.rank(), node.size())?;
    Ok((node, steps, words))
}

/// The steps of a job's ranks, and their shared memory, which is made as long as it must be.
pub(crate) fn steps(rank: usize, size: usize) -> Result<(Steps, Words), BenchError> {
    let (path, _) = file_and_case().ok_or("this process is not a rank of a bench")?;
    let file = std::fs::File::options().read(true).write(true).open(path)?;
    let bytes = CONTROL_BYTES + SHARED_BYTES;
    ftruncate(&file, bytes as u64)?;
    // Until the process ends.
    let mapping = Box::leak(Box::new(Mapping::foreign(&file, bytes, Rights::ReadWrite)?));
    let words = Words::new(mapping.at(0, bytes), bytes);
    let steps = Steps { rank, size, words: words.part(0, CONTROL_BYTES), turn: 0 };
    Ok((steps, words.part(CONTROL_BYTES, SHARED_BYTES)))
}

/// One rank's part in the measurements of a bench.
pub(crate) trait Part {
    /// Carries an order out. What it gives at rank 0 is measured.
    fn carry_out(&mut self, order: Order, steps: &Steps) -> Result<f64, BenchError>;

    /// Passes a moment in which this rank waits for the others.
    fn idle(&self);
}

/// Rank 0, which tells the others what to do.
pub(crate) struct Leader<E> {
    pub(crate) part: E,
    steps: Steps,
    placements: Placements,
}

/// Goes through the measurements that `measure` makes at rank 0.
pub(crate) fn in_step<E: Part>(
    mut part: E,
    mut steps: Steps,
    measure: impl FnOnce(&mut Leader<E>) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    if steps.rank == 0 {
        let mut leader = Leader { part, steps, placements: Placements::default() };
        let outcome = measure(&mut leader);
        leader.steps.together(Order::of(END), || (), || leader.part.idle());
        return outcome;
    }
    loop {
        let order = steps.next(|| part.idle());
        if order.what == END {
            steps.answer();
            return Ok(());
        }
        part.carry_out(order, &steps)?;
        steps.answer();
    }
}

impl<E: Part> Leader<E> {
    /// Has an order carried out by all ranks.
    pub(crate) fn lead(&mut self, what: u64, bytes: u64, times: u64) -> Result<f64, BenchError> {
        let order = Order { what, bytes, times };
        self.steps.order(order);
        let outcome = self.part.carry_out(order, &self.steps);
        self.steps.gather(|| self.part.idle());
        outcome
    }

    /// Nanoseconds of `op`, the mean of `times`, while the others wait.
    pub(crate) fn alone(
        &self,
        times: u64,
        mut op: impl FnMut(&E) -> Result<(), BenchError>,
    ) -> Result<f64, BenchError> {
        let start = Instant::now();
        for _ in 0..times {
            op(&self.part)?;
        }
        Ok(start.elapsed().as_nanos() as f64 / times as f64)
    }

    /// Nanoseconds of a flag to rank 1 and back, the mean of `times`.
    pub(crate) fn flag_ns(&mut self, times: u64) -> f64 {
        self.steps.flag_ns(1, times, || self.part.idle())
    }

    /// Measures `ways` beside one another, each by `run`. `None` if the machine does not let it, which the report then says.
    pub(crate) fn sample(
        &mut self,
        effort: Effort,
        ways: usize,
        point: &str,
        report: &mut Report,
        mut run: impl FnMut(&mut Self, usize) -> Result<f64, BenchError>,
    ) -> Result<Option<Samples>, BenchError> {
        let mut placements = std::mem::take(&mut self.placements);
        let outcome = sampled::<BenchError>(effort, &mut placements, ways, |step| match step {
            Step::Look => Ok(self.steps.flag_ns(LOOK_PARTS, LOOK_TIMES, || self.part.idle())),
            Step::Way(way) => run(self, way),
        });
        self.placements = placements;
        report.settled(point, outcome)
    }
}
