//! `send-latency`, `send-bandwidth`, `fetch-latency`: the two paths between two ranks, beside plain copies through the same kind of
//! mapping.

use std::hint::black_box;
use std::time::Instant;

use mapwire::{Buffer, Export, Import, Node, Rights};
use mapwire_translation::PAGE_BYTES;
use serde_json::{Value, json};

use super::job::{Job, Order, Steps, role};
use super::measure::{Effort, paired};
use super::row::{Report, Row};
use super::words::Words;
use super::{BenchError, Plan};

/// Bytes of a flag.
const FLAG_BYTES: usize = 8;

/// Largest message.
const MOST_BYTES: usize = 16 << 20;

/// What the ranks can be told to do.
mod what {
    pub(super) const END: u64 = 0;
    pub(super) const PLAIN: u64 = 1;
    pub(super) const DIRECT: u64 = 2;
    pub(super) const RING: u64 = 3;
    pub(super) const STREAM_DIRECT: u64 = 4;
    pub(super) const STREAM_RING: u64 = 5;
    /// Nothing: the peer only polls while rank 0 measures alone.
    pub(super) const IDLE: u64 = 6;

    /// Whether the ring carries it.
    pub(super) fn is_ring(what: u64) -> bool {
        matches!(what, RING | STREAM_RING)
    }
}

/// One rank's ends of both paths.
struct Ends<'a> {
    node: &'a Node,
    /// What the peer stores into, on the direct path and on the ring path.
    inbox: Words,
    ring_inbox: Words,
    /// What the peer sees, plainly and as imports.
    plain: Words,
    direct: Import,
    ring: Import,
    source: Buffer,
    _exports: [Export; 2],
}

impl<'a> Ends<'a> {
    fn new(node: &'a Node, bytes: usize) -> Result<Self, BenchError> {
        let room = bytes + 4096;
        let inbox = node.alloc(room)?;
        let ring_inbox = node.alloc(room)?;
        let exports = [
            node.export_buffer(&inbox).name("bench.direct").start()?,
            node.export_buffer(&ring_inbox)
                .name("bench.ring")
                .ring_only()
                .start()?,
        ];
        let peer = 1 - node.rank();
        let direct = node
            .import(peer, "bench.direct")
            .rights(Rights::ALL)
            .start()?;
        let ring = node
            .import(peer, "bench.ring")
            .rights(Rights::ALL)
            .start()?;
        let source = node.alloc(room)?;
        source.write(0, &vec![7; bytes])?;
        Ok(Self {
            node,
            inbox: Words::of_buffer(&inbox),
            ring_inbox: Words::of_buffer(&ring_inbox),
            plain: Words::of_import(&direct)?,
            direct,
            ring,
            source,
            _exports: exports,
        })
    }

    /// What an order sends.
    fn data(&self, order: Order) -> &[u8] {
        Words::of_buffer(&self.source).bytes(order.bytes as usize)
    }

    /// Stores a message and its flag in the way of `order`.
    #[inline(always)]
    fn put(&self, order: Order, data: &[u8], turn: u64) -> Result<(), BenchError> {
        let flag = flag_at(order.bytes);
        match order.what {
            what::PLAIN => {
                self.plain.put(0, data);
                self.plain.store(flag as usize, turn);
            }
            what::DIRECT => self.direct.put_signal(data, 0, flag, turn)?,
            // Eight bytes by the ring are their own flag, as a two-sided message is: they land in one piece.
            _ if data.len() == FLAG_BYTES => self.ring.send(&turn.to_le_bytes(), flag)?,
            _ => self.ring.put_signal(data, 0, flag, turn)?,
        }
        Ok(())
    }

    /// Waits for a message, spinning.
    #[inline(always)]
    fn wait(&self, order: Order, turn: u64) {
        let flag = flag_at(order.bytes) as usize;
        if what::is_ring(order.what) {
            while self.ring_inbox.load(flag) != turn {
                self.node.poll();
            }
        } else {
            while self.inbox.load(flag) != turn {}
        }
    }

    /// Back and forth; gives nanoseconds one way.
    fn ping_pong(&self, order: Order) -> Result<f64, BenchError> {
        let data = self.data(order);
        let flag = flag_at(order.bytes) as usize;
        self.inbox.store(flag, 0);
        self.ring_inbox.store(flag, 0);
        self.meet(order)?;
        let start = Instant::now();
        for turn in 1..=order.times {
            if self.node.rank() == 0 {
                self.put(order, data, turn)?;
                self.wait(order, turn);
            } else {
                self.wait(order, turn);
                self.put(order, data, turn)?;
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / (2 * order.times) as f64)
    }

    /// Both ranks have cleared their flags.
    fn meet(&self, order: Order) -> Result<(), BenchError> {
        const READY: u64 = u64::MAX;
        let flag = flag_at(order.bytes) as usize + 64;
        self.plain.store(flag, READY);
        while self.inbox.load(flag) != READY {}
        self.inbox.store(flag, 0);
        Ok(())
    }

    /// Many messages one way, then an answer; gives nanoseconds a message. The flag has a cache line of its own: the receiver, who
    /// looks at it all the time, must not take the messages' lines away.
    fn stream(&self, order: Order) -> Result<f64, BenchError> {
        let data = self.data(order);
        let flag = flag_at(order.bytes).next_multiple_of(128) + 128;
        self.inbox.store(flag as usize, 0);
        self.ring_inbox.store(flag as usize, 0);
        self.meet(order)?;
        if self.node.rank() == 1 {
            let inbox = if what::is_ring(order.what) {
                &self.ring_inbox
            } else {
                &self.inbox
            };
            while inbox.load(flag as usize) != order.times {
                if what::is_ring(order.what) {
                    self.node.poll();
                }
            }
            self.plain.store(flag as usize, order.times);
            return Ok(0.0);
        }
        let import = if what::is_ring(order.what) {
            &self.ring
        } else {
            &self.direct
        };
        let start = Instant::now();
        for _ in 1..order.times {
            import.send(black_box(data), 0)?;
        }
        import.put_signal(data, 0, flag, order.times)?;
        while self.inbox.load(flag as usize) != order.times {
            if what::is_ring(order.what) {
                self.node.poll();
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / order.times as f64)
    }

    fn carry_out(&self, order: Order) -> Result<f64, BenchError> {
        match order.what {
            what::PLAIN | what::DIRECT | what::RING => self.ping_pong(order),
            what::STREAM_DIRECT | what::STREAM_RING => self.stream(order),
            _ => Ok(0.0),
        }
    }
}

/// The flag of a message lies right behind it.
fn flag_at(bytes: u64) -> u64 {
    bytes.next_multiple_of(8)
}

/// Rank 1: does what rank 0 says until it ends.
fn follow(ends: &Ends<'_>, steps: &mut Steps) -> Result<(), BenchError> {
    loop {
        let order = steps.next(|| {
            ends.node.poll();
        });
        if order.what == what::END {
            steps.answer();
            return Ok(());
        }
        ends.carry_out(order)?;
        steps.answer();
    }
}

/// Rank 0: has an order carried out by both.
fn lead(ends: &Ends<'_>, steps: &mut Steps, order: Order) -> Result<f64, BenchError> {
    steps.together(
        order,
        || ends.carry_out(order),
        || {
            ends.node.poll();
        },
    )
}

fn in_ranks(
    name: &str,
    plan: Plan,
    report: &mut Report,
    bytes: usize,
    measure: impl FnOnce(&Ends<'_>, &mut Steps, &mut Report) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    if role().is_none() {
        let options = &["--wait", "poll"];
        return Job {
            bench: name,
            ranks: 2,
            options,
            case: "pair",
        }
        .run(plan, report.is_json());
    }
    let node = Node::join()?;
    let ends = Ends::new(&node, bytes)?;
    let mut steps = Steps::new(&node)?;
    let polling = node.polling();
    if node.rank() == 0 {
        let outcome = measure(&ends, &mut steps, report);
        steps.together(
            Order {
                what: what::END,
                bytes: 0,
                times: 0,
            },
            || (),
            || {
                ends.node.poll();
            },
        );
        outcome?;
    } else {
        follow(&ends, &mut steps)?;
    }
    drop(polling);
    Ok(())
}

/// The fields of a row that say how the bytes went.
fn case_of(what: u64, bytes: u64) -> Vec<(&'static str, Value)> {
    let path = if what::is_ring(what) {
        "ring"
    } else {
        "direct"
    };
    vec![
        ("path", json!(path)),
        ("transport", json!("shm")),
        ("bytes", json!(bytes)),
        ("ranks", json!(2)),
        ("wait", json!("poll")),
    ]
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
    in_ranks(
        "send-latency",
        plan,
        report,
        1 << 20,
        |ends, steps, report| {
            let effort = Effort::planned(plan, 9, 61);
            let sizes = [8, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20];
            let cases = |kind| sizes.into_iter().map(move |bytes| (kind, bytes));
            for (kind, bytes) in cases(what::DIRECT).chain(cases(what::RING)) {
                let order = |what| Order {
                    what,
                    bytes,
                    times: times_for(bytes, plan.quick),
                };
                let steps = std::cell::RefCell::new(&mut *steps);
                let figure = paired(
                    effort,
                    || lead(ends, &mut steps.borrow_mut(), order(what::PLAIN)),
                    || lead(ends, &mut steps.borrow_mut(), order(kind)),
                )?;
                report.row(&Row::of(case_of(kind, bytes), "ns", "plain put", &figure));
            }
            Ok(())
        },
    )
}

/// `mapwire bench send-bandwidth`.
pub(crate) fn bandwidth(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    in_ranks(
        "send-bandwidth",
        plan,
        report,
        MOST_BYTES,
        |ends, steps, report| {
            let effort = Effort::planned(plan, 3, 9);
            let local = vec![1_u8; MOST_BYTES];
            let mut copy = vec![2_u8; MOST_BYTES + PAGE_BYTES];
            // As the destination of a put, at the start of a page, where `local` is not: some processors copy very slowly between
            // places that have the same offset in their pages.
            let page = copy.as_ptr().align_offset(PAGE_BYTES);
            let sizes = [
                8,
                64,
                1024,
                4096,
                65_536,
                262_144,
                1 << 20,
                4 << 20,
                16 << 20,
            ];
            for kind in [what::STREAM_DIRECT, what::STREAM_RING] {
                for bytes in sizes {
                    let total: u64 = if plan.quick { 8 << 20 } else { 96 << 20 };
                    let times =
                        (total / bytes).clamp(4, if bytes < 4096 { 200_000 } else { 20_000 });
                    let order = Order {
                        what: kind,
                        bytes,
                        times,
                    };
                    let length = bytes as usize;
                    let steps = std::cell::RefCell::new(&mut *steps);
                    let (local, copy) = (
                        &local[..length],
                        std::cell::RefCell::new(&mut copy[page..page + length]),
                    );
                    // Rates: bytes a second of both, so that the ratio is the share of memcpy.
                    let rate = |ns: f64| bytes as f64 / ns;
                    let figure = paired(
                        effort,
                        || {
                            let mut copy = copy.borrow_mut();
                            let start = Instant::now();
                            for _ in 0..times {
                                copy.copy_from_slice(black_box(local));
                                black_box(&mut copy);
                            }
                            Ok::<f64, BenchError>(rate(
                                start.elapsed().as_nanos() as f64 / times as f64,
                            ))
                        },
                        || lead(ends, &mut steps.borrow_mut(), order).map(rate),
                    )?;
                    report.row(&Row::of(case_of(kind, bytes), "GB/s", "memcpy", &figure));
                }
            }
            Ok(())
        },
    )
}

/// `mapwire bench fetch-latency`.
pub(crate) fn fetch(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    in_ranks(
        "fetch-latency",
        plan,
        report,
        1 << 20,
        |ends, steps, report| {
            let effort = Effort::planned(plan, 9, 61);
            let mut into = vec![0_u8; 4096];
            for (path, import) in [("direct", &ends.direct), ("ring", &ends.ring)] {
                for bytes in [8_u64, 64, 256, 1024, 4096] {
                    let times = times_for(bytes, plan.quick);
                    let steps = std::cell::RefCell::new(&mut *steps);
                    let into = std::cell::RefCell::new(&mut into[..bytes as usize]);
                    let idle = Order {
                        what: what::IDLE,
                        bytes,
                        times,
                    };
                    let alone =
                        |f: &mut dyn FnMut() -> Result<(), BenchError>| -> Result<f64, BenchError> {
                            let start = Instant::now();
                            for _ in 0..times {
                                f()?;
                            }
                            Ok(start.elapsed().as_nanos() as f64 / times as f64)
                        };
                    let figure = if path == "direct" {
                        paired(
                            effort,
                            || {
                                alone(&mut || {
                                    ends.plain.get(0, &mut into.borrow_mut());
                                    black_box(&into);
                                    Ok(())
                                })
                            },
                            || {
                                alone(&mut || {
                                    import.fetch(0, &mut into.borrow_mut())?;
                                    black_box(&into);
                                    Ok(())
                                })
                            },
                        )?
                    } else {
                        // The raw parts of a fetch by the ring: a request and the data, each one way.
                        let order = Order {
                            what: what::PLAIN,
                            bytes,
                            times,
                        };
                        paired(
                            effort,
                            || {
                                lead(ends, &mut steps.borrow_mut(), order)
                                    .map(|one_way| 2.0 * one_way)
                            },
                            || {
                                steps.borrow_mut().order(idle);
                                let ns =
                                    alone(&mut || Ok(import.fetch(0, &mut into.borrow_mut())?));
                                steps.borrow_mut().gather(|| {
                                    ends.node.poll();
                                });
                                ns
                            },
                        )?
                    };
                    let baseline = if path == "direct" {
                        "plain get"
                    } else {
                        "two plain puts"
                    };
                    let kind = if path == "direct" {
                        what::DIRECT
                    } else {
                        what::RING
                    };
                    report.row(&Row::of(case_of(kind, bytes), "ns", baseline, &figure));
                }
            }
            Ok(())
        },
    )
}
