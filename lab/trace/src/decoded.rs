//! The payload of a block, as columns.

use mapwire_wire::TraceOp;
use zerocopy::FromBytes;

use crate::block::Block;
use crate::columns::decode::Decoder;
use crate::columns::{GROUP, Malformed, take};
use crate::format::{ADDRESS_PLAIN, ADDRESS_STEPS, BlockHead, Stream};

/// A decoded block; each column has room for whole groups.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    time_ns: Vec<u64>,
    address: Vec<u64>,
    bytes: Vec<u64>,
    stream: Vec<u64>,
    node: Vec<u16>,
    process: Vec<u16>,
    op: Vec<u8>,
    flags: Vec<u8>,
    /// The address before, by stream.
    before: Vec<u64>,
    pub(crate) records: usize,
}

impl Columns {
    /// What was decoded last.
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
            for column in [
                &mut self.time_ns,
                &mut self.address,
                &mut self.bytes,
                &mut self.stream,
            ] {
                column.resize(room, 0);
            }
            self.node.resize(room, 0);
            self.process.resize(room, 0);
            self.op.resize(room, 0);
            self.flags.resize(room, 0);
        }
    }

    /// Decodes the payload of a block of `records` records.
    pub(crate) fn decode(
        &mut self,
        decoder: &mut Decoder,
        mut payload: &[u8],
        head: &BlockHead,
        records: usize,
    ) -> Result<(), Malformed> {
        self.make_room(records);
        self.records = 0;
        let bytes = &mut payload;
        let count = usize::from(u16::from_le_bytes(*take(bytes, "its streams are cut off")?)) + 1;
        let (streams, rest) = <[Stream]>::ref_from_prefix_with_elems(bytes, count)
            .map_err(|_| Malformed("its streams are cut off"))?;
        *bytes = rest;
        if streams.iter().any(|s| TraceOp::from_code(s.op).is_none()) {
            return Err(Malformed("a stream has an operation that does not exist"));
        }
        for column in [&mut self.stream, &mut self.time_ns, &mut self.bytes] {
            *bytes = decoder.column(bytes, records, column)?;
        }
        let [mode] = *take(bytes, "its address mode is cut off")?;
        *bytes = decoder.column(bytes, records, &mut self.address)?;
        if !bytes.is_empty() {
            return Err(Malformed("bytes follow its last column"));
        }
        let numbers = &self.stream[..records];
        if numbers.iter().fold(0, |most, number| most.max(*number)) >= count as u64 {
            return Err(Malformed("a record has a stream that does not exist"));
        }
        for (index, number) in numbers.iter().enumerate() {
            let stream = &streams[*number as usize];
            self.node[index] = stream.node.get();
            self.process[index] = stream.process.get();
            self.op[index] = stream.op;
            self.flags[index] = stream.flags;
        }
        add_up_times(head, &mut self.time_ns[..records])?;
        match mode {
            ADDRESS_PLAIN => {}
            ADDRESS_STEPS => {
                self.before.clear();
                self.before.resize(count, 0);
                for (number, address) in numbers.iter().zip(&mut self.address) {
                    let before = &mut self.before[*number as usize];
                    *before = before.wrapping_add(*address);
                    *address = *before;
                }
            }
            _ => return Err(Malformed("its address mode does not exist")),
        }
        self.records = records;
        Ok(())
    }
}

/// Makes times of time steps.
fn add_up_times(head: &BlockHead, times: &mut [u64]) -> Result<(), Malformed> {
    let first = times[0];
    let (mut now, mut wrapped) = (head.first_ns.get(), false);
    for time in &mut *times {
        let (next, wraps) = now.overflowing_add(*time);
        wrapped |= wraps;
        now = next;
        *time = now;
    }
    if wrapped || first != 0 || now != head.last_ns.get() {
        return Err(Malformed(
            "its time steps do not lead from its first time to its last",
        ));
    }
    Ok(())
}
