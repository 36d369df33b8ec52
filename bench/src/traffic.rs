//! `traffic`: 16 ranks that all send to each other, or all to one, each a host of its own, beside bare sockets that do the same. How much the
//! machine carries in all, and how evenly it is shared.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use mapwire::{Import, Node, Rights};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use super::job::{self, Job, Leader, Order, Steps, in_step, join, role};
use super::measure::{Figure, median};
use super::messages::{Source, read};
use super::row::Report;
use super::udp::{self, DATAGRAM_BYTES};
use super::words::{Heap, Words};
use super::{BenchError, Plan};

const RANKS: usize = 16;
/// Bytes of a message.
const BYTES: usize = 64 << 10;
/// Messages from one rank to another that may be under way, and datagrams of the baseline.
const WINDOW: u64 = 2;
/// A message, and the word that says that it is there.
const SLOT_BYTES: usize = BYTES + 64;
/// How long a rank sleeps when it has nothing to do.
const NAP: Duration = Duration::from_millis(1);
/// How long a message may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Words of the memory that all ranks share, a line of 64 bytes each: the phase up to which each rank has an ack of all it sent, and what each
/// took of each other before the end of a phase.
const ACKED: usize = 0;
const TAKEN: usize = RANKS;

/// Who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    AllToAll,
    Incast,
}

const PATTERNS: [Pattern; 2] = [Pattern::AllToAll, Pattern::Incast];

impl Pattern {
    fn name(self) -> &'static str {
        match self {
            Self::AllToAll => "all-to-all",
            Self::Incast => "incast",
        }
    }

    fn sends(self, from: usize, to: usize) -> bool {
        from != to && (self == Self::AllToAll || to == 0)
    }
}

/// Messages that a rank has sent to another, that the other has taken of these, and that this one has taken of the other's.
#[derive(Clone, Copy, Debug)]
struct Flow {
    sent: u64,
    acked: u64,
    taken: u64,
}

/// A way to carry messages.
trait Carrier {
    /// Sends message `number`.
    fn send(&mut self, to: usize, number: u64) -> Result<(), BenchError>;
    /// Takes what has come: messages, which are acked, and acks. Waits for a moment where nothing has.
    fn take(&mut self, flows: &mut [Flow], waits: bool) -> Result<(), BenchError>;
}

/// One rank's part in one phase. What it took of each other before the end.
fn exchange(
    way: &mut impl Carrier,
    pattern: Pattern,
    me: usize,
    time: Duration,
    phase: u64,
    has_all: impl Fn() -> bool,
) -> Result<[u64; RANKS], BenchError> {
    // Numbers of different phases differ, so that nothing of an earlier one is taken for a message of this.
    let first = phase << 32;
    let mut flows = [Flow { sent: first, acked: first, taken: first }; RANKS];
    let ends = Instant::now() + time;
    let mut taken = None;
    loop {
        let now = Instant::now();
        let is_over = now >= ends;
        if is_over && taken.is_none() {
            taken = Some(flows.map(|flow| flow.taken - first));
        }
        if now > ends + PATIENCE {
            return Err("a message has been lost".into());
        }
        let mut is_busy = false;
        // Each begins with another receiver, or all would meet at one.
        for to in (1..RANKS).map(|step| (me + step) % RANKS) {
            let flow = &mut flows[to];
            if !is_over && pattern.sends(me, to) && flow.sent < flow.acked + WINDOW {
                flow.sent += 1;
                way.send(to, flow.sent)?;
                is_busy = true;
            }
        }
        way.take(&mut flows, !is_busy)?;
        let is_acked = flows.iter().all(|flow| flow.acked == flow.sent);
        // Others may still wait for acks of this rank.
        if let Some(taken) = taken.filter(|_| is_over && is_acked && has_all()) {
            return Ok(taken);
        }
    }
}

/// Bare sockets. A datagram begins with its sender and a number; one without more is an ack.
struct Raw<'a> {
    me: u16,
    socket: &'a UdpSocket,
    ports: [u16; RANKS],
    phase: u8,
    data: Vec<u8>,
    buffer: Vec<u8>,
    sum: u64,
}

/// Bytes before the data: phase, sender, number.
const RAW_HEAD: usize = 16;

impl Raw<'_> {
    fn head(&self, number: u64) -> [u8; RAW_HEAD] {
        let mut head = [0; RAW_HEAD];
        head[0] = self.phase;
        head[2..4].copy_from_slice(&self.me.to_le_bytes());
        head[8..].copy_from_slice(&number.to_le_bytes());
        head
    }

    fn transmit(&self, to: usize, datagram: &[u8]) -> Result<(), BenchError> {
        udp::spin(|| self.socket.send_to(datagram, ("127.0.0.1", self.ports[to])))?;
        Ok(())
    }
}

impl Carrier for Raw<'_> {
    fn send(&mut self, to: usize, number: u64) -> Result<(), BenchError> {
        let head = self.head(number);
        // A sender has just written what it sends.
        self.data.fill(number as u8);
        self.data[..RAW_HEAD].copy_from_slice(&head);
        self.transmit(to, &self.data)
    }

    fn take(&mut self, flows: &mut [Flow], waits: bool) -> Result<(), BenchError> {
        if waits {
            let time = Timespec::try_from(NAP)?;
            poll(&mut [PollFd::new(self.socket, PollFlags::IN)], Some(&time))?;
        }
        while let Some(length) = udp::now(self.socket.recv(&mut self.buffer))? {
            let head: [u8; RAW_HEAD] = self.buffer[..RAW_HEAD].try_into()?;
            let from = usize::from(u16::from_le_bytes([head[2], head[3]]));
            let flow = flows.get_mut(from).filter(|_| head[0] == self.phase);
            let flow = flow.ok_or("malformed datagram of the baseline")?;
            if length == RAW_HEAD {
                flow.acked += 1;
                continue;
            }
            flow.taken += 1;
            let words = self.buffer[RAW_HEAD..length].chunks_exact(8);
            let words = words.map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
            self.sum = self.sum.wrapping_add(words.fold(0, u64::wrapping_add));
            let ack = self.head(0);
            self.transmit(from, &ack)?;
        }
        Ok(())
    }
}

/// Stores with a signal, acked by signals.
struct Puts<'a> {
    node: &'a Node,
    me: usize,
    inbox: Words,
    imports: &'a [Option<Import>],
    source: Source,
}

fn slot(from: usize, number: u64) -> usize {
    (from * WINDOW as usize + (number % WINDOW) as usize) * SLOT_BYTES
}

/// Where a receiver says how much it has taken.
fn ack_of(receiver: usize) -> usize {
    RANKS * WINDOW as usize * SLOT_BYTES + 64 * receiver
}

const INBOX_BYTES: usize = RANKS * WINDOW as usize * SLOT_BYTES + 64 * RANKS;

impl Puts<'_> {
    fn import(&self, rank: usize) -> Result<&Import, BenchError> {
        Ok(self.imports[rank].as_ref().ok_or("no import of this rank")?)
    }

    /// Whether something has come of, or for, a rank.
    fn has_news(inbox: Words, from: usize, flow: &Flow) -> bool {
        inbox.load(slot(from, flow.taken + 1) + BYTES) == flow.taken + 1 || inbox.load(ack_of(from)) > flow.acked
    }
}

impl Carrier for Puts<'_> {
    fn send(&mut self, to: usize, number: u64) -> Result<(), BenchError> {
        self.source.rewrite(BYTES, number);
        let at = slot(self.me, number) as u64;
        self.import(to)?.put_signal(self.source.data(BYTES), at, at + BYTES as u64, number)?;
        Ok(())
    }

    fn take(&mut self, flows: &mut [Flow], waits: bool) -> Result<(), BenchError> {
        let inbox = self.inbox;
        if waits {
            let has_news = || (0..RANKS).any(|from| Self::has_news(inbox, from, &flows[from])).then_some(());
            self.node.wait_until(Some(NAP), has_news);
        } else {
            self.node.poll();
        }
        for (from, flow) in flows.iter_mut().enumerate().filter(|(from, _)| *from != self.me) {
            flow.acked = flow.acked.max(inbox.load(ack_of(from)));
            let at = slot(from, flow.taken + 1);
            if inbox.load(at + BYTES) == flow.taken + 1 {
                flow.taken += 1;
                read(inbox, at, BYTES, flow.taken)?;
                let at = ack_of(self.me) as u64;
                self.import(from)?.put_signal(&[], at, at, flow.taken)?;
            }
        }
        Ok(())
    }
}

/// A rank, and the words that all share.
struct Rank {
    node: Node,
    shared: Words,
    socket: UdpSocket,
    inbox: Words,
    imports: Vec<Option<Import>>,
    phase: u64,
}

impl job::Part for Rank {
    /// Goes through a phase of so many milliseconds with the others, raw if `bytes` is 0, in the pattern of this number.
    fn carry_out(&mut self, order: Order, _: &Steps) -> Result<f64, BenchError> {
        self.phase += 1;
        let (me, shared, phase) = (self.node.rank(), self.shared, self.phase);
        let (pattern, time) = (PATTERNS[order.what as usize - 1], Duration::from_millis(order.times));
        let has_all = || {
            shared.store(64 * (ACKED + me), phase);
            (0..RANKS).all(|rank| shared.load(64 * (ACKED + rank)) >= phase)
        };
        let taken = if order.bytes == 0 {
            let mut raw = Raw {
                me: me as u16,
                socket: &self.socket,
                ports: core::array::from_fn(|rank| udp::port_of(shared, rank)),
                phase: phase as u8,
                data: vec![0; DATAGRAM_BYTES],
                buffer: vec![0; DATAGRAM_BYTES],
                sum: 0,
            };
            exchange(&mut raw, pattern, me, time, phase, has_all)?
        } else {
            let (node, source) = (&self.node, Source::new(BYTES));
            let mut puts = Puts { node, me, inbox: self.inbox, imports: &self.imports, source };
            let _polling = self.node.polling();
            exchange(&mut puts, pattern, me, time, phase, has_all)?
        };
        for (from, taken) in taken.into_iter().enumerate() {
            shared.store(64 * (TAKEN + RANKS * me + from), taken);
        }
        Ok(0.0)
    }

    fn idle(&self) {
        std::thread::sleep(NAP / 4);
    }
}

/// A phase of all ranks: bytes a second of all, and the fairness among pairs.
fn phase(leader: &mut Leader<Rank>, pattern: usize, is_raw: bool, ms: u64) -> Result<(f64, f64), BenchError> {
    let bytes = if is_raw { DATAGRAM_BYTES } else { BYTES };
    leader.lead(pattern as u64 + 1, if is_raw { 0 } else { BYTES as u64 }, ms)?;
    let pairs = (0..RANKS * RANKS).filter(|at| PATTERNS[pattern].sends(at % RANKS, at / RANKS));
    let pairs: Vec<f64> = pairs.map(|at| leader.part.shared.load(64 * (TAKEN + at)) as f64).collect();
    let total: f64 = pairs.iter().sum();
    Ok((total * bytes as f64 * 1000.0 / ms as f64, fairness(&pairs)))
}

/// Jain's index: 1 when all are the same, 1/n when one has everything.
fn fairness(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// `mapwire bench traffic`, over UDP whatever the transport.
pub(super) fn traffic(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    if role().is_none() {
        let options = &["--transport", "udp"];
        return Job { bench: "traffic", ranks: RANKS, options, case: "all" }.run(plan, report);
    }
    let (node, steps, shared) = join()?;
    let me = node.rank();
    let memory = Heap::new(0, INBOX_BYTES);
    let inbox = memory.words;
    let _export = inbox.export(&node).ring_only().name("traffic").start()?;
    let import = |rank: usize| node.import(rank, "traffic").rights(Rights::ALL).start();
    let imports: Result<_, _> = (0..RANKS).map(|rank| (rank != me).then(|| import(rank)).transpose()).collect();
    let socket = udp::announced(shared, me)?;
    let rank = Rank { node: node.clone(), shared, socket, inbox, imports: imports?, phase: 0 };
    let (ms, runs) = if plan.quick { (300, 1) } else { (1000, 5) };
    in_step(rank, steps, |leader| {
        for (number, pattern) in PATTERNS.iter().enumerate() {
            let (mut pairs, mut shares) = (Vec::new(), Vec::new());
            for _ in 0..runs {
                let (before, _) = phase(leader, number, true, ms)?;
                let (value, fairness) = phase(leader, number, false, ms)?;
                let (after, _) = phase(leader, number, true, ms)?;
                pairs.push((value / 1e9, (before + after) / 2e9));
                shares.push(fairness);
            }
            let case = [
                ("pattern", json!(pattern.name())),
                ("transport", json!("udp")),
                ("sealed", json!(!plan.insecure)),
                ("bytes", json!(BYTES)),
                ("ranks", json!(RANKS)),
                ("fairness", json!((median(&mut shares) * 1e4).round() / 1e4)),
            ];
            report.rows(&case, "GB/s", "raw UDP", &[Figure::of_pairs(&pairs)]);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_where_all_have_the_same() {
        assert!((fairness(&[3.0; 15]) - 1.0).abs() < 1e-12);
        assert!((fairness(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert!(fairness(&[]).abs() < 1e-12);
    }

    #[test]
    fn patterns_say_who_sends() {
        let pairs = |pattern: Pattern| (0..RANKS * RANKS).filter(|at| pattern.sends(at % RANKS, at / RANKS)).count();
        assert_eq!((pairs(Pattern::AllToAll), pairs(Pattern::Incast)), (RANKS * (RANKS - 1), RANKS - 1));
    }
}
