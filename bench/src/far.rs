//! `far-scan` and `far-fault`: memory that is larger than the pager's limit, beside the kernel's bare calls.

mod donors;
mod hosts;
mod remote;

use std::cell::Cell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use mapwire_host::paging::{
    BackingStore, BarePages, DiskStore, Eviction, FaultService, LocalMemoryStore, Pager, PagerConfig, Region,
};
use mapwire_translation::PAGE_BYTES;
use serde_json::{Value, json};

use super::measure::{Effort, Figure, median, paired};
use super::row::{Report, Row};
use super::words::Words;
use super::{BenchError, Plan};
use donors::{Donors, Place};

pub(crate) use remote::fault as remote_fault;

/// Pages of a region are so many times those that may be in RAM.
const TIMES: usize = 4;
/// Pages of one bare call, and of the pager's windows.
const BATCH: usize = 32;

const SERVICES: [(FaultService, &str); 2] =
    [(FaultService::Threads(1), "handler thread"), (FaultService::FaultingThread, "faulting thread")];

const EVICTIONS: [(Eviction, &str); 2] = [(Eviction::Move, "move"), (Eviction::WriteProtect, "write-protect")];

/// With one donor the disk has each page too.
const STORES: [&str; 4] = ["memory", "disk", "donor", "two donors"];

/// How long donors have to come.
const MEETING: Duration = Duration::from_secs(20);

/// Whether a store works in this way. Donors are spoken to from handler threads, whichever way pages are evicted.
fn fits(name: &str, service: FaultService, eviction: Eviction) -> bool {
    let by_threads = service != FaultService::FaultingThread && eviction == Eviction::Move;
    by_threads || !name.contains("donor")
}

fn donors_of(name: &str, pages: usize) -> Result<Option<Donors>, BenchError> {
    match name {
        "donor" => Donors::start(1, Place::Here, pages).map(Some),
        "two donors" => Donors::start(2, Place::Here, pages).map(Some),
        _ => Ok(None),
    }
}

fn store(name: &str, donors: Option<&Donors>) -> Result<Box<dyn BackingStore>, BenchError> {
    Ok(match (name, donors) {
        (_, Some(donors)) => Box::new(donors.store()?),
        ("disk", None) => Box::new(DiskStore::new(std::env::temp_dir())?),
        _ => Box::new(LocalMemoryStore::new()),
    })
}

/// What a store of donors is compared with: the bare calls on memory, though with one donor pages go to the disk as well.
fn bare_store(name: &str) -> Result<Box<dyn BackingStore>, BenchError> {
    store(if name == "disk" { name } else { "memory" }, None)
}

/// A region four times as large as the limit, all of which was stored to.
struct Far {
    /// Shows what was counted.
    pager: Pager,
    region: Region,
    /// They outlive the pager.
    donors: Option<Donors>,
    pages: usize,
    /// Walks so far: each stores other bytes, since the pager writes no page that is what the store has.
    walks: Cell<u64>,
}

impl Far {
    fn new(config: PagerConfig, store_name: &str, limit: usize) -> Result<Self, BenchError> {
        let donors = donors_of(store_name, limit * TIMES)?;
        let store = store(store_name, donors.as_ref())?;
        Self::over(config, store, donors, limit)
    }

    /// Over a store, of these donors if there are any.
    fn over(
        config: PagerConfig,
        store: Box<dyn BackingStore>,
        donors: Option<Donors>,
        limit: usize,
    ) -> Result<Self, BenchError> {
        let pager = Pager::new(config, store)?;
        let pages = limit * TIMES;
        let region = pager.map(pages * PAGE_BYTES, None)?;
        let far = Self { pager, region, donors, pages, walks: Cell::new(0) };
        let words = far.words();
        for page in 0..pages {
            words.store(page * PAGE_BYTES, page as u64 + 1);
        }
        if far.donors.is_some() {
            far.meet_donors()?;
        }
        Ok(far)
    }

    /// Walks until donors have what is not in RAM.
    fn meet_donors(&self) -> Result<(), BenchError> {
        let begun = Instant::now();
        while self.pager.statistics().remote_pages < self.pages / 2 {
            if begun.elapsed() > MEETING {
                return Err("donors do not take pages: is there memory for them?".into());
            }
            self.scan(true)?;
        }
        Ok(())
    }

    fn words(&self) -> Words {
        Words::new(self.region.as_ptr(), self.region.bytes())
    }

    /// Megabytes a second of a walk over all words.
    fn scan(&self, write: bool) -> Result<f64, BenchError> {
        let words = self.words();
        let walk = self.walks.get() + 1;
        self.walks.set(walk);
        let start = Instant::now();
        let mut sum = 0_u64;
        for page in 0..self.pages {
            let page_words = words.part(page * PAGE_BYTES, PAGE_BYTES);
            if write {
                page_words.fill((page as u64 + 2 * walk) as u8 | 1);
            } else {
                sum = sum.wrapping_add(page_words.sum(0, PAGE_BYTES));
            }
        }
        black_box(sum);
        Ok(megabytes_a_second(self.pages, start))
    }

    /// Median microseconds of a load or store to a page that is away.
    fn faults(&self, count: usize, write: bool, random: &mut u64) -> Result<f64, BenchError> {
        Ok(median(&mut self.fault_times(count, write, random)))
    }

    /// Microseconds of loads or stores to pages that are away, the shortest first: `count` accesses to random pages, less those that
    /// find theirs in RAM.
    fn fault_times(&self, count: usize, write: bool, random: &mut u64) -> Vec<f64> {
        let words = self.words();
        let times = (0..count).map(|_| {
            *random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let page = (*random >> 33) as usize % self.pages;
            timed_us(|| access(words, page, write.then_some(*random)))
        });
        let mut times: Vec<f64> = times.collect();
        // A quarter of the pages is in RAM: those do not fault.
        times.sort_by(f64::total_cmp);
        times.split_off(count / TIMES)
    }
}

fn megabytes_a_second(pages: usize, start: Instant) -> f64 {
    (pages * PAGE_BYTES) as f64 / 1e6 / start.elapsed().as_secs_f64()
}

fn timed_us(call: impl FnOnce()) -> f64 {
    let start = Instant::now();
    call();
    start.elapsed().as_nanos() as f64 / 1000.0
}

fn access(words: Words, page: usize, value: Option<u64>) {
    let offset = page * PAGE_BYTES + 64;
    match value {
        Some(value) => words.store(offset, value),
        None => {
            black_box(words.load(offset));
        }
    }
}

fn limit_pages(plan: Plan) -> usize {
    let megabytes = if plan.quick { 4 } else { 64 };
    (megabytes << 20) / PAGE_BYTES
}

/// `mapwire bench far-scan`.
pub(crate) fn scan(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let limit = limit_pages(plan);
    let effort = Effort::planned(plan, 2, 7);
    for (service, service_name) in SERVICES {
        let bare = BarePages::new(limit * TIMES, service)?;
        for store_name in STORES {
            // What the store does by itself.
            let baseline_store = bare_store(store_name)?;
            baseline_store.add_region(0, (limit * TIMES) as u64)?;
            bare.stream(&*baseline_store, 0..limit * TIMES, BATCH, false)?;
            for (eviction, eviction_name) in EVICTIONS {
                if !fits(store_name, service, eviction) {
                    continue;
                }
                let config =
                    PagerConfig::new(limit).with_service(service).with_eviction(eviction).with_read_ahead(BATCH);
                let far = Far::new(config, store_name, limit)?;
                for (write, access) in [(false, "read"), (true, "write")] {
                    let loop_rate = || -> Result<f64, BenchError> {
                        let start = Instant::now();
                        bare.copy_and_drop(BATCH)?;
                        if store_name == "disk" {
                            bare.stream(&*baseline_store, 0..limit * TIMES, BATCH, true)?;
                            if write {
                                bare.stream(&*baseline_store, 0..limit * TIMES, BATCH, false)?;
                            }
                        }
                        Ok(megabytes_a_second(limit * TIMES, start))
                    };
                    let point = format!("{service_name}, {store_name}, {eviction_name}, {access}");
                    far.scan(write)?;
                    let figure = paired(effort, loop_rate, || far.scan(write));
                    let baseline = match (store_name, write) {
                        ("disk", false) => "bare copies, drops and reads",
                        ("disk", true) => "bare copies, drops, reads and writes",
                        _ => "bare copies and drops of 32 pages",
                    };
                    let case = case(limit, service_name, store_name, eviction_name, access);
                    row(report, &point, case, "MB/s", baseline, figure)?;
                }
                remark(report, &far);
            }
        }
    }
    Ok(())
}

/// `mapwire bench far-fault`.
pub(crate) fn fault(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let limit = limit_pages(plan);
    let count = if plan.quick { 1000 } else { 10_000 };
    let effort = Effort::planned(plan, 2, 7);
    for (service, service_name) in SERVICES {
        let bare = BarePages::new(count, service)?;
        let bare_words = Words::new(bare.as_ptr(), bare.bytes());
        for store_name in STORES {
            let baseline_store = bare_store(store_name)?;
            baseline_store.add_region(0, (limit * TIMES) as u64)?;
            bare.stream(&*baseline_store, 0..limit * TIMES, BATCH, false)?;
            for (eviction, eviction_name) in EVICTIONS {
                if !fits(store_name, service, eviction) {
                    continue;
                }
                let config = PagerConfig::new(limit).with_service(service).with_eviction(eviction);
                let far = Far::new(config, store_name, limit)?;
                let mut random = 1;
                for (write, kind) in [(false, "read"), (true, "write")] {
                    let bare_fault = || -> Result<f64, BenchError> {
                        bare.drop_all()?;
                        let mut times = Vec::with_capacity(count);
                        for page in (0..count).map(|page| page * 7919 % count) {
                            let start = Instant::now();
                            // Copies are protected: loads alone fault once.
                            access(bare_words, page, None);
                            if store_name == "disk" {
                                let page = page * 31 % (limit * TIMES);
                                bare.stream(&*baseline_store, page..page + 1, 1, true)?;
                            }
                            times.push(start.elapsed().as_nanos() as f64 / 1000.0);
                        }
                        Ok(median(&mut times))
                    };
                    let point = format!("{service_name}, {store_name}, {eviction_name}, {kind}");
                    far.faults(count, write, &mut random)?;
                    let figure = paired(effort, bare_fault, || far.faults(count, write, &mut random));
                    let case = case(limit, service_name, store_name, eviction_name, kind);
                    let baseline = match store_name {
                        "disk" => "bare fault, copy and read",
                        _ => "bare fault and copy",
                    };
                    row(report, &point, case, "us", baseline, figure)?;
                }
                remark(report, &far);
            }
        }
    }
    Ok(())
}

fn case(limit: usize, service: &str, store: &str, eviction: &str, access: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("access", json!(access)),
        ("store", json!(store)),
        ("service", json!(service)),
        ("eviction", json!(eviction)),
        ("limit_bytes", json!(limit * PAGE_BYTES)),
    ]
}

fn row(
    report: &mut Report,
    point: &str,
    case: Vec<(&'static str, Value)>,
    unit: &'static str,
    baseline: &'static str,
    figure: Result<Figure, BenchError>,
) -> Result<(), BenchError> {
    if let Some(figure) = report.settled(point, figure)? {
        report.row(&Row::of(case, unit, baseline, &figure));
    }
    Ok(())
}

/// What the pager counted, for who doubts the figures.
fn remark(report: &mut Report, far: &Far) {
    let counts = far.pager.statistics();
    report.remark(&format!(
        "  faults {} major, {} minor; read ahead {} pages, {} of them wasted; evicted {} clean, {} dirty; served within {:?} (median), {:?} (99 %)",
        counts.major_faults,
        counts.minor_faults,
        counts.ahead_pages,
        counts.ahead_waste,
        counts.clean_evictions,
        counts.dirty_evictions,
        counts.fault_latency_at(0.5),
        counts.fault_latency_at(0.99),
    ));
}
