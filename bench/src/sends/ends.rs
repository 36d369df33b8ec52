//! One rank's ends of all ways to pass messages.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use mapwire::{Buffer, Export, ExportBuilder, Import, Node, Rights};
use mapwire_translation::PAGE_BYTES;

use super::super::BenchError;
use super::super::job::Order;
use super::super::messages::{Source, read};
use super::super::words::Words;
use super::two_copies::{PIPE_BYTES, Pipe};

/// Bytes before the first whole page of exported heap, and behind its last.
const EDGE_BYTES: usize = 512;

/// Bytes of a message that lie before the first whole page, on the way [`Way::Edges`].
const MESSAGE_EDGE_BYTES: usize = 64;

/// Where a message goes, and how it comes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Way {
    /// memcpy into memory that both have mapped, then a flag.
    Plain,
    /// The same, and the receiver copies it out into memory of its own. A stream of such messages is cut in pieces.
    TwoCopies,
    /// Memory of `alloc`.
    Direct,
    /// Whole pages of an exported `Vec`.
    Heap,
    /// The same and some of the bytes before its first whole page.
    Edges,
    /// Memory that importers do not map.
    Ring,
}

impl Way {
    pub(super) const ALL: [Self; 6] = [Self::Plain, Self::TwoCopies, Self::Direct, Self::Heap, Self::Edges, Self::Ring];
}

/// Receive buffers of both ranks: this rank's as its owner sees it, the peer's as an import.
struct Inbox {
    ours: Words,
    import: Import,
    /// Where messages begin.
    base: usize,
    /// Whether the owner must let its node work for messages to come.
    polls: bool,
}

impl Inbox {
    /// Messages begin at `base` and take `bytes` at most.
    fn new(ours: Words, import: Import, base: usize, bytes: usize) -> Self {
        let mapped = import.direct_range();
        Self { ours, polls: (base as u64) < mapped.start || ((base + bytes) as u64) > mapped.end, import, base }
    }
}

/// One rank's ends.
pub(super) struct Ends<'a> {
    pub(super) node: &'a Node,
    direct: Inbox,
    ring: Inbox,
    heap: Inbox,
    /// Where messages with an edge begin in the heap.
    edges_base: usize,
    /// The peer's `direct`, plainly.
    pub(super) plain: Words,
    /// Where this rank reports to its peer, and the peer to it.
    reports: (Words, Words),
    /// To the peer, and from it.
    pipes: RefCell<(Pipe, Pipe)>,
    /// Private memory for what was copied out.
    own: Words,
    source: RefCell<Source>,
    met: Cell<u64>,
    _control: Import,
    _exports: [Export; 4],
    _memory: (Buffer, Vec<u64>, Vec<u64>),
}

/// Words of the reports.
mod report {
    /// How often the rank has come to [`super::Ends::meet`].
    pub(super) const MET: usize = 0;
    /// Messages of a stream that have been read.
    pub(super) const TAKEN: usize = 128;
    /// The first byte of the pipe.
    pub(super) const PIPE: usize = 4096;
}

impl<'a> Ends<'a> {
    /// Ends with room for `bytes` of messages and their flags. Collective.
    pub(super) fn new(node: &'a Node, bytes: usize) -> Result<Self, BenchError> {
        let peer = 1 - node.rank();
        let export = |builder: ExportBuilder<'_>, name: &str| builder.name(name).start();
        let import = |name: &str| node.import(peer, name).rights(Rights::ALL).start();
        let room = bytes + PAGE_BYTES;

        let (inbox, ring_inbox) = (node.alloc(room)?, node.alloc(room)?);
        let control = node.alloc(report::PIPE + PIPE_BYTES)?;
        let (mut heap, mut own) = (vec![0_u64; (room + 3 * PAGE_BYTES) / 8], vec![0_u64; (room + PAGE_BYTES) / 8]);
        let whole = Words::new(heap.as_mut_ptr().cast(), heap.len() * 8);
        let first_page = match whole.before_page() {
            before if before < EDGE_BYTES => before + PAGE_BYTES,
            before => before,
        };
        let heap_words =
            whole.part(first_page - EDGE_BYTES, EDGE_BYTES + room.next_multiple_of(PAGE_BYTES) + EDGE_BYTES);
        let own_words = Words::new(own.as_mut_ptr().cast(), own.len() * 8);
        let own_words = own_words.part(own_words.before_page(), room);

        let exports = [
            export(node.export_buffer(&inbox), "bench.direct")?,
            export(node.export_buffer(&ring_inbox).ring_only(), "bench.ring")?,
            export(heap_words.export(node), "bench.heap")?,
            export(node.export_buffer(&control), "bench.control")?,
        ];
        let direct = import("bench.direct")?;
        let plain = Words::of_import(&direct)?;
        let control_import = import("bench.control")?;
        let theirs = Words::of_import(&control_import)?;
        let ours = Words::of_buffer(&control);
        let pipe = |of: Words| Pipe::new(of.part(report::PIPE, PIPE_BYTES));
        Ok(Self {
            node,
            direct: Inbox::new(Words::of_buffer(&inbox), direct, 0, room),
            ring: Inbox::new(Words::of_buffer(&ring_inbox), import("bench.ring")?, 0, room),
            heap: Inbox::new(heap_words, import("bench.heap")?, EDGE_BYTES, room),
            edges_base: EDGE_BYTES - MESSAGE_EDGE_BYTES,
            plain,
            reports: (theirs, ours),
            // Sending into the peer's memory, taking from one's own.
            pipes: RefCell::new((pipe(theirs), pipe(ours))),
            own: own_words,
            source: RefCell::new(Source::new(bytes)),
            met: Cell::new(0),
            _control: control_import,
            _exports: exports,
            _memory: (control, heap, own),
        })
    }

    fn inbox(&self, way: Way) -> &Inbox {
        match way {
            Way::Plain | Way::TwoCopies | Way::Direct => &self.direct,
            Way::Heap | Way::Edges => &self.heap,
            Way::Ring => &self.ring,
        }
    }

    fn polls(&self, way: Way) -> bool {
        way == Way::Edges || self.inbox(way).polls
    }

    /// Where the messages of a way begin.
    fn base(&self, way: Way) -> usize {
        match way {
            Way::Edges => self.edges_base,
            way => self.inbox(way).base,
        }
    }

    /// Fetches from the start of the peer's inbox.
    pub(super) fn fetch(&self, way: Way, into: &mut [u8]) -> Result<(), BenchError> {
        Ok(self.inbox(way).import.fetch(0, into)?)
    }

    /// Adds to the first word of the peer's inbox.
    pub(super) fn add(&self, way: Way) -> Result<u64, BenchError> {
        Ok(self.inbox(way).import.fetch_add_u64(0, 1)?)
    }

    /// Stores a message at `at` and its flag, the message's number, at `flag`.
    #[inline(always)]
    fn put(&self, way: Way, data: &[u8], at: usize, flag: usize, number: u64) -> Result<(), BenchError> {
        let (offset, signal) = (at as u64, flag as u64);
        match way {
            Way::Plain | Way::TwoCopies => {
                self.plain.put(at, data);
                self.plain.store(flag, number);
            }
            Way::Direct => (self.direct.import).put_signal(data, offset, signal, number)?,
            Way::Heap | Way::Edges => (self.heap.import).put_signal(data, offset, signal, number)?,
            // Eight bytes by the ring are their own flag, as a two-sided message is: they land in one piece.
            Way::Ring if is_flag(way, data.len()) => {
                self.ring.import.send(&number.to_le_bytes(), signal)?;
            }
            Way::Ring => (self.ring.import).put_signal(data, offset, signal, number)?,
        }
        Ok(())
    }

    /// Waits for message `number`, spinning, and reads it.
    #[inline(always)]
    fn take(&self, way: Way, bytes: usize, at: usize, flag: usize, number: u64) -> Result<(), BenchError> {
        let inbox = self.inbox(way);
        if self.polls(way) {
            while inbox.ours.load(flag) != number {
                self.node.poll();
            }
        } else {
            while inbox.ours.load(flag) != number {}
        }
        if is_flag(way, bytes) {
            return Ok(());
        }
        if way == Way::TwoCopies {
            self.own.copy_from(0, inbox.ours.part(at, bytes));
            return read(self.own, 0, bytes, number);
        }
        read(inbox.ours, at, bytes, number)
    }

    /// Back and forth; gives nanoseconds one way. Each rank writes its next message while that before is on its way.
    pub(super) fn ping_pong(&self, way: Way, order: Order) -> Result<f64, BenchError> {
        let bytes = order.bytes as usize;
        let at = self.base(way);
        let flag = at + bytes.next_multiple_of(8);
        let mut source = self.source.borrow_mut();
        source.rewrite(bytes, 1);
        self.inbox(way).ours.store(flag, 0);
        self.meet();
        let start = Instant::now();
        for number in 1..=order.times {
            if self.node.rank() == 1 {
                self.take(way, bytes, at, flag, number)?;
            }
            self.put(way, source.data(bytes), at, flag, number)?;
            source.rewrite(bytes, number + 1);
            if self.node.rank() == 0 {
                self.take(way, bytes, at, flag, number)?;
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / (2 * order.times) as f64)
    }

    /// Both ranks have come here.
    fn meet(&self) {
        let (theirs, ours) = self.reports;
        let times = self.met.get() + 1;
        self.met.set(times);
        theirs.store(report::MET, times);
        while ours.load(report::MET) < times {}
    }

    /// Messages from rank 0 to rank 1, which says how many it has read; gives nanoseconds a message.
    pub(super) fn stream(&self, way: Way, order: Order) -> Result<f64, BenchError> {
        let window = Window::of(order.bytes as usize);
        let (theirs, ours) = self.reports;
        let base = self.base(way);
        for slot in 0..window.slots {
            let (_, flag) = window.message(base, slot);
            self.inbox(way).ours.store(flag, 0);
        }
        ours.store(report::TAKEN, 0);
        self.meet();
        if self.node.rank() == 1 {
            for number in 1..=order.times {
                self.take_of_stream(way, window, base, number)?;
                if number.is_multiple_of(window.slots.div_ceil(4)) || number == order.times {
                    theirs.store(report::TAKEN, number);
                }
            }
            return Ok(0.0);
        }
        let polls = self.polls(way);
        let wait_for = |number| {
            while ours.load(report::TAKEN) < number {
                if polls {
                    self.node.poll();
                }
            }
        };
        let mut source = self.source.borrow_mut();
        let start = Instant::now();
        for number in 1..=order.times {
            source.rewrite(window.bytes, number);
            let data = source.data(window.bytes);
            if way == Way::TwoCopies {
                self.pipes.borrow_mut().0.send(data);
            } else {
                wait_for(number.saturating_sub(window.slots));
                let (at, flag) = window.message(base, number);
                self.put(way, data, at, flag, number)?;
            }
        }
        wait_for(order.times);
        Ok(start.elapsed().as_nanos() as f64 / order.times as f64)
    }

    #[inline(always)]
    fn take_of_stream(&self, way: Way, window: Window, base: usize, number: u64) -> Result<(), BenchError> {
        let (at, flag) = window.message(base, number);
        if way == Way::TwoCopies {
            let at = at - base;
            let pipe = &mut self.pipes.borrow_mut().1;
            pipe.take(self.own, at, window.bytes);
            return read(self.own, at, window.bytes, number);
        }
        self.take(way, window.bytes, at, flag, number)
    }
}

/// Whether a message is its own flag.
fn is_flag(way: Way, bytes: usize) -> bool {
    way == Way::Ring && bytes == 8
}

/// The messages of a stream that may be on their way at a time, each in memory of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    bytes: usize,
    slots: u64,
    stride: usize,
}

impl Window {
    pub(super) fn of(bytes: usize) -> Self {
        let stride = if bytes < PAGE_BYTES {
            // A cache line for each, or as many as it takes; two, for prefetchers that take pairs.
            (bytes + 8).next_multiple_of(128)
        } else {
            // Large messages begin on pages, as buffers of programs do.
            bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES
        };
        Self { bytes, slots: ((1 << 20) / bytes as u64).clamp(2, 64), stride }
    }

    /// Bytes of all messages.
    pub(super) fn room(self) -> usize {
        self.slots as usize * self.stride
    }

    /// Where message `number` and its flag lie.
    #[inline(always)]
    fn message(self, base: usize, number: u64) -> (usize, usize) {
        let at = base + (number % self.slots) as usize * self.stride;
        (at, at + self.bytes)
    }
}
