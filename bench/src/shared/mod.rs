//! `fault`, `lock`, `barrier`: the shared memory, beside the raw parts of each operation.

use std::hint::black_box;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use mapwire::{Node, Shared, SharedSlice};
use serde_json::{Value, json};

use super::job::{self, Job, Leader, Order, Steps, in_step, join, role};
use super::measure::Effort;
use super::row::Report;
use super::{BenchError, Plan, udp};

mod fault;
#[allow(unsafe_code)]
mod raw_fault;

pub(crate) use fault::fault;

/// Datagrams between rank 0 and rank 1.
const DATAGRAMS: u64 = 1;
/// Rank 1 becomes the writer of all minipages, `bytes` other ranks readers of them.
const PREPARE: u64 = 2;
/// Rank 0 measures while the others do nothing but serve, in the way of `bytes`.
const SERVE: u64 = 3;
/// All ranks take the lock.
const CONTEND: u64 = 4;
/// All ranks meet.
const MEET: u64 = 5;

/// How the owner passes its time.
const OWNERS: [&str; 3] = ["polling", "sleeping", "computing"];

/// How long a rank sleeps that only waits for the next order.
const NAP: Duration = Duration::from_micros(200);

/// Minipages of one measurement.
const MINIPAGES: usize = 128;

/// Bytes of a datagram that asks: about those of the shared memory's shortest message with its headers.
const QUESTION_BYTES: usize = 128;

/// A way to wait: ranks that poll throughout, as a program says by [`Node::polling`]. With the others a rank begins and ends to
/// poll with each wait, and tells its peers so.
const POLLING: &str = "polling throughout";

/// A rank with the shared memory open.
struct Station {
    node: Node,
    shared: Shared,
    minipages: Vec<SharedSlice<u64>>,
    minipage_bytes: usize,
    socket: Option<UdpSocket>,
}

impl Station {
    fn new(node: &Node, bytes: usize, socket: Option<UdpSocket>) -> Result<Self, BenchError> {
        let shared = Shared::open(node, 1)?;
        let mut minipages = Vec::new();
        for _ in 0..MINIPAGES {
            let mine = if node.rank() == 1 { Some(shared.alloc::<u64>(bytes / 8)?) } else { None };
            minipages.push(shared.broadcast_slice(1, mine)?);
        }
        Ok(Self { node: node.clone(), shared, minipages, minipage_bytes: bytes, socket })
    }

    /// Rank 1 stores to every minipage, in its turn; ranks 2 to `readers` + 1 then read them.
    fn prepare(&self, readers: usize) -> Result<(), BenchError> {
        let rank = self.node.rank();
        if rank == 1 {
            self.minipages.iter().for_each(|minipage| minipage.set(0, 1));
        }
        self.shared.barrier_of(1)?;
        if (2..2 + readers).contains(&rank) {
            self.read_all();
        }
        Ok(self.shared.barrier_of(1)?)
    }

    fn read_all(&self) {
        for minipage in &self.minipages {
            black_box(minipage.get(0));
        }
    }

    /// Passes the time as the case wants until the next order comes.
    fn serve(&self, how: &str, steps: &Steps) {
        let mut x = 1_u64;
        while how != "polling" && !steps.has_next() {
            if how == "sleeping" {
                std::thread::sleep(NAP);
                continue;
            }
            for _ in 0..1000 {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            }
            black_box(x);
        }
    }

    /// Questions from rank 0, which rank 1 answers by the bytes of a minipage.
    fn datagrams(&self, times: u64) -> Result<(), BenchError> {
        let Some(socket) = self.socket.as_ref().filter(|_| self.node.rank() < 2) else {
            return Ok(());
        };
        let (mut question, mut answer) = (vec![1; QUESTION_BYTES], vec![2; self.minipage_bytes]);
        for _ in 0..times {
            if self.node.rank() == 0 {
                udp::spin(|| socket.send(&question))?;
                udp::spin(|| socket.recv(&mut answer))?;
            } else {
                udp::spin(|| socket.recv(&mut question))?;
                udp::spin(|| socket.send(&answer))?;
            }
        }
        Ok(())
    }
}

impl job::Part for Station {
    /// Microseconds of each time.
    fn carry_out(&mut self, order: Order, steps: &Steps) -> Result<f64, BenchError> {
        let start = Instant::now();
        match order.what {
            DATAGRAMS => self.datagrams(order.times)?,
            PREPARE => self.prepare(order.bytes as usize)?,
            SERVE if self.node.rank() > 0 => {
                steps.answer();
                self.serve(OWNERS[order.bytes as usize], steps);
            }
            CONTEND => {
                let counter = self.minipages[0];
                for _ in 0..order.times {
                    let _held = self.shared.lock(7)?;
                    counter.set(0, counter.get(0).wrapping_add(1));
                }
            }
            MEET => {
                for _ in 0..order.times {
                    self.shared.barrier_of(2)?;
                }
            }
            _ => {}
        }
        Ok(start.elapsed().as_nanos() as f64 / 1000.0 / order.times as f64)
    }

    fn idle(&self) {
        self.node.poll();
        if self.node.rank() >= 2 {
            // Only the first two ranks are measured; there may be no more processors than that.
            std::thread::sleep(NAP);
        }
    }
}

/// Microseconds there and back between rank 0 and rank 1, in the plainest way.
fn round_trip(leader: &mut Leader<Station>) -> Result<f64, BenchError> {
    match &leader.part.socket {
        Some(_) => leader.lead(DATAGRAMS, 0, 400),
        None => Ok(leader.flag_ns(400) / 1000.0),
    }
}

/// Measures in jobs of these sizes and waits, what `measure` says at rank 0.
fn in_jobs(
    bench: &str,
    plan: &Plan,
    report: &mut Report,
    jobs: &[(usize, &str)],
    measure: impl FnOnce(&mut Leader<Station>, &str, &mut Report) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let Some(wait) = role() else {
        let start = |&(ranks, case): &(usize, &str)| {
            let options = ["--coherence", "minipages", "--wait", if case == POLLING { "poll" } else { case }];
            Job { bench, ranks, options: &options, case }.run(plan, report)
        };
        return jobs.iter().try_for_each(start);
    };
    let (node, steps, _) = join()?;
    let station = Station::new(&node, 64, None)?;
    let shared = station.shared.clone();
    let _polling = (wait == POLLING).then(|| node.polling());
    in_step(station, steps, |leader| measure(leader, &wait, report))?;
    Ok(shared.close()?)
}

/// Measures an operation, in microseconds, beside a flag that goes there and back.
fn beside_flag(
    plan: &Plan,
    leader: &mut Leader<Station>,
    report: &mut Report,
    (case, wait): (&str, &str),
    mut operation: impl FnMut(&mut Leader<Station>) -> Result<f64, BenchError>,
) -> Result<(), BenchError> {
    let ranks = leader.part.node.size();
    let samples = leader.sample(Effort::planned(plan, 3, 31), 2, case, report, |leader, way| match way {
        0 => round_trip(leader),
        _ => operation(leader),
    })?;
    let fields: [(&'static str, Value); 4] =
        [("case", json!(case)), ("ranks", json!(ranks)), ("wait", json!(wait)), ("transport", json!("shm"))];
    if let Some(samples) = samples {
        report.rows(&fields, "us", "flag round trip", &samples.figures(1, 0));
    }
    Ok(())
}

pub(crate) fn lock(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    let jobs = [(2, "poll"), (2, "adaptive"), (4, "poll"), (4, "adaptive")];
    let jobs = &jobs[..if plan.quick { 2 } else { jobs.len() }];
    in_jobs("lock", plan, report, jobs, |leader, wait, report| {
        beside_flag(plan, leader, report, ("lock + unlock, uncontended", wait), |leader| {
            let lock = |station: &Station| {
                drop(station.shared.lock(3)?);
                Ok(())
            };
            lock(&leader.part)?;
            Ok(leader.alone(1000, lock)? / 1000.0)
        })?;
        let times = if plan.quick { 20 } else { 100 };
        beside_flag(plan, leader, report, ("lock, count, unlock, contended", wait), |leader| {
            // Until all have done their share.
            let start = Instant::now();
            leader.lead(CONTEND, 0, times)?;
            Ok(start.elapsed().as_nanos() as f64 / 1000.0 / (times * leader.part.node.size() as u64) as f64)
        })
    })
}

pub(crate) fn barrier(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    let jobs = [(2, POLLING), (2, "poll"), (2, "adaptive"), (2, "event"), (4, "poll"), (4, "adaptive"), (4, "event")];
    let jobs = &jobs[..if plan.quick { 4 } else { jobs.len() }];
    in_jobs("barrier", plan, report, jobs, |leader, wait, report| {
        let times = if leader.part.node.size() > 2 || wait == "event" { 20 } else { 200 };
        beside_flag(plan, leader, report, ("empty barrier", wait), |leader| leader.lead(MEET, 0, times))
    })
}
