//! One rank's ends of all ways to pass messages.

use std::cell::{Cell, RefCell};
use std::net::UdpSocket;
use std::time::Instant;

use mapwire::{Buffer, Export, ExportBuilder, Import, Node, Rights};
use mapwire_translation::PAGE_BYTES;

use super::two_copies::{PIPE_BYTES, Pipe};
use crate::job::{self, Order, Steps};
use crate::messages::{Source, read};
use crate::udp::{self, DATAGRAM_BYTES};
use crate::words::{Heap, Words};
use crate::{BenchError, Transport};

/// Bytes before the first whole page of exported heap, and behind its last.
const EDGE_BYTES: usize = 512;

/// Bytes of a message that lie before the first whole page, on the way [`Way::Edges`].
const MESSAGE_EDGE_BYTES: usize = 64;

/// Bytes and datagrams of a stream of the raw baseline that may be under way.
const STREAM_BYTES: usize = 1 << 20;
const STREAM_DATAGRAMS: usize = 256;

/// Orders; the number of a way is added.
pub(super) const PING_PONG: u64 = 16;
pub(super) const STREAM: u64 = 32;

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
    /// memcpy within rank 0, which no order names.
    Memcpy,
    /// Datagrams between bare sockets.
    RawUdp,
    /// Memory of a rank as if on another host.
    Packets,
}

impl Way {
    fn of(what: u64) -> Option<Self> {
        use Way::{Direct, Edges, Heap, Memcpy, Packets, Plain, RawUdp, Ring, TwoCopies};
        let all = [Plain, TwoCopies, Direct, Heap, Edges, Ring, Memcpy, RawUdp, Packets];
        all.into_iter().find(|&way| way as u64 == what % 16)
    }

    fn base(self) -> usize {
        match self {
            Self::Heap => EDGE_BYTES,
            Self::Edges => EDGE_BYTES - MESSAGE_EDGE_BYTES,
            _ => 0,
        }
    }

    /// Whether a message is its own flag: eight bytes in a packet land in one piece, as a two-sided message is there or not.
    fn is_flag(self, bytes: usize) -> bool {
        matches!(self, Self::Ring | Self::Packets) && bytes == 8
    }
}

/// A receive buffer of this rank as its owner sees it, and the peer's as an import.
struct Inbox {
    ours: Words,
    import: Import,
    /// Whether the owner must let its node work for messages to come.
    polls: bool,
}

/// Words of the memory that both ranks share, a line for each direction.
mod word {
    /// How often a rank has come to [`super::Ends::meet`].
    pub(super) const MET: usize = 0;
    /// Messages of a stream that have been read.
    pub(super) const TAKEN: usize = 256;
    /// Datagrams of the baseline's stream that have been received.
    pub(super) const RECEIVED: usize = 384;
    pub(super) const PIPE: usize = 4096;
}

/// One rank's ends.
pub(super) struct Ends {
    node: Node,
    shared: Words,
    /// Of `alloc`; of shared memory also one that is not mapped, and heap.
    inboxes: Vec<Inbox>,
    /// The peer's first inbox, where both have it mapped.
    pub(super) plain: Words,
    pipe: RefCell<Pipe>,
    socket: Option<UdpSocket>,
    /// Private memory for what was copied out.
    own: Heap,
    source: RefCell<Source>,
    /// Datagrams of the baseline's stream that this rank has sent or taken.
    passed: Cell<u64>,
    met: Cell<u64>,
    _exports: Vec<Export>,
    _memory: (Buffer, Buffer, Heap),
}

impl Ends {
    /// Ends with room for `bytes` of messages and their flags. Collective.
    pub(super) fn new(node: &Node, shared: Words, transport: Transport, bytes: usize) -> Result<Self, BenchError> {
        let peer = 1 - node.rank();
        let room = bytes + PAGE_BYTES;
        let (memory, ring_memory) = (node.alloc(room)?, node.alloc(room)?);
        let heap = Heap::new(EDGE_BYTES, EDGE_BYTES + room.next_multiple_of(PAGE_BYTES) + EDGE_BYTES);

        let mut exports = Vec::new();
        let mut inboxes = Vec::new();
        let mut inbox = |name: &str, ours: Words, base: usize, export: ExportBuilder<'_>| {
            exports.push(export.name(name).start()?);
            let import = node.import(peer, name).rights(Rights::ALL).start()?;
            let mapped = import.direct_range();
            let polls = (base as u64) < mapped.start || ((base + room) as u64) > mapped.end;
            inboxes.push(Inbox { ours, import, polls });
            Ok::<(), BenchError>(())
        };
        let ours = Words::of_buffer(&memory);
        match transport {
            Transport::Shm => {
                inbox("bench.direct", ours, 0, node.export_buffer(&memory))?;
                let ring = node.export_buffer(&ring_memory).ring_only();
                inbox("bench.ring", Words::of_buffer(&ring_memory), 0, ring)?;
                inbox("bench.heap", heap.words, EDGE_BYTES, heap.words.export(node))?;
            }
            Transport::Udp => inbox("bench", ours, 0, node.export_buffer(&memory).ring_only())?,
            // Mapped, so that libfabric can move memory.
            Transport::Ofi => inbox("bench", ours, 0, node.export_buffer(&memory))?,
        }
        let is_local = transport == Transport::Shm;
        Ok(Self {
            plain: if is_local { Words::of_import(&inboxes[0].import)? } else { ours },
            pipe: RefCell::new(Pipe::new(shared.part(word::PIPE, PIPE_BYTES))),
            socket: (!is_local).then(|| udp::connected(shared, node.rank())).transpose()?,
            own: Heap::new(0, room),
            node: node.clone(),
            shared,
            inboxes,
            source: RefCell::new(Source::new(bytes)),
            passed: Cell::new(0),
            met: Cell::new(0),
            _exports: exports,
            _memory: (memory, ring_memory, heap),
        })
    }

    #[inline(always)]
    fn inbox(&self, way: Way) -> &Inbox {
        match way {
            Way::Ring => &self.inboxes[1],
            Way::Heap | Way::Edges => &self.inboxes[2],
            _ => &self.inboxes[0],
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
    fn put(&self, way: Way, inbox: &Inbox, data: &[u8], at: usize, flag: usize, number: u64) -> Result<(), BenchError> {
        match way {
            Way::Plain | Way::TwoCopies => {
                self.plain.put(at, data);
                self.plain.store(flag, number);
            }
            _ if way.is_flag(data.len()) => inbox.import.send(&number.to_le_bytes(), flag as u64)?,
            _ => inbox.import.put_signal(data, at as u64, flag as u64, number)?,
        }
        Ok(())
    }

    /// Waits for message `number`, spinning, and reads it.
    #[inline(always)]
    fn take(
        &self,
        way: Way,
        inbox: &Inbox,
        bytes: usize,
        at: usize,
        flag: usize,
        number: u64,
    ) -> Result<(), BenchError> {
        if inbox.polls || way == Way::Edges {
            while inbox.ours.load(flag) != number {
                self.node.poll();
            }
        } else {
            while inbox.ours.load(flag) != number {}
        }
        if way.is_flag(bytes) {
            return Ok(());
        }
        if way == Way::TwoCopies {
            self.own.words.copy_from(0, inbox.ours.part(at, bytes));
            return read(self.own.words, 0, bytes, number);
        }
        read(inbox.ours, at, bytes, number)
    }

    fn socket(&self) -> Result<&UdpSocket, BenchError> {
        Ok(self.socket.as_ref().ok_or("no socket for the baseline")?)
    }

    /// Sends a message in datagrams, those of a stream as the receiver takes them, since nothing else sees to that.
    fn send_raw(&self, data: &[u8], is_stream: bool) -> Result<(), BenchError> {
        let socket = self.socket()?;
        for piece in data.chunks(DATAGRAM_BYTES) {
            if is_stream {
                let passed = self.passed.get();
                let most = (STREAM_BYTES / piece.len()).clamp(1, STREAM_DATAGRAMS) as u64;
                while self.shared.load(word::RECEIVED) + most <= passed {}
                self.passed.set(passed + 1);
            }
            udp::spin(|| socket.send(piece))?;
        }
        Ok(())
    }

    fn take_raw(&self, at: usize, bytes: usize, number: u64, is_stream: bool) -> Result<(), BenchError> {
        let (socket, inbox) = (self.socket()?, self.inboxes[0].ours);
        let mut taken = 0;
        while taken < bytes {
            let part = inbox.part(at + taken, DATAGRAM_BYTES.min(bytes - taken));
            taken += udp::spin(|| part.receive(socket))?;
            if is_stream {
                self.passed.set(self.passed.get() + 1);
                self.shared.store(word::RECEIVED, self.passed.get());
            }
        }
        read(inbox, at, bytes, number)
    }

    /// Both ranks have come here.
    fn meet(&self) {
        let times = self.met.get() + 1;
        self.met.set(times);
        self.shared.store(word::MET + 128 * self.node.rank(), times);
        while self.shared.load(word::MET + 128 * (1 - self.node.rank())) < times {
            self.node.poll();
        }
    }

    /// Back and forth; gives nanoseconds one way. Each rank writes its next message while that before is on its way.
    fn ping_pong(&self, way: Way, order: Order) -> Result<f64, BenchError> {
        let bytes = order.bytes as usize;
        let at = way.base();
        let flag = at + bytes.next_multiple_of(8);
        let inbox = self.inbox(way);
        inbox.ours.store(flag, 0);
        self.meet();
        match way {
            Way::RawUdp => self.back_and_forth(
                order,
                |data, _| self.send_raw(data, false),
                |number| self.take_raw(at, bytes, number, false),
            ),
            way => self.back_and_forth(
                order,
                |data, number| self.put(way, inbox, data, at, flag, number),
                |number| self.take(way, inbox, bytes, at, flag, number),
            ),
        }
    }

    /// One loop for each kind of message, so that a baseline and what it is compared with are compiled alike.
    #[inline(always)]
    fn back_and_forth(
        &self,
        order: Order,
        put: impl Fn(&[u8], u64) -> Result<(), BenchError>,
        take: impl Fn(u64) -> Result<(), BenchError>,
    ) -> Result<f64, BenchError> {
        let (bytes, rank) = (order.bytes as usize, self.node.rank());
        let mut source = self.source.borrow_mut();
        source.rewrite(bytes, 1);
        let start = Instant::now();
        for number in 1..=order.times {
            if rank == 1 {
                take(number)?;
            }
            put(source.data(bytes), number)?;
            source.rewrite(bytes, number + 1);
            if rank == 0 {
                take(number)?;
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / (2 * order.times) as f64)
    }

    /// Messages from rank 0 to rank 1, which says how many it has read; gives nanoseconds a message.
    fn stream(&self, way: Way, order: Order) -> Result<f64, BenchError> {
        let window = Window::of(order.bytes as usize, self.socket.is_some());
        let base = way.base();
        for slot in 0..window.slots {
            self.inbox(way).ours.store(window.message(base, slot).1, 0);
        }
        self.shared.store(word::TAKEN, 0);
        self.shared.store(word::RECEIVED, 0);
        self.passed.set(0);
        self.meet();
        if self.node.rank() == 1 {
            for number in 1..=order.times {
                self.take_of_stream(way, window, base, number)?;
                if number.is_multiple_of(window.slots.div_ceil(4)) || number == order.times {
                    self.shared.store(word::TAKEN, number);
                }
            }
            return Ok(0.0);
        }
        let inbox = self.inbox(way);
        let polls = way != Way::RawUdp && (inbox.polls || way == Way::Edges);
        let wait_for = |number| {
            while self.shared.load(word::TAKEN) < number {
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
                self.pipe.borrow_mut().send(data);
                continue;
            }
            wait_for(number.saturating_sub(window.slots));
            let (at, flag) = window.message(base, number);
            match way {
                Way::RawUdp => self.send_raw(data, true)?,
                way => self.put(way, inbox, data, at, flag, number)?,
            }
        }
        wait_for(order.times);
        Ok(start.elapsed().as_nanos() as f64 / order.times as f64)
    }

    #[inline(always)]
    fn take_of_stream(&self, way: Way, window: Window, base: usize, number: u64) -> Result<(), BenchError> {
        let (at, flag) = window.message(base, number);
        match way {
            Way::TwoCopies => {
                self.pipe.borrow_mut().take(self.own.words, at, window.bytes);
                read(self.own.words, at, window.bytes, number)
            }
            Way::RawUdp => self.take_raw(at, window.bytes, number, true),
            way => self.take(way, self.inbox(way), window.bytes, at, flag, number),
        }
    }
}

impl job::Ends for Ends {
    fn carry_out(&mut self, order: Order, _: &Steps) -> Result<f64, BenchError> {
        match (order.what / 16 * 16, Way::of(order.what)) {
            (PING_PONG, Some(way)) => self.ping_pong(way, order),
            (STREAM, Some(way)) => self.stream(way, order),
            _ => Err("an order that these ranks do not know".into()),
        }
    }

    fn idle(&self) {
        self.node.poll();
    }
}

/// The messages of a stream that may be on their way at a time, each in memory of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    bytes: usize,
    slots: u64,
    stride: usize,
}

impl Window {
    pub(super) fn of(bytes: usize, is_remote: bool) -> Self {
        let stride = if bytes < PAGE_BYTES {
            // A cache line for each, or as many as it takes; two, for prefetchers that take pairs.
            (bytes + 8).next_multiple_of(128)
        } else {
            // Large messages begin on pages, as buffers of programs do.
            bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES
        };
        let under_way = if is_remote { 8 << 20 } else { 1 << 20 };
        Self { bytes, slots: (under_way / bytes as u64).clamp(2, 64), stride }
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
