//! From a trace to lookups: for each node the numbers of the pages that its operations touch, one after the other.
//!
//! A lookup is one page of one operation. Nodes are apart: each has a NIC of its own. Pages have numbers from 0 in the
//! order in which they appear, so that what an engine keeps of a page is a place in a vector. Lookups come in chunks of
//! about a million, so memory grows with the pages that a trace touches, and not with its length.

mod error;
mod pages;

use mapwire_trace::Block;
use mapwire_translation::{PageRange, Process};
use mapwire_wire::{TRACE_FLAG_DIRECT, TRACE_FLAG_INLINE, TraceOp};

pub use error::{DecodeError, UnstudiedError, check};
pub use pages::Pages;

/// The bits of a lookup that are the number of its page.
pub const PAGE_ID: u32 = (1 << 30) - 1;
/// The lookup is the first of its operation. The lookups up to the next such one are the operation's other pages, in
/// rising order.
pub const FIRST: u32 = 1 << 30;
pub const RECEIVE: u32 = 1 << 31;

/// Lookups after which a chunk is full.
pub const CHUNK_LOOKUPS: usize = 1 << 20;
/// Most pages of an operation, 4 GiB.
pub const MAX_OPERATION_PAGES: u64 = 1 << 20;

const NO_NODE: u32 = u32::MAX;

/// Which operations of a trace are studied. Exports and unexports are if receives are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selection {
    pub send: bool,
    /// Fetches, at the process that asked.
    pub fetch: bool,
    /// Stores into exports and fetches out of them.
    pub receive: bool,
    pub ring: bool,
    /// Those that went by mapped memory.
    pub direct: bool,
    /// Transfers of more pages are cut into pieces of so many, each prepared by itself: nothing else fits under a limit of so many
    /// pages. `None`: none is cut.
    pub piece_pages: Option<u64>,
}

impl Selection {
    pub const ALL: Selection =
        Selection { send: true, fetch: true, receive: true, ring: true, direct: true, piece_pages: None };

    #[must_use]
    pub const fn in_pieces_of(self, pages: u64) -> Self {
        Selection { piece_pages: Some(pages), ..self }
    }

    /// Sends and fetches, as the traces of UTLB §6 have them.
    pub const SEND_SIDE: Selection = Selection { receive: false, ..Selection::ALL };

    fn takes(self, op: TraceOp, direct: bool) -> bool {
        let path = if direct { self.direct } else { self.ring };
        path && match op {
            TraceOp::Send => self.send,
            TraceOp::Fetch => self.fetch,
            TraceOp::Receive => self.receive,
            // Whoever leaves out receives has no use for what they need.
            TraceOp::Export | TraceOp::Unexport => return self.receive,
            TraceOp::Hold | TraceOp::Release => self.send || self.fetch,
            TraceOp::Absent | TraceOp::Present => true,
            // Calls of the shared memory: no NIC looks anything up for them.
            _ => false,
        }
    }
}

/// Lookups that a [`Selection`] leaves out, by operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    pub send: u64,
    pub fetch: u64,
    pub receive: u64,
}

impl LeftOut {
    pub const fn lookups(&self) -> u64 {
        self.send + self.fetch + self.receive
    }

    #[cold]
    fn note(&mut self, op: TraceOp, address: u64, bytes: u64) {
        // What cannot be looked up is no lookup.
        let pages = error::range(address, bytes).map_or(0, |range| range.count);
        match op {
            TraceOp::Send => self.send += pages,
            TraceOp::Fetch => self.fetch += pages,
            TraceOp::Receive => self.receive += pages,
            _ => {}
        }
    }
}

/// What the host did between two lookups: an export of pages begins or ends, pages are held for a transfer whose lookups follow later
/// or released, or turned out not to be pinnable together, or to be so again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Lookups of the chunk before it.
    pub at: usize,
    pub op: TraceOp,
    pub process: Process,
    pub range: PageRange,
    /// Numbers given to pages up to and with this event.
    pub pages_known: u32,
}

/// Totals of a node that no configuration changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    pub operations: u64,
    pub lookups: u64,
    pub receive_lookups: u64,
    /// Lookups of transfers that went by mapped memory: no NIC met them.
    pub direct_lookups: u64,
    pub cut_transfers: u64,
    /// Pages that a lookup touched before any export of them: check misses, where nothing is ever unpinned.
    pub first_touches: u64,
    /// Pages looked up or exported: pins, where nothing is ever unpinned.
    pub known_pages: u64,
    pub exports: u64,
    pub processes: u64,
}

/// Some of a node's lookups, in order of time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chunk {
    /// Page numbers with [`FIRST`] and [`RECEIVE`].
    pub lookups: Vec<u32>,
    pub events: Vec<Event>,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub number: u16,
    pub pages: Pages,
    /// Lookups since the last [`Decoder::clear`].
    pub chunk: Chunk,
    pub totals: Totals,
}

impl Node {
    fn new(number: u16) -> Self {
        Node { number, pages: Pages::default(), chunk: Chunk::default(), totals: Totals::default() }
    }

    fn operation(&mut self, process: Process, range: PageRange, receive: bool) {
        let before = self.pages.len();
        let flag = if receive { RECEIVE } else { 0 };
        self.totals.operations += 1;
        if range.count == 1 {
            let id = self.pages.id(process, range.first);
            self.chunk.lookups.push(id | FIRST | flag);
        } else {
            let mut first = FIRST;
            for page in range.iter() {
                let id = self.pages.id(process, page);
                self.chunk.lookups.push(id | first | flag);
                first = 0;
            }
        }
        self.totals.lookups += range.count;
        self.totals.receive_lookups += if receive { range.count } else { 0 };
        if self.pages.len() != before {
            self.totals.first_touches += (self.pages.len() - before) as u64;
            self.met_pages();
        }
    }

    #[inline(never)]
    fn met_pages(&mut self) {
        self.totals.known_pages = self.pages.len() as u64;
        self.totals.processes = self.pages.processes();
    }

    fn event(&mut self, process: Process, range: PageRange, op: TraceOp) {
        if matches!(op, TraceOp::Export | TraceOp::Hold) {
            let before = self.pages.len();
            for page in range.iter() {
                self.pages.id(process, page);
            }
            if op == TraceOp::Hold {
                self.totals.first_touches += (self.pages.len() - before) as u64;
            }
        }
        self.totals.exports += u64::from(matches!(op, TraceOp::Export | TraceOp::Unexport));
        self.met_pages();
        self.chunk.events.push(Event {
            at: self.chunk.lookups.len(),
            op,
            process,
            range,
            pages_known: self.pages.len() as u32,
        });
    }
}

/// Takes a trace block by block, and has for each node a chunk of lookups.
///
/// ```
/// use mapwire_study::decode::{Decoder, FIRST, Selection};
/// use mapwire_translation::Process;
/// use mapwire_wire::TraceOp;
/// let mut decoder = Decoder::new(Selection::ALL);
/// decoder.operation(0, Process(1), TraceOp::Send, false, 0x1fff, 2)?; // the end of page 1 and the start of page 2
/// decoder.operation(0, Process(1), TraceOp::Send, false, 0x1000, 8)?;
/// assert_eq!(decoder.nodes()[0].chunk.lookups, [FIRST, 1, FIRST]);
/// # Ok::<(), mapwire_study::decode::DecodeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Decoder {
    selection: Selection,
    nodes: Vec<Node>,
    /// Place in `nodes` of the node of each number, as far as they reach; [`NO_NODE`] if it has not appeared.
    places: Vec<u32>,
    pending: usize,
    records: u64,
    left_out: LeftOut,
}

impl Decoder {
    pub fn new(selection: Selection) -> Self {
        Decoder {
            selection,
            nodes: Vec::new(),
            places: Vec::new(),
            pending: 0,
            records: 0,
            left_out: LeftOut::default(),
        }
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn records(&self) -> u64 {
        self.records
    }

    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// Whether the chunks should be used and cleared before more is taken.
    pub fn is_full(&self) -> bool {
        self.pending >= CHUNK_LOOKUPS
    }

    /// Forgets the chunks, and keeps what is known of pages.
    pub fn clear(&mut self) {
        self.pending = 0;
        for node in &mut self.nodes {
            node.chunk.lookups.clear();
            node.chunk.events.clear();
        }
    }

    /// Takes the records of a block from `from` on until the chunk is full. Returns how many records of the block have been
    /// taken in all; if it is the block's length, the block is done.
    pub fn take(&mut self, block: &Block<'_>, from: usize) -> Result<usize, DecodeError> {
        let columns =
            block.node.iter().zip(block.process).zip(block.op).zip(block.flags).zip(block.address).zip(block.bytes);
        for (at, (((((node, process), op), flags), address), bytes)) in columns.enumerate().skip(from) {
            if self.is_full() {
                return Ok(at);
            }
            let op = TraceOp::from_code(*op);
            // What travels in a command is copied there: no page is looked up for it.
            let Some(op) = op.filter(|_| flags & TRACE_FLAG_INLINE == 0) else {
                self.records += 1;
                continue;
            };
            self.operation(*node, Process(*process), op, flags & TRACE_FLAG_DIRECT != 0, *address, *bytes)?;
        }
        Ok(block.len())
    }

    #[inline]
    pub fn operation(
        &mut self,
        node: u16,
        process: Process,
        op: TraceOp,
        direct: bool,
        address: u64,
        bytes: u64,
    ) -> Result<(), DecodeError> {
        self.records += 1;
        if !self.selection.takes(op, direct) {
            self.left_out.note(op, address, bytes);
            return Ok(());
        }
        let record = self.records;
        let range = error::range(address, bytes).map_err(|cause| DecodeError::Record { record, cause })?;
        if range.is_empty() {
            return Ok(());
        }
        let place = self.place(node);
        let it = &mut self.nodes[place];
        if it.pages.len() as u64 + range.count > u64::from(PAGE_ID) {
            return Err(DecodeError::TooManyPages { record, node });
        }
        let pieces = self.selection.piece_pages.unwrap_or(u64::MAX).max(1);
        match op {
            TraceOp::Send | TraceOp::Fetch | TraceOp::Receive => {
                let receive = op == TraceOp::Receive;
                it.totals.direct_lookups += if direct { range.count } else { 0 };
                it.totals.cut_transfers += u64::from(range.count > pieces);
                let mut rest = range;
                while rest.count > pieces {
                    let piece = PageRange { count: pieces, ..rest };
                    it.operation(process, piece, receive);
                    rest = PageRange { first: piece.end(), count: rest.count - pieces };
                }
                it.operation(process, rest, receive);
            }
            // Its pieces are prepared one by one.
            TraceOp::Hold | TraceOp::Release if range.count > pieces => {}
            _ => it.event(process, range, op),
        }
        self.pending += range.count as usize;
        Ok(())
    }

    #[inline]
    fn place(&mut self, node: u16) -> usize {
        match self.places.get(usize::from(node)) {
            Some(&place) if place != NO_NODE => place as usize,
            _ => self.new_place(node),
        }
    }

    #[cold]
    fn new_place(&mut self, node: u16) -> usize {
        let place = self.nodes.len();
        self.nodes.push(Node::new(node));
        let numbers = self.places.len().max(usize::from(node) + 1);
        self.places.resize(numbers, NO_NODE);
        self.places[usize::from(node)] = place as u32;
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(decoder: &mut Decoder, node: u16, process: u16, op: TraceOp, page: u64, pages: u64) {
        decoder.operation(node, Process(process), op, false, page << 12, pages << 12).unwrap();
    }

    #[test]
    fn lookups_that_are_not_selected_are_counted_by_operation() {
        let mut decoder = Decoder::new(Selection { ring: false, ..Selection::SEND_SIDE });
        for (op, direct, address, bytes) in [
            (TraceOp::Receive, true, 0xfff, 2),
            (TraceOp::Send, false, 0, 1),
            (TraceOp::Fetch, false, 0, 0x3000),
            (TraceOp::Send, true, 0, 1),
            (TraceOp::Export, true, 0, 0x1000),
        ] {
            let taken = decoder.operation(0, Process(0), op, direct, address, bytes);
            taken.unwrap();
        }
        let left = decoder.left_out();
        assert_eq!((left.send, left.fetch, left.receive), (1, 3, 2));
        assert_eq!((left.lookups(), decoder.nodes()[0].totals.lookups), (6, 1));
    }

    #[test]
    fn pages_are_numbered_as_they_appear_and_apart_for_each_node_and_process() {
        let mut decoder = Decoder::new(Selection::ALL);
        take(&mut decoder, 7, 0, TraceOp::Send, 100, 2);
        take(&mut decoder, 7, 1, TraceOp::Fetch, 101, 1);
        take(&mut decoder, 3, 1, TraceOp::Receive, 101, 1);
        take(&mut decoder, 7, 0, TraceOp::Send, 101, 2);
        let [seven, three] = decoder.nodes() else { panic!() };
        assert_eq!((seven.number, three.number), (7, 3));
        assert_eq!(seven.chunk.lookups, [FIRST, 1, FIRST | 2, FIRST | 1, 3]);
        assert_eq!(three.chunk.lookups, [FIRST | RECEIVE]);
        assert_eq!(seven.totals.first_touches, 4);
        assert_eq!((three.totals.lookups, three.totals.receive_lookups), (1, 1));
        assert_eq!(seven.pages.name(2), (Process(1), mapwire_translation::Page(101)));
    }

    #[test]
    fn only_the_selected_operations_are_lookups() {
        let mut decoder = Decoder::new(Selection { direct: false, ..Selection::SEND_SIDE });
        take(&mut decoder, 0, 0, TraceOp::Receive, 1, 1);
        decoder.operation(0, Process(0), TraceOp::Send, true, 4096, 1).unwrap();
        decoder.operation(0, Process(0), TraceOp::Send, false, 4096, 0).unwrap();
        assert!(decoder.nodes().is_empty());
        take(&mut decoder, 0, 0, TraceOp::Send, 1, 1);
        assert_eq!(decoder.nodes()[0].totals.lookups, 1);
        assert_eq!(decoder.records(), 4);
    }

    #[test]
    fn a_transfer_that_fits_under_no_limit_is_cut_into_pieces() {
        let mut decoder = Decoder::new(Selection::SEND_SIDE.in_pieces_of(2));
        take(&mut decoder, 0, 0, TraceOp::Hold, 10, 5);
        take(&mut decoder, 0, 0, TraceOp::Send, 10, 5);
        take(&mut decoder, 0, 0, TraceOp::Release, 10, 5);
        let node = &decoder.nodes()[0];
        assert_eq!(node.chunk.lookups, [FIRST, 1, FIRST | 2, 3, FIRST | 4]);
        assert!(node.chunk.events.is_empty());
        let totals = node.totals;
        assert_eq!((totals.operations, totals.cut_transfers), (3, 1));
    }

    #[test]
    fn an_exported_page_is_pinned_before_it_is_touched() {
        let mut decoder = Decoder::new(Selection::ALL);
        take(&mut decoder, 0, 0, TraceOp::Send, 10, 1);
        take(&mut decoder, 0, 0, TraceOp::Export, 9, 3);
        take(&mut decoder, 0, 0, TraceOp::Receive, 11, 1);
        take(&mut decoder, 0, 0, TraceOp::Unexport, 9, 3);
        let node = &decoder.nodes()[0];
        assert_eq!(node.chunk.lookups, [FIRST, FIRST | RECEIVE | 2]);
        assert_eq!((node.totals.first_touches, node.totals.known_pages), (1, 3));
        let [export, unexport] = node.chunk.events[..] else { panic!() };
        assert_eq!((export.at, export.op, export.pages_known), (1, TraceOp::Export, 3));
        assert_eq!((unexport.at, unexport.op), (2, TraceOp::Unexport));
    }

    #[test]
    fn a_held_page_misses_its_check_before_it_is_looked_up() {
        let mut decoder = Decoder::new(Selection::SEND_SIDE);
        take(&mut decoder, 0, 0, TraceOp::Hold, 9, 3);
        take(&mut decoder, 0, 0, TraceOp::Send, 9, 1);
        assert_eq!(decoder.nodes()[0].totals.first_touches, 3);
        take(&mut decoder, 0, 0, TraceOp::Release, 9, 3);
        take(&mut decoder, 0, 0, TraceOp::Absent, 20, 1);
        let node = &decoder.nodes()[0];
        let events: Vec<_> = node.chunk.events.iter().map(|it| (it.at, it.op)).collect();
        let (hold, release) = ((0, TraceOp::Hold), (1, TraceOp::Release));
        assert_eq!(events, [hold, release, (1, TraceOp::Absent)]);
        assert_eq!((node.totals.lookups, node.totals.known_pages), (1, 3));
    }

    #[test]
    fn records_that_cannot_be_studied_are_named() {
        let mut decoder = Decoder::new(Selection::ALL);
        take(&mut decoder, 0, 0, TraceOp::Send, 10, 1);
        let error = decoder.operation(0, Process(0), TraceOp::Send, false, u64::MAX, 2).unwrap_err();
        assert!(error.to_string().starts_with("record 2 is of 2 bytes "), "{error}");
        let error = decoder.operation(0, Process(0), TraceOp::Send, false, 0, 5 << 30).unwrap_err();
        assert!(error.to_string().contains("record 3 touches 1310720 pages"), "{error}");
    }

    #[test]
    fn a_full_chunk_is_taken_up_again_where_it_stopped() {
        let count = CHUNK_LOOKUPS + 5;
        let (time, zeros) = (vec![0; count], vec![0_u16; count]);
        let (op, flags, bytes) = (vec![1_u8; count], vec![0_u8; count], vec![1; count]);
        let address: Vec<u64> = (0..count as u64).map(|n| (n % 9) << 12).collect();
        let block = Block {
            time_ns: &time,
            node: &zeros,
            process: &zeros,
            op: &op,
            flags: &flags,
            address: &address,
            bytes: &bytes,
        };
        let mut decoder = Decoder::new(Selection::ALL);
        assert_eq!(decoder.take(&block, 0), Ok(CHUNK_LOOKUPS));
        decoder.clear();
        assert_eq!(decoder.take(&block, CHUNK_LOOKUPS), Ok(count));
        assert_eq!(decoder.nodes()[0].chunk.lookups.len(), 5);
        assert_eq!(decoder.nodes()[0].totals.lookups, count as u64);
        assert_eq!(decoder.nodes()[0].pages.len(), 9);
    }
}
