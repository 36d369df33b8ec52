//! One of two processes that measure a message library: `pair LIBRARY SHARED latency|stream [--quick]`, where LIBRARY has the
//! functions of `peer.h` and SHARED is an empty file that both have. Process 0 prints a JSON row for each way, size and placement.
//!
//! With `PEERS_HOSTS`, the name of a transport between hosts, the baseline are datagrams between bare sockets instead of plain puts.
//! The two then still keep in step by memory that they share.
//!
//! Baselines, looks at the placement and statistics are those of `mapwire bench`, whose sources are used here.

mod datagrams;
mod memory;
mod peer;

#[allow(dead_code)]
#[path = "../../../src/measure.rs"]
mod measure;
#[allow(dead_code)]
#[path = "../../../src/placement.rs"]
mod placement;

use std::time::Instant;

use datagrams::Datagrams;
use measure::{Effort, Figure, Restless, Step, sampled};
use memory::Shared;
use peer::Peer;
use placement::Placements;

/// As in `mapwire bench`.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) quick: bool,
}

type Error = Box<dyn std::error::Error>;

const SIZES: [usize; 9] = [8, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20];
/// Between hosts.
const HOSTS_SIZES: [usize; 6] = [8, 64, 1024, 4096, 65_536, 1 << 20];
const MOST_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;

/// Where the messages of a stream lie, as in `mapwire bench`.
#[derive(Clone, Copy)]
struct Window {
    slots: u64,
    stride: usize,
}

impl Window {
    fn of(bytes: usize) -> Self {
        Self {
            slots: ((1 << 20) / bytes as u64).clamp(2, 64),
            stride: match bytes {
                ..PAGE_BYTES => (bytes + 8).next_multiple_of(128),
                _ => bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES,
            },
        }
    }

    fn at(self, number: u64) -> usize {
        (number % self.slots) as usize * self.stride
    }
}

/// Bytes of memory for messages.
fn room() -> usize {
    let rooms = SIZES.map(|bytes| Window::of(bytes).slots as usize * Window::of(bytes).stride);
    rooms.into_iter().max().unwrap_or(0)
}

/// What rank 0 tells rank 1 to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Order {
    /// 0: the baseline; others: a way of the library.
    pub(crate) way: u64,
    pub(crate) bytes: u64,
    pub(crate) times: u64,
}

struct Process {
    rank: usize,
    shared: Shared,
    peer: Peer,
    source: Vec<u8>,
    /// Messages of each way so far, from rank 0 and from rank 1.
    numbers: Vec<[u64; 2]>,
    stream: bool,
    /// Between hosts: its transport, and the sockets of the baseline.
    hosts: Option<(String, Datagrams)>,
}

impl Process {
    fn put(&mut self, order: Order, at: usize) -> Result<(), Error> {
        let bytes = order.bytes as usize;
        let number = &mut self.numbers[order.way as usize][self.rank];
        *number += 1;
        if order.way == 0 {
            match &mut self.hosts {
                None => self.shared.put(&self.source[..bytes], at, *number),
                Some((_, raw)) => raw.send(&self.shared, &self.source[..bytes])?,
            }
            return Ok(());
        }
        (self.peer).put(order.way - 1, &self.source[..bytes], at, *number)
    }

    /// Waits for the next message and reads it.
    fn take(&mut self, order: Order, at: usize) -> Result<(), Error> {
        let bytes = order.bytes as usize;
        let number = &mut self.numbers[order.way as usize][1 - self.rank];
        *number += 1;
        let message = match (order.way, &mut self.hosts) {
            (0, None) => self.shared.take(bytes, at, *number),
            (0, Some((_, raw))) => raw.take(&self.shared, bytes)?,
            (way, _) => self.peer.take(way - 1, bytes, at, *number)?,
        };
        let wanted = u64::from_ne_bytes([*number as u8; 8]).wrapping_mul(bytes as u64 / 8);
        let found = memory::sum(message);
        if found != wanted {
            return Err(format!("message {number} of {bytes} bytes came wrong").into());
        }
        Ok(())
    }

    fn rewrite(&mut self, order: Order) {
        let next = self.numbers[order.way as usize][self.rank] + 1;
        self.source[..order.bytes as usize].fill(next as u8);
    }

    /// Nanoseconds one way; each process writes its next message while that before is on its way.
    fn ping_pong(&mut self, order: Order) -> Result<f64, Error> {
        self.rewrite(order);
        self.shared.meet();
        let start = Instant::now();
        for _ in 0..order.times {
            if self.rank == 1 {
                self.take(order, 0)?;
            }
            self.put(order, 0)?;
            self.rewrite(order);
            if self.rank == 0 {
                self.take(order, 0)?;
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / (2 * order.times) as f64)
    }

    /// Gigabytes a second from rank 0 to rank 1.
    fn stream(&mut self, order: Order) -> Result<f64, Error> {
        let window = Window::of(order.bytes as usize);
        self.shared.credit(0);
        self.shared.meet();
        if self.rank == 1 {
            for number in 1..=order.times {
                self.take(order, window.at(number))?;
                if number.is_multiple_of(window.slots.div_ceil(4)) || number == order.times {
                    self.shared.credit(number);
                }
            }
            return Ok(0.0);
        }
        let start = Instant::now();
        for number in 1..=order.times {
            self.rewrite(order);
            self.wait_for_credit(order, number.saturating_sub(window.slots));
            self.put(order, window.at(number))?;
        }
        self.wait_for_credit(order, order.times);
        Ok((order.bytes * order.times) as f64 / start.elapsed().as_nanos() as f64)
    }

    fn wait_for_credit(&self, order: Order, number: u64) {
        while self.shared.credits() < number {
            if order.way != 0 {
                self.peer.progress();
            }
        }
    }

    fn carry_out(&mut self, order: Order) -> Result<f64, Error> {
        if self.stream { self.stream(order) } else { self.ping_pong(order) }
    }

    /// Rank 1.
    fn follow(&mut self) -> Result<(), Error> {
        while let Some(order) = self.shared.next(|| self.peer.progress()) {
            self.carry_out(order)?;
            self.shared.answer();
        }
        self.shared.answer();
        Ok(())
    }

    /// Rank 0.
    fn lead(&mut self, plan: Plan) -> Result<(), Error> {
        let mut placements = Placements::default();
        let names = self.peer.ways();
        let sizes = match self.hosts {
            None => &SIZES[..],
            Some(_) => &HOSTS_SIZES,
        };
        for &bytes in sizes {
            let effort = match (self.stream, &self.hosts) {
                (true, _) => Effort::planned(plan, 2, 15),
                (false, None) => Effort::planned(plan, 3, 31),
                (false, Some(_)) => Effort::planned(plan, 2, 15),
            };
            let times = match (self.stream, &self.hosts) {
                (true, _) => (16 << 20) / bytes as u64,
                (false, None) => 400_000 / (400 + bytes as u64 / 8),
                (false, Some(_)) => 1_000_000 / (5000 + bytes as u64 / 2),
            };
            let most = match (plan.quick, &self.hosts) {
                (true, _) => 100,
                (false, None) => 10_000,
                (false, Some(_)) => 2000,
            };
            let times = times.clamp(4, most);
            let samples = sampled::<Error>(effort, &mut placements, names.len() + 1, |step| {
                let Step::Way(way) = step else {
                    return Ok(self.shared.look(|| self.peer.progress()));
                };
                let order = Order { way: way as u64, bytes: bytes as u64, times };
                self.shared.order(Some(order));
                let value = self.carry_out(order)?;
                self.shared.gather(|| self.peer.progress());
                Ok(value)
            });
            match samples {
                Ok(samples) => {
                    for (way, name) in names.iter().enumerate() {
                        for figure in samples.figures(way + 1, 0) {
                            let hosts = self.hosts.as_ref().map(|(transport, _)| &**transport);
                            println!("{}", row(self.stream, hosts, name, bytes, &figure));
                        }
                    }
                }
                Err(error) if error.is::<Restless>() => eprintln!("pair: {bytes} B: {error}"),
                Err(error) => return Err(error),
            }
        }
        self.shared.order(None);
        self.shared.gather(|| self.peer.progress());
        Ok(())
    }
}

/// A row as `mapwire bench` prints it, with the name of the way as `peer`.
fn row(stream: bool, hosts: Option<&str>, name: &str, bytes: usize, figure: &Figure) -> String {
    let (bench, unit) = if stream { ("peers-bandwidth", "GB/s") } else { ("peers-latency", "ns") };
    let (transport, baseline) = match hosts {
        None => ("shm", "plain put"),
        Some(transport) => (transport, "raw UDP"),
    };
    let (placement, flag_ns) = figure.placement;
    format!(
        r#"{{"bench":"{bench}","peer":"{name}","transport":"{transport}","bytes":{bytes},"ranks":2,"placement":"{}","flag_ns":{:.1},"value":{:.4},"unit":"{unit}","baseline":"{baseline}","baseline_value":{:.4},"ratio":{:.4},"min":{:.4},"max":{:.4},"runs":{},"dropped":{}}}"#,
        placement.name(),
        flag_ns.unwrap_or(0.0),
        figure.value,
        figure.baseline,
        figure.ratio,
        figure.min,
        figure.max,
        figure.runs,
        figure.dropped
    )
}

/// Which of the two this is, by the variables of those who start processes.
fn rank() -> Option<usize> {
    let of = |name| std::env::var(name).ok()?.parse().ok();
    ["PEERS_RANK", "MAPWIRE_RANK", "OMPI_COMM_WORLD_RANK"].into_iter().find_map(of).filter(|&rank| rank < 2)
}

fn run() -> Result<(), Error> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().position(|arg| arg == "--quick");
    let plan = Plan { quick: quick.map(|at| args.remove(at)).is_some() };
    let [library, place, kind] = &args[..] else {
        return Err("usage: pair LIBRARY SHARED latency|stream [--quick]".into());
    };
    let rank = rank().ok_or("PEERS_RANK is to be 0 or 1")?;
    let shared = Shared::map(place, rank, room())?;
    let peer = Peer::load(library, &shared, rank, room(), MOST_BYTES, place)?;
    let mut process = Process {
        rank,
        source: vec![0; MOST_BYTES],
        numbers: vec![[0; 2]; peer.ways().len() + 1],
        stream: kind == "stream",
        hosts: match std::env::var("PEERS_HOSTS") {
            Ok(transport) => Some((transport, Datagrams::new(&shared)?)),
            Err(_) => None,
        },
        shared,
        peer,
    };
    match rank {
        0 => process.lead(plan)?,
        _ => process.follow()?,
    }
    process.peer.close();
    Ok(())
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pair: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
