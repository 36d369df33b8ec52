//! `send-latency`, `send-bandwidth`, `fetch-latency`, `atomic-latency`: all ways between two ranks, beside the plainest copies
//! through the same kind of memory.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Instant;

use mapwire::Node;
use mapwire_translation::PAGE_BYTES;
use serde_json::{Value, json};

use super::job::{Job, Order, Steps, role};
use super::measure::{Effort, Samples, Step, sampled};
use super::messages::Source;
use super::placement::Placements;
use super::row::Report;
use super::{BenchError, Plan};

mod ends;

mod two_copies;

use ends::{Ends, Way, Window};

/// What the ranks can be told to do; a way is added to the last two.
mod what {
    pub(super) const END: u64 = 0;
    /// Nothing: the peer only polls while rank 0 measures alone.
    pub(super) const IDLE: u64 = 1;
    pub(super) const PING_PONG: u64 = 16;
    pub(super) const STREAM: u64 = 32;
}

fn way_of(what: u64) -> Option<Way> {
    Way::ALL.into_iter().find(|&way| way as u64 == what % 16)
}

fn carry_out(ends: &Ends<'_>, order: Order) -> Result<f64, BenchError> {
    match (order.what / 16 * 16, way_of(order.what)) {
        (what::PING_PONG, Some(way)) => ends.ping_pong(way, order),
        (what::STREAM, Some(way)) => ends.stream(way, order),
        _ => Ok(0.0),
    }
}

/// Rank 0 of a job: what it measures with.
struct Leader<'a, 'n> {
    ends: &'a Ends<'n>,
    steps: Steps,
    placements: Placements,
}

impl Leader<'_, '_> {
    /// Has an order carried out by both.
    fn lead(&mut self, what: u64, bytes: u64, times: u64) -> Result<f64, BenchError> {
        let ends = self.ends;
        let order = Order { what, bytes, times };
        let idle = || {
            ends.node.poll();
        };
        self.steps.together(order, || carry_out(ends, order), idle)
    }

    /// Nanoseconds of `op`, which this rank does alone while the other serves.
    fn alone(
        &mut self,
        bytes: u64,
        times: u64,
        mut op: impl FnMut() -> Result<(), BenchError>,
    ) -> Result<f64, BenchError> {
        let ends = self.ends;
        let order = Order { what: what::IDLE, bytes, times };
        let run = || {
            let start = Instant::now();
            for _ in 0..times {
                op()?;
            }
            Ok(start.elapsed().as_nanos() as f64 / times as f64)
        };
        self.steps.together(order, run, || {
            ends.node.poll();
        })
    }

    /// Measures `ways` beside one another, each by `run`. `None` if the machine does not let it, which the report then says.
    fn sample(
        &mut self,
        effort: Effort,
        ways: usize,
        point: &str,
        report: &mut Report,
        mut run: impl FnMut(&mut Self, usize) -> Result<f64, BenchError>,
    ) -> Result<Option<Samples>, BenchError> {
        let mut placements = std::mem::take(&mut self.placements);
        let node = self.ends.node;
        let outcome = sampled::<BenchError>(effort, &mut placements, ways, |step| match step {
            Step::Look => Ok(self.steps.look(|| {
                node.poll();
            })),
            Step::Way(way) => run(self, way),
        });
        self.placements = placements;
        report.settled(point, outcome)
    }
}

fn in_ranks(
    name: &str,
    plan: Plan,
    report: &mut Report,
    bytes: usize,
    measure: impl FnOnce(&mut Leader<'_, '_>, &mut Report) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    if role().is_none() {
        let options = &["--wait", "poll"];
        return Job { bench: name, ranks: 2, options, case: "pair" }.run(plan, report.is_json());
    }
    let node = Node::join()?;
    let ends = Ends::new(&node, bytes)?;
    let mut steps = Steps::new(&node)?;
    let polling = node.polling();
    if node.rank() == 0 {
        let mut leader = Leader { ends: &ends, steps, placements: Placements::default() };
        measure(&mut leader, report)?;
        leader.lead(what::END, 0, 0)?;
    } else {
        loop {
            let order = steps.next(|| {
                node.poll();
            });
            carry_out(&ends, order)?;
            steps.answer();
            if order.what == what::END {
                break;
            }
        }
    }
    drop(polling);
    Ok(())
}

/// The fields of a row that say how the bytes went.
fn case_of(way: Way, bytes: u64) -> Vec<(&'static str, Value)> {
    let (path, range) = match way {
        Way::Plain => ("plain", None),
        Way::TwoCopies => ("two copies", None),
        Way::Direct => ("direct", None),
        Way::Heap => ("heap", Some("whole pages")),
        Way::Edges => ("heap", Some("with an edge")),
        Way::Ring => ("ring", None),
    };
    let mut case = vec![("path", json!(path))];
    case.extend(range.map(|range| ("range", json!(range))));
    case.extend([("transport", json!("shm")), ("bytes", json!(bytes)), ("ranks", json!(2)), ("wait", json!("poll"))]);
    case
}

/// Times a message so that a measurement takes a fraction of a millisecond: short enough to lie between two moods of the
/// machine, and between two turns of whatever else runs on it.
fn times_for(bytes: u64, quick: bool) -> u64 {
    let ns = 400 + bytes / 8;
    let budget_ns = if quick { 200_000 } else { 400_000 };
    (budget_ns / ns).clamp(4, 20_000)
}

/// `mapwire bench send-latency`.
pub(crate) fn latency(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let sizes = [8, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20];
    in_ranks("send-latency", plan, report, 1 << 20, |leader, report| {
        for bytes in sizes {
            let effort = Effort::planned(plan, 3, 61);
            let times = times_for(bytes, plan.quick);
            let point = format!("{bytes} B");
            let run =
                |leader: &mut Leader<'_, '_>, way| leader.lead(what::PING_PONG + Way::ALL[way] as u64, bytes, times);
            let Some(samples) = leader.sample(effort, Way::ALL.len(), &point, report, run)? else {
                continue;
            };
            let mut row = |way: Way, baseline: Way, name| {
                let case = case_of(way, bytes);
                let figures = samples.figures(way as usize, baseline as usize);
                report.rows(&case, "ns", name, &figures);
            };
            row(Way::Direct, Way::Plain, "plain put");
            row(Way::Heap, Way::Plain, "plain put");
            if bytes >= PAGE_BYTES as u64 {
                row(Way::Edges, Way::Plain, "plain put");
            }
            row(Way::Ring, Way::Plain, "plain put");
            row(Way::Ring, Way::TwoCopies, "two-copy bounce");
            row(Way::TwoCopies, Way::Plain, "plain put");
        }
        Ok(())
    })
}

/// `mapwire bench send-bandwidth`.
pub(crate) fn bandwidth(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let sizes = [8, 64, 1024, 4096, 65_536, 262_144, 1 << 20, 4 << 20, 16 << 20];
    let sizes = &sizes[..if plan.quick { 7 } else { sizes.len() }];
    let most = sizes.iter().map(|&bytes| bytes as usize);
    let room = most.map(|bytes| Window::of(bytes).room()).max();
    let ways = [Way::Plain, Way::TwoCopies, Way::Direct, Way::Heap, Way::Ring];
    /// Behind the ways: memcpy within rank 0.
    const MEMCPY: usize = 5;
    in_ranks("send-bandwidth", plan, report, room.unwrap_or(0), |leader, report| {
        let mut local = Memcpy::new(sizes[sizes.len() - 1] as usize);
        for &bytes in sizes {
            let effort = Effort::planned(plan, 3, 31);
            let total: u64 = if plan.quick { 1 << 20 } else { 16 << 20 };
            let times = (total / bytes).clamp(4, if plan.quick { 1000 } else { 10_000 });
            // Rates: bytes a second of both, so that the ratio is a share.
            let run = |leader: &mut Leader<'_, '_>, way| {
                let ns = match ways.get(way) {
                    Some(&way) => leader.lead(what::STREAM + way as u64, bytes, times)?,
                    None => local.run(bytes as usize, times),
                };
                Ok(bytes as f64 / ns)
            };
            let point = format!("{bytes} B");
            let Some(samples) = leader.sample(effort, MEMCPY + 1, &point, report, run)? else {
                continue;
            };
            let number = |of: Way| ways.iter().position(|&way| way == of).unwrap_or(MEMCPY);
            let mut row = |way: Way, baseline, name| {
                let case = case_of(way, bytes);
                let figures = samples.figures(number(way), baseline);
                report.rows(&case, "GB/s", name, &figures);
            };
            row(Way::Direct, number(Way::Plain), "plain put");
            row(Way::Direct, MEMCPY, "memcpy");
            row(Way::Heap, number(Way::Plain), "plain put");
            row(Way::Ring, number(Way::TwoCopies), "two-copy stream");
            row(Way::Ring, MEMCPY, "memcpy");
            row(Way::TwoCopies, MEMCPY, "memcpy");
        }
        Ok(())
    })
}

/// A copy within one process, of memory that was just written.
struct Memcpy {
    from: Source,
    to: Vec<u8>,
    page: usize,
}

impl Memcpy {
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

/// `mapwire bench fetch-latency`.
pub(crate) fn fetch(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    in_ranks("fetch-latency", plan, report, 1 << 20, |leader, report| {
        let into = RefCell::new(vec![0_u8; 4096]);
        for (way, baseline_name) in [(Way::Direct, "plain get"), (Way::Ring, "two plain puts")] {
            for bytes in [8_u64, 64, 256, 1024, 4096] {
                let effort = Effort::planned(plan, 9, 61);
                let times = times_for(bytes, plan.quick);
                let alone = |leader: &mut Leader<'_, '_>, fetch: &dyn Fn(&mut [u8]) -> Result<(), BenchError>| {
                    let into = &mut into.borrow_mut()[..bytes as usize];
                    leader.alone(bytes, times, || {
                        fetch(into)?;
                        black_box(&mut *into);
                        Ok(())
                    })
                };
                let run = |leader: &mut Leader<'_, '_>, number| {
                    let ends = leader.ends;
                    match (number, way) {
                        (0, Way::Direct) => alone(leader, &|into| {
                            ends.plain.get(0, into);
                            Ok(())
                        }),
                        // The raw parts of a fetch by the ring: a request and the data, each one way.
                        (0, _) => {
                            let plain = what::PING_PONG + Way::Plain as u64;
                            Ok(2.0 * leader.lead(plain, bytes, times)?)
                        }
                        _ => alone(leader, &|into| ends.fetch(way, into)),
                    }
                };
                let point = format!("{bytes} B");
                if let Some(samples) = leader.sample(effort, 2, &point, report, run)? {
                    let case = case_of(way, bytes);
                    report.rows(&case, "ns", baseline_name, &samples.figures(1, 0));
                }
            }
        }
        Ok(())
    })
}

/// `mapwire bench atomic-latency`.
pub(crate) fn atomics(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    in_ranks("atomic-latency", plan, report, 4096, |leader, report| {
        let bytes = 8;
        for (way, baseline_name) in [(Way::Direct, "atomic add by the processor"), (Way::Ring, "fetch by the ring")] {
            let effort = Effort::planned(plan, 9, 61);
            let times = times_for(bytes, plan.quick);
            let run = |leader: &mut Leader<'_, '_>, number| {
                let ends = leader.ends;
                match (number, way) {
                    (0, Way::Direct) => leader.alone(bytes, times, || {
                        black_box(ends.plain.add(0, 1));
                        Ok(())
                    }),
                    (0, _) => {
                        let mut into = [0; 8];
                        leader.alone(bytes, times, || ends.fetch(way, &mut into))
                    }
                    _ => leader.alone(bytes, times, || {
                        black_box(ends.add(way)?);
                        Ok(())
                    }),
                }
            };
            let point = format!("{bytes} B");
            if let Some(samples) = leader.sample(effort, 2, &point, report, run)? {
                let case = case_of(way, bytes);
                report.rows(&case, "ns", baseline_name, &samples.figures(1, 0));
            }
        }
        Ok(())
    })
}
