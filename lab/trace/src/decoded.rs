//! The payload of a block, as columns.

use mapwire_wire::TraceOp;
use zerocopy::FromBytes;

use crate::block::Block;
use crate::columns::decode::{Buffers, Column, Group, any_from};
use crate::columns::{GROUP, Malformed, take};
use crate::format::{ADDRESS_PLAIN, ADDRESS_STEPS, BlockHead, Stream};

/// A decoded block. The columns have room for whole groups.
#[derive(Debug)]
pub(crate) struct Columns {
    time_ns: Vec<u64>,
    address: Vec<u64>,
    bytes: Vec<u64>,
    node: Vec<u16>,
    process: Vec<u16>,
    op: Vec<u8>,
    flags: Vec<u8>,
    streams: Vec<StreamState>,
    numbers: Box<Group>,
    /// Of stream numbers, times, bytes and addresses.
    buffers: [Buffers; 4],
    pub(crate) records: usize,
}

/// A stream while its records are decoded.
#[derive(Clone, Copy, Debug)]
struct StreamState {
    stream: Stream,
    before: u64,
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            time_ns: Vec::new(),
            address: Vec::new(),
            bytes: Vec::new(),
            node: Vec::new(),
            process: Vec::new(),
            op: Vec::new(),
            flags: Vec::new(),
            streams: Vec::new(),
            numbers: Box::new([0; GROUP]),
            buffers: Default::default(),
            records: 0,
        }
    }
}

impl Columns {
    pub(crate) fn block(&self) -> Block<'_> {
        let n = self.records;
        Block {
            time_ns: &self.time_ns[..n],
            node: &self.node[..n],
            process: &self.process[..n],
            op: &self.op[..n],
            flags: &self.flags[..n],
            address: &self.address[..n],
            bytes: &self.bytes[..n],
        }
    }

    fn make_room(&mut self, records: usize) {
        let room = records.next_multiple_of(GROUP);
        if self.time_ns.len() < room {
            for column in [&mut self.time_ns, &mut self.address, &mut self.bytes] {
                column.resize(room, 0);
            }
            for column in [&mut self.node, &mut self.process] {
                column.resize(room, 0);
            }
            for column in [&mut self.op, &mut self.flags] {
                column.resize(room, 0);
            }
        }
    }

    /// Decodes the payload of a block of `records` records.
    pub(crate) fn decode(&mut self, mut payload: &[u8], head: &BlockHead, records: usize) -> Result<(), Malformed> {
        self.make_room(records);
        self.records = 0;
        let bytes = &mut payload;
        read_streams(bytes, &mut self.streams)?;
        let [of_numbers, of_times, of_bytes, of_addresses] = &mut self.buffers;
        let mut numbers = Column::parse(bytes, records, of_numbers)?;
        let mut times = Column::parse(bytes, records, of_times)?;
        let mut lengths = Column::parse(bytes, records, of_bytes)?;
        let [mode] = *take(bytes, "its address mode is cut off")?;
        let mut addresses = Column::parse(bytes, records, of_addresses)?;
        if !bytes.is_empty() {
            return Err(Malformed("bytes follow its last column"));
        }
        if ![ADDRESS_PLAIN, ADDRESS_STEPS].contains(&mode) {
            return Err(Malformed("its address mode does not exist"));
        }
        let groups = groups_mut(&mut self.time_ns)
            .zip(groups_mut(&mut self.address))
            .zip(groups_mut(&mut self.bytes))
            .zip(groups_mut(&mut self.node))
            .zip(groups_mut(&mut self.process))
            .zip(groups_mut(&mut self.op))
            .zip(groups_mut(&mut self.flags));
        let (mut now_ns, mut left) = (head.first_ns.get(), records);
        for ((((((time_ns, address), byte), node), process), op), flags) in groups {
            let here = left.min(GROUP);
            if here == 0 {
                break;
            }
            times.group(here, time_ns)?;
            if left == records && time_ns[0] != 0 {
                return Err(Malformed("its first time step is not 0"));
            }
            now_ns = add_up(now_ns, &mut time_ns[..here])?;
            left -= here;
            lengths.group(here, byte)?;
            numbers.group(here, &mut self.numbers)?;
            addresses.group(here, address)?;
            let (numbers, streams) = (&self.numbers[..here], &mut self.streams[..]);
            if any_from(numbers, streams.len() as u64) {
                return Err(Malformed("a record has a stream that does not exist"));
            }
            let places = node.iter_mut().zip(process);
            for ((number, (node, process)), (op, flags)) in numbers.iter().zip(places).zip(op.iter_mut().zip(flags)) {
                let Stream { node: n, process: p, op: o, flags: f } = streams[*number as usize].stream;
                (*node, *process, *op, *flags) = (n.get(), p.get(), o, f);
            }
            if mode == ADDRESS_STEPS {
                for (number, address) in numbers.iter().zip(address) {
                    let before = &mut streams[*number as usize].before;
                    *before = before.wrapping_add(*address);
                    *address = *before;
                }
            }
        }
        if now_ns != head.last_ns.get() {
            return Err(Malformed("its time steps do not lead to its last time"));
        }
        self.records = records;
        Ok(())
    }
}

/// The groups of a column that has room for whole ones.
fn groups_mut<T>(column: &mut [T]) -> impl Iterator<Item = &mut [T; GROUP]> {
    column.as_chunks_mut().0.iter_mut()
}

fn read_streams(bytes: &mut &[u8], states: &mut Vec<StreamState>) -> Result<(), Malformed> {
    let what = "its streams are cut off";
    let count = usize::from(u16::from_le_bytes(*take(bytes, what)?)) + 1;
    let (streams, rest) = <[Stream]>::ref_from_prefix_with_elems(bytes, count).map_err(|_| Malformed(what))?;
    *bytes = rest;
    if streams.iter().any(|s| TraceOp::from_code(s.op).is_none()) {
        return Err(Malformed("a stream has an operation that does not exist"));
    }
    states.clear();
    states.extend(streams.iter().map(|stream| StreamState { stream: *stream, before: 0 }));
    Ok(())
}

/// Makes times of time steps from `now_ns` on; gives the last.
fn add_up(now_ns: u64, steps: &mut [u64]) -> Result<u64, Malformed> {
    let (mut now, mut wrapped) = (now_ns, false);
    for step in steps {
        let (next, wraps) = now.overflowing_add(*step);
        wrapped |= wraps;
        now = next;
        *step = now;
    }
    if wrapped {
        return Err(Malformed("its time steps lead beyond the end of time"));
    }
    Ok(now)
}
