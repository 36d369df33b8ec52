//! `fault`, `lock`, `barrier`: the shared memory, beside the raw parts of each operation.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mapwire::{Node, Shared, SharedSlice};
use mapwire_host::faults::{Access, FaultInfo, FaultKind, PageProtection, Resolution, Watch, watch};
use mapwire_host::mapping::{Mapping, Rights};
use mapwire_host::views::{MultiView, ViewLayout};
use mapwire_translation::PAGE_BYTES;
use serde_json::json;

use super::flags::Flags;
use super::job::{Job, Order, Steps, role};
use super::measure::{Effort, beside, median};
use super::placement::Placements;
use super::raw::{poke, touch};
use super::row::Report;
use super::words::Words;
use super::{BenchError, Plan};
use trip::Trip;

#[allow(unsafe_code)]
mod fault;
mod sync;
mod trip;

pub(crate) use fault::fault;
pub(crate) use sync::{barrier, lock};

/// Orders that ranks carry out.
mod what {
    pub(super) const END: u64 = 0;
    /// Flags between rank 0 and rank 1; the others sleep in the barrier that follows.
    pub(super) const FLAGS: u64 = 1;
    /// Rank 1 becomes the writer of all minipages, the other ranks readers of them.
    pub(super) const PREPARE: u64 = 2;
    /// Rank 0 measures while the others do nothing but serve, in the way of `bytes`.
    pub(super) const SERVE: u64 = 3;
    /// All ranks take the lock.
    pub(super) const CONTEND: u64 = 4;
    /// All ranks meet.
    pub(super) const MEET: u64 = 5;
}

/// How the owner passes its time.
const OWNERS: [&str; 3] = ["polling", "sleeping", "computing"];

/// How long a rank sleeps that only waits for the next order.
const NAP: Duration = Duration::from_micros(200);

/// Minipages of one measurement.
const MINIPAGES: usize = 128;

/// A rank with the shared memory open.
struct Station<'a> {
    node: &'a Node,
    shared: &'a Shared,
    steps: Steps,
    trip: Trip,
    minipages: Vec<SharedSlice<u64>>,
}

impl<'a> Station<'a> {
    /// Ranks that map no memory of each other by mapwire keep in step by `words`.
    fn new(node: &'a Node, shared: &'a Shared, bytes: usize, words: Option<Words>) -> Result<Self, BenchError> {
        let (steps, trip) = match words {
            None => (Steps::new(node)?, Trip::Flags(Flags::new(node)?)),
            Some(words) => (Steps::over(node, words), Trip::datagrams(node, words, bytes)?),
        };
        let mut minipages = Vec::new();
        for _ in 0..MINIPAGES {
            let mine = if node.rank() == 1 % node.size() { Some(shared.alloc::<u64>(bytes / 8)?) } else { None };
            minipages.push(shared.broadcast_slice(1 % node.size(), mine)?);
        }
        Ok(Self { node, shared, steps, trip, minipages })
    }

    /// What a rank other than 0 does for an order.
    fn follow(&mut self) -> Result<(), BenchError> {
        loop {
            let node = self.node;
            let order = self.steps.next(|| {
                node.poll();
                if node.rank() >= 2 {
                    // Only the first two ranks are measured; there may be no more processors than that.
                    std::thread::sleep(NAP);
                }
            });
            match order.what {
                what::FLAGS => {
                    if node.rank() == 1 {
                        self.trip.answer(order.times)?;
                    }
                }
                what::PREPARE => self.prepare(order.bytes)?,
                what::SERVE => {
                    self.steps.answer();
                    let others = self.node.rank() >= 2;
                    self.serve(if others { "sleeping" } else { OWNERS[order.bytes as usize] });
                    continue;
                }
                what::CONTEND => self.contend(order.times)?,
                what::MEET => self.meet(order.times)?,
                _ => {
                    self.steps.answer();
                    return Ok(());
                }
            }
            self.steps.answer();
        }
    }

    /// Rank 1 stores to every minipage, in its turn; ranks 2 to `readers` + 1 then read them.
    fn prepare(&self, readers: u64) -> Result<(), BenchError> {
        if self.node.rank() == 1 {
            for (index, minipage) in self.minipages.iter().enumerate() {
                minipage.set(0, index as u64);
            }
        }
        self.shared.barrier_of(1)?;
        let rank = self.node.rank() as u64;
        if rank >= 2 && rank < 2 + readers {
            for minipage in &self.minipages {
                black_box(minipage.get(0));
            }
        }
        self.shared.barrier_of(1)?;
        Ok(())
    }

    /// Passes the time as the case wants until the next order comes.
    fn serve(&self, how: &str) {
        match how {
            "polling" => {}
            "sleeping" => {
                while !self.steps.has_next() {
                    std::thread::sleep(NAP);
                }
            }
            _ => {
                let mut x = 1_u64;
                while !self.steps.has_next() {
                    for _ in 0..1000 {
                        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    }
                    black_box(x);
                }
            }
        }
    }

    fn contend(&self, times: u64) -> Result<(), BenchError> {
        for _ in 0..times {
            let guard = self.shared.lock(7)?;
            let counter = self.minipages[0];
            counter.set(0, counter.get(0).wrapping_add(1));
            drop(guard);
        }
        Ok(())
    }

    fn meet(&self, times: u64) -> Result<(), BenchError> {
        for _ in 0..times {
            self.shared.barrier_of(2)?;
        }
        Ok(())
    }

    fn poll(&self) {
        self.node.poll();
    }

    fn order(&mut self, what: u64, bytes: u64, times: u64) {
        self.steps.order(Order { what, bytes, times });
    }

    fn gather(&self) {
        self.steps.gather(|| {
            self.node.poll();
        });
    }

    /// As [`Steps::look`].
    fn look(&mut self) -> f64 {
        let node = self.node;
        self.steps.look(|| {
            node.poll();
        })
    }

    /// Microseconds of a flag there and back between rank 0 and rank 1.
    fn round_trip(&mut self) -> Result<f64, BenchError> {
        if self.node.size() < 2 {
            return Err("a flag round trip needs two ranks".into());
        }
        let times = 400;
        self.order(what::FLAGS, 0, times);
        let us = self.trip.ask(times)? / 1000.0;
        self.gather();
        Ok(us)
    }
}

/// Runs `measure` on rank 0 of jobs of the given sizes and waits.
/// A way to wait: ranks that poll throughout, as a program says by [`Node::polling`]. With the others a rank begins and ends to
/// poll with each wait, and tells its peers so.
const POLLING: &str = "polling throughout";

fn in_jobs(
    name: &str,
    plan: Plan,
    report: &mut Report,
    jobs: &[(usize, &str)],
    minipage_bytes: impl Fn(&str) -> usize,
    case_of: impl Fn(usize, &str) -> String,
    measure: impl FnOnce(&mut Station<'_>, &str, &mut Report) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let Some(case) = role() else {
        for &(ranks, wait) in jobs {
            let options = ["--wait", if wait == POLLING { "poll" } else { wait }];
            Job { bench: name, ranks, options: &options, case: &case_of(ranks, wait) }.run(plan, report.is_json())?;
        }
        return Ok(());
    };
    let node = Node::join()?;
    let shared = Shared::open(&node, 1)?;
    // Where the launcher has made memory for the steps, the case ends with its path.
    let mapping = match case.split_once('/') {
        None => None,
        Some((_, path)) => {
            let path = format!("/{path}");
            let file = std::fs::File::options().read(true).write(true).open(path)?;
            Some(Mapping::foreign(&file, PAGE_BYTES, Rights::ReadWrite)?)
        }
    };
    let words = (mapping.as_ref()).map(|mapping| Words::new(mapping.at(0, PAGE_BYTES), PAGE_BYTES));
    let mut station = Station::new(&node, &shared, minipage_bytes(&case), words)?;
    let _polling = (case == POLLING).then(|| node.polling());
    if node.rank() == 0 {
        let outcome = measure(&mut station, &case, report);
        station.order(what::END, 0, 0);
        station.gather();
        outcome?;
    } else {
        station.follow()?;
    }
    shared.close()?;
    Ok(())
}
