//! `traffic`: 16 ranks that all send to each other, or all to one, each a host of its own, beside bare sockets that do the same. How much the
//! machine carries in all, and how evenly it is shared.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use mapwire::{Import, Node, Rights};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use super::job::{Job, join, role};
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
/// How long anything may take but the measurement.
const PATIENCE: Duration = Duration::from_secs(60);

/// Words of the memory by which all ranks keep in step; a line of 64 bytes each.
mod line {
    /// Phases that each rank is ready for, and through with.
    pub(super) const READY: usize = 0;
    pub(super) const THROUGH: usize = READY + super::RANKS;
    /// The phase up to which each has an ack of all it sent.
    pub(super) const ACKED: usize = THROUGH + super::RANKS;
    /// What each rank took of each other before the end of a phase.
    pub(super) const TAKEN: usize = ACKED + super::RANKS;
}

/// Who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    AllToAll,
    Incast,
}

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

/// What one rank has sent, and taken, and what others have taken of it; by rank.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    sent: u64,
    acked: u64,
    taken: u64,
}

/// A way to carry messages.
trait Carrier {
    /// Sends message `number`, counted from 1.
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
    has_all: impl Fn() -> bool,
) -> Result<[u64; RANKS], BenchError> {
    let mut flows = [Flow::default(); RANKS];
    let ends = Instant::now() + time;
    let mut taken = None;
    loop {
        let now = Instant::now();
        let is_over = now >= ends;
        if is_over && taken.is_none() {
            taken = Some(flows.map(|flow| flow.taken));
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
            let flow = flow.ok_or("a datagram of the baseline makes no sense")?;
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

/// One rank's ends, and the words that all share.
struct Rank<'n> {
    node: &'n Node,
    shared: Words,
    raw: UdpSocket,
    inbox: Words,
    imports: Vec<Option<Import>>,
    phase: u64,
}

impl Rank<'_> {
    fn word(&self, line: usize) -> u64 {
        self.shared.load(64 * line)
    }

    fn set(&self, line: usize, value: u64) {
        self.shared.store(64 * line, value);
    }

    /// Waits until all ranks have come so far.
    fn meet(&self, line: usize) -> Result<(), BenchError> {
        self.set(line + self.node.rank(), self.phase);
        let start = Instant::now();
        while (0..RANKS).any(|rank| self.word(line + rank) < self.phase) {
            if start.elapsed() > PATIENCE {
                return Err("a rank does not come".into());
            }
            std::thread::sleep(NAP / 4);
        }
        Ok(())
    }

    /// Goes through a phase with the others. At rank 0: bytes a second of all, and the fairness among pairs.
    fn phase(&mut self, pattern: Pattern, is_raw: bool, time: Duration) -> Result<(f64, f64), BenchError> {
        self.phase += 1;
        let me = self.node.rank();
        for from in 0..RANKS {
            self.inbox.store(ack_of(from), 0);
            (0..WINDOW).for_each(|number| self.inbox.store(slot(from, number) + BYTES, 0));
        }
        self.meet(line::READY)?;
        let (shared, phase) = (self.shared, self.phase);
        let has_all = || {
            shared.store(64 * (line::ACKED + me), phase);
            (0..RANKS).all(|rank| shared.load(64 * (line::ACKED + rank)) >= phase)
        };
        let taken = if is_raw {
            let ports = core::array::from_fn(|rank| udp::port_of(self.shared, rank));
            let mut way = Raw {
                me: me as u16,
                socket: &self.raw,
                ports,
                phase: self.phase as u8,
                data: vec![0; DATAGRAM_BYTES],
                buffer: vec![0; DATAGRAM_BYTES],
                sum: 0,
            };
            exchange(&mut way, pattern, me, time, has_all)?
        } else {
            let mut way =
                Puts { node: self.node, me, inbox: self.inbox, imports: &self.imports, source: Source::new(BYTES) };
            let _polling = self.node.polling();
            exchange(&mut way, pattern, me, time, has_all)?
        };
        for (from, taken) in taken.into_iter().enumerate() {
            self.set(line::TAKEN + RANKS * me + from, taken);
        }
        self.meet(line::THROUGH)?;
        let bytes = if is_raw { DATAGRAM_BYTES } else { BYTES };
        let pairs = (0..RANKS * RANKS).filter(|at| pattern.sends(at % RANKS, at / RANKS));
        let pairs: Vec<f64> = pairs.map(|at| self.word(line::TAKEN + at) as f64).collect();
        let total: f64 = pairs.iter().sum();
        Ok((total * bytes as f64 / time.as_secs_f64(), fairness(&pairs)))
    }
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
    let (node, _, shared) = join()?;
    let me = node.rank();
    let memory = Heap::new(0, INBOX_BYTES);
    let inbox = memory.words;
    let _export = inbox.export(&node).ring_only().name("traffic").start()?;
    let import = |rank: usize| node.import(rank, "traffic").rights(Rights::ALL).start();
    let imports: Result<_, _> = (0..RANKS).map(|rank| (rank != me).then(|| import(rank)).transpose()).collect();
    let raw = udp::announced(shared, me)?;
    let mut ends = Rank { node: &node, shared, raw, inbox, imports: imports?, phase: 0 };
    let (time, runs) = match plan.quick {
        true => (Duration::from_millis(300), 1),
        false => (Duration::from_secs(1), 5),
    };
    for pattern in [Pattern::AllToAll, Pattern::Incast] {
        let (mut pairs, mut shares) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            let (before, _) = ends.phase(pattern, true, time)?;
            let (value, fairness) = ends.phase(pattern, false, time)?;
            let (after, _) = ends.phase(pattern, true, time)?;
            pairs.push((value / 1e9, (before + after) / 2e9));
            shares.push(fairness);
        }
        if me == 0 {
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
    }
    Ok(())
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
