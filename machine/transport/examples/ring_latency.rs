//! Measures the ring between two processes against what the memory itself can do.
//!
//! `cargo run --release -p mapwire-transport --example ring_latency [-- latency|stream|alone [bulk KiB] [slots]]`
//!
//! Latency: one way, half of a ping-pong. The baseline, a *plain put*, is a copy into shared memory and a release
//! store of 8 bytes right behind it, which the other side spins on and does not otherwise read. Every ring batch
//! stands between two plain batches; a triple whose plain batches differ by more than 20 % is dropped. The ring's
//! sender copies from a buffer of its own, its receiver into a buffer of its own; *put and read* does the same with
//! the bare memory, and is what no ring can beat. Virtual processors that share a physical core at the moment are
//! told apart by the put's own time.
//!
//! Stream: messages cut into packets of 4 KiB, sender and receiver each with a buffer of the message's size; the
//! baseline is one thread's memcpy between two such buffers.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use mapwire_transport::payload::Piece;
use mapwire_transport::shm::channel::{Channel, Side};
use mapwire_transport::shm::ring::RingConfig;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::CpuSet;

const HEADER: [u8; 48] = [7; 48];
const TRIPLES: usize = 400;
const ROUNDS: usize = 100;
/// A plain put faster than this says that both processors share a physical core just now.
const NEAR_NS: f64 = 60.0;
const STREAM_BYTES: usize = 2 << 20;
const STREAM_SAMPLES: usize = 100;
const CHUNK: usize = 4096;

/// Shared memory for plain puts: one mebibyte for each direction.
struct Plain {
    out: *mut u8,
    into: *const u8,
    turn: u64,
}

const PLAIN_BYTES: usize = 1 << 20;

impl Plain {
    fn flag(at: *const u8, len: usize) -> &'static AtomicU64 {
        // SAFETY: `len` is at most half of the area, and rounding keeps the word aligned; the area is never unmapped.
        unsafe { AtomicU64::from_ptr(at.add(len.next_multiple_of(8)).cast_mut().cast()) }
    }

    fn put(&mut self, source: &[u8]) {
        self.turn += 1;
        // SAFETY: the area holds every length that is measured, and the peer only reads it.
        unsafe { core::ptr::copy_nonoverlapping(source.as_ptr(), self.out, source.len()) };
        Self::flag(self.out, source.len()).store(self.turn, Ordering::Release);
    }

    fn wait(&self, len: usize, turn: u64) {
        let flag = Self::flag(self.into, len);
        while flag.load(Ordering::Acquire) != turn {
            core::hint::spin_loop();
        }
    }

    fn batch(&mut self, first: bool, source: &[u8], mut into: Option<&mut [u8]>) -> f64 {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            let turn = self.turn + 1;
            if first {
                self.put(source);
            }
            self.wait(source.len(), turn);
            if let Some(into) = into.as_deref_mut() {
                // SAFETY: the area holds every length that is measured, and `into` is of the source's length.
                unsafe { core::ptr::copy_nonoverlapping(self.into, into.as_mut_ptr(), into.len()) };
            }
            if !first {
                self.put(source);
            }
        }
        start.elapsed().as_secs_f64() * 1e9 / (2 * ROUNDS) as f64
    }
}

fn send(channel: &mut Channel, source: &[u8]) {
    while channel
        .sender
        .try_push(&HEADER, &[Piece::from(source)])
        .is_err()
    {
        core::hint::spin_loop();
    }
}

fn receive(channel: &mut Channel, into: &mut [u8]) {
    loop {
        if let Some(incoming) = channel.receiver.peek().expect("an honest peer") {
            let len = incoming.payload.len_bytes();
            incoming.payload.copy_to_slice(0, &mut into[..len]);
            channel.receiver.release();
            return;
        }
        core::hint::spin_loop();
    }
}

fn ring_batch(channel: &mut Channel, first: bool, source: &[u8], into: &mut [u8]) -> f64 {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        if first {
            send(channel, source);
            receive(channel, into);
        } else {
            receive(channel, into);
            send(channel, source);
        }
    }
    start.elapsed().as_secs_f64() * 1e9 / (2 * ROUNDS) as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[derive(Default)]
struct Mode {
    ratios: Vec<f64>,
    floors: Vec<f64>,
    rings: Vec<f64>,
    plains: Vec<f64>,
}

fn latency(plain: &mut Plain, channel: &mut Channel, first: bool) {
    for len in [8, 64, 128, 256, 1024, 2048, 4096] {
        let source = vec![3u8; len];
        let mut into = vec![0u8; len];
        let mut modes = [Mode::default(), Mode::default()];
        for _ in 0..TRIPLES {
            let before = plain.batch(first, &source, None);
            let ring = ring_batch(channel, first, &source, &mut into);
            let read = plain.batch(first, &source, Some(&mut into));
            let after = plain.batch(first, &source, None);
            if before.max(after) <= 1.2 * before.min(after) {
                let mode = &mut modes[usize::from(before < NEAR_NS + len as f64 / 64.0)];
                mode.ratios.push(2.0 * ring / (before + after));
                mode.floors.push(2.0 * read / (before + after));
                mode.rings.push(ring);
                mode.plains.push(before);
            }
        }
        if first {
            for (mode, name) in modes.iter_mut().zip(["two cores", "one core"]) {
                if mode.ratios.len() >= TRIPLES / 20 {
                    println!(
                        "{len:6} B, {name}: plain put {:4.0} ns, ring {:4.0} ns, ring/put {:.2} (quartiles {:.2} {:.2}), put and read/put {:.2}, {} kept",
                        median(&mut mode.plains),
                        median(&mut mode.rings),
                        median(&mut mode.ratios),
                        mode.ratios[mode.ratios.len() / 4],
                        mode.ratios[mode.ratios.len() * 3 / 4],
                        median(&mut mode.floors),
                        mode.ratios.len(),
                    );
                }
            }
        }
    }
}

fn copy_rate(len: usize, repeats: usize) -> f64 {
    let source = vec![5u8; len];
    let mut into = vec![1u8; len];
    into.copy_from_slice(&source);
    let start = Instant::now();
    for _ in 0..repeats {
        into.copy_from_slice(std::hint::black_box(&source));
        std::hint::black_box(&mut into);
    }
    (len * repeats) as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn stream(plain: &mut Plain, channel: &mut Channel, first: bool) {
    for len in [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20] {
        let repeats = (STREAM_BYTES / len).max(1);
        let source = vec![3u8; len];
        let mut into = vec![0u8; len];
        let (mut ratios, mut rates, mut copies, mut puts) = (vec![], vec![], vec![], vec![]);
        for _ in 0..STREAM_SAMPLES {
            let copy = if first { copy_rate(len, repeats) } else { 1.0 };
            puts.push(plain.batch(first, &source[..8], None));
            let start = Instant::now();
            for _ in 0..repeats {
                for offset in (0..len).step_by(CHUNK) {
                    if first {
                        send(channel, &source[offset..][..CHUNK]);
                    } else {
                        receive(channel, &mut into[offset..][..CHUNK]);
                    }
                }
            }
            if first {
                receive(channel, &mut into[..8]);
            } else {
                send(channel, &source[..8]);
            }
            let rate = (len * repeats) as f64 / start.elapsed().as_secs_f64() / 1e9;
            ratios.push(rate / copy);
            rates.push(rate);
            copies.push(copy);
        }
        if first {
            println!(
                "{:6} KiB: memcpy {:5.1} GB/s (best {:5.1}), ring {:5.1} GB/s (best {:5.1}), share median {:.2} (quartiles {:.2} {:.2}), best by best {:.2}; put of 8 B {:.0} ns",
                len >> 10,
                median(&mut copies),
                copies[copies.len() - 1],
                median(&mut rates),
                rates[rates.len() - 1],
                median(&mut ratios),
                ratios[ratios.len() / 4],
                ratios[ratios.len() * 3 / 4],
                rates[rates.len() - 1] / copies[copies.len() - 1],
                median(&mut puts),
            );
        }
    }
}

/// What the instructions of a push and a pop cost when no line has to move.
fn alone() {
    let mut channel = Channel::loopback(&RingConfig::default()).expect("a ring");
    for len in [8, 64, 128, 4096] {
        let source = vec![3u8; len];
        let mut into = vec![0u8; len];
        let mut times = vec![];
        for _ in 0..1000 {
            let start = Instant::now();
            for _ in 0..ROUNDS {
                send(&mut channel, &source);
                receive(&mut channel, &mut into);
            }
            times.push(start.elapsed().as_secs_f64() * 1e9 / ROUNDS as f64);
        }
        println!(
            "{len:6} B: push and pop on one processor {:.1} ns",
            median(&mut times)
        );
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_else(|| "latency".into());
    let mut config = RingConfig::default();
    if let Some(kib) = arguments.next() {
        config.bulk_bytes = kib.parse::<u32>().expect("bulk area in KiB") << 10;
    }
    if let Some(slots) = arguments.next() {
        config.slots = slots.parse().expect("number of slots");
    }
    let memory = Channel::create(&config).expect("a channel");
    // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
    let area = unsafe {
        rustix::mm::mmap_anonymous(
            core::ptr::null_mut(),
            2 * PLAIN_BYTES,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
        )
    }
    .expect("an area for plain puts")
    .cast::<u8>();
    // SAFETY: one thread runs here, so the child may do anything.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    let first = child != 0;
    if !first {
        // SAFETY: asks the kernel to end this process with its parent; no memory is involved.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    }
    let mut set = CpuSet::new();
    set.set(usize::from(first));
    let _ = rustix::thread::sched_setaffinity(None, &set);

    // SAFETY: both halves are within the area.
    let other = unsafe { area.add(PLAIN_BYTES) };
    let (out, into) = if first { (area, other) } else { (other, area) };
    let mut plain = Plain { out, into, turn: 0 };
    let side = if first { Side::Lower } else { Side::Higher };
    let mut channel = Channel::open(memory.as_fd(), side, &config).expect("a side");
    match what.as_str() {
        "alone" => {
            if first {
                alone();
            }
        }
        "stream" => stream(&mut plain, &mut channel, first),
        _ => latency(&mut plain, &mut channel, first),
    }
    if first {
        // SAFETY: waits for our own child; a null status is allowed.
        unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
    }
}
