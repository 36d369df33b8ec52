//! `waiting`: what waits cost where ranks share the processors. WAKE-ups, a token round a ring, barriers and locks, beside
//! futexes between the same processes; and programs of more ranks than processors, `adaptive` beside `poll` and `event`.

use std::time::{Duration, Instant};

use mapwire::{Node, Shared, SharedSlice};
use mapwire_host::waiting::now_ns;
use serde_json::json;

use super::inbox::Inbox;
use super::job::{self, Job, Leader, Order, Steps, in_step, join, role};
use super::loops::{Loops, Message, Passing};
use super::measure::{Effort, Figure, median, quantile};
use super::placement::Placement;
use super::row::Report;
use super::{BenchError, Plan};

mod crowd;
mod futexes;

use futexes::Futexes;

/// Ranks of the rings and barriers.
const SIZES: [usize; 3] = [2, 16, 64];
/// Ranks that contend for a lock, and that share the processors in [`crowd`].
const CROWD: usize = 4;

/// How long a rank sleeps that only waits for the next order, and one before it signals another that has fallen asleep.
const NAP: Duration = Duration::from_micros(500);
const PAUSE: Duration = Duration::from_millis(10);

/// Parts of the memory that all ranks share: the futexes, the loops, and what rank 1 tells rank 0.
const LOOPS: usize = 64 << 10;
const TOLD: usize = 128 << 10;

/// Orders.
const FUTEX_HOP: u64 = 1;
const DIRECT_HOP: u64 = 2;
const RING_HOP: u64 = 3;
const FUTEX_BARRIER: u64 = 4;
const BARRIER: u64 = 5;
const FUTEX_LOCK: u64 = 6;
const LOCK: u64 = 7;
const COUNT_IN_LOCK: u64 = 8;
const FUTEX_WAKE: u64 = 9;
const WAKE: u64 = 10;
/// Rank 1 waits in `wait_signal`, and tells the share of its time that it used.
const IDLE: u64 = 11;

/// A job, what its ranks do, that by futexes first, and how the rows of the others are called.
struct Case {
    name: &'static str,
    baseline: &'static str,
    tasks: &'static [(u64, &'static str)],
}

const CASES: [Case; 4] = [
    Case {
        name: "idle",
        baseline: "futex wake",
        tasks: &[(FUTEX_WAKE, ""), (WAKE, "wake-up in wait_signal after 10 ms")],
    },
    Case {
        name: "hop",
        baseline: "hop by futex",
        tasks: &[
            (FUTEX_HOP, ""),
            (DIRECT_HOP, "hop of a signal, direct path"),
            (RING_HOP, "hop of a signal, ring path"),
        ],
    },
    Case { name: "barrier", baseline: "barrier by futex", tasks: &[(FUTEX_BARRIER, ""), (BARRIER, "empty barrier")] },
    Case {
        name: "lock",
        baseline: "lock in turn by futex",
        tasks: &[
            (FUTEX_LOCK, ""),
            (LOCK, "lock, unlock, contended"),
            (COUNT_IN_LOCK, "lock, count, unlock, contended"),
        ],
    },
];

pub(crate) fn waiting(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    if let Some(case) = role() {
        let (name, wait) = case.split_once(' ').ok_or("a case names its wait")?;
        return in_rank(plan, report, name, wait);
    }
    for wait in ["adaptive", "event"] {
        let start = |ranks, case: &str| {
            let job = Job { bench: "waiting", ranks, options: &["--wait", wait], case: &format!("{case} {wait}") };
            job.run(plan, report)
        };
        start(2, "idle")?;
        for ranks in &SIZES[..if plan.quick { 1 } else { SIZES.len() }] {
            start(*ranks, "hop")?;
            start(*ranks, "barrier")?;
        }
        start(CROWD, "lock")?;
    }
    crowd::compare(plan, report)
}

fn in_rank(plan: &Plan, report: &mut Report, name: &str, wait: &str) -> Result<(), BenchError> {
    let (node, steps, words) = join()?;
    let shared = Shared::open(&node, 1)?;
    let Some(case) = CASES.iter().find(|case| case.name == name) else {
        crowd::run(&node, &shared, name)?;
        return Ok(shared.close()?);
    };
    let mine = (node.rank() == 0).then(|| shared.alloc::<u64>(8)).transpose()?;
    let next = (node.rank() + 1) % node.size();
    let ends = Rank {
        loops: Loops::new(node.rank().min(1), words.part(LOOPS, LOOPS), 0, 2, 0),
        counter: shared.broadcast_slice(0, mine)?,
        signals: Signals {
            rank: node.rank(),
            futexes: Futexes(words),
            direct: Inbox::alloc(&node, next, "bench.hop", 4096, |it| it)?,
            ring: Inbox::alloc(&node, next, "bench.hop.ring", 4096, |it| it.ring_only())?,
        },
        passed: [0; 4],
        window_ns: if plan.quick { 20_000_000 } else { 150_000_000 },
        shared: shared.clone(),
        node,
    };
    in_step(ends, steps, |leader| case.measure(plan, leader, report, wait))?;
    Ok(shared.close()?)
}

impl Case {
    fn measure(
        &self,
        plan: &Plan,
        leader: &mut Leader<Rank>,
        report: &mut Report,
        wait: &str,
    ) -> Result<(), BenchError> {
        let size = leader.part.node.size();
        let fields = |name: &str| {
            [("case", json!(name)), ("ranks", json!(size)), ("wait", json!(wait)), ("transport", json!("shm"))]
        };
        if self.name == "idle" {
            let percent = leader.lead(IDLE, 0, if plan.quick { 1 } else { 10 })?;
            let figure = Figure { placement: (Placement::Unknown, None), ..Figure::of_pairs(&[(percent, 1.0)]) };
            report.rows(&fields("rank in wait_signal, processor time"), "%", "1 % of a processor", &[figure]);
        }
        let times = match self.name {
            "idle" => 5,
            "hop" => (1024 / size as u64).max(8),
            _ => (640 / size as u64).max(10),
        };
        let effort = Effort::planned(plan, 3, if self.name == "idle" { 45 } else { 15 }).scattered();
        let run = |leader: &mut Leader<Rank>, way: usize| leader.lead(self.tasks[way].0, 0, times);
        if let Some(samples) = leader.sample(effort, self.tasks.len(), self.name, report, run)? {
            for (way, (_, name)) in self.tasks.iter().enumerate().skip(1) {
                report.rows(&fields(name), "us", self.baseline, &samples.figures(way, 0));
            }
        }
        Ok(())
    }
}

/// A rank's signals to the next: by futexes, and by mapwire's two paths.
struct Signals {
    rank: usize,
    futexes: Futexes,
    direct: Inbox,
    ring: Inbox,
}

impl Signals {
    fn inbox(&self, task: u64) -> &Inbox {
        if task == RING_HOP { &self.ring } else { &self.direct }
    }
}

impl Passing for Signals {
    type Path = u64;

    fn counter(task: u64) -> usize {
        usize::from(task == WAKE)
    }

    fn put(&mut self, task: u64, _: &[u8], Message { number, .. }: Message) -> Result<(), BenchError> {
        match task {
            FUTEX_HOP | FUTEX_WAKE => self.futexes.pass(self.direct.import.rank(), number as u32),
            _ => self.inbox(task).import.put_signal(&[], 0, 0, number)?,
        }
        Ok(())
    }

    fn take(&mut self, task: u64, _: usize, Message { number, .. }: Message) -> Result<(), BenchError> {
        match task {
            FUTEX_HOP | FUTEX_WAKE => self.futexes.wait(self.rank, number as u32),
            _ => _ = self.inbox(task).export.wait_signal(0, number)?,
        }
        Ok(())
    }

    fn progress(&self, _: u64) {}

    fn idle(&self) {}
}

struct Rank {
    node: Node,
    shared: Shared,
    loops: Loops,
    signals: Signals,
    counter: SharedSlice<u64>,
    /// Turns of each hop so far.
    passed: [u64; 4],
    /// How long ranks contend.
    window_ns: u64,
}

impl Rank {
    /// Microseconds of `times` calls, from when all ranks have come until all are done.
    fn timed(&mut self, times: u64, call: impl FnOnce(&mut Self) -> Result<(), BenchError>) -> Result<f64, BenchError> {
        self.shared.barrier()?;
        let start = Instant::now();
        call(self)?;
        self.shared.barrier()?;
        Ok(start.elapsed().as_nanos() as f64 / 1000.0 / times as f64)
    }

    /// Microseconds of a hop of a token that goes round all ranks for some turns.
    fn hops(&mut self, task: u64, turns: u64) -> Result<f64, BenchError> {
        let first = self.passed[task as usize] + 1;
        self.passed[task as usize] += turns;
        let is_first = self.node.rank() == 0;
        self.timed(turns * self.node.size() as u64, |ends| {
            for number in first..first + turns {
                let message = Message { at: 0, number, is_stream: false };
                if is_first {
                    ends.signals.put(task, &[], message)?;
                }
                ends.signals.take(task, 0, message)?;
                if !is_first {
                    ends.signals.put(task, &[], message)?;
                }
            }
            Ok(())
        })
    }

    /// Microseconds of a `turn` where all ranks take turns for a while: with a number of turns for each, the first rank would be
    /// through before the others have woken.
    fn contended(&self, turn: impl Fn() -> Result<(), BenchError>) -> Result<f64, BenchError> {
        let futexes = &self.signals.futexes;
        self.shared.barrier()?;
        let before = futexes.count(0);
        self.shared.barrier()?;
        let end_ns = now_ns() + self.window_ns;
        let mut turns = 0;
        while now_ns() < end_ns {
            turn()?;
            turns += 1;
        }
        futexes.count(turns);
        self.shared.barrier()?;
        Ok(self.window_ns as f64 / 1000.0 / f64::from(futexes.count(0) - before))
    }

    /// Percent of a processor that rank 1 uses while it waits for some seconds.
    fn idle_percent(&mut self, seconds: u64) -> Result<f64, BenchError> {
        let span = Duration::from_secs(seconds);
        let message = Message { at: 0, number: u64::MAX, is_stream: false };
        self.shared.barrier()?;
        let cpu_ns = process_ns();
        if self.node.rank() == 0 {
            std::thread::sleep(span);
            self.signals.ring.import.put_signal(&[], 0, 0, message.number)?;
        } else {
            self.signals.ring.export.wait_signal(0, message.number)?;
            let percent = (process_ns() - cpu_ns) as f64 / span.as_nanos() as f64 * 100.0;
            self.signals.futexes.0.store(TOLD, percent.to_bits());
        }
        self.shared.barrier()?;
        Ok(f64::from_bits(self.signals.futexes.0.load(TOLD)))
    }
}

impl job::Part for Rank {
    /// Microseconds of each time.
    fn carry_out(&mut self, order: Order, _: &Steps) -> Result<f64, BenchError> {
        let (times, size) = (order.times, self.node.size());
        let task = order.what;
        match task {
            FUTEX_HOP | DIRECT_HOP | RING_HOP => self.hops(task, times),
            FUTEX_BARRIER => self.timed(times, |ends| {
                (0..times).for_each(|_| ends.signals.futexes.barrier(size));
                Ok(())
            }),
            BARRIER => self.timed(times, |ends| (0..times).try_for_each(|_| Ok(ends.shared.barrier_of(2)?))),
            FUTEX_LOCK => self.contended(|| {
                self.signals.futexes.locked(size);
                Ok(())
            }),
            LOCK => self.contended(|| {
                drop(self.shared.lock(7)?);
                Ok(())
            }),
            COUNT_IN_LOCK => self.contended(|| {
                let _held = self.shared.lock(7)?;
                self.counter.set(0, self.counter.get(0) + 1);
                Ok(())
            }),
            FUTEX_WAKE | WAKE => {
                let pause = || std::thread::sleep(PAUSE);
                Ok(self.loops.wakes(&mut self.signals, task, order, (pause, false))? / 1000.0)
            }
            _ => self.idle_percent(times),
        }
    }

    fn idle(&self) {
        std::thread::sleep(NAP);
    }
}

/// Processor time of this process so far, in nanoseconds.
fn process_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
