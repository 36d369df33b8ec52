//! The program of the directory's owner: idle, computing, or walking over memory so that the caches are cold.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::times::Times;
use crate::BenchError;
use crate::job::{self, Order, Steps};
use crate::words::Words;

/// The program's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    Idle = 1,
    Computing,
    Cold,
}

impl Activity {
    pub(super) const ALL: [Self; 3] = [Self::Idle, Self::Computing, Self::Cold];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Computing => "computing",
            Self::Cold => "cold",
        }
    }
}

/// Words that the computing program goes over: as many as a second-level cache holds.
const WORDS: usize = 32 << 10;
/// Bytes that the other walks over: more than caches hold.
const WALK_BYTES: usize = 64 << 20;
/// Steps between two looks at the orders.
const STEPS: usize = 4096;
/// Bytes of a line of the cache.
const LINE: usize = 64;

/// Words where the program says what it has done: steps, the nanoseconds that they took, and the processor time of its threads.
const DONE: usize = 0;
const TOOK_NS: usize = 8;
const PROGRAM_NS: usize = 16;
const HOST_NS: usize = 24;
const NIC_NS: usize = 32;

/// Work in a span of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// Million steps of the program a second.
    pub(super) speed: f64,
    /// The same a second of its own processor time: what it loses while it has the processor.
    pub(super) own_speed: f64,
    /// Percent of a processor that the thread of the host took, and the NIC.
    pub(super) host: f64,
    pub(super) nic: f64,
}

impl Done {
    /// By the program and the others of its process in the last state in which it was not idle, as `counts` tell.
    pub(super) fn read(counts: Words) -> Self {
        let of = |word| counts.load(word) as f64;
        let took_ns = of(TOOK_NS).max(1.0);
        Self {
            speed: of(DONE) * 1e3 / took_ns,
            own_speed: of(DONE) * 1e3 / of(PROGRAM_NS).max(1.0),
            host: of(HOST_NS) * 100.0 / took_ns,
            nic: of(NIC_NS) * 100.0 / took_ns,
        }
    }
}

/// The program of a rank; only the owner's does anything.
pub(super) struct Program {
    is_owner: bool,
    counts: Words,
    small: Vec<u64>,
    large: Vec<u8>,
    at: usize,
}

impl Program {
    pub(super) fn new(is_owner: bool, counts: Words) -> Self {
        let large = if is_owner { WALK_BYTES } else { 0 };
        Self { is_owner, counts, small: vec![1; WORDS], large: vec![1; large], at: 0 }
    }
}

impl job::Part for Program {
    /// Passes into a state, which lasts until the next order.
    fn carry_out(&mut self, order: Order, steps: &Steps) -> Result<f64, BenchError> {
        if !self.is_owner || order.what == Activity::Idle as u64 {
            return Ok(0.0);
        }
        steps.answer();
        let (begun, before) = (Instant::now(), Times::now()?);
        let mut done = 0;
        while !steps.has_next() {
            if order.what == Activity::Computing as u64 {
                compute(&mut self.small, &mut self.at);
            } else {
                walk(&self.large, &mut self.at);
            }
            done += STEPS as u64;
        }
        let taken = Times::now()? - before;
        self.counts.store(DONE, done);
        self.counts.store(TOOK_NS, begun.elapsed().as_nanos() as u64);
        self.counts.store(PROGRAM_NS, taken.program_ns);
        self.counts.store(HOST_NS, taken.host_ns);
        self.counts.store(NIC_NS, taken.nic_ns);
        Ok(0.0)
    }

    fn idle(&self) {
        std::thread::sleep(Duration::from_micros(500));
    }
}

fn compute(words: &mut [u64], at: &mut usize) {
    let mut sum = *at as u64;
    for _ in 0..STEPS {
        *at = (*at + 1) % words.len();
        sum = sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ words[*at];
        words[*at] = sum;
    }
    black_box(sum);
}

fn walk(bytes: &[u8], at: &mut usize) {
    let mut sum = 0_u8;
    for _ in 0..STEPS {
        *at = (*at + LINE) % bytes.len();
        sum = sum.wrapping_add(bytes[*at]);
    }
    black_box(sum);
}
