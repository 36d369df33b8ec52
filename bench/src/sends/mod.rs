//! `send-latency`, `send-bandwidth`, `fetch-latency`, `atomic-latency`: all ways between two ranks, beside the plainest copies
//! through the same kind of memory, or beside datagrams of the same bytes between bare sockets.

use std::hint::black_box;
use std::time::Instant;

use mapwire_translation::PAGE_BYTES;
use serde_json::{Value, json};

use super::job::{Job, Leader, in_step, join, role};
use super::loops::Window;
use super::measure::Effort;
use super::messages::Source;
use super::row::Report;
use super::{BenchError, Plan, Transport};

mod rank;
mod two_copies;

use rank::{PING_PONG, Path, Rank, STREAM, under_way};

/// The raw way of packets first, then mapwire's.
const REMOTE_WAYS: &[Path] = &[Path::RawUdp, Path::Packets];

fn in_ranks(
    name: &str,
    plan: &Plan,
    report: &mut Report,
    bytes: usize,
    measure: impl FnOnce(&mut Leader<Rank>, &mut Report) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    if role().is_none() {
        let remote = ["--wait", "poll", "--transport", &plan.transport_text];
        let options = &remote[..if plan.transport() == Transport::Shm { 2 } else { 4 }];
        return Job { bench: name, ranks: 2, options, case: "pair" }.run(plan, report);
    }
    let (node, steps, shared) = join()?;
    let ends = Rank::new(&node, shared, plan.transport(), bytes)?;
    let _polling = node.polling();
    in_step(ends, steps, |leader| measure(leader, report))
}

/// The fields of a row that say how the bytes went.
fn case_of(plan: &Plan, way: Path, bytes: u64) -> Vec<(&'static str, Value)> {
    let (path, range) = match way {
        Path::Plain => ("plain", None),
        Path::TwoCopies => ("two copies", None),
        Path::Heap => ("heap", Some("whole pages")),
        Path::Edges => ("heap", Some("with an edge")),
        Path::Ring => ("ring", None),
        Path::Packets => ("packets", None),
        Path::Direct | Path::Memcpy | Path::RawUdp => ("direct", None),
    };
    let mut case = vec![("path", json!(path))];
    case.extend(range.map(|range| ("range", json!(range))));
    case.push(("transport", json!(plan.transport_text)));
    if plan.transport() != Transport::Shm {
        case.push(("sealed", json!(plan.transport() == Transport::Udp && !plan.insecure)));
    }
    case.extend([("bytes", json!(bytes)), ("ranks", json!(2)), ("wait", json!("poll"))]);
    case
}

/// Ways side by side, and the rows that are made of them: a way, its baseline, and the name of that.
struct Beside {
    unit: &'static str,
    ways: &'static [Path],
    rows: &'static [(Path, Path, &'static str)],
}

impl Beside {
    fn measure(
        &self,
        plan: &Plan,
        leader: &mut Leader<Rank>,
        report: &mut Report,
        (bytes, effort): (u64, Effort),
        mut run: impl FnMut(&mut Leader<Rank>, Path) -> Result<f64, BenchError>,
    ) -> Result<(), BenchError> {
        let point = format!("{bytes} B");
        let run = |leader: &mut Leader<Rank>, number: usize| run(leader, self.ways[number]);
        let Some(samples) = leader.sample(effort, self.ways.len(), &point, report, run)? else {
            return Ok(());
        };
        let number = |way| self.ways.iter().position(|&it| it == way).unwrap_or(0);
        for &(way, baseline, name) in self.rows {
            if way != Path::Edges || bytes >= PAGE_BYTES as u64 {
                let figures = samples.figures(number(way), number(baseline));
                report.rows(&case_of(plan, way, bytes), self.unit, name, &figures);
            }
        }
        Ok(())
    }
}

/// How often a message is passed in one measurement of shared memory: a fraction of a millisecond, short enough to lie
/// between two moods of the machine, and between two turns of whatever else runs on it.
fn times_for(bytes: u64, quick: bool) -> u64 {
    let budget_ns = if quick { 200_000 } else { 400_000 };
    (budget_ns / (400 + bytes / 8)).clamp(4, 20_000)
}

pub(crate) fn latency(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    use Path::{Direct, Edges, Heap, Packets, Plain, RawUdp, Ring, TwoCopies};
    let (sizes, runs, beside): (&[u64], _, _) = match plan.transport() {
        Transport::Shm => (
            &[8, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20],
            61,
            Beside {
                unit: "ns",
                ways: &[Plain, TwoCopies, Direct, Heap, Edges, Ring],
                rows: &[
                    (Direct, Plain, "plain put"),
                    (Heap, Plain, "plain put"),
                    (Edges, Plain, "plain put"),
                    (Ring, Plain, "plain put"),
                    (Ring, TwoCopies, "two-copy bounce"),
                    (TwoCopies, Plain, "plain put"),
                ],
            },
        ),
        Transport::Udp | Transport::Ofi => (
            &[8, 64, 1024, 4096, 16_384, 65_536],
            31,
            Beside { unit: "ns", ways: REMOTE_WAYS, rows: &[(Packets, RawUdp, "raw UDP")] },
        ),
    };
    in_ranks("send-latency", plan, report, 1 << 20, |leader, report| {
        for &bytes in sizes {
            let times = match plan.transport() {
                Transport::Shm => times_for(bytes, plan.quick),
                _ => (if plan.quick { 400_000 } else { 2_000_000 } / (5000 + bytes / 2)).max(4),
            };
            let run = |leader: &mut Leader<Rank>, way| leader.lead(PING_PONG + way as u64, bytes, times);
            beside.measure(plan, leader, report, (bytes, Effort::planned(plan, 3, runs)), run)?;
        }
        Ok(())
    })
}

/// `mapwire bench send-bandwidth`: bytes a second of way and baseline, so that the ratio is a share.
pub(crate) fn bandwidth(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    use Path::{Direct, Heap, Memcpy, Packets, Plain, RawUdp, Ring, TwoCopies};
    let is_local = plan.transport() == Transport::Shm;
    let local: &[u64] = &[8, 64, 1024, 4096, 65_536, 262_144, 1 << 20, 4 << 20, 16 << 20];
    let (sizes, total, most, beside) = match is_local {
        true => (
            &local[..if plan.quick { 7 } else { local.len() }],
            if plan.quick { 1 << 20 } else { 16 << 20 },
            if plan.quick { 1000 } else { 10_000 },
            Beside {
                unit: "GB/s",
                ways: &[Plain, TwoCopies, Direct, Heap, Ring, Memcpy],
                rows: &[
                    (Direct, Plain, "plain put"),
                    (Direct, Memcpy, "memcpy"),
                    (Heap, Plain, "plain put"),
                    (Ring, TwoCopies, "two-copy stream"),
                    (Ring, Memcpy, "memcpy"),
                    (TwoCopies, Memcpy, "memcpy"),
                ],
            },
        ),
        false => (
            &[4096, 65_536, 1 << 20, 16 << 20][..],
            if plan.quick { 8 << 20 } else { 64 << 20 },
            4000,
            Beside { unit: "GB/s", ways: REMOTE_WAYS, rows: &[(Packets, RawUdp, "raw UDP")] },
        ),
    };
    let room = sizes.iter().map(|&bytes| Window::of(bytes as usize, under_way(plan.transport())).room()).max();
    in_ranks("send-bandwidth", plan, report, room.unwrap_or(0), |leader, report| {
        let mut local = LocalCopy::new(sizes[sizes.len() - 1] as usize);
        for &bytes in sizes {
            let times = (total / bytes).clamp(4, most);
            let run = |leader: &mut Leader<Rank>, way| {
                let ns = match way {
                    Memcpy => local.run(bytes as usize, times),
                    way => leader.lead(STREAM + way as u64, bytes, times)?,
                };
                Ok(bytes as f64 / ns)
            };
            beside.measure(plan, leader, report, (bytes, Effort::planned(plan, 3, 31)), run)?;
        }
        Ok(())
    })
}

/// A copy within one process, of memory that was just written.
struct LocalCopy {
    from: Source,
    to: Vec<u8>,
    page: usize,
}

impl LocalCopy {
    fn new(bytes: usize) -> Self {
        let to = vec![2_u8; bytes + PAGE_BYTES];
        Self {
            from: Source::new(bytes),
            // As the destination of a put, at the start of a page, where the source is not: some processors copy very slowly between
            // places that have the same offset in their pages.
            page: to.as_ptr().align_offset(PAGE_BYTES),
            to,
        }
    }

    /// Nanoseconds a copy.
    fn run(&mut self, bytes: usize, times: u64) -> f64 {
        let to = &mut self.to[self.page..self.page + bytes];
        let start = Instant::now();
        for number in 1..=times {
            self.from.rewrite(bytes, number);
            to.copy_from_slice(black_box(self.from.data(bytes)));
            black_box(&mut *to);
        }
        start.elapsed().as_nanos() as f64 / times as f64
    }
}

pub(crate) fn fetch(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    use Path::{Direct, Plain, Ring};
    // The raw parts of a fetch by the ring: a request and the data, each one way.
    let direct = Beside { unit: "ns", ways: &[Plain, Direct], rows: &[(Direct, Plain, "plain get")] };
    let ring = Beside { unit: "ns", ways: &[Plain, Ring], rows: &[(Ring, Plain, "two plain puts")] };
    in_ranks("fetch-latency", plan, report, 1 << 20, |leader, report| {
        let mut memory = vec![0_u8; 4096];
        for (beside, is_direct) in [(direct, true), (ring, false)] {
            for bytes in [8_u64, 64, 256, 1024, 4096] {
                let times = times_for(bytes, plan.quick);
                let into = &mut memory[..bytes as usize];
                let run = |leader: &mut Leader<Rank>, way| match way {
                    Plain if !is_direct => Ok(2.0 * leader.lead(PING_PONG + Plain as u64, bytes, times)?),
                    way => leader.alone(times, |ends| {
                        match way {
                            Plain => ends.ways.plain.get(0, into),
                            way => ends.ways.fetch(way, into)?,
                        }
                        black_box(&mut *into);
                        Ok(())
                    }),
                };
                beside.measure(plan, leader, report, (bytes, Effort::planned(plan, 9, 61)), run)?;
            }
        }
        Ok(())
    })
}

pub(crate) fn atomics(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    use Path::{Direct, Plain, Ring};
    let direct = Beside { unit: "ns", ways: &[Plain, Direct], rows: &[(Direct, Plain, "atomic add by the processor")] };
    let ring = Beside { unit: "ns", ways: &[Plain, Ring], rows: &[(Ring, Plain, "fetch by the ring")] };
    in_ranks("atomic-latency", plan, report, 4096, |leader, report| {
        let bytes = 8;
        for (beside, is_direct) in [(direct, true), (ring, false)] {
            let times = times_for(bytes, plan.quick);
            let run = |leader: &mut Leader<Rank>, way| {
                leader.alone(times, |ends| match way {
                    Plain if is_direct => {
                        black_box(ends.ways.plain.add(0, 1));
                        Ok(())
                    }
                    Plain => ends.ways.fetch(Ring, &mut [0; 8]),
                    way => {
                        black_box(ends.ways.add(way)?);
                        Ok(())
                    }
                })
            };
            beside.measure(plan, leader, report, (bytes, Effort::planned(plan, 9, 61)), run)?;
        }
        Ok(())
    })
}
