//! `heap`: the allocator of memory that the ranks of a host share, beside mimalloc, which serves one process.

#[allow(unsafe_code)]
mod mimalloc;
mod passing;

use core::sync::atomic::Ordering;
use std::hint::black_box;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use mapwire_host::memory::memfd;
use mapwire_host::waiting::{Patience, WaitStrategy};
use mapwire_segment::heap::Heap;
use mapwire_segment::layout::DEFAULT_BASE;
use mapwire_segment::{Segment, Vigil};
use serde_json::json;

use self::mimalloc::Block;
use super::measure::{Effort, Figure, paired, timed_us};
use super::row::Report;
use super::{BenchError, Plan};

/// Length of the memory. It takes nothing before it is used.
const SEGMENT_BYTES: u64 = 32 << 30;

const LONG_BYTES: u64 = 4 << 30;
const SMALL_BLOCKS: usize = 1_000_000;
const SMALL_BYTES: u64 = 16;
/// Bytes of the blocks that are freed at once, and of those that are passed on.
const BLOCK_BYTES: u64 = 64;

/// Pairs of calls of one measurement: some tens of microseconds, too short for the machine to change its speed in.
const PAIRS: u32 = 4000;

/// Nobody dies: this bench ends with its processes.
#[derive(Debug)]
struct Calm;

impl Vigil for Calm {
    fn gone(&self) -> Option<u32> {
        None
    }
}

/// A heap on the memory of `file`, at the address that all processes of the bench use.
fn open(file: OwnedFd) -> Result<Heap, BenchError> {
    let patience = Patience::new(WaitStrategy::Poll, 1, core::hint::spin_loop);
    let segment = Segment::map(file, DEFAULT_BASE, SEGMENT_BYTES, 0, patience, Box::new(Calm))?;
    Ok(Heap::open(Arc::new(segment), 0, false)?)
}

fn fresh() -> Result<Heap, BenchError> {
    open(memfd::create_growing("bench")?)
}

pub(crate) fn heap(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    if let Some(consumer) = passing::Consumer::of_environment()? {
        return consumer.run();
    }
    let effort = |runs| Effort::planned(plan, 3, runs);
    long(effort(31), report)?;
    many(effort(11), report)?;
    pairs(effort(301), report)?;
    passing::measure(effort(31), report)
}

/// A long block of zeros.
fn long(effort: Effort, report: &mut Report) -> Result<(), BenchError> {
    let heap = fresh()?;
    let mut outcome = Ok(());
    let baseline = || {
        let mut block = None;
        let us = timed_us(|| block = Some(Block::zeroed(LONG_BYTES as usize)));
        block.map_or(Ok(us), |block| block.touch().map(|()| block.free()).map(|()| us))
    };
    let point = || {
        let mut block = Ok(0);
        let us = timed_us(|| block = heap.alloc(LONG_BYTES, 1));
        outcome = block.and_then(|block| heap.free(block));
        outcome.clone().map_err(BenchError::from).map(|()| us)
    };
    let figure = paired::<BenchError>(effort.scattered(), baseline, point);
    let case = [("case", json!("alloc")), ("bytes", json!(LONG_BYTES))];
    report.settled_row("alloc", &case, ("us", "mimalloc, mi_zalloc"), figure)
}

/// Pages of memory that this process has.
fn resident_bytes() -> Result<f64, BenchError> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).unwrap_or_default().parse()?;
    Ok(pages as f64 * mapwire_translation::PAGE_BYTES as f64)
}

/// Many small blocks of zeros: the time, and the memory that they take once they are stored to.
fn many(effort: Effort, report: &mut Report) -> Result<(), BenchError> {
    let mut offsets = vec![0; SMALL_BLOCKS];
    let mut ours = || {
        let heap = fresh()?;
        let before = resident_bytes()?;
        let start = Instant::now();
        for offset in &mut offsets {
            *offset = heap.alloc(SMALL_BYTES, 1)?;
        }
        let ms = start.elapsed().as_secs_f64() * 1e3;
        for &offset in &offsets {
            let word = heap.segment().word64(offset).ok_or("a block outside of the memory")?;
            word.store(1, Ordering::Relaxed);
        }
        Ok::<_, BenchError>((ms, resident_bytes()? - before))
    };
    let mut blocks = vec![Block::of(0); SMALL_BLOCKS];
    let mut theirs = || {
        let before = resident_bytes()?;
        let start = Instant::now();
        blocks.fill_with(|| Block::zeroed(SMALL_BYTES as usize));
        let ms = start.elapsed().as_secs_f64() * 1e3;
        blocks.iter().try_for_each(|block| block.touch())?;
        let bytes = resident_bytes()? - before;
        blocks.iter().for_each(|block| block.free());
        Ok::<_, BenchError>((ms, bytes))
    };
    let case = [("case", json!("alloc")), ("bytes", json!(SMALL_BYTES)), ("blocks", json!(SMALL_BLOCKS))];
    // mimalloc keeps the memory for the next time, so this is measured once.
    let memory = Figure::of_pairs(&[(ours()?.1 / 1e6, theirs()?.1 / 1e6)]);
    report.rows(&case, "MB", "resident with mimalloc", &[memory]);
    let figure = paired(effort.scattered(), || theirs().map(|it| it.0), || ours().map(|it| it.0));
    report.settled_row("alloc", &case, ("ms", "mimalloc, mi_zalloc"), figure)
}

/// A block that is freed at once.
fn pairs(effort: Effort, report: &mut Report) -> Result<(), BenchError> {
    let heap = fresh()?;
    let mut outcome = Ok(());
    let ns_of = |pair: &mut dyn FnMut()| {
        let start = Instant::now();
        pair();
        start.elapsed().as_nanos() as f64 / f64::from(PAIRS)
    };
    let mut theirs = || {
        for _ in 0..PAIRS {
            black_box(Block::allocate(black_box(BLOCK_BYTES as usize))).free();
        }
    };
    let mut ours = || {
        for _ in 0..PAIRS {
            if let Err(error) = heap.malloc(black_box(BLOCK_BYTES)).and_then(|block| heap.free(black_box(block))) {
                outcome = Err(error);
            }
        }
    };
    let figure = paired::<BenchError>(effort, || Ok(ns_of(&mut theirs)), || Ok(ns_of(&mut ours)));
    outcome?;
    let case = [("case", json!("malloc and free")), ("bytes", json!(BLOCK_BYTES))];
    report.settled_row("malloc and free", &case, ("ns", "mimalloc"), figure)
}
