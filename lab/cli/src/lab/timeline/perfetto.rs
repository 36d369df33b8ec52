//! The JSON that Perfetto and chrome://tracing show: Chrome's trace event format.
//!
//! | of the trace | event |
//! |---|---|
//! | a call of a thread, behind the record of its start | `X`, a slice on the thread's track; without that, `i`, an instant |
//! | bytes that went to or came from a rank | `X` of a nanosecond on the track `transfers`: a trace has only when it began |
//! | the same bytes where they came in | `s` and `f`, an arrow |
//! | any other transfer | `i` there |
//! | faults and bytes in a millisecond | `C` |

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, Write};

use mapwire_wire::{TraceOp, TraceRecord};
use serde_json::{Value, json};

use super::input::Shape;

/// The track of transfers, behind those of threads.
const TRANSFERS: u64 = 1_000_000;
/// Moves that wait for the record of their receiver, of two ranks at one address.
const MOST_WAITING: usize = 64;
const MS_NS: u64 = 1_000_000;

#[derive(Debug, Default)]
struct Rank {
    thread: u64,
    /// Calls that began, by thread.
    begun: HashMap<u64, u64>,
    /// The last transfer: time, address, bytes.
    last: Option<(u64, u64, u64)>,
    tracks: BTreeSet<u64>,
    /// The millisecond that is counted: faults and bytes.
    ms: u64,
    faults: u64,
    bytes: u64,
}

/// Writes the events of a trace.
#[derive(Debug)]
pub(super) struct Timeline<'a, W> {
    out: W,
    shape: &'a Shape,
    ranks: Vec<Rank>,
    is_begun: bool,
    arrows: u64,
    /// When bytes left, by the rank they go to and their address.
    waiting: HashMap<(usize, u64), VecDeque<(usize, u64)>>,
}

/// Microseconds with nanoseconds behind the point.
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

impl<'a, W: Write> Timeline<'a, W> {
    pub(super) fn new(out: W, shape: &'a Shape) -> Self {
        let ranks = shape.ranks.iter().map(|_| Rank::default()).collect();
        Self { out, shape, ranks, is_begun: false, arrows: 0, waiting: HashMap::new() }
    }

    fn event(&mut self, event: &Value) -> io::Result<()> {
        let before = match core::mem::replace(&mut self.is_begun, true) {
            false => "{\"traceEvents\":[\n",
            true => ",\n",
        };
        write!(self.out, "{before}{event}")
    }

    fn track(&mut self, rank: usize, track: u64) -> io::Result<()> {
        if self.ranks[rank].tracks.is_empty() {
            self.event(
                &json!({ "ph": "M", "name": "process_name", "pid": rank, "args": { "name": format!("rank {rank}") } }),
            )?;
        }
        if self.ranks[rank].tracks.insert(track) {
            let name = if track == TRANSFERS { "transfers".to_owned() } else { format!("thread {track}") };
            self.event(
                &json!({ "ph": "M", "name": "thread_name", "pid": rank, "tid": track, "args": { "name": name } }),
            )?;
        }
        Ok(())
    }

    /// Takes the next record, in order of time.
    pub(super) fn record(&mut self, record: &TraceRecord) -> io::Result<()> {
        let (Some(op), Some(rank)) = (record.op(), self.shape.rank(record)) else { return Ok(()) };
        let time_ns = record.time_ns.get().saturating_sub(self.shape.first_ns);
        let (address, bytes) = (record.address.get(), record.bytes.get());
        self.count(rank, time_ns, op, bytes)?;
        match op {
            TraceOp::Compute => {
                let of = &mut self.ranks[rank];
                of.thread = address;
                // A thread that lost its turn begins again where others came between.
                let begun = of.begun.entry(address).or_insert(time_ns);
                if bytes > 0 {
                    *begun = time_ns;
                }
                Ok(())
            }
            TraceOp::Give | TraceOp::Take => self.moved(rank, time_ns, op, (address, bytes)),
            TraceOp::Send | TraceOp::Fetch => {
                self.unmoved(rank)?;
                self.ranks[rank].last = Some((time_ns, address, bytes));
                self.transfer(rank, time_ns, op, record)
            }
            op if op.is_shared_memory() => self.call(rank, time_ns, op, (address, bytes)),
            TraceOp::Receive => {
                self.transfer(rank, time_ns, op, record)?;
                self.arrived(rank, time_ns, address)
            }
            op => self.transfer(rank, time_ns, op, record),
        }
    }

    fn call(&mut self, rank: usize, time_ns: u64, op: TraceOp, (address, bytes): (u64, u64)) -> io::Result<()> {
        let thread = self.ranks[rank].thread;
        self.track(rank, thread)?;
        let (category, args) = match op {
            TraceOp::ReadFault | TraceOp::WriteFault => ("fault", json!({ "address": hex(address), "bytes": bytes })),
            TraceOp::Lock | TraceOp::Unlock => ("lock", json!({ "lock": address })),
            TraceOp::Barrier => ("barrier", json!({ "barrier": address })),
            TraceOp::Broadcast => ("broadcast", json!({ "root": address })),
            _ => ("memory", json!({ "address": hex(address), "bytes": bytes })),
        };
        let mut event = json!({ "name": op.name(), "cat": category, "pid": rank, "tid": thread, "args": args });
        match self.ranks[rank].begun.remove(&thread) {
            Some(begun) => {
                event["ph"] = json!("X");
                event["ts"] = json!(us(begun));
                event["dur"] = json!(us(time_ns.saturating_sub(begun)));
            }
            None => {
                event["ph"] = json!("i");
                event["s"] = json!("t");
                event["ts"] = json!(us(time_ns));
            }
        }
        self.event(&event)
    }

    fn transfer(&mut self, rank: usize, time_ns: u64, op: TraceOp, record: &TraceRecord) -> io::Result<()> {
        self.track(rank, TRANSFERS)?;
        let args =
            json!({ "address": hex(record.address.get()), "bytes": record.bytes.get(), "mapped": record.is_direct() });
        self.event(&json!({ "ph": "i", "s": "t", "name": op.name(), "cat": "transfer", "pid": rank, "tid": TRANSFERS, "ts": us(time_ns), "args": args }))
    }

    fn slice(&mut self, rank: usize, time_ns: u64, name: &str, args: Value) -> io::Result<()> {
        self.track(rank, TRANSFERS)?;
        self.event(&json!({ "ph": "X", "name": name, "cat": "moved", "pid": rank, "tid": TRANSFERS, "ts": us(time_ns), "dur": 0.001, "args": args }))
    }

    /// The transfer before was to or from that peer.
    fn moved(&mut self, rank: usize, time_ns: u64, op: TraceOp, (peer, bytes): (u64, u64)) -> io::Result<()> {
        let last = self.ranks[rank].last.take();
        let peer = usize::try_from(peer).unwrap_or(usize::MAX);
        let name = if op == TraceOp::Give { format!("to rank {peer}") } else { format!("from rank {peer}") };
        self.slice(rank, time_ns, &name, json!({ "bytes": bytes, "peer": peer }))?;
        if peer >= self.ranks.len() || peer == rank {
            return Ok(());
        }
        if op == TraceOp::Take {
            // The peer's processor has no part in it.
            self.slice(peer, time_ns, &format!("read by rank {rank}"), json!({ "bytes": bytes, "peer": rank }))?;
            return self.arrow((peer, time_ns), (rank, time_ns));
        }
        if let Some((_, address, _)) = last {
            let waiting = self.waiting.entry((peer, address)).or_default();
            waiting.push_back((rank, time_ns));
            if waiting.len() > MOST_WAITING {
                waiting.pop_front();
            }
        }
        Ok(())
    }

    fn arrived(&mut self, rank: usize, time_ns: u64, address: u64) -> io::Result<()> {
        let from = self.waiting.get_mut(&(rank, address)).and_then(VecDeque::pop_front);
        let Some((from, left_ns)) = from else { return Ok(()) };
        self.slice(rank, time_ns, &format!("by rank {from}"), json!({ "peer": from }))?;
        self.arrow((from, left_ns), (rank, time_ns))
    }

    fn arrow(&mut self, (from, left_ns): (usize, u64), (to, came_ns): (usize, u64)) -> io::Result<()> {
        self.arrows += 1;
        let (id, name) = (self.arrows, "moved");
        self.event(&json!({ "ph": "s", "id": id, "name": name, "cat": name, "pid": from, "tid": TRANSFERS, "ts": us(left_ns) }))?;
        self.event(&json!({ "ph": "f", "bp": "e", "id": id, "name": name, "cat": name, "pid": to, "tid": TRANSFERS, "ts": us(came_ns) }))
    }

    /// Counts the bytes of a transfer that no peer follows.
    fn unmoved(&mut self, rank: usize) -> io::Result<()> {
        if let Some((_, _, bytes)) = self.ranks[rank].last.take() {
            self.ranks[rank].bytes = self.ranks[rank].bytes.saturating_add(bytes);
        }
        Ok(())
    }

    fn count(&mut self, rank: usize, time_ns: u64, op: TraceOp, bytes: u64) -> io::Result<()> {
        let ms = time_ns / MS_NS;
        if ms > self.ranks[rank].ms {
            self.tell_counters(rank, ms)?;
        }
        let of = &mut self.ranks[rank];
        match op {
            TraceOp::ReadFault | TraceOp::WriteFault => of.faults += 1,
            TraceOp::Give | TraceOp::Take => of.bytes = of.bytes.saturating_add(bytes),
            _ => {}
        }
        Ok(())
    }

    /// Tells what was counted in a millisecond that is over, and begins `next`.
    fn tell_counters(&mut self, rank: usize, next: u64) -> io::Result<()> {
        let of = &mut self.ranks[rank];
        let ms = core::mem::replace(&mut of.ms, next);
        let (faults, bytes) = (core::mem::take(&mut of.faults), core::mem::take(&mut of.bytes));
        if faults == 0 && bytes == 0 {
            return Ok(());
        }
        self.tell_counter(rank, ms, faults, bytes)?;
        // Counters keep their value until they are told another.
        self.tell_counter(rank, ms.saturating_add(1), 0, 0)
    }

    fn tell_counter(&mut self, rank: usize, ms: u64, faults: u64, bytes: u64) -> io::Result<()> {
        let ts = us(ms.saturating_mul(MS_NS));
        self.event(&json!({ "ph": "C", "name": "faults a ms", "pid": rank, "ts": ts, "args": { "faults": faults } }))?;
        self.event(&json!({ "ph": "C", "name": "bytes a ms", "pid": rank, "ts": ts, "args": { "bytes": bytes } }))
    }

    /// Ends the file.
    pub(super) fn finish(mut self) -> io::Result<W> {
        for rank in 0..self.ranks.len() {
            self.unmoved(rank)?;
            self.tell_counters(rank, u64::MAX)?;
        }
        if !self.is_begun {
            writeln!(self.out, "{{\"traceEvents\":[")?;
        }
        let said = json!({ "command": self.shape.command.join(" ") });
        writeln!(self.out, "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{said}}}")?;
        Ok(self.out)
    }
}

fn hex(address: u64) -> String {
    format!("{address:#x}")
}
