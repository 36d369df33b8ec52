//! `peers-latency`, `peers-bandwidth`: other message libraries under the loops of the sends, beside the plain put or, between hosts,
//! datagrams between bare sockets. `bench/peers/run.sh` starts their two ranks, each with the library as its case.

#[allow(unsafe_code)]
mod library;

use serde_json::json;

use super::job::{self, Leader, Order, Steps, in_step};
use super::loops::{LOOP_BYTES, Loops, Message, Passing, Window};
use super::measure::Effort;
use super::messages::{read, read_slice};
use super::row::Report;
use super::udp::Datagrams;
use super::words::{Heap, Words};
use super::{BenchError, Plan};
use library::{EXCHANGE_BYTES, Library};

const SIZES: [u64; 9] = [8, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20];
/// Between hosts.
const HOSTS_SIZES: [u64; 6] = [8, 64, 1024, 4096, 65_536, 1 << 20];
const MOST_BYTES: usize = 1 << 20;
const UNDER_WAY: u64 = 1 << 20;

/// Names the transport between hosts; unset, the two ranks are of one host.
const HOSTS: &str = "PEERS_HOSTS";

/// Parts of the shared memory: the loops and the datagrams, the library's exchange, and the memory of plain puts of either rank.
const DATAGRAMS: usize = LOOP_BYTES.next_multiple_of(512);
const EXCHANGE: usize = 4096;
const PLAIN: usize = EXCHANGE + EXCHANGE_BYTES;

/// The baseline, and the ways of a library from 1 on.
struct Ways {
    library: Library,
    ours: Words,
    theirs: Words,
    datagrams: Option<Datagrams>,
    landing: Heap,
}

impl Passing for Ways {
    type Path = u64;

    fn counter(way: u64) -> usize {
        way as usize
    }

    #[inline(always)]
    fn put(&mut self, way: u64, data: &[u8], message: Message) -> Result<(), BenchError> {
        let Message { at, number, .. } = message;
        match (way, &mut self.datagrams) {
            (0, None) => {
                self.theirs.put(at, data);
                self.theirs.store(at + data.len(), number);
                Ok(())
            }
            (0, Some(datagrams)) => datagrams.send(data, message),
            _ => self.library.put(way - 1, data, at, number),
        }
    }

    #[inline(always)]
    fn take(&mut self, way: u64, bytes: usize, message: Message) -> Result<(), BenchError> {
        let Message { at, number, .. } = message;
        match (way, &mut self.datagrams) {
            (0, None) => {
                while self.ours.load(at + bytes) != number {}
                read(self.ours, at, bytes, number)
            }
            (0, Some(datagrams)) => {
                datagrams.take(self.landing.words, 0, bytes)?;
                read(self.landing.words, 0, bytes, number)
            }
            _ => read_slice(self.library.take(way - 1, bytes, at, number)?, number),
        }
    }

    fn progress(&self, way: u64) {
        if way > 0 {
            self.library.progress();
        }
    }

    fn idle(&self) {}
}

struct Rank {
    loops: Loops,
    ways: Ways,
    is_stream: bool,
}

impl job::Part for Rank {
    /// Path `what` - 1: nanoseconds one way, or gigabytes a second.
    fn carry_out(&mut self, order: Order, _: &Steps) -> Result<f64, BenchError> {
        let way = order.what - 1;
        match self.is_stream {
            true => Ok(order.bytes as f64 / self.loops.stream(&mut self.ways, way, order)?),
            false => self.loops.ping_pong(&mut self.ways, way, order),
        }
    }

    fn idle(&self) {
        self.ways.library.progress();
    }
}

/// Which of the two this is, by the variables of those who start processes.
fn rank() -> Option<usize> {
    let of = |name| std::env::var(name).ok()?.parse().ok();
    ["PEERS_RANK", "MAPWIRE_RANK", "OMPI_COMM_WORLD_RANK"].into_iter().find_map(of).filter(|&rank| rank < 2)
}

/// One of the two ranks.
pub(crate) fn measure(plan: &Plan, report: &mut Report, is_stream: bool) -> Result<(), BenchError> {
    let (place, library) = job::file_and_case().ok_or("bench/peers/run.sh starts this")?;
    let rank = rank().ok_or("PEERS_RANK must be 0 or 1")?;
    let (steps, shared) = job::steps(rank, 2)?;
    let hosts = std::env::var(HOSTS).ok();
    let room = SIZES.iter().map(|&bytes| Window::of(bytes as usize, UNDER_WAY).room()).max().unwrap_or(0) + 8;
    let plain = |of: usize| shared.part(PLAIN + of * room.next_multiple_of(4096), room);
    let datagrams = || Datagrams::new(shared, shared.part(DATAGRAMS, 256), rank);
    let library = Library::open(&library, &place, shared.part(EXCHANGE, EXCHANGE_BYTES), rank, (room, MOST_BYTES))?;
    let names = library.ways.clone();
    let ways = Ways {
        library,
        ours: plain(rank),
        theirs: plain(1 - rank),
        datagrams: hosts.is_some().then(datagrams).transpose()?,
        landing: Heap::new(0, MOST_BYTES),
    };
    let loops = Loops::new(rank, shared, MOST_BYTES, names.len() + 1, UNDER_WAY);
    in_step(Rank { loops, ways, is_stream }, steps, |leader| {
        for &bytes in if hosts.is_none() { &SIZES[..] } else { &HOSTS_SIZES } {
            let (runs, times, most) = match (is_stream, &hosts) {
                (true, None) => ((2, 15), (16 << 20) / bytes, 10_000),
                (true, Some(_)) => ((2, 15), (16 << 20) / bytes, 2000),
                (false, None) => ((3, 31), 400_000 / (400 + bytes / 8), 10_000),
                (false, Some(_)) => ((2, 15), 1_000_000 / (5000 + bytes / 2), 2000),
            };
            let times = times.clamp(4, if plan.quick { 100 } else { most });
            let run = |leader: &mut Leader<Rank>, way: usize| leader.lead(way as u64 + 1, bytes, times);
            let effort = Effort::planned(plan, runs.0, runs.1);
            let Some(samples) = leader.sample(effort, names.len() + 1, &format!("{bytes} B"), report, run)? else {
                continue;
            };
            let (unit, baseline) =
                (if is_stream { "GB/s" } else { "ns" }, if hosts.is_some() { "raw UDP" } else { "plain put" });
            for (way, name) in names.iter().enumerate() {
                let case = [
                    ("peer", json!(name)),
                    ("transport", json!(hosts.as_deref().unwrap_or("shm"))),
                    ("bytes", json!(bytes)),
                    ("ranks", json!(2)),
                ];
                report.rows(&case, unit, baseline, &samples.figures(way + 1, 0));
            }
        }
        Ok(())
    })
}
