//! The program of the directory's owner: idle, computing, or walking over memory so that the caches are cold.

use std::hint::black_box;
use std::time::{Duration, Instant};

use mapwire::{Buffer, Export, Import, Node, Rights};

use super::BenchError;
use crate::bench::job::Steps;
use crate::bench::words::Words;

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

/// Where the program says what it has done: steps, and the nanoseconds that they took.
pub(super) struct Counts {
    words: Words,
    _kept: (Buffer, Export),
}

const DONE: usize = 0;
const TOOK_NS: usize = 64;
const NAME: &str = "bench.directory";

impl Counts {
    /// Rank 0 offers the words.
    pub(super) fn offer(node: &Node) -> Result<Self, BenchError> {
        let buffer = node.alloc(4096)?;
        let export = node.export_buffer(&buffer).name(NAME).start()?;
        Ok(Self {
            words: Words::of_buffer(&buffer),
            _kept: (buffer, export),
        })
    }

    /// Steps a second that the program took in the last state in which it was not idle.
    pub(super) fn per_second(&self) -> f64 {
        self.words.load(DONE) as f64 * 1e9 / self.words.load(TOOK_NS).max(1) as f64
    }
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
        let begun = Instant::now();
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
