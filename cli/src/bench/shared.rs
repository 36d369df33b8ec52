//! `fault`, `lock`, `barrier`: the shared memory, beside the raw parts of each operation.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mapwire::{Node, Shared, SharedSlice};
use mapwire_host::faults::{
    Access, FaultInfo, FaultKind, PageProtection, Protection, Resolution, Watch, watch,
};
use mapwire_host::views::{MultiView, ViewLayout};
use mapwire_translation::PAGE_BYTES;
use serde_json::json;

use super::job::{Job, Order, Steps, role};
use super::measure::{Effort, Restless, median, paired};
use super::raw::{poke, touch};
use super::row::{Report, Row};
use super::{BenchError, Plan};

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

/// A fault and a protection change on this computer alone: what no protocol can be faster than.
struct RawFault {
    protection: PageProtection,
    _watch: Watch,
}

static RAW: AtomicUsize = AtomicUsize::new(0);

fn open_page(info: &FaultInfo) -> Resolution {
    // SAFETY: `RawFault` keeps the protection, boxed, until its watch is dropped, which waits for handlers.
    let protection = unsafe { &*(RAW.load(Ordering::Acquire) as *const PageProtection) };
    let Some((view, offset)) = protection.views().locate(info.address) else {
        return Resolution::Refuse;
    };
    let (from, to) = match info.kind {
        FaultKind::Write => (Access::Read, Access::Write),
        _ => (Access::None, Access::Read),
    };
    match protection.set(view, offset / PAGE_BYTES, 1, from, to) {
        Ok(()) => Resolution::Retry,
        Err(_) => Resolution::Refuse,
    }
}

impl RawFault {
    fn new(shared: &Shared) -> Result<Box<Self>, BenchError> {
        // Far above the shared memory.
        let layout = ViewLayout::new(0x5000_0000_0000, MINIPAGES * PAGE_BYTES, 1)?;
        let views = Arc::new(MultiView::new("bench-faults", layout)?);
        let protection = PageProtection::new(shared.faults(), views)?;
        let watched = watch(layout.views_range(), shared.faults().signal(), 0, open_page)?;
        let raw = Box::new(Self {
            protection,
            _watch: watched,
        });
        RAW.store(
            std::ptr::from_ref(&raw.protection) as usize,
            Ordering::Release,
        );
        Ok(raw)
    }

    /// Microseconds of a load fault, of a store fault after it, and of what the owner of a page does for a reader (bars
    /// stores) and for a writer (closes it, from `held` on).
    fn costs(&self, held: Access) -> Result<[f64; 4], BenchError> {
        let at = |page: usize| {
            self.protection
                .views()
                .application(0, page * PAGE_BYTES)
                .cast::<u64>()
        };
        let mut times: [Vec<f64>; 4] = Default::default();
        for page in 0..MINIPAGES {
            // SAFETY: mapped and aligned; `open_page` opens it.
            times[0].push(timed_us(|| unsafe {
                black_box(touch(at(page)));
            }));
        }
        for page in 0..MINIPAGES {
            // SAFETY: as above.
            times[1].push(timed_us(|| unsafe { poke(at(page), 1) }));
        }
        for page in 0..MINIPAGES {
            let set = |from, to| self.protection.set(0, page, 1, from, to);
            let mut outcome = Ok(());
            times[2].push(timed_us(|| outcome = set(Access::Write, Access::Read)));
            outcome?;
            set(Access::Read, held)?;
            times[3].push(timed_us(|| outcome = set(held, Access::None)));
            outcome?;
        }
        Ok(times.map(|mut times| median(&mut times)))
    }
}

fn timed_us(call: impl FnOnce()) -> f64 {
    let start = Instant::now();
    call();
    start.elapsed().as_nanos() as f64 / 1000.0
}

/// A rank with the shared memory open.
struct Station<'a> {
    node: &'a Node,
    shared: &'a Shared,
    steps: Steps,
    flags: super::flags::Flags,
    minipages: Vec<SharedSlice<u64>>,
}

impl<'a> Station<'a> {
    fn new(node: &'a Node, shared: &'a Shared, bytes: usize) -> Result<Self, BenchError> {
        let steps = Steps::new(node)?;
        let flags = super::flags::Flags::new(node)?;
        let mut minipages = Vec::new();
        for _ in 0..MINIPAGES {
            let mine = if node.rank() == 1 % node.size() {
                Some(shared.alloc::<u64>(bytes / 8)?)
            } else {
                None
            };
            minipages.push(shared.broadcast_slice(1 % node.size(), mine)?);
        }
        Ok(Self {
            node,
            shared,
            steps,
            flags,
            minipages,
        })
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
                        self.flags.answer(order.times);
                    }
                }
                what::PREPARE => self.prepare(order.bytes)?,
                what::SERVE => {
                    self.steps.answer();
                    let others = self.node.rank() >= 2;
                    self.serve(if others {
                        "sleeping"
                    } else {
                        OWNERS[order.bytes as usize]
                    });
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

    /// Microseconds of a flag there and back between rank 0 and rank 1.
    fn round_trip(&mut self) -> Result<f64, BenchError> {
        if self.node.size() < 2 {
            return Err("a flag round trip needs two ranks".into());
        }
        let times = 400;
        self.order(what::FLAGS, 0, times);
        let us = self.flags.ask(times) / 1000.0;
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
            Job {
                bench: name,
                ranks,
                options: &options,
                case: &case_of(ranks, wait),
            }
            .run(plan, report.is_json())?;
        }
        return Ok(());
    };
    let node = Node::join()?;
    let shared = Shared::open(&node, 1)?;
    let mut station = Station::new(&node, &shared, minipage_bytes(&case))?;
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

/// `mapwire bench fault`.
pub(crate) fn fault(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    // A case names the bytes of a minipage and the ranks that read it before rank 0 stores to it.
    let mut jobs = Vec::new();
    for bytes in [128, 4096] {
        for copies in 0..=if plan.quick { 1 } else { 3 } {
            jobs.push((2 + copies, bytes, copies));
        }
    }
    if role().is_none() {
        for (ranks, bytes, copies) in jobs {
            let case = format!("{bytes} {copies}");
            Job {
                bench: "fault",
                ranks,
                options: &["--wait", "poll"],
                case: &case,
            }
            .run(plan, report.is_json())?;
        }
        return Ok(());
    }
    let bytes_of = |case: &str| {
        case.split(' ')
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(4096)
    };
    in_jobs(
        "fault",
        plan,
        report,
        &[],
        bytes_of,
        |_, _| String::new(),
        |station, case, report| {
            let bytes = bytes_of(case);
            let copies: u64 = case
                .split(' ')
                .nth(1)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0);
            let raw = RawFault::new(station.shared)?;
            for (owner, how) in OWNERS.iter().enumerate() {
                if copies > 0 && *how != "polling" {
                    continue;
                }
                for access in ["read", "write", "upgrade"] {
                    if copies > 0 && access == "read" {
                        continue;
                    }
                    fault_case(
                        plan,
                        station,
                        &raw,
                        report,
                        FaultCase {
                            bytes,
                            copies,
                            owner,
                            access,
                        },
                    )?;
                }
            }
            Ok(())
        },
    )
}

struct FaultCase {
    bytes: usize,
    copies: u64,
    owner: usize,
    access: &'static str,
}

fn fault_case(
    plan: Plan,
    station: &mut Station<'_>,
    raw: &RawFault,
    report: &mut Report,
    case: FaultCase,
) -> Result<(), BenchError> {
    let FaultCase {
        bytes,
        copies,
        owner,
        access,
    } = case;
    let effort = Effort::planned(plan, 3, 15);
    let station = std::cell::RefCell::new(station);
    let source = vec![1_u8; bytes];
    let mut landing = vec![0_u8; bytes];
    let figure = paired::<BenchError>(
        effort,
        || {
            // raw fault + the owner's protection change + two one-way messages + copy
            let held = if access == "upgrade" {
                Access::Read
            } else {
                Access::Write
            };
            let [load, store, bar, close] = raw.costs(held)?;
            let round_trip = station.borrow_mut().round_trip()?;
            let copy = timed_us(|| {
                for _ in 0..64 {
                    landing.copy_from_slice(black_box(&source));
                    black_box(&mut landing);
                }
            }) / 64.0;
            let parts = if access == "read" {
                load + bar
            } else {
                store + close
            };
            Ok(parts + round_trip + if access == "upgrade" { 0.0 } else { copy })
        },
        || {
            let mut station = station.borrow_mut();
            station.order(what::PREPARE, copies, 0);
            station.prepare(copies)?;
            station.gather();
            if access == "upgrade" {
                for minipage in &station.minipages {
                    black_box(minipage.get(0));
                }
            }
            station.order(what::SERVE, owner as u64, 0);
            station.gather();
            if OWNERS[owner] == "sleeping" {
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut times = Vec::with_capacity(MINIPAGES);
            for minipage in &station.minipages {
                times.push(timed_us(|| {
                    if access == "read" {
                        black_box(minipage.get(0));
                    } else {
                        minipage.set(0, 1);
                    }
                }));
            }
            Ok(median(&mut times))
        },
    );
    let figure = match figure {
        Ok(figure) => figure,
        Err(error) if error.is::<Restless>() => {
            report.remark(&format!("{access} fault, owner {}: {error}", OWNERS[owner]));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let station = station.into_inner();
    let fields = vec![
        ("access", json!(access)),
        ("bytes", json!(bytes)),
        ("owner", json!(OWNERS[owner])),
        ("copies", json!(copies)),
        ("faults", json!(station.shared.faults().to_string())),
        ("ranks", json!(station.node.size())),
        ("transport", json!("shm")),
    ];
    let baseline = "raw fault + protection change + flag round trip + copy";
    report.row(&Row::of(fields, "us", baseline, &figure));
    Ok(())
}

/// `mapwire bench lock`.
pub(crate) fn lock(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let jobs = [(2, "poll"), (2, "adaptive"), (4, "poll"), (4, "adaptive")];
    let jobs = &jobs[..if plan.quick { 2 } else { jobs.len() }];
    in_jobs(
        "lock",
        plan,
        report,
        jobs,
        |_| 64,
        |_, wait| wait.to_owned(),
        |station, wait, report| {
            let effort = Effort::planned(plan, 3, 31);
            let ranks = station.node.size();
            let station = std::cell::RefCell::new(station);
            let fields = |case: &str| {
                vec![
                    ("case", json!(case)),
                    ("ranks", json!(ranks)),
                    ("wait", json!(wait)),
                    ("transport", json!("shm")),
                ]
            };
            let figure = paired::<BenchError>(
                effort,
                || station.borrow_mut().round_trip(),
                || {
                    let station = station.borrow();
                    drop(station.shared.lock(3)?);
                    let times = 1000;
                    let start = Instant::now();
                    for _ in 0..times {
                        drop(station.shared.lock(3)?);
                    }
                    Ok(start.elapsed().as_nanos() as f64 / 1000.0 / f64::from(times))
                },
            )?;
            report.row(&Row::of(
                fields("lock + unlock, uncontended"),
                "us",
                "flag round trip",
                &figure,
            ));
            let figure = paired::<BenchError>(
                effort,
                || station.borrow_mut().round_trip(),
                || {
                    let mut station = station.borrow_mut();
                    let times = if plan.quick { 20 } else { 100 };
                    station.order(what::CONTEND, 0, times);
                    let start = Instant::now();
                    station.contend(times)?;
                    station.gather();
                    Ok(start.elapsed().as_nanos() as f64 / 1000.0 / (times * ranks as u64) as f64)
                },
            );
            match figure {
                Ok(figure) => report.row(&Row::of(
                    fields("lock, count, unlock, contended"),
                    "us",
                    "flag round trip",
                    &figure,
                )),
                Err(error) => report.remark(&format!("contended: {error}")),
            }
            station.borrow().poll();
            Ok(())
        },
    )
}

/// `mapwire bench barrier`.
pub(crate) fn barrier(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let jobs = [
        (2, POLLING),
        (2, "poll"),
        (2, "adaptive"),
        (2, "event"),
        (4, "poll"),
        (4, "adaptive"),
        (4, "event"),
    ];
    let jobs = &jobs[..if plan.quick { 4 } else { jobs.len() }];
    in_jobs(
        "barrier",
        plan,
        report,
        jobs,
        |_| 64,
        |_, wait| wait.to_owned(),
        |station, wait, report| {
            let effort = Effort::planned(plan, 3, 31);
            let ranks = station.node.size();
            let station = std::cell::RefCell::new(station);
            let figure = paired::<BenchError>(
                effort,
                || station.borrow_mut().round_trip(),
                || {
                    let mut station = station.borrow_mut();
                    let times = if ranks > 2 || wait == "event" {
                        20
                    } else {
                        200
                    };
                    station.order(what::MEET, 0, times);
                    let start = Instant::now();
                    station.meet(times)?;
                    let us = start.elapsed().as_nanos() as f64 / 1000.0 / times as f64;
                    station.gather();
                    Ok(us)
                },
            );
            let case = vec![
                ("case", json!("empty barrier")),
                ("ranks", json!(ranks)),
                ("wait", json!(wait)),
                ("transport", json!("shm")),
            ];
            match figure {
                Ok(figure) => report.row(&Row::of(case, "us", "flag round trip", &figure)),
                Err(error) => report.remark(&format!("{ranks} ranks, {wait}: {error}")),
            }
            Ok(())
        },
    )
}
