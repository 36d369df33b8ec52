//! `wake-latency`: from a put-signal to a rank that sleeps in `wait_signal` until it has read the message. `notify-latency`: from
//! a send to the receiver's handler, polling and sleeping. Both beside a plain put and, where the receiver sleeps, a futex wake.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mapwire::{ExportBuilder, Node};
use mapwire_host::waiting::now_ns;
use mapwire_translation::PAGE_BYTES;
use serde_json::json;

use super::inbox::Inbox;
use super::job::{self, Job, Leader, Order, Steps, in_step, join, role};
use super::loops::{LOOP_BYTES, Loops, Message, Passing};
use super::measure::Effort;
use super::messages::read;
use super::row::Report;
use super::words::Words;
use super::{BenchError, Plan};

const MOST_BYTES: usize = 4096;
/// Where a signal lies behind the start of the messages.
const SIGNAL: usize = MOST_BYTES + 64;

/// How long a receiver sleeps before a signal comes: longer than it naps at most while peers can store without a wake-up.
const SIGNAL_PAUSE: Duration = Duration::from_millis(13);
/// The same before a notification, which always wakes.
const NOTIFY_PAUSE_NS: u64 = 150_000;

/// Words of the shared memory: the flag of each rank.
const FLAGS: usize = LOOP_BYTES;

/// Ways of a message, the raw one first; an order names one of them and adds 1.
const WAYS: [&str; 4] = ["plain", "direct", "heap", "ring"];

struct Ways {
    node: Node,
    shared: Words,
    /// The peer's memory for plain puts.
    theirs: Words,
    /// Of each of mapwire's ways.
    inboxes: [Inbox; 3],
    /// Messages end in a handler, not in a signal.
    notifies: bool,
    sleeps: bool,
    notified: Arc<AtomicU64>,
}

/// An export whose notifications, if any, are counted.
fn counted<'e>(export: ExportBuilder<'e>, count: Option<&Arc<AtomicU64>>) -> ExportBuilder<'e> {
    match count.map(Arc::clone) {
        Some(count) => export.on_notify(move |_| _ = count.fetch_add(1, Ordering::Release)),
        None => export,
    }
}

impl Ways {
    fn new(node: &Node, shared: Words, notifies: bool, sleeps: bool) -> Result<Self, BenchError> {
        let notified = Arc::new(AtomicU64::new(0));
        let count = notifies.then_some(&notified);
        let (peer, bytes) = (1 - node.rank(), 2 * PAGE_BYTES);
        let inboxes = [
            Inbox::alloc(node, peer, "bench.direct", bytes, |it| counted(it, count))?,
            Inbox::heap(node, peer, "bench.heap", bytes, |it| counted(it, count))?,
            Inbox::alloc(node, peer, "bench.ring", bytes, |it| counted(it.ring_only(), count))?,
        ];
        let theirs = Words::of_import(&inboxes[0].import)?;
        Ok(Self { node: node.clone(), shared, theirs, inboxes, notifies, sleeps, notified })
    }

    /// The inbox of a way, if mapwire carries it.
    fn inbox(&self, way: usize) -> Option<&Inbox> {
        self.inboxes.get(way.checked_sub(1)?)
    }
}

impl Passing for Ways {
    type Path = usize;

    fn counter(way: usize) -> usize {
        usize::from(way > 0)
    }

    fn put(&mut self, way: usize, data: &[u8], Message { number, .. }: Message) -> Result<(), BenchError> {
        match self.inbox(way) {
            Some(inbox) if self.notifies => inbox.import.send_notify(data, 0)?,
            Some(Inbox { import, base, .. }) => {
                import.put_signal(data, *base as u64, (base + SIGNAL) as u64, number)?;
            }
            None => {
                self.theirs.put(0, data);
                let flag = FLAGS + 64 * (1 - self.node.rank());
                match self.sleeps {
                    true => self.shared.wake(flag, number as u32),
                    false => self.shared.futex(flag).store(number as u32, Ordering::Release),
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, way: usize, bytes: usize, Message { number, .. }: Message) -> Result<(), BenchError> {
        let (memory, base) = match self.inbox(way) {
            Some(_) if self.notifies => {
                let is_heard = || (self.notified.load(Ordering::Acquire) >= number).then_some(());
                if self.sleeps {
                    let _ = self.node.wait_until(None, is_heard);
                }
                while is_heard().is_none() {
                    self.node.poll();
                }
                return Ok(());
            }
            Some(inbox) => {
                inbox.export.wait_signal((inbox.base + SIGNAL) as u64, number)?;
                (inbox.ours, inbox.base)
            }
            None => {
                let flag = FLAGS + 64 * self.node.rank();
                match self.sleeps {
                    true => self.shared.sleep_until(flag, number as u32),
                    false => while self.shared.futex(flag).load(Ordering::Acquire) != number as u32 {},
                }
                (self.inboxes[0].ours, 0)
            }
        };
        // A handler knows that a message has come, and reads none of it.
        if self.notifies { Ok(()) } else { read(memory, base, bytes, number) }
    }

    fn progress(&self, _: usize) {}

    fn idle(&self) {
        self.node.poll();
        if self.sleeps {
            std::thread::yield_now();
        }
    }
}

struct Rank {
    loops: Loops,
    ways: Ways,
}

impl Rank {
    fn new(node: &Node, shared: Words, notifies: bool, sleeps: bool) -> Result<Self, BenchError> {
        let loops = Loops::new(node.rank(), shared, MOST_BYTES, 2, 0);
        Ok(Self { loops, ways: Ways::new(node, shared, notifies, sleeps)? })
    }
}

impl job::Part for Rank {
    /// Microseconds one way.
    fn carry_out(&mut self, order: Order, _: &Steps) -> Result<f64, BenchError> {
        let way = order.what as usize - 1;
        let notifies = self.ways.notifies;
        let pause = move || match notifies {
            true => {
                let start_ns = now_ns();
                while now_ns() - start_ns < NOTIFY_PAUSE_NS {}
            }
            false => std::thread::sleep(SIGNAL_PAUSE),
        };
        let ns = match self.ways.sleeps {
            true => self.loops.wakes(&mut self.ways, way, order, (pause, notifies))?,
            false => self.loops.ping_pong(&mut self.ways, way, order)?,
        };
        Ok(ns / 1000.0)
    }

    fn idle(&self) {
        self.ways.idle();
    }
}

/// Measures `ways`, the raw one first, and prints the rows of the others.
fn measure(
    leader: &mut Leader<Rank>,
    report: &mut Report,
    ways: &[usize],
    (bytes, times): (u64, u64),
    effort: Effort,
) -> Result<(), BenchError> {
    let (wait, baseline) = match leader.part.ways.sleeps {
        true => ("event", "plain put + futex wake"),
        false => ("poll", "plain put"),
    };
    let point = format!("{}, {bytes} B", WAYS[ways[1]]);
    let run = |leader: &mut Leader<Rank>, number: usize| leader.lead(ways[number] as u64 + 1, bytes, times);
    let Some(samples) = leader.sample(effort, ways.len(), &point, report, run)? else {
        return Ok(());
    };
    for (number, &way) in ways.iter().enumerate().skip(1) {
        let case = [
            ("path", json!(WAYS[way])),
            ("transport", json!("shm")),
            ("bytes", json!(bytes)),
            ("ranks", json!(2)),
            ("wait", json!(wait)),
        ];
        report.rows(&case, "us", baseline, &samples.figures(number, 0));
    }
    Ok(())
}

pub(crate) fn wakes(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    if role().is_none() {
        return Job { bench: "wake-latency", ranks: 2, options: &["--wait", "event"], case: "pair" }.run(plan, report);
    }
    let (node, steps, shared) = join()?;
    in_step(Rank::new(&node, shared, false, true)?, steps, |leader| {
        let times = if plan.quick { 1 } else { 4 };
        let effort = Effort::planned(plan, 2, 31).scattered();
        [8, 4096].into_iter().try_for_each(|bytes| measure(leader, report, &[0, 1, 2, 3], (bytes, times), effort))
    })
}

pub(crate) fn notify(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    let Some(case) = role() else {
        let start =
            |wait| Job { bench: "notify-latency", ranks: 2, options: &["--wait", wait], case: wait }.run(plan, report);
        return ["poll", "event"].into_iter().try_for_each(start);
    };
    let sleeps = case == "event";
    let (node, steps, shared) = join()?;
    let ends = Rank::new(&node, shared, true, sleeps)?;
    let _polling = (!sleeps).then(|| node.polling());
    in_step(ends, steps, |leader| {
        let (times, runs) = if sleeps { (20, 15) } else { (400, 41) };
        for way in [1, 3] {
            for bytes in [8, 64, 256, 1024, 4096] {
                measure(leader, report, &[0, way], (bytes, times), Effort::planned(plan, 3, runs))?;
            }
        }
        Ok(())
    })
}
