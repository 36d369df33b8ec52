//! Records as columns, a block at a time.

use mapwire_wire::TraceRecord;

/// Some consecutive records of a trace, a slice for each member; all are equally long. Record `i` is what stands at `i` in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// Times, ascending; equal ones in the trace's order.
    pub time_ns: &'a [u64],
    pub node: &'a [u16],
    /// Processes, by their numbers on the node.
    pub process: &'a [u16],
    /// Codes of [`TraceOp`](mapwire_wire::TraceOp): always valid ones.
    pub op: &'a [u8],
    /// [`TRACE_FLAG_DIRECT`](mapwire_wire::TRACE_FLAG_DIRECT), [`TRACE_FLAG_INLINE`](mapwire_wire::TRACE_FLAG_INLINE) or nothing.
    pub flags: &'a [u8],
    pub address: &'a [u64],
    pub bytes: &'a [u64],
}

impl<'a> Block<'a> {
    pub const fn len(&self) -> usize {
        self.time_ns.len()
    }

    /// Whether it has no record; no block of a file is so.
    pub const fn is_empty(&self) -> bool {
        self.time_ns.is_empty()
    }

    /// The record at `index`, which is below [`len`](Self::len).
    pub fn record(&self, index: usize) -> TraceRecord {
        TraceRecord {
            time_ns: self.time_ns[index].into(),
            address: self.address[index].into(),
            bytes: self.bytes[index].into(),
            node: self.node[index].into(),
            process: self.process[index].into(),
            op: self.op[index],
            flags: self.flags[index],
            reserved: 0.into(),
        }
    }

    pub fn records(self) -> impl ExactSizeIterator<Item = TraceRecord> + 'a {
        (0..self.len()).map(move |index| self.record(index))
    }
}
