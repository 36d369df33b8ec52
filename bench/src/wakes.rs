//! `wake-latency`: from a put-signal to a rank that sleeps in `wait_signal` until it has read the message, beside a plain put and a
//! futex wake.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mapwire::{Buffer, Export, Import, Node, Rights};
use mapwire_host::waiting::{futex_wait, futex_wake, now_ns};
use mapwire_translation::PAGE_BYTES;
use serde_json::json;

use super::job::{Job, Order, Steps, role};
use super::measure::{Effort, Step, sampled};
use super::messages::{Source, read};
use super::placement::Placements;
use super::row::Report;
use super::words::Words;
use super::{BenchError, Plan};

const MOST_BYTES: usize = 4096;

/// How long the receiver has waited when a message comes: longer than it naps at most while peers can store without a wake-up.
const PAUSE: Duration = Duration::from_millis(13);

/// Words behind the messages, in lines of their own.
const FLAG: usize = MOST_BYTES + 64;
/// When the message left, how many have been read, and how long all of an order took.
const STAMP: usize = FLAG + 64;
const TAKEN: usize = FLAG + 128;
const SUM: usize = FLAG + 192;

/// Where messages begin in exported heap.
const EDGE_BYTES: usize = 512;

/// Ways of a message; an order names one of them, or the end.
const WAYS: [&str; 4] = ["plain", "direct", "heap", "ring"];
const END: u64 = WAYS.len() as u64;

struct Ends<'a> {
    node: &'a Node,
    /// Memory of `alloc`, which plain puts use too, with the words of the bench; the peer's, and one's own.
    theirs: Words,
    ours: Words,
    /// As many as [`WAYS`] but the first: where messages begin, the peer's memory, one's own, and its export.
    inboxes: [Inbox; 3],
    source: RefCell<Source>,
    sent: Cell<u64>,
    _memory: (Buffer, Buffer, Vec<u64>),
}

struct Inbox {
    base: usize,
    import: Import,
    ours: Words,
    export: Export,
}

impl<'a> Ends<'a> {
    fn new(node: &'a Node) -> Result<Self, BenchError> {
        let (inbox, ring_inbox) = (node.alloc(2 * PAGE_BYTES)?, node.alloc(2 * PAGE_BYTES)?);
        let mut heap = vec![0_u64; 5 * PAGE_BYTES / 8];
        let whole = Words::new(heap.as_mut_ptr().cast(), heap.len() * 8);
        let page = (whole.before_page() + PAGE_BYTES) - EDGE_BYTES;
        let heap_words = whole.part(page, EDGE_BYTES + 2 * PAGE_BYTES);
        let exports = [
            node.export_buffer(&inbox).name("bench.direct").start()?,
            heap_words.export(node).name("bench.heap").start()?,
            node.export_buffer(&ring_inbox).name("bench.ring").ring_only().start()?,
        ];
        let import = |name| {
            let import = node.import(1 - node.rank(), name);
            import.rights(Rights::ALL).start()
        };
        let [direct, in_heap, ring] = exports;
        let inboxes = [
            Inbox { base: 0, import: import("bench.direct")?, ours: Words::of_buffer(&inbox), export: direct },
            Inbox { base: EDGE_BYTES, import: import("bench.heap")?, ours: heap_words, export: in_heap },
            Inbox { base: 0, import: import("bench.ring")?, ours: Words::of_buffer(&ring_inbox), export: ring },
        ];
        Ok(Self {
            node,
            theirs: Words::of_import(&inboxes[0].import)?,
            ours: Words::of_buffer(&inbox),
            inboxes,
            source: RefCell::new(Source::new(MOST_BYTES)),
            sent: Cell::new(0),
            _memory: (inbox, ring_inbox, heap),
        })
    }

    /// The inbox of a way, if mapwire carries it.
    fn inbox(&self, way: u64) -> Option<&Inbox> {
        self.inboxes.get((way as usize).checked_sub(1)?)
    }

    /// Microseconds from the put to the receiver's having read the message, the mean of all that were ordered.
    fn carry_out(&self, order: Order) -> Result<f64, BenchError> {
        let bytes = order.bytes as usize;
        let mut sum_ns = 0;
        for number in self.sent.get() + 1..=self.sent.get() + order.times {
            if self.node.rank() == 0 {
                std::thread::sleep(PAUSE);
                let mut source = self.source.borrow_mut();
                source.rewrite(bytes, number);
                self.theirs.store(STAMP, now_ns());
                self.put(order.what, source.data(bytes), number)?;
                // Asleep: the scheduler may wake the receiver on this very processor.
                sleep_until(self.ours.futex(TAKEN), number as u32);
            } else {
                self.take(order.what, bytes, number)?;
                sum_ns += now_ns() - self.ours.load(STAMP);
                self.theirs.store(SUM, sum_ns);
                wake(self.theirs.futex(TAKEN), number as u32);
            }
        }
        self.sent.set(self.sent.get() + order.times);
        Ok(self.ours.load(SUM) as f64 / 1000.0 / order.times as f64)
    }

    fn put(&self, way: u64, data: &[u8], number: u64) -> Result<(), BenchError> {
        if let Some(Inbox { import, base, .. }) = self.inbox(way) {
            import.put_signal(data, *base as u64, (base + FLAG) as u64, number)?;
        } else {
            self.theirs.put(0, data);
            wake(self.theirs.futex(FLAG), number as u32);
        }
        Ok(())
    }

    fn take(&self, way: u64, bytes: usize, number: u64) -> Result<(), BenchError> {
        if let Some(inbox) = self.inbox(way) {
            let base = inbox.base;
            inbox.export.wait_signal((base + FLAG) as u64, number)?;
            return read(inbox.ours, base, bytes, number);
        }
        sleep_until(self.ours.futex(FLAG), number as u32);
        read(self.ours, 0, bytes, number)
    }
}

fn wake(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Release);
    futex_wake(word, 1);
}

fn sleep_until(word: &AtomicU32, value: u32) {
    loop {
        let seen = word.load(Ordering::Acquire);
        if seen == value {
            return;
        }
        futex_wait(word, seen, None);
    }
}

/// `mapwire bench wake-latency`.
pub(crate) fn wakes(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    if role().is_none() {
        let job = Job { bench: "wake-latency", ranks: 2, options: &["--wait", "event"], case: "pair" };
        return job.run(plan, report.is_json());
    }
    let node = Node::join()?;
    let ends = Ends::new(&node)?;
    let mut steps = Steps::new(&node)?;
    let idle = || {
        node.poll();
    };
    if node.rank() == 1 {
        loop {
            let order = steps.next(idle);
            if order.what != END {
                ends.carry_out(order)?;
            }
            steps.answer();
            if order.what == END {
                return Ok(());
            }
        }
    }
    let mut placements = Placements::default();
    for bytes in [8, 4096] {
        let effort = Effort::planned(plan, 2, 31).scattered();
        let times = if plan.quick { 1 } else { 4 };
        let samples = sampled::<BenchError>(effort, &mut placements, WAYS.len(), |step| match step {
            Step::Look => Ok(steps.look(idle)),
            Step::Way(way) => {
                let what = way as u64;
                let order = Order { what, bytes, times };
                steps.together(order, || ends.carry_out(order), idle)
            }
        });
        let Some(samples) = report.settled(&format!("{bytes} B"), samples)? else {
            continue;
        };
        for (way, path) in WAYS.iter().enumerate().skip(1) {
            let case = vec![
                ("path", json!(path)),
                ("transport", json!("shm")),
                ("bytes", json!(bytes)),
                ("ranks", json!(2)),
                ("wait", json!("event")),
            ];
            report.rows(&case, "us", "plain put + futex wake", &samples.figures(way, 0));
        }
    }
    let end = Order { what: END, bytes: 0, times: 0 };
    steps.together(end, || (), idle);
    Ok(())
}
