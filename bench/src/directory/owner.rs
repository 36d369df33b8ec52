//! The program of the directory's owner: idle, computing, or walking over memory so that the caches are cold.

use std::hint::black_box;
use std::time::{Duration, Instant};

use mapwire::{Buffer, Export, Import, Node, Rights};

use super::BenchError;
use super::times::Times;
use crate::job::Steps;
use crate::words::Words;

/// What the program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Idle = 1,
    Computing,
    Cold,
}

impl State {
    pub(super) const ALL: [Self; 3] = [Self::Idle, Self::Computing, Self::Cold];
    /// The order that ends.
    pub(super) const END: u64 = 0;

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

/// Where the program says what it has done: steps, the nanoseconds that they took, and the processor time of its threads.
pub(super) struct Counts {
    words: Words,
    _kept: (Buffer, Export),
}

const DONE: usize = 0;
const TOOK_NS: usize = 8;
const PROGRAM_NS: usize = 16;
const HOST_NS: usize = 24;
const NIC_NS: usize = 32;
const NAME: &str = "bench.directory";

impl Counts {
    /// Rank 0 offers the words.
    pub(super) fn offer(node: &Node) -> Result<Self, BenchError> {
        let buffer = node.alloc(4096)?;
        let export = node.export_buffer(&buffer).name(NAME).start()?;
        Ok(Self { words: Words::of_buffer(&buffer), _kept: (buffer, export) })
    }

    /// What the program and the others of its process did in the last state in which it was not idle.
    pub(super) fn done(&self) -> Done {
        let of = |word| self.words.load(word) as f64;
        let took_ns = of(TOOK_NS).max(1.0);
        Done {
            speed: of(DONE) * 1e3 / took_ns,
            own_speed: of(DONE) * 1e3 / of(PROGRAM_NS).max(1.0),
            host: of(HOST_NS) * 100.0 / took_ns,
            nic: of(NIC_NS) * 100.0 / took_ns,
        }
    }
}

/// What was done in a span of time.
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

/// Does as rank 0 orders, to the end.
pub(super) fn run(node: &Node, mut steps: Steps) -> Result<(), BenchError> {
    let import: Import = node.import(0, NAME).rights(Rights::ALL).start()?;
    let counts = Words::of_import(&import)?;
    let mut small = vec![1_u64; WORDS];
    let large = vec![1_u8; WALK_BYTES];
    let mut at = 0;
    loop {
        let order = steps.next(|| std::thread::sleep(Duration::from_millis(1)));
        steps.answer();
        if order.what == State::END {
            return Ok(());
        }
        let (begun, before) = (Instant::now(), Times::now()?);
        let mut done = 0;
        while !steps.has_next() {
            if order.what == State::Computing as u64 {
                compute(&mut small, &mut at);
            } else if order.what == State::Cold as u64 {
                walk(&large, &mut at);
            } else {
                break;
            }
            done += STEPS as u64;
        }
        // An idle program has nothing to say.
        if done > 0 {
            counts.store(DONE, done);
            counts.store(TOOK_NS, begun.elapsed().as_nanos() as u64);
            let taken = Times::now()? - before;
            counts.store(PROGRAM_NS, taken.program_ns);
            counts.store(HOST_NS, taken.host_ns);
            counts.store(NIC_NS, taken.nic_ns);
        }
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
