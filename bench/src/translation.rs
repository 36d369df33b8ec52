//! `lookup` and `pin`: what translation costs a process (UTLB Tables 1 and 2).

use std::hint::black_box;
use std::time::Instant;

use mapwire_host::pinning::{DEFAULT_SLOTS, MlockPinner, Pinner, UringPinner};
use mapwire_translation::{
    CacheConfig, Check, Frame, Hierarchical, Lookup, PAGE_BYTES, Page, PageRange, PinMap, Process, SharedCache,
    TranslationDesign,
};
use serde_json::json;

use super::measure::{Effort, paired, paired_each, timed_us};
use super::row::Report;
use super::{BenchError, Plan, raw};

/// Rows of UTLB Table 1.
const PAGES: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// Operations of one measurement: some tens of microseconds, too short for the machine to change its speed in.
const TIMES: u32 = 4000;

/// Nanoseconds of a step, each of which needs the outcome of the one before, as in a program.
#[inline(always)]
fn chained_ns<T>(first: T, mut step: impl FnMut(T) -> T) -> f64 {
    let start = Instant::now();
    let mut at = first;
    for _ in 0..TIMES {
        at = step(black_box(at));
    }
    black_box(at);
    start.elapsed().as_nanos() as f64 / f64::from(TIMES)
}

pub(crate) fn lookup(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    // Loads in a block that fits the first-level cache. A step that is odd visits every place before it comes back.
    let places = 2048 / size_of::<usize>();
    let chain: Vec<usize> = (0..places).map(|at| (at + 37) % places).collect();
    let mut row = |case: &str, pages: u64, point: &mut dyn FnMut() -> f64| {
        let effort = Effort::planned(plan, 9, 301);
        let load = || {
            let start = Instant::now();
            let mut at = 0;
            (0..TIMES).for_each(|_| at = chain[at]);
            black_box(at);
            Ok(start.elapsed().as_nanos() as f64 / f64::from(TIMES))
        };
        let figure = paired::<BenchError>(effort, load, || Ok(point()))?;
        report.rows(&[("case", json!(case)), ("pages", json!(pages))], "ns", "dependent L1 load", &[figure]);
        Ok::<(), BenchError>(())
    };
    let first = Page(0x7f00_0000);
    let mut map = PinMap::new();
    map.set(PageRange { first, count: 4096 })?;
    for pages in PAGES {
        let mut check = |at| {
            let range = PageRange { first: at, count: pages };
            // The answer chooses the next page.
            if map.check(range) == Check::AllPinned { first } else { range.end() }
        };
        row("user-level check", pages, &mut || chained_ns(first, &mut check))?;
    }

    let process = Process(0);
    let mut cache = SharedCache::new(CacheConfig::default())?;
    (0..64).for_each(|page| cache.fill(process, Page(page), Frame(page)));
    row("NIC cache hit", 1, &mut || {
        // The frame found is the next page asked for.
        chained_ns(Page(0), |page| cache.lookup(process, page).map_or(Page(1), |frame| Page(frame.0)))
    })?;

    // Two pages that share the entry of a direct-mapped cache evict each other: every lookup is a miss, a walk and a fill.
    let config = CacheConfig::default();
    let mut design = Hierarchical::new(config)?;
    design.open(process)?;
    let far = Page(config.entries as u64 * 3);
    design.install(process, Page(0), Frame(0))?;
    design.install(process, far, Frame(1))?;
    let before = design.counters().nic_misses;
    let mut lookups = 0_u64;
    row("NIC cache miss", 1, &mut || {
        lookups += u64::from(TIMES);
        chained_ns(Page(0), |page| if design.lookup(process, page) == Lookup::Miss(Frame(0)) { far } else { Page(0) })
    })?;
    if design.counters().nic_misses - before < lookups - 1 {
        return Err("the pages of the miss case did not evict each other".into());
    }
    Ok(())
}

pub(crate) fn pin(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    let memory = vec![1_u8; 40 * PAGE_BYTES];
    let first = Page::containing(memory.as_ptr() as u64 + PAGE_BYTES as u64);
    let from_first = &memory[first.address() as usize - memory.as_ptr() as usize..];
    for count in PAGES {
        let pages = PageRange { first, count };
        pin_rows(plan, report, &mut MlockPinner::new(), raw::mlock(from_first, count), pages)?;
    }
    for count in PAGES {
        let mut pinner = match UringPinner::new(DEFAULT_SLOTS) {
            Ok(pinner) => pinner,
            Err(error) => {
                report.remark(&format!("io_uring is left out: {error}"));
                break;
            }
        };
        let ring = io_uring::IoUring::new(1)?;
        ring.submitter().register_buffers_sparse(16_384)?;
        pin_rows(plan, report, &mut pinner, raw::uring(&ring, from_first, count), PageRange { first, count })?;
    }
    Ok(())
}

fn pin_rows(
    plan: &Plan,
    report: &mut Report,
    pinner: &mut dyn Pinner,
    mut bare: raw::Bare<'_>,
    pages: PageRange,
) -> Result<(), BenchError> {
    let mut frames = [Frame::GARBAGE; 32];
    let (name, frames) = (pinner.name(), &mut frames[..pages.count as usize]);
    let raw = || mean_us(|is_pin| if is_pin { (bare.pin)() } else { (bare.unpin)() });
    let ours = || mean_us(|is_pin| Ok(if is_pin { pinner.pin(pages, frames) } else { pinner.unpin(pages, frames) }?));
    let figures = paired_each(Effort::planned(plan, 5, 101), raw, ours);
    let Some(figures) = report.settled(&format!("{} pages", pages.count), figures)? else {
        return Ok(());
    };
    for (what, figure) in ["pin", "unpin"].into_iter().zip(figures) {
        let case = [("case", json!(what)), ("pinner", json!(name)), ("pages", json!(pages.count))];
        report.rows(&case, "us", "the bare system call", &[figure]);
    }
    Ok(())
}

/// Microseconds of each of two calls that take turns: one that pins, and one that gives back.
fn mean_us(mut call: impl FnMut(bool) -> Result<(), BenchError>) -> Result<[f64; 2], BenchError> {
    const TURNS: u32 = 20;
    let (mut sums, mut outcome) = ([0.0; 2], Ok(()));
    for _ in 0..TURNS {
        for (sum, is_pin) in sums.iter_mut().zip([true, false]) {
            *sum += timed_us(|| outcome = call(is_pin));
            std::mem::replace(&mut outcome, Ok(()))?;
        }
    }
    Ok(sums.map(|sum| sum / f64::from(TURNS)))
}
