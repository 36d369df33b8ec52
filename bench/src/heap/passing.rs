//! Blocks that one process allocates and another frees, beside two threads that do so with mimalloc. Both pass them through one ring.

use core::sync::atomic::{AtomicU64, Ordering};
use std::hint::spin_loop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command};
use std::time::Instant;

use mapwire_host::memory::memfd;
use mapwire_segment::heap::{Heap, HeapError};
use serde_json::json;

use super::mimalloc::Block;
use super::{BLOCK_BYTES, open};
use crate::BenchError;
use crate::measure::{Effort, Step, sampled};
use crate::placement::{Placements, quickest};
use crate::row::Report;

/// The file and the offset of the ring: a process that has them in its environment frees blocks.
const ROLE: &str = "MAPWIRE_BENCH_HEAP";

/// Blocks on their way at most.
const SLOTS: u64 = 1024;
/// Blocks of one measurement.
const BLOCKS: u64 = 20_000;

/// Words before the slots, each on a line of its own: what to do, how far the other is, a flag that goes to and fro, and its answer.
const ORDER: u64 = 0;
const DONE: u64 = 8;
const FLAG: u64 = 16;
const ANSWER: u64 = 24;
const FIRST_SLOT: u64 = 32;

/// Orders: so many blocks come, plus one; these two besides. A count of orders is in the upper half.
const ANSWER_FLAGS: u64 = 0;
const END: u64 = u32::MAX as u64;

/// Turns of a flag in one look, and looks.
const TURNS: u64 = 100;
const PARTS: u64 = 5;

/// The words through which two pass blocks.
#[derive(Clone, Copy, Debug)]
struct Ring<'a> {
    heap: &'a Heap,
    at: u64,
}

impl<'a> Ring<'a> {
    fn word(self, nth: u64) -> &'a AtomicU64 {
        self.heap.segment().word64(self.at + nth * 8).expect("the ring is allocated")
    }

    /// Takes so many blocks out, and hands each to `free`.
    fn drain(self, blocks: u64, mut free: impl FnMut(u64) -> Result<(), HeapError>) -> Result<(), HeapError> {
        for nth in 0..blocks {
            let slot = self.word(FIRST_SLOT + nth % SLOTS);
            let block = loop {
                match slot.load(Ordering::Acquire) {
                    0 => spin_loop(),
                    block => break block,
                }
            };
            slot.store(0, Ordering::Release);
            free(block)?;
        }
        Ok(())
    }

    /// Puts so many blocks in. Fails if nobody takes them out for seconds.
    fn fill(self, blocks: u64, mut allocate: impl FnMut() -> Result<u64, BenchError>) -> Result<(), BenchError> {
        for nth in 0..blocks {
            let block = allocate()?;
            let slot = self.word(FIRST_SLOT + nth % SLOTS);
            spin_while(|| slot.load(Ordering::Acquire) != 0)?;
            slot.store(block, Ordering::Release);
        }
        Ok(())
    }
}

/// Fails after some seconds: the other process has ended, or does not run.
fn spin_while(is_so: impl Fn() -> bool) -> Result<(), BenchError> {
    const SPINS: u64 = 1 << 28;
    for _ in 0..SPINS {
        if !is_so() {
            return Ok(());
        }
        spin_loop();
    }
    Err("the process that frees the blocks does not answer".into())
}

/// The process that frees the blocks.
#[derive(Debug)]
pub(super) struct Consumer {
    heap: Heap,
    ring_at: u64,
}

impl Consumer {
    /// This process, if it is to be that.
    pub(super) fn of_environment() -> Result<Option<Self>, BenchError> {
        let Ok(role) = std::env::var(ROLE) else { return Ok(None) };
        let (path, ring_at) = role.split_once(' ').ok_or("the role of this process is unreadable")?;
        let file = OwnedFd::from(std::fs::OpenOptions::new().read(true).write(true).open(path)?);
        memfd::verify_growing(&file)?;
        Ok(Some(Self { heap: open(file)?, ring_at: ring_at.parse()? }))
    }

    /// Carries orders out until the last.
    pub(super) fn run(&self) -> Result<(), BenchError> {
        // It spins, and must not when nobody is left who gives orders.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        let ring = Ring { heap: &self.heap, at: self.ring_at };
        let mut done = 0;
        loop {
            let order = ring.word(ORDER).load(Ordering::Acquire);
            if order == done {
                std::thread::yield_now();
                continue;
            }
            done = order;
            match order & u64::from(u32::MAX) {
                END => return Ok(()),
                ANSWER_FLAGS => {
                    for turn in 1..=PARTS * TURNS {
                        while ring.word(FLAG).load(Ordering::Acquire) != turn {
                            spin_loop();
                        }
                        ring.word(ANSWER).store(turn, Ordering::Release);
                    }
                    ring.word(FLAG).store(0, Ordering::Relaxed);
                }
                blocks => ring.drain(blocks - 1, |block| self.heap.free(block))?,
            }
            ring.word(DONE).store(done, Ordering::Release);
        }
    }
}

/// The process that allocates.
struct Producer<'a> {
    ring: Ring<'a>,
    consumer: Child,
    orders: u64,
}

impl Producer<'_> {
    fn order(&mut self, what: u64) {
        self.orders += 1;
        self.ring.word(ORDER).store(self.orders << 32 | what, Ordering::Release);
    }

    /// Waits until the other has carried the last order out.
    fn wait(&mut self) -> Result<(), BenchError> {
        while self.ring.word(DONE).load(Ordering::Acquire) >> 32 != self.orders {
            std::thread::yield_now();
            if let Some(status) = self.consumer.try_wait()? {
                return Err(format!("the process that frees the blocks ended with {status}").into());
            }
        }
        Ok(())
    }

    /// Nanoseconds of a flag's way to the other process and back.
    fn look(&mut self) -> Result<f64, BenchError> {
        self.order(ANSWER_FLAGS);
        let ring = self.ring;
        let mut outcome = Ok(());
        let ns = quickest(PARTS, TURNS, |turn| {
            if outcome.is_ok() {
                ring.word(FLAG).store(turn, Ordering::Release);
                outcome = spin_while(|| ring.word(ANSWER).load(Ordering::Acquire) != turn);
            }
        });
        outcome?;
        self.wait().map(|()| ns)
    }

    /// Nanoseconds a block.
    fn between_processes(&mut self) -> Result<f64, BenchError> {
        let ring = self.ring;
        self.order(BLOCKS + 1);
        let start = Instant::now();
        ring.fill(BLOCKS, || {
            let block = ring.heap.malloc(BLOCK_BYTES)?;
            let word = ring.heap.segment().word64(block).ok_or("a block outside of the memory")?;
            word.store(1, Ordering::Relaxed);
            Ok(block)
        })?;
        self.wait()?;
        Ok(start.elapsed().as_nanos() as f64 / BLOCKS as f64)
    }

    /// As [`between_processes`](Self::between_processes), with mimalloc between threads.
    fn between_threads(&self) -> Result<f64, BenchError> {
        let ring = self.ring;
        std::thread::scope(|scope| {
            let consumer = scope.spawn(move || {
                ring.word(DONE + 1).store(1, Ordering::Release);
                ring.drain(BLOCKS, |block| {
                    Block::of(block).free();
                    Ok(())
                })
            });
            while ring.word(DONE + 1).swap(0, Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            let start = Instant::now();
            ring.fill(BLOCKS, || {
                let block = Block::allocate(BLOCK_BYTES as usize);
                block.touch().map(|()| block.number())
            })?;
            consumer.join().map_err(|_| "the thread that frees the blocks has panicked")??;
            Ok(start.elapsed().as_nanos() as f64 / BLOCKS as f64)
        })
    }
}

impl Drop for Producer<'_> {
    fn drop(&mut self) {
        let _ = self.consumer.kill();
        let _ = self.consumer.wait();
    }
}

pub(super) fn measure(effort: Effort, report: &mut Report) -> Result<(), BenchError> {
    let file = memfd::create_growing("bench")?;
    let role = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let heap = open(file.as_fd().try_clone_to_owned()?)?;
    let ring = Ring { heap: &heap, at: heap.alloc((FIRST_SLOT + SLOTS) * 8, 1)? };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "heap"]).env(ROLE, format!("{role} {}", ring.at));
    let mut producer = Producer { ring, consumer: command.spawn()?, orders: 0 };
    let mut placements = Placements::default();
    let samples = sampled::<BenchError>(effort.scattered(), &mut placements, 2, |step| match step {
        Step::Look => producer.look(),
        Step::Way(0) => producer.between_threads(),
        Step::Way(_) => producer.between_processes(),
    });
    producer.order(END);
    let case = [("case", json!("passed on")), ("bytes", json!(BLOCK_BYTES))];
    if let Some(samples) = report.settled("passed on", samples)? {
        report.rows(&case, "ns", "mimalloc between threads", &samples.figures(1, 0));
    }
    Ok(())
}
