//! `far-scan` and `far-fault`: memory that is larger than the pager's limit, beside the kernel's bare calls.

#[allow(unsafe_code)]
mod bare;
mod donors;
mod hosts;
mod memory;
mod remote;

use std::cell::Cell;
use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use mapwire_pager::{BackingStore, DiskStore, Pager, Region};
use mapwire_translation::PAGE_BYTES;
use serde_json::json;

use super::measure::{Effort, median, paired, timed_us};
use super::row::Report;
use super::words::Words;
use super::{BenchError, Plan};
use bare::BarePages;
use donors::{Donors, Host};
use memory::MemoryStore;

pub(crate) use remote::fault as remote_fault;

/// Pages of a region are so many times those that may be in RAM.
const TIMES: usize = 4;

/// With one donor the disk has each page too.
const STORES: [&str; 4] = ["memory", "disk", "donor", "two donors"];

/// How long donors have to come.
const MEETING: Duration = Duration::from_secs(20);

fn donors_of(name: &str, pages: usize) -> Result<Option<Donors>, BenchError> {
    match name {
        "donor" => Donors::start(1, Host::This, pages).map(Some),
        "two donors" => Donors::start(2, Host::This, pages).map(Some),
        _ => Ok(None),
    }
}

fn store(name: &str, donors: Option<&Donors>) -> Result<Box<dyn BackingStore>, BenchError> {
    Ok(match (name, donors) {
        (_, Some(donors)) => Box::new(donors.store()?),
        ("disk", None) => Box::new(DiskStore::new(std::env::temp_dir())?),
        _ => Box::new(MemoryStore::default()),
    })
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
    fn new(store_name: &str, limit: usize) -> Result<Self, BenchError> {
        let donors = donors_of(store_name, limit * TIMES)?;
        let store = store(store_name, donors.as_ref())?;
        Self::over(store, donors, limit)
    }

    /// Over a store, of these donors if there are any.
    fn over(store: Box<dyn BackingStore>, donors: Option<Donors>, limit: usize) -> Result<Self, BenchError> {
        let pager = Pager::new(limit, store)?;
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

    /// Microseconds of loads or stores to pages that are away, the shortest first: `count` accesses to random pages, less those that
    /// find theirs in RAM.
    fn fault_times(&self, count: usize, write: bool, random: &Cell<u64>) -> Vec<f64> {
        let words = self.words();
        let times = (0..count).map(|_| {
            let number = random.get().wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            random.set(number);
            let page = (number >> 33) as usize % self.pages;
            timed_us(|| access(words, page, write.then_some(number)))
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

fn access(words: Words, page: usize, value: Option<u64>) {
    let offset = page * PAGE_BYTES + 64;
    match value {
        Some(value) => words.store(offset, value),
        None => {
            black_box(words.load(offset));
        }
    }
}

fn limit_pages(plan: &Plan) -> usize {
    let megabytes = if plan.quick { 4 } else { 64 };
    (megabytes << 20) / PAGE_BYTES
}

/// The bare calls, and a store by itself, which stand beside a pager.
struct Raw<'a> {
    pages: &'a BarePages,
    /// Donors are compared with the bare calls on memory, though with one donor pages go to the disk as well.
    disk: Option<DiskStore>,
    /// Pages of the store.
    stored: usize,
}

impl Raw<'_> {
    /// Has the disk take or give pages.
    fn stream(&self, pages: Range<usize>, fetch: bool) -> Result<(), BenchError> {
        self.disk.as_ref().map_or(Ok(()), |disk| self.pages.stream(disk, pages, fetch))
    }
}

/// A measurement of memory of all kinds, beside bare memory of so many pages.
struct Measurement<'p> {
    plan: &'p Plan,
    unit: &'static str,
    bare_pages: usize,
    /// By the bare calls; of stores if `true`.
    raw: &'p dyn Fn(&Raw<'_>, bool) -> Result<f64, BenchError>,
    ours: &'p dyn Fn(&Far, bool) -> Result<f64, BenchError>,
    /// What the raw figure is of: on a disk, reading and writing, and elsewhere.
    names: [&'static str; 3],
}

impl Measurement<'_> {
    fn of_all_kinds(&self, report: &mut Report) -> Result<(), BenchError> {
        let limit = limit_pages(self.plan);
        let pages = BarePages::new(self.bare_pages)?;
        for store_name in STORES {
            let disk = (store_name == "disk").then(|| DiskStore::new(std::env::temp_dir())).transpose()?;
            let raw = Raw { pages: &pages, disk, stored: limit * TIMES };
            raw.disk.iter().try_for_each(|disk| disk.add_region(0, raw.stored as u64))?;
            raw.stream(0..raw.stored, false)?;
            let far = Far::new(store_name, limit)?;
            for (write, access) in [(false, "read"), (true, "write")] {
                (self.ours)(&far, write)?;
                let effort = Effort::planned(self.plan, 2, 7);
                let figure = paired(effort, || (self.raw)(&raw, write), || (self.ours)(&far, write));
                let baseline = self.names[if raw.disk.is_some() { usize::from(write) } else { 2 }];
                let case = [
                    ("access", json!(access)),
                    ("store", json!(store_name)),
                    ("service", json!("handler thread")),
                    ("eviction", json!("move")),
                    ("limit_bytes", json!(limit * PAGE_BYTES)),
                ];
                report.settled_row(&format!("{store_name}, {access}"), &case, (self.unit, baseline), figure)?;
            }
            remark(report, &far);
        }
        Ok(())
    }
}

pub(crate) fn scan(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    let raw = |raw: &Raw<'_>, write: bool| {
        let start = Instant::now();
        raw.pages.copy_and_drop()?;
        raw.stream(0..raw.stored, true)?;
        if write {
            raw.stream(0..raw.stored, false)?;
        }
        Ok(megabytes_a_second(raw.stored, start))
    };
    let measurement = Measurement {
        plan,
        unit: "MB/s",
        bare_pages: limit_pages(plan) * TIMES,
        raw: &raw,
        ours: &|far, write| far.scan(write),
        names: [
            "bare copies, drops and reads",
            "bare copies, drops, reads and writes",
            "bare copies and drops of 32 pages",
        ],
    };
    measurement.of_all_kinds(report)
}

pub(crate) fn fault(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    let count = if plan.quick { 1000 } else { 10_000 };
    let raw = |raw: &Raw<'_>, _: bool| {
        raw.pages.drop_all()?;
        let words = Words::new(raw.pages.memory().as_ptr(), raw.pages.memory().bytes());
        let mut times = Vec::with_capacity(count);
        for page in (0..count).map(|page| page * 7919 % count) {
            let stored = page * 31 % raw.stored;
            let mut outcome = Ok(());
            times.push(timed_us(|| {
                access(words, page, None);
                outcome = raw.stream(stored..stored + 1, true);
            }));
            outcome?;
        }
        Ok(median(&mut times))
    };
    let random = Cell::new(1);
    let measurement = Measurement {
        plan,
        unit: "us",
        bare_pages: count,
        raw: &raw,
        ours: &|far, write| Ok(median(&mut far.fault_times(count, write, &random))),
        names: ["bare fault, copy and read", "bare fault, copy and read", "bare fault and copy"],
    };
    measurement.of_all_kinds(report)
}

/// The pager's counters, beside the figures.
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
