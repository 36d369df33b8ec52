//! `wake-latency`: from a put-signal to a rank that sleeps in `wait_signal` until it has read the message. `notify-latency`: from
//! a send to the receiver's handler, polling and sleeping. Both beside a plain put and, where the receiver sleeps, a futex wake.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mapwire::{Buffer, Export, ExportBuilder, Import, Node, Rights};
use mapwire_host::waiting::now_ns;
use mapwire_translation::PAGE_BYTES;
use serde_json::json;

use super::job::{self, Job, Leader, Order, Steps, in_step, join, role};
use super::measure::Effort;
use super::messages::{Source, read};
use super::row::Report;
use super::words::{Heap, Words};
use super::{BenchError, Plan};

const MOST_BYTES: usize = 4096;
/// Where messages begin in exported heap.
const EDGE_BYTES: usize = 512;
/// Where a signal lies behind the start of the messages.
const SIGNAL: usize = MOST_BYTES + 64;

/// How long a receiver sleeps before a signal comes: longer than it naps at most while peers can store without a wake-up.
const SIGNAL_PAUSE: Duration = Duration::from_millis(13);
/// The same before a notification, which always wakes.
const NOTIFY_PAUSE_NS: u64 = 150_000;

/// Words of the shared memory: when a message left, how many have arrived, how long all of an order took, and the flag of
/// each rank.
const STAMP: usize = 0;
const TAKEN: usize = 64;
const SUM: usize = 128;
const FLAGS: usize = 192;

/// Ways of a message, the raw one first; an order names one of them and adds 1.
const WAYS: [&str; 4] = ["plain", "direct", "heap", "ring"];

struct Inbox {
    base: usize,
    import: Import,
    ours: Words,
    export: Export,
}

struct Ends {
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
    source: Source,
    /// Raw messages, those of mapwire, and all.
    counts: [u64; 3],
    _memory: (Buffer, Buffer, Heap),
}

impl Ends {
    fn new(node: &Node, shared: Words, notifies: bool, sleeps: bool) -> Result<Self, BenchError> {
        let (memory, ring_memory) = (node.alloc(2 * PAGE_BYTES)?, node.alloc(2 * PAGE_BYTES)?);
        let heap = Heap::new(EDGE_BYTES, EDGE_BYTES + 2 * PAGE_BYTES);
        let notified = Arc::new(AtomicU64::new(0));
        let inbox = |name: &str, base, ours, export: ExportBuilder<'_>| {
            let count = Arc::clone(&notified);
            let export = if notifies {
                export.on_notify(move |_| {
                    count.fetch_add(1, Ordering::Release);
                })
            } else {
                export
            };
            let export = export.name(name).start()?;
            let import = node.import(1 - node.rank(), name).rights(Rights::ALL).start()?;
            Ok::<_, BenchError>(Inbox { base, import, ours, export })
        };
        let ring = node.export_buffer(&ring_memory).ring_only();
        let inboxes = [
            inbox("bench.direct", 0, Words::of_buffer(&memory), node.export_buffer(&memory))?,
            inbox("bench.heap", EDGE_BYTES, heap.words, heap.words.export(node))?,
            inbox("bench.ring", 0, Words::of_buffer(&ring_memory), ring)?,
        ];
        Ok(Self {
            node: node.clone(),
            shared,
            theirs: Words::of_import(&inboxes[0].import)?,
            inboxes,
            notifies,
            sleeps,
            notified,
            source: Source::new(MOST_BYTES),
            counts: [0; 3],
            _memory: (memory, ring_memory, heap),
        })
    }

    /// The inbox of a way, if mapwire carries it.
    fn inbox(&self, way: usize) -> Option<&Inbox> {
        self.inboxes.get(way.checked_sub(1)?)
    }

    fn say(&self, way: usize, bytes: usize, number: u64) -> Result<(), BenchError> {
        let data = self.source.data(bytes);
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

    fn hear(&self, way: usize, bytes: usize, number: u64) -> Result<(), BenchError> {
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

    /// Back and forth; gives microseconds one way.
    fn ping_pong(&mut self, way: usize, order: Order, first: u64) -> Result<f64, BenchError> {
        let bytes = order.bytes as usize;
        let start = Instant::now();
        for number in first..first + order.times {
            if self.node.rank() == 0 {
                self.say(way, bytes, number)?;
            }
            self.hear(way, bytes, number)?;
            if self.node.rank() == 1 {
                self.say(way, bytes, number)?;
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / 1000.0 / (2 * order.times) as f64)
    }

    /// Messages from rank 0 to rank 1, each when rank 1 has fallen asleep: microseconds from the send until the receiver has heard
    /// it, by the clock that all processes share.
    fn one_way(&mut self, way: usize, order: Order, first: u64) -> Result<f64, BenchError> {
        let (bytes, shared) = (order.bytes as usize, self.shared);
        let mut sum_ns = 0;
        for number in first..first + order.times {
            self.counts[2] += 1;
            let taken = self.counts[2] as u32;
            if self.node.rank() == 1 {
                self.hear(way, bytes, number)?;
                sum_ns += now_ns() - shared.load(STAMP);
                shared.store(SUM, sum_ns);
                shared.wake(TAKEN, taken);
                continue;
            }
            if self.notifies {
                let start_ns = now_ns();
                while now_ns() - start_ns < NOTIFY_PAUSE_NS {}
            } else {
                std::thread::sleep(SIGNAL_PAUSE);
                self.source.rewrite(bytes, number);
            }
            shared.store(STAMP, now_ns());
            self.say(way, bytes, number)?;
            if self.notifies {
                while shared.futex(TAKEN).load(Ordering::Acquire) != taken {
                    core::hint::spin_loop();
                }
            } else {
                // Asleep: the scheduler may wake the receiver on this very processor.
                shared.sleep_until(TAKEN, taken);
            }
        }
        Ok(shared.load(SUM) as f64 / 1000.0 / order.times as f64)
    }
}

impl job::Ends for Ends {
    fn carry_out(&mut self, order: Order, _: &Steps) -> Result<f64, BenchError> {
        let way = order.what as usize - 1;
        let count = &mut self.counts[usize::from(way > 0)];
        let first = *count + 1;
        *count += order.times;
        match self.sleeps {
            true => self.one_way(way, order, first),
            false => self.ping_pong(way, order, first),
        }
    }

    fn idle(&self) {
        self.node.poll();
        if self.sleeps {
            std::thread::yield_now();
        }
    }
}

/// Measures `ways`, the raw one first, and prints the rows of the others.
fn measure(
    leader: &mut Leader<Ends>,
    report: &mut Report,
    ways: &[usize],
    (bytes, times): (u64, u64),
    effort: Effort,
) -> Result<(), BenchError> {
    let (wait, baseline) = match leader.ends.sleeps {
        true => ("event", "plain put + futex wake"),
        false => ("poll", "plain put"),
    };
    let point = format!("{}, {bytes} B", WAYS[ways[1]]);
    let run = |leader: &mut Leader<Ends>, number: usize| leader.lead(ways[number] as u64 + 1, bytes, times);
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

/// `mapwire bench wake-latency`.
pub(crate) fn wakes(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    if role().is_none() {
        return Job { bench: "wake-latency", ranks: 2, options: &["--wait", "event"], case: "pair" }.run(plan, report);
    }
    let (node, steps, shared) = join()?;
    in_step(Ends::new(&node, shared, false, true)?, steps, |leader| {
        let times = if plan.quick { 1 } else { 4 };
        let effort = Effort::planned(plan, 2, 31).scattered();
        [8, 4096].into_iter().try_for_each(|bytes| measure(leader, report, &[0, 1, 2, 3], (bytes, times), effort))
    })
}

/// `mapwire bench notify-latency`.
pub(crate) fn notify(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let Some(case) = role() else {
        let start =
            |wait| Job { bench: "notify-latency", ranks: 2, options: &["--wait", wait], case: wait }.run(plan, report);
        return ["poll", "event"].into_iter().try_for_each(start);
    };
    let sleeps = case == "event";
    let (node, steps, shared) = join()?;
    let ends = Ends::new(&node, shared, true, sleeps)?;
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
