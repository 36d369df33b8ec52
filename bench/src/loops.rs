//! The loops under which messages are measured: one that goes to and fro, and a stream of them from rank 0 to rank 1. All ways to
//! pass messages run under these, those of other libraries too.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Instant;

use mapwire_host::waiting::now_ns;
use mapwire_translation::PAGE_BYTES;

use super::BenchError;
use super::job::Order;
use super::messages::Source;
use super::words::Words;

/// Words of the memory that both ranks share: how often each has come to a meeting, and how many messages of a stream are read.
const MET: usize = 0;
const READ: usize = 256;
/// Of messages to a rank that sleeps: when the last one left, how many were heard, and how long all of an order took.
const STAMP: usize = 384;
const HEARD: usize = 512;
const SUM: usize = 576;
/// Bytes of shared memory that the loops use.
pub(crate) const LOOP_BYTES: usize = 640;

/// A message on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// Where it lies in the receiver's memory, in bytes; its flag lies behind it.
    pub(crate) at: usize,
    pub(crate) number: u64,
    pub(crate) is_stream: bool,
}

/// Ways to pass messages between two ranks.
pub(crate) trait Passing {
    type Path: Copy;

    /// Numbers of messages rise by one in each direction, apart for each counter. Ways that share memory share a counter.
    fn counter(_: Self::Path) -> usize {
        0
    }

    /// Whether the way itself holds a sender back that is too fast.
    fn holds_back(_: Self::Path) -> bool {
        false
    }

    /// Offset of the first message.
    fn base(_: Self::Path) -> usize {
        0
    }

    /// Prepares a message to and fro, once both ranks have met.
    fn settle(&self, _: Self::Path) {}

    fn put(&mut self, way: Self::Path, data: &[u8], message: Message) -> Result<(), BenchError>;

    /// Waits for a message, spinning, and reads it.
    fn take(&mut self, way: Self::Path, bytes: usize, message: Message) -> Result<(), BenchError>;

    /// Lets the way work while its sender waits for the receiver.
    fn progress(&self, way: Self::Path);

    fn idle(&self);
}

/// Two ranks meet by words of the memory that they share.
pub(crate) struct Meeting {
    shared: Words,
    rank: usize,
    times: Cell<u64>,
}

impl Meeting {
    /// By the first 256 bytes of `shared`, which were zero.
    pub(crate) fn new(shared: Words, rank: usize) -> Self {
        Self { shared, rank, times: Cell::new(0) }
    }

    /// Returns once both have called it.
    pub(crate) fn meet(&self, idle: impl Fn()) {
        let times = self.times.get() + 1;
        self.times.set(times);
        self.shared.store(MET + 128 * self.rank, times);
        while self.shared.load(MET + 128 * (1 - self.rank)) < times {
            idle();
        }
    }
}

/// One rank's end of the loops.
pub(crate) struct Loops {
    rank: usize,
    shared: Words,
    meeting: Meeting,
    source: Source,
    /// Messages of each counter so far, from rank 0 and from rank 1.
    numbers: Vec<[u64; 2]>,
    /// Messages to ranks that sleep.
    heard: u32,
    /// Bytes of a stream that may be under way.
    under_way: u64,
}

impl Loops {
    /// For messages of `bytes` at most; `shared` is zero.
    pub(crate) fn new(rank: usize, shared: Words, bytes: usize, counters: usize, under_way: u64) -> Self {
        Self {
            rank,
            shared,
            meeting: Meeting::new(shared, rank),
            source: Source::new(bytes),
            numbers: vec![[0; 2]; counters],
            heard: 0,
            under_way,
        }
    }

    /// Nanoseconds one way. Each rank writes its next message while that before is on its way.
    pub(crate) fn ping_pong<P: Passing>(
        &mut self,
        ways: &mut P,
        way: P::Path,
        order: Order,
    ) -> Result<f64, BenchError> {
        let bytes = order.bytes as usize;
        let [sent, taken] = self.count(P::counter(way), [order.times; 2]);
        let message = |number| Message { at: P::base(way), number, is_stream: false };
        self.source.rewrite(bytes, sent + 1);
        self.meeting.meet(|| ways.idle());
        ways.settle(way);
        let start = Instant::now();
        for turn in 1..=order.times {
            if self.rank == 1 {
                ways.take(way, bytes, message(taken + turn))?;
            }
            ways.put(way, self.source.data(bytes), message(sent + turn))?;
            self.source.rewrite(bytes, sent + turn + 1);
            if self.rank == 0 {
                ways.take(way, bytes, message(taken + turn))?;
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / (2 * order.times) as f64)
    }

    /// Nanoseconds a message, at rank 0. Rank 1 says by a plain store what it has read.
    pub(crate) fn stream<P: Passing>(&mut self, ways: &mut P, way: P::Path, order: Order) -> Result<f64, BenchError> {
        let window = Window::of(order.bytes as usize, self.under_way);
        let [sent, taken] = self.count(P::counter(way), [order.times, 0]);
        let message = |number| Message { at: P::base(way) + window.at(number), number, is_stream: true };
        self.shared.store(READ, 0);
        self.meeting.meet(|| ways.idle());
        if self.rank == 1 {
            for turn in 1..=order.times {
                ways.take(way, window.bytes, message(taken + turn))?;
                if turn.is_multiple_of(window.slots.div_ceil(4)) || turn == order.times {
                    self.shared.store(READ, turn);
                }
            }
            return Ok(0.0);
        }
        let wait_for = |ways: &P, turn| {
            while self.shared.load(READ) < turn {
                ways.progress(way);
            }
        };
        let start = Instant::now();
        for turn in 1..=order.times {
            self.source.rewrite(window.bytes, sent + turn);
            if !P::holds_back(way) {
                wait_for(ways, turn.saturating_sub(window.slots));
            }
            ways.put(way, self.source.data(window.bytes), message(sent + turn))?;
        }
        wait_for(ways, order.times);
        Ok(start.elapsed().as_nanos() as f64 / order.times as f64)
    }

    /// Messages from rank 0 to rank 1, each after a `pause` in which rank 1 has fallen asleep: nanoseconds from the send until rank 1 has
    /// heard it, by the clock that all processes share. Rank 0 then spins until it knows of that, or sleeps: the scheduler may wake the
    /// receiver on its very processor.
    pub(crate) fn wakes<P: Passing>(
        &mut self,
        ways: &mut P,
        way: P::Path,
        order: Order,
        (pause, spins): (impl Fn(), bool),
    ) -> Result<f64, BenchError> {
        let (bytes, shared) = (order.bytes as usize, self.shared);
        let [sent, taken] = self.count(P::counter(way), [order.times, 0]);
        let message = |number| Message { at: P::base(way), number, is_stream: false };
        let mut sum_ns = 0;
        for turn in 1..=order.times {
            self.heard += 1;
            if self.rank == 1 {
                ways.take(way, bytes, message(taken + turn))?;
                sum_ns += now_ns() - shared.load(STAMP);
                shared.store(SUM, sum_ns);
                shared.wake(HEARD, self.heard);
                continue;
            }
            pause();
            self.source.rewrite(bytes, sent + turn);
            shared.store(STAMP, now_ns());
            ways.put(way, self.source.data(bytes), message(sent + turn))?;
            match spins {
                true => while shared.futex(HEARD).load(Ordering::Acquire) != self.heard {},
                false => shared.sleep_until(HEARD, self.heard),
            }
        }
        Ok(shared.load(SUM) as f64 / order.times as f64)
    }

    /// Counts messages from rank 0 and from rank 1. Gives how many this rank had sent before, and how many it had taken.
    fn count(&mut self, counter: usize, [from_0, from_1]: [u64; 2]) -> [u64; 2] {
        let numbers = &mut self.numbers[counter];
        let before = [numbers[self.rank], numbers[1 - self.rank]];
        *numbers = [numbers[0] + from_0, numbers[1] + from_1];
        before
    }
}

/// The messages of a stream that may be on their way at a time, each in memory of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    bytes: usize,
    slots: u64,
    stride: usize,
}

impl Window {
    pub(crate) fn of(bytes: usize, under_way: u64) -> Self {
        let stride = if bytes < PAGE_BYTES {
            // A cache line for each, or as many as it takes; two, for prefetchers that take pairs.
            (bytes + 8).next_multiple_of(128)
        } else {
            // Large messages begin on pages, as buffers of programs do.
            bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES
        };
        Self { bytes, slots: (under_way / bytes as u64).clamp(2, 64), stride }
    }

    /// Bytes of all messages.
    pub(crate) fn room(self) -> usize {
        self.slots as usize * self.stride
    }

    fn at(self, number: u64) -> usize {
        (number % self.slots) as usize * self.stride
    }
}
