//! `mutex`: a mutex in shared memory, alone and contended, beside a mutex of the C library that processes share.

use std::time::{Duration, Instant};

use mapwire::{Node, Shared, SharedSlice};
use serde_json::{Value, json};

use super::job::{self, Job, Leader, Order, Steps, in_step, join, role};
use super::measure::Effort;
use super::row::Report;
use super::{BenchError, Plan};

#[allow(unsafe_code)]
mod pthread;

use pthread::PthreadMutex;

/// Ranks that contend.
const RANKS: usize = 4;
/// Orders: all ranks count under the mutex of the C library, of the shared memory, or under a numbered lock.
const PTHREAD: u64 = 1;
const MUTEX: u64 = 2;
const NUMBERED: u64 = 3;
const WAYS: [(u64, &str); 3] = [(PTHREAD, ""), (MUTEX, "mutex"), (NUMBERED, "numbered lock")];

/// How long a rank sleeps that only waits for the next order.
const NAP: Duration = Duration::from_micros(200);

struct Station {
    shared: Shared,
    counter: SharedSlice<u64>,
    mutex: u64,
    pthread: PthreadMutex,
}

impl Station {
    fn new(node: &Node) -> Result<Self, BenchError> {
        let shared = Shared::open(node, 1)?;
        let line = || {
            let mine = if node.rank() == 0 { Some(shared.alloc::<u64>(8)?) } else { None };
            shared.broadcast_slice(0, mine)
        };
        let (counter, mutex, pthread) = (line()?, line()?.address(), PthreadMutex::at(line()?.address()));
        if node.rank() == 0 {
            pthread.init()?;
        }
        shared.barrier()?;
        Ok(Self { shared, counter, mutex, pthread })
    }

    fn count(&self, what: u64, times: u64) -> Result<(), BenchError> {
        let objects = self.shared.objects();
        let count = || self.counter.set(0, self.counter.get(0).wrapping_add(1));
        match what {
            PTHREAD => (0..times).for_each(|_| self.pthread.locked(count)),
            MUTEX => {
                let mutex = objects.mutex(objects.offset(self.mutex as usize))?;
                for _ in 0..times {
                    mutex.lock()?;
                    count();
                    mutex.unlock()?;
                }
            }
            _ => {
                for _ in 0..times {
                    let _locked = self.shared.lock(9)?;
                    count();
                }
            }
        }
        Ok(())
    }
}

impl job::Part for Station {
    fn carry_out(&mut self, order: Order, _: &Steps) -> Result<f64, BenchError> {
        self.count(order.what, order.times)?;
        Ok(0.0)
    }

    fn idle(&self) {
        // The others need the processors.
        std::thread::sleep(NAP);
    }
}

pub(crate) fn mutex(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    if role().is_none() {
        let options = ["--wait", "adaptive"];
        return Job { bench: "mutex", ranks: RANKS, options: &options, case: "adaptive" }.run(plan, report);
    }
    let (node, steps, _) = join()?;
    let station = Station::new(&node)?;
    let shared = station.shared.clone();
    in_step(station, steps, |leader| {
        let times = if plan.quick { 20_000 } else { 200_000 };
        measure(plan, leader, report, "uncontended", |leader, what| {
            let start = Instant::now();
            leader.part.count(what, times)?;
            Ok(start.elapsed().as_nanos() as f64 / times as f64)
        })?;
        measure(plan, leader, report, "contended", |leader, what| {
            let start = Instant::now();
            // Until all have done their share.
            leader.lead(what, 0, times)?;
            Ok(start.elapsed().as_nanos() as f64 / (times * RANKS as u64) as f64)
        })
    })?;
    Ok(shared.close()?)
}

/// Measures the ways to lock, count and unlock, in nanoseconds.
fn measure(
    plan: &Plan,
    leader: &mut Leader<Station>,
    report: &mut Report,
    case: &str,
    mut run: impl FnMut(&mut Leader<Station>, u64) -> Result<f64, BenchError>,
) -> Result<(), BenchError> {
    let ranks = if case == "contended" { RANKS } else { 1 };
    let effort = Effort::planned(plan, 3, 31).scattered();
    let samples = leader.sample(effort, WAYS.len(), case, report, |leader, way| run(leader, WAYS[way].0))?;
    let Some(samples) = samples else { return Ok(()) };
    for (way, (_, name)) in WAYS.iter().enumerate().skip(1) {
        let fields: [(&'static str, Value); 3] =
            [("case", json!(format!("{name}, {case}"))), ("ranks", json!(ranks)), ("transport", json!("shm"))];
        report.rows(&fields, "ns", "process-shared pthread mutex", &samples.figures(way, 0));
    }
    Ok(())
}
