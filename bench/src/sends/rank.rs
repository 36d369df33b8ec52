//! One rank of all ways to pass messages.

use mapwire::Node;
use mapwire_settings::Transport;
use mapwire_translation::PAGE_BYTES;

use super::two_copies::{PIPE_BYTES, Pipe};
use crate::BenchError;
use crate::inbox::{EDGE_BYTES, Inbox};
use crate::job::{self, Order, Steps};
use crate::loops::{Loops, Message, Passing};
use crate::messages::read;
use crate::udp::Datagrams;
use crate::words::{Heap, Words};

/// Bytes of a message that lie before the first whole page, on the way [`Path::Edges`].
const MESSAGE_EDGE_BYTES: usize = 64;

/// Orders; the number of a way is added.
pub(super) const PING_PONG: u64 = 16;
pub(super) const STREAM: u64 = 32;

/// Parts of the memory that both ranks share, behind that of the loops.
const DATAGRAMS: usize = 1024;
const PIPE: usize = 4096;

/// Where a message goes, and how it comes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Path {
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

impl Path {
    fn of(what: u64) -> Option<Self> {
        use Path::{Direct, Edges, Heap, Memcpy, Packets, Plain, RawUdp, Ring, TwoCopies};
        let all = [Plain, TwoCopies, Direct, Heap, Edges, Ring, Memcpy, RawUdp, Packets];
        all.into_iter().find(|&way| way as u64 == what % 16)
    }

    /// Whether a message is its own flag: eight bytes in a packet land in one piece, as a two-sided message is there or not.
    fn is_flag(self, bytes: usize) -> bool {
        matches!(self, Self::Ring | Self::Packets) && bytes == 8
    }
}

/// Memory and sockets that messages pass through.
pub(super) struct Ways {
    node: Node,
    /// Of `alloc`; of shared memory also one that is not mapped, and heap.
    inboxes: Vec<Inbox>,
    /// The peer's first inbox, where both have it mapped.
    pub(super) plain: Words,
    pipe: Pipe,
    datagrams: Option<Datagrams>,
    /// Private memory for what was copied out.
    own: Heap,
}

impl Ways {
    fn new(node: &Node, shared: Words, transport: Transport, bytes: usize) -> Result<Self, BenchError> {
        let peer = 1 - node.rank();
        let room = bytes + PAGE_BYTES;
        let mut inboxes = Vec::new();
        match transport {
            Transport::Shm => {
                inboxes.push(Inbox::alloc(node, peer, "bench.direct", room, |it| it)?);
                inboxes.push(Inbox::alloc(node, peer, "bench.ring", room, |it| it.ring_only())?);
                inboxes.push(Inbox::heap(node, peer, "bench.heap", room, |it| it)?);
            }
            Transport::Udp => inboxes.push(Inbox::alloc(node, peer, "bench", room, |it| it.ring_only())?),
            // Mapped, so that libfabric can move memory.
            Transport::Ofi => inboxes.push(Inbox::alloc(node, peer, "bench", room, |it| it)?),
        }
        let is_local = transport == Transport::Shm;
        let datagrams = || Datagrams::new(shared, shared.part(DATAGRAMS, 256), node.rank());
        Ok(Self {
            plain: if is_local { Words::of_import(&inboxes[0].import)? } else { inboxes[0].ours },
            pipe: Pipe::new(shared.part(PIPE, PIPE_BYTES)),
            datagrams: (!is_local).then(datagrams).transpose()?,
            own: Heap::new(0, room),
            node: node.clone(),
            inboxes,
        })
    }

    #[inline(always)]
    fn inbox(&self, way: Path) -> &Inbox {
        match way {
            Path::Ring => &self.inboxes[1],
            Path::Heap | Path::Edges => &self.inboxes[2],
            _ => &self.inboxes[0],
        }
    }

    fn datagrams(&mut self) -> Result<&mut Datagrams, BenchError> {
        Ok(self.datagrams.as_mut().ok_or("no socket for the baseline")?)
    }

    /// Fetches from the start of the peer's inbox.
    pub(super) fn fetch(&self, way: Path, into: &mut [u8]) -> Result<(), BenchError> {
        Ok(self.inbox(way).import.fetch(0, into)?)
    }

    /// Adds to the first word of the peer's inbox.
    pub(super) fn add(&self, way: Path) -> Result<u64, BenchError> {
        Ok(self.inbox(way).import.fetch_add_u64(0, 1)?)
    }
}

impl Passing for Ways {
    type Path = Path;

    fn holds_back(way: Path) -> bool {
        way == Path::TwoCopies
    }

    fn base(way: Path) -> usize {
        match way {
            Path::Heap => EDGE_BYTES,
            Path::Edges => EDGE_BYTES - MESSAGE_EDGE_BYTES,
            _ => 0,
        }
    }

    #[inline(always)]
    fn put(&mut self, way: Path, data: &[u8], message: Message) -> Result<(), BenchError> {
        let Message { at, number, is_stream } = message;
        let flag = at + data.len();
        match way {
            Path::TwoCopies if is_stream => self.pipe.send(data),
            Path::Plain | Path::TwoCopies => {
                self.plain.put(at, data);
                self.plain.store(flag, number);
            }
            Path::RawUdp => self.datagrams()?.send(data, message)?,
            _ if way.is_flag(data.len()) => self.inbox(way).import.send(&number.to_le_bytes(), flag as u64)?,
            _ => self.inbox(way).import.put_signal(data, at as u64, flag as u64, number)?,
        }
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self, way: Path, bytes: usize, message: Message) -> Result<(), BenchError> {
        let Message { at, number, is_stream } = message;
        let ours = self.inbox(way).ours;
        match way {
            Path::TwoCopies if is_stream => {
                self.pipe.take(self.own.words, at, bytes);
                return read(self.own.words, at, bytes, number);
            }
            Path::RawUdp => {
                self.datagrams()?.take(ours, at, bytes)?;
                return read(ours, at, bytes, number);
            }
            _ => {}
        }
        while ours.load(at + bytes) != number {
            self.progress(way);
        }
        match way {
            _ if way.is_flag(bytes) => Ok(()),
            Path::TwoCopies => {
                self.own.words.copy_from(0, ours.part(at, bytes));
                read(self.own.words, 0, bytes, number)
            }
            _ => read(ours, at, bytes, number),
        }
    }

    #[inline(always)]
    fn progress(&self, way: Path) {
        if way == Path::Edges || way != Path::RawUdp && self.inbox(way).polls {
            self.node.poll();
        }
    }

    fn idle(&self) {
        self.node.poll();
    }
}

/// One rank.
pub(super) struct Rank {
    loops: Loops,
    pub(super) ways: Ways,
}

impl Rank {
    /// Rank with room for `bytes` of messages and their flags. Collective.
    pub(super) fn new(node: &Node, shared: Words, transport: Transport, bytes: usize) -> Result<Self, BenchError> {
        let loops = Loops::new(node.rank(), shared, bytes, 1, under_way(transport));
        Ok(Self { loops, ways: Ways::new(node, shared, transport, bytes)? })
    }
}

/// Bytes of a stream that may be under way.
pub(super) fn under_way(transport: Transport) -> u64 {
    if transport == Transport::Shm { 1 << 20 } else { 8 << 20 }
}

impl job::Part for Rank {
    fn carry_out(&mut self, order: Order, _: &Steps) -> Result<f64, BenchError> {
        match (order.what / 16 * 16, Path::of(order.what)) {
            (PING_PONG, Some(way)) => self.loops.ping_pong(&mut self.ways, way, order),
            (STREAM, Some(way)) => self.loops.stream(&mut self.ways, way, order),
            _ => Err("an order that these ranks do not know".into()),
        }
    }

    fn idle(&self) {
        self.ways.idle();
    }
}
