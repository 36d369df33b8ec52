//! `waiting`: what waits cost where ranks share the processors. Wake-ups, a token round a ring, barriers and locks, beside
//! futexes between the same processes; and programs of more ranks than processors, `adaptive` beside `poll` and `event`.

use std::cell::RefCell;
use std::ops::Range;
use std::time::{Duration, Instant};

use mapwire::{Node, Shared};
use mapwire_host::waiting::now_ns;
use serde_json::json;

use super::job::{Job, join, role};
use super::measure::{Figure, Samples, median, quantile};
use super::placement::{Placement, look_between_threads};
use super::row::Report;
use super::{BenchError, Plan};

mod crowd;
mod futexes;

use futexes::{Futexes, Ring};

/// Ranks of the rings and barriers.
const SIZES: [usize; 3] = [2, 16, 64];
/// Ranks that contend for a lock, and that share the processors in [`crowd`].
const CROWD: usize = 4;

/// `mapwire bench waiting`.
pub(crate) fn waiting(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    if let Some(case) = role() {
        return measure(plan, report, &case);
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

/// What a rank does.
fn measure(plan: Plan, report: &mut Report, case: &str) -> Result<(), BenchError> {
    let (what, wait) = case.split_once(' ').ok_or("a case names its wait")?;
    let (node, _, words) = join()?;
    let shared = Shared::open(&node, 1)?;
    let futexes = Futexes(words);
    let rank = Rank { node: &node, shared: &shared, futexes: &futexes, plan, looks: RefCell::default() };
    let rows = match what {
        "idle" => rank.idle()?,
        "hop" => rank.hop()?,
        "barrier" => rank.barrier()?,
        "lock" => rank.lock()?,
        kind => {
            crowd::run(&node, &shared, kind)?;
            Vec::new()
        }
    };
    shared.barrier()?;
    if node.rank() == 0 {
        for (name, baseline, unit, pairs) in rows {
            let case = vec![
                ("case", json!(name)),
                ("ranks", json!(node.size())),
                ("wait", json!(wait)),
                ("transport", json!("shm")),
            ];
            let samples = Samples::of_rounds(&pairs, &rank.looks.borrow());
            report.rows(&case, unit, baseline, &samples.figures(1, 0));
        }
    }
    shared.close()?;
    Ok(())
}

/// A row: what is measured, beside what, in which unit, and value and baseline of each round.
type Rows = Vec<(&'static str, &'static str, &'static str, Vec<(f64, f64)>)>;

struct Rank<'a> {
    node: &'a Node,
    shared: &'a Shared,
    futexes: &'a Futexes,
    plan: Plan,
    /// Looks of rank 0, one before each round and one after the last.
    looks: RefCell<Vec<f64>>,
}

impl Rank<'_> {
    /// Rank 0 looks where it runs, while the others wait for it.
    fn look(&self) {
        if self.node.rank() == 0 {
            self.looks.borrow_mut().push(look_between_threads());
        }
    }

    fn rounds(&self) -> usize {
        if self.plan.quick { 3 } else { 15 }
    }

    /// Microseconds of `times` calls, from when all ranks have come until all are done.
    fn timed(&self, times: u64, call: impl FnOnce() -> Result<(), BenchError>) -> Result<f64, BenchError> {
        self.shared.barrier()?;
        let start = Instant::now();
        call()?;
        self.shared.barrier()?;
        Ok(start.elapsed().as_nanos() as f64 / 1000.0 / times as f64)
    }

    /// Microseconds of a `turn` where all ranks take turns for a while: with a number of turns for each, the first rank would be
    /// through before the others have woken.
    fn contended(&self, turn: impl Fn() -> Result<(), BenchError>) -> Result<f64, BenchError> {
        let window_ns = if self.plan.quick { 20_000_000 } else { 150_000_000 };
        self.shared.barrier()?;
        let before = self.futexes.counted();
        self.shared.barrier()?;
        let end_ns = now_ns() + window_ns;
        let mut turns = 0;
        while now_ns() < end_ns {
            turn()?;
            turns += 1;
        }
        self.futexes.count(turns);
        self.shared.barrier()?;
        Ok(window_ns as f64 / 1000.0 / f64::from(self.futexes.counted() - before))
    }

    /// A rank that waits for a signal for long, and how late it hears one that comes when it has slept.
    fn idle(&self) -> Result<Rows, BenchError> {
        let ring = Ring::new(self.node, false)?;
        let me = self.node.rank();
        let span = Duration::from_secs(if self.plan.quick { 1 } else { 10 });
        self.shared.barrier()?;
        let cpu_ns = process_ns();
        if me == 0 {
            std::thread::sleep(span);
            ring.pass(1)?;
        } else {
            ring.wait(1)?;
        }
        let percent = (process_ns() - cpu_ns) as f64 / span.as_nanos() as f64 * 100.0;
        let (mut pairs, mut acks) = (Vec::new(), 0);
        for round in 0..self.rounds() as u64 * 3 {
            self.look();
            let mut late = [0.0; 2];
            for (raw, late) in [true, false].into_iter().zip(&mut late) {
                let mut sum_ns = 0;
                let times = 5;
                for turn in round * times..(round + 1) * times {
                    acks += 1;
                    if me == 0 {
                        std::thread::sleep(Duration::from_millis(10));
                        self.futexes.stamp(now_ns());
                        if raw {
                            self.futexes.pass(1, turn as u32 + 1);
                        } else {
                            ring.pass(turn + 2)?;
                        }
                        self.futexes.wait(0, acks);
                    } else {
                        if raw {
                            self.futexes.wait(1, turn as u32 + 1);
                        } else {
                            ring.wait(turn + 2)?;
                        }
                        sum_ns += now_ns() - self.futexes.stamped();
                        self.futexes.pass(0, acks);
                    }
                }
                *late = sum_ns as f64 / 1000.0 / times as f64;
            }
            pairs.push((late[1], late[0]));
            self.shared.barrier()?;
        }
        self.look();
        let said = self.futexes.gather(self.node, self.shared, &pairs, percent)?;
        let (pairs, percent) = said;
        Ok(vec![
            ("rank in wait_signal, processor time", "1 % of a processor", "%", vec![(percent, 1.0)]),
            ("wake-up in wait_signal after 10 ms", "futex wake", "us", pairs),
        ])
    }

    /// Microseconds of a hop of a token that goes round all ranks for some `turns`.
    fn hops(
        &self,
        turns: Range<u64>,
        pass: impl Fn(u64) -> Result<(), BenchError>,
        wait: impl Fn(u64) -> Result<(), BenchError>,
    ) -> Result<f64, BenchError> {
        let is_first = self.node.rank() == 0;
        let hops = (turns.end - turns.start) * self.node.size() as u64;
        self.timed(hops, || {
            for turn in turns {
                if is_first {
                    pass(turn)?;
                }
                wait(turn)?;
                if !is_first {
                    pass(turn)?;
                }
            }
            Ok(())
        })
    }

    fn hop(&self) -> Result<Rows, BenchError> {
        let rings = [Ring::new(self.node, false)?, Ring::new(self.node, true)?];
        let mut pairs = [Vec::new(), Vec::new()];
        let (me, size) = (self.node.rank(), self.node.size());
        let laps = (1024 / size as u64).max(8);
        for round in 0..self.rounds() as u64 {
            self.look();
            let turns = round * laps + 1..(round + 1) * laps + 1;
            let pass = |turn| {
                self.futexes.pass((me + 1) % size, turn as u32);
                Ok(())
            };
            let wait = |turn| {
                self.futexes.wait(me, turn as u32);
                Ok(())
            };
            let raw = self.hops(turns.clone(), pass, wait)?;
            for (ring, pairs) in rings.iter().zip(&mut pairs) {
                pairs.push((self.hops(turns.clone(), |turn| ring.pass(turn), |turn| ring.wait(turn))?, raw));
            }
        }
        self.look();
        let [direct, ring] = pairs;
        let baseline = "hop by futex";
        Ok(vec![
            ("hop of a signal, direct path", baseline, "us", direct),
            ("hop of a signal, ring path", baseline, "us", ring),
        ])
    }

    fn barrier(&self) -> Result<Rows, BenchError> {
        let mut pairs = Vec::new();
        let times = (640 / self.node.size() as u64).max(10);
        for _ in 0..self.rounds() {
            self.look();
            let raw = self.timed(times, || {
                (0..times).for_each(|_| self.futexes.barrier(self.node.size()));
                Ok(())
            })?;
            let value = self.timed(times, || {
                for _ in 0..times {
                    self.shared.barrier_of(2)?;
                }
                Ok(())
            })?;
            pairs.push((value, raw));
        }
        self.look();
        Ok(vec![("empty barrier", "barrier by futex", "us", pairs)])
    }

    fn lock(&self) -> Result<Rows, BenchError> {
        let mine = (self.node.rank() == 0).then(|| self.shared.alloc::<u64>(8)).transpose()?;
        let counter = self.shared.broadcast_slice(0, mine)?;
        let (mut bare, mut counted) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds() {
            self.look();
            let raw = self.contended(|| {
                self.futexes.locked(self.node.size());
                Ok(())
            })?;
            let value = self.contended(|| {
                drop(self.shared.lock(7)?);
                Ok(())
            })?;
            bare.push((value, raw));
            let value = self.contended(|| {
                let _held = self.shared.lock(7)?;
                counter.set(0, counter.get(0) + 1);
                Ok(())
            })?;
            counted.push((value, raw));
        }
        self.look();
        let baseline = "lock in turn by futex";
        Ok(vec![
            ("lock, unlock, contended", baseline, "us", bare),
            ("lock, count, unlock, contended", baseline, "us", counted),
        ])
    }
}

/// Processor time of this process so far, in nanoseconds.
fn process_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
