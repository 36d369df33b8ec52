//! `lookup` and `pin`: what translation costs a process (UTLB Tables 1 and 2).

use std::hint::black_box;
use std::time::Instant;

use mapwire_host::pinning::{DEFAULT_SLOTS, MlockPinner, PinError, Pinner, UringPinner};
use mapwire_translation::{
    CacheConfig, Check, Frame, Hierarchical, Lookup, PAGE_BYTES, Page, PageRange, PinMap, Process, SharedCache,
    TranslationDesign,
};
use serde_json::json;

use super::measure::{Effort, Restless, paired};
use super::row::{Report, Row};
use super::{BenchError, Plan, raw};

/// Rows of UTLB Table 1.
const PAGES: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// Operations of one measurement: some tens of microseconds, too short for the machine to change its speed in.
const TIMES: u32 = 4000;

fn mean_ns(mut f: impl FnMut(u32)) -> Result<f64, BenchError> {
    let start = Instant::now();
    for turn in 0..TIMES {
        f(turn);
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(TIMES))
}

/// A chain of loads, each of which needs the one before, in a block that fits the first-level cache.
struct Chain(Vec<usize>);

impl Chain {
    fn new() -> Self {
        // A step that is odd visits every place before it comes back.
        let places = 2048 / size_of::<usize>();
        Self((0..places).map(|at| (at + 37) % places).collect())
    }

    fn loads(&self) -> Result<f64, BenchError> {
        let mut at = 0;
        let ns = mean_ns(|_| at = self.0[at])?;
        black_box(at);
        Ok(ns)
    }
}

/// `mapwire bench lookup`.
pub(crate) fn lookup(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let effort = Effort::planned(plan, 9, 301);
    let chain = Chain::new();
    let baseline = "dependent L1 load";
    let first = Page(0x7f00_0000);
    let mut map = PinMap::new();
    map.set(PageRange { first, count: 4096 })?;
    for pages in PAGES {
        let figure = paired(
            effort,
            || chain.loads(),
            || {
                let mut at = first;
                let ns = mean_ns(|_| {
                    let range = PageRange { first: at, count: pages };
                    // The answer chooses the next page, so that one check waits for the one before, as in a program.
                    at = if map.check(black_box(range)) == Check::AllPinned { first } else { range.end() };
                })?;
                black_box(at);
                Ok::<f64, BenchError>(ns)
            },
        )?;
        let case = vec![("case", json!("user-level check")), ("pages", json!(pages))];
        report.row(&Row::of(case, "ns", baseline, &figure));
    }

    let process = Process(0);
    let mut cache = SharedCache::new(CacheConfig::default())?;
    for n in 0..64 {
        cache.fill(process, Page(n), Frame(n));
    }
    let figure = paired(
        effort,
        || chain.loads(),
        || {
            let mut page = Page(0);
            let ns = mean_ns(|_| {
                // The frame found is the next page asked for: again one lookup waits for the one before.
                page = cache.lookup(process, black_box(page)).map_or(Page(1), |frame| Page(frame.0));
            })?;
            black_box(page);
            Ok::<f64, BenchError>(ns)
        },
    )?;
    report.row(&Row::of(vec![("case", json!("NIC cache hit")), ("pages", json!(1))], "ns", baseline, &figure));

    // Two pages that share the entry of a direct-mapped cache evict each other: every lookup is a miss, a walk and a fill.
    let config = CacheConfig::default();
    let mut design = Hierarchical::new(config)?;
    design.open(process)?;
    let far = Page(config.entries as u64 * 3);
    design.install(process, Page(0), Frame(0))?;
    design.install(process, far, Frame(1))?;
    let before = design.counters().nic_misses;
    let mut lookups = 0_u64;
    let figure = paired(
        effort,
        || chain.loads(),
        || {
            let mut page = Page(0);
            let ns = mean_ns(|_| {
                page = if design.lookup(process, black_box(page)) == Lookup::Miss(Frame(0)) { far } else { Page(0) }
            })?;
            lookups += u64::from(TIMES);
            Ok::<f64, BenchError>(ns)
        },
    )?;
    if design.counters().nic_misses - before < lookups - 1 {
        return Err("the pages of the miss case did not evict each other".into());
    }
    report.row(&Row::of(vec![("case", json!("NIC cache miss")), ("pages", json!(1))], "ns", baseline, &figure));
    Ok(())
}

/// `mapwire bench pin`.
pub(crate) fn pin(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let effort = Effort::planned(plan, 5, 101);
    let memory = vec![1_u8; 40 * PAGE_BYTES];
    let first = Page::containing(memory.as_ptr() as u64 + PAGE_BYTES as u64);
    for pages in PAGES {
        let mut bare = raw::BareMlock::new(&memory[first.address() as usize - memory.as_ptr() as usize..], pages);
        rows(effort, report, &mut MlockPinner::new(), &mut bare, PageRange { first, count: pages })?;
    }
    for pages in PAGES {
        let pinner = UringPinner::new(DEFAULT_SLOTS);
        let mut pinner = match pinner {
            Ok(pinner) => pinner,
            Err(error) => {
                report.remark(&format!("io_uring is left out: {error}"));
                break;
            }
        };
        let mut bare = raw::BareUring::new(&memory[first.address() as usize - memory.as_ptr() as usize..], pages)?;
        rows(effort, report, &mut pinner, &mut bare, PageRange { first, count: pages })?;
    }
    Ok(())
}

fn rows(
    effort: Effort,
    report: &mut Report,
    pinner: &mut dyn Pinner,
    bare: &mut dyn raw::Bare,
    pages: PageRange,
) -> Result<(), BenchError> {
    let mut frames = [Frame::GARBAGE; 32];
    let frames = &mut frames[..pages.count as usize];
    for (what, index) in [("pin", 0), ("unpin", 1)] {
        let bare = std::cell::RefCell::new(&mut *bare);
        let turns = 20;
        let figure = paired::<BenchError>(
            effort,
            || {
                let mut bare = bare.borrow_mut();
                let mut sums = [0.0; 2];
                for _ in 0..turns {
                    sums[0] += timed_us(|| bare.pin())?;
                    sums[1] += timed_us(|| bare.unpin())?;
                }
                Ok(sums[index] / f64::from(turns))
            },
            || {
                let mut sums = [0.0; 2];
                for _ in 0..turns {
                    sums[0] += timed_us(|| pinner.pin(pages, frames).map_err(boxed))?;
                    sums[1] += timed_us(|| pinner.unpin(pages, frames).map_err(boxed))?;
                }
                Ok(sums[index] / f64::from(turns))
            },
        );
        match figure {
            Ok(figure) => {
                let case = vec![("case", json!(what)), ("pinner", json!(pinner.name())), ("pages", json!(pages.count))];
                report.row(&Row::of(case, "us", "the bare system call", &figure));
            }
            Err(error) if error.is::<Restless>() => report.remark(&format!("{what} of {} pages: {error}", pages.count)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn boxed(error: PinError) -> BenchError {
    error.into()
}

fn timed_us(call: impl FnOnce() -> Result<(), BenchError>) -> Result<f64, BenchError> {
    let start = Instant::now();
    call()?;
    Ok(start.elapsed().as_nanos() as f64 / 1000.0)
}
