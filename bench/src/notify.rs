//! `notify-latency`: from a send with a notification to the handler in the receiver, beside the raw message and the raw wake-up.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use mapwire::{Export, Import, Node, Rights};
use mapwire_host::waiting::{futex_wait, futex_wake, now_ns};
use serde_json::json;

use super::job::{Job, Order, Steps, role};
use super::measure::{Effort, beside};
use super::placement::Placements;
use super::row::Report;
use super::words::Words;
use super::{BenchError, Plan};

const MOST_BYTES: usize = 4096;
/// Where the words of the raw baselines lie, behind all messages.
const FLAG: usize = MOST_BYTES + 64;

/// Words for messages to a sleeper: when the message left, how many have arrived, and how long all of them took.
const STAMP: usize = FLAG + 64;
const ARRIVED: usize = FLAG + 128;
const SUM: usize = FLAG + 192;

/// Long enough for the receiver to have fallen asleep.
const PAUSE_NS: u64 = 150_000;

/// What the ranks can be told to do.
mod what {
    pub(super) const END: u64 = 0;
    pub(super) const RAW: u64 = 1;
    pub(super) const DIRECT: u64 = 2;
    pub(super) const RING: u64 = 3;
}

struct Ends<'a> {
    node: &'a Node,
    sleeps: bool,
    ours: Words,
    theirs: Words,
    direct: Import,
    ring: Import,
    told: Arc<AtomicU64>,
    /// Notifications, and raw messages, that have been heard.
    heard: Cell<u64>,
    raw_heard: Cell<u64>,
    _exports: [Export; 2],
}

impl<'a> Ends<'a> {
    fn new(node: &'a Node, sleeps: bool) -> Result<Self, BenchError> {
        let told = Arc::new(AtomicU64::new(0));
        let handler = || {
            let told = Arc::clone(&told);
            move |_| {
                told.fetch_add(1, Ordering::Release);
            }
        };
        let (inbox, ring_inbox) = (node.alloc(2 * MOST_BYTES)?, node.alloc(2 * MOST_BYTES)?);
        let exports = [
            node.export_buffer(&inbox).name("bench.direct").on_notify(handler()).start()?,
            node.export_buffer(&ring_inbox).name("bench.ring").ring_only().on_notify(handler()).start()?,
        ];
        let peer = 1 - node.rank();
        let direct = node.import(peer, "bench.direct").rights(Rights::ALL).start()?;
        let ring = node.import(peer, "bench.ring").rights(Rights::ALL).start()?;
        let theirs = Words::of_import(&direct)?;
        Ok(Self {
            node,
            sleeps,
            ours: Words::of_buffer(&inbox),
            theirs,
            direct,
            ring,
            told,
            heard: Cell::new(0),
            raw_heard: Cell::new(0),
            _exports: exports,
        })
    }

    fn carry_out(&self, order: Order) -> Result<f64, BenchError> {
        let data = vec![5; order.bytes as usize];
        // Counted here rather than read: the peer may have begun already.
        let counted = if order.what == what::RAW { &self.raw_heard } else { &self.heard };
        let base = counted.replace(counted.get() + order.times);
        if self.sleeps {
            return self.wake(order, &data, base);
        }
        let start = Instant::now();
        for turn in 1..=order.times {
            let first = self.node.rank() == 0;
            if first {
                self.say(order, &data)?;
            }
            if order.what == what::RAW {
                self.hear_raw((base + turn) as u32);
            } else {
                self.hear(base + turn);
            }
            if !first {
                self.say(order, &data)?;
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / 1000.0 / (2 * order.times) as f64)
    }

    /// Messages from rank 0 to rank 1, each when rank 1 has fallen asleep: from the send to the thread that hears it, by the
    /// clock that all processes share.
    fn wake(&self, order: Order, data: &[u8], base: u64) -> Result<f64, BenchError> {
        let mut sum_ns = 0;
        for turn in 1..=order.times {
            let number = base + turn;
            if self.node.rank() == 0 {
                let start_ns = now_ns();
                while now_ns() - start_ns < PAUSE_NS {}
                self.theirs.store(STAMP, now_ns());
                self.say(order, data)?;
                while self.ours.load(ARRIVED) != number {
                    core::hint::spin_loop();
                }
            } else {
                if order.what == what::RAW {
                    self.hear_raw(number as u32);
                } else {
                    self.hear(number);
                }
                sum_ns += now_ns() - self.ours.load(STAMP);
                self.theirs.store(SUM, sum_ns);
                self.theirs.store(ARRIVED, number);
            }
        }
        Ok(self.ours.load(SUM) as f64 / 1000.0 / order.times as f64)
    }

    fn say(&self, order: Order, data: &[u8]) -> Result<(), BenchError> {
        match order.what {
            what::RAW => {
                self.theirs.put(0, data);
                self.theirs.futex(FLAG).fetch_add(1, Ordering::Release);
                if self.sleeps {
                    futex_wake(self.theirs.futex(FLAG), 1);
                }
            }
            what::DIRECT => self.direct.send_notify(data, 0)?,
            _ => self.ring.send_notify(data, 0)?,
        }
        Ok(())
    }

    fn hear(&self, until: u64) {
        let heard = || (self.told.load(Ordering::Acquire) >= until).then_some(());
        if self.sleeps {
            let _ = self.node.wait_until(None, heard);
        } else {
            while heard().is_none() {
                self.node.poll();
            }
        }
    }

    fn hear_raw(&self, until: u32) {
        let word = self.ours.futex(FLAG);
        loop {
            let seen = word.load(Ordering::Acquire);
            if seen.wrapping_sub(until) < u32::MAX / 2 {
                return;
            }
            if self.sleeps {
                futex_wait(word, seen, None);
            }
        }
    }
}

/// `mapwire bench notify-latency`.
pub(crate) fn notify(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let Some(case) = role() else {
        for wait in ["poll", "event"] {
            let job = Job { bench: "notify-latency", ranks: 2, options: &["--wait", wait], case: wait };
            job.run(plan, report.is_json())?;
        }
        return Ok(());
    };
    let node = Node::join()?;
    let sleeps = case == "event";
    let ends = Ends::new(&node, sleeps)?;
    let mut steps = Steps::new(&node)?;
    let idle = || {
        node.poll();
        if sleeps {
            std::thread::yield_now();
        }
    };
    if node.rank() == 1 {
        let polling = (!sleeps).then(|| node.polling());
        loop {
            let order = steps.next(idle);
            if order.what != what::END {
                ends.carry_out(order)?;
            }
            steps.answer();
            if order.what == what::END {
                drop(polling);
                return Ok(());
            }
        }
    }
    let polling = (!sleeps).then(|| node.polling());
    let effort = Effort::planned(plan, 3, if sleeps { 15 } else { 41 });
    let times = if sleeps { 20 } else { 400 };
    let mut placements = Placements::default();
    let mut outcome = Ok(());
    'measured: for (path, kind) in [("direct", what::DIRECT), ("ring", what::RING)] {
        for bytes in [8_u64, 64, 256, 1024, 4096] {
            let steps = std::cell::RefCell::new(&mut steps);
            let lead = |what| {
                let order = Order { what, bytes, times };
                steps.borrow_mut().together(order, || ends.carry_out(order), idle)
            };
            let case = vec![
                ("path", json!(path)),
                ("transport", json!("shm")),
                ("bytes", json!(bytes)),
                ("ranks", json!(2)),
                ("wait", json!(case)),
            ];
            let baseline = if sleeps { "plain put + futex wake" } else { "plain put" };
            let look = || steps.borrow_mut().look(idle);
            let figures = beside(effort, &mut placements, look, || lead(what::RAW), || lead(kind));
            match report.settled(&format!("{path}, {bytes} B"), figures) {
                Ok(figures) => report.rows(&case, "us", baseline, &figures.unwrap_or_default()),
                Err(error) => {
                    outcome = Err(error);
                    break 'measured;
                }
            }
        }
    }
    steps.together(Order { what: what::END, bytes: 0, times: 0 }, || (), idle);
    drop(polling);
    outcome
}
