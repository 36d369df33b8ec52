//! Records of a process's communication, one for each operation, written while the process runs.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a [`TraceRecord`].
pub const TRACE_RECORD_BYTES: usize = 32;

codes! {
    /// What an operation does with the memory that it names.
    #[derive(PartialOrd, Ord)]
    pub enum TraceOp: u8 {
        /// The memory is sent.
        Send = 1 => "send",
        /// The memory is the destination of a fetch, at the process that asked for it.
        Fetch = 2 => "fetch",
        /// The memory is an export's: a peer's store arrives there, or a peer's fetch reads it.
        Receive = 3 => "recv",
        /// The memory is exported: its pages stay pinned until they are unexported.
        Export = 4 => "export",
        /// The memory is no longer exported.
        Unexport = 5 => "unexport",
        /// A send or fetch of the memory begins: its pages are checked, pinned if need be, and stay pinned until released. Recorded
        /// only if other operations came before its end; otherwise the send or fetch stands for it.
        Hold = 6 => "hold",
        /// A send or fetch of held memory is over.
        Release = 7 => "release",
        /// The memory could not be pinned as a whole when the host filled the NIC's cache ahead: some of it does not exist.
        Absent = 8 => "absent",
        /// Memory that was absent now exists.
        Present = 9 => "present",
        /// A thread has computed: `address` is its number in the process, `bytes` the nanoseconds of processor time since its last
        /// call of the shared memory. The calls that follow, up to the next such record, are this thread's. The time is the start of
        /// the call; the call's own record has its end.
        Compute = 10 => "compute",
        /// The shared memory is opened: `address` is the begin of its first view, `bytes` the length of a view.
        OpenShared = 11 => "open-shared",
        /// The shape of the shared memory: `address` is its number of views, `bytes` the threads of each process that take part in
        /// barriers.
        ShapeShared = 12 => "shape-shared",
        /// A minipage of `bytes` bytes is allocated at `address`.
        Allocate = 13 => "allocate",
        /// A load of the shared memory faulted at `address`; the minipage there has `bytes` bytes.
        ReadFault = 14 => "read-fault",
        /// A store to the shared memory faulted at `address`; the minipage there has `bytes` bytes.
        WriteFault = 15 => "write-fault",
        /// The page at `address` is requested before it is read.
        Prefetch = 16 => "prefetch",
        /// The page at `address` is requested before it is written.
        PrefetchWrite = 17 => "prefetch-write",
        /// The lock with the number `address` is taken.
        Lock = 18 => "lock",
        /// The lock with the number `address` is given back.
        Unlock = 19 => "unlock",
        /// The barrier with the number `address` is passed.
        Barrier = 20 => "barrier",
        /// A value of the process with the number `address` is given to all.
        Broadcast = 21 => "broadcast",
        /// Of the send recorded just before by this process, `bytes` bytes have gone to the rank with the number `address`: a minipage,
        /// or what differs of a page. Ranks are counted by nodes, and by processes on each.
        Give = 22 => "give",
        /// The fetch recorded just before by this process has read `bytes` bytes of the rank with the number `address`.
        Take = 23 => "take",
    }
}

impl TraceOp {
    /// Whether it is, or belongs to, a call of the shared memory, which no NIC sees. The meaning of address and bytes then
    /// depends on the operation.
    #[must_use]
    pub const fn is_shared_memory(self) -> bool {
        self as u8 >= Self::Compute as u8
    }
}

/// The operation went by mapped memory: the MMU translated it, and the NIC took no part.
pub const TRACE_FLAG_DIRECT: u8 = 1;
/// The data travelled in the command: it was copied there, and the NIC translated nothing for it.
pub const TRACE_FLAG_INLINE: u8 = 2;

/// One operation, as it stands in a file: little-endian, 32 bytes. Read from a file it may hold anything; check
/// [`op`](Self::op).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TraceRecord {
    /// Start of the operation, in nanoseconds on a clock that all nodes share.
    pub time_ns: U64,
    /// First byte of the memory, in the process's address space.
    pub address: U64,
    /// Length of the memory in bytes; may be 0.
    pub bytes: U64,
    /// Number of the node.
    pub node: U16,
    /// Number of the process on its node.
    pub process: U16,
    /// A [`TraceOp`].
    pub op: u8,
    /// [`TRACE_FLAG_DIRECT`], [`TRACE_FLAG_INLINE`], or 0: the NIC translated it.
    pub flags: u8,
    /// Must be zero.
    pub reserved: U16,
}

const _: () = assert!(size_of::<TraceRecord>() == TRACE_RECORD_BYTES);

impl TraceRecord {
    /// Its operation; `None` if the code is unknown.
    #[must_use]
    pub const fn op(&self) -> Option<TraceOp> {
        TraceOp::from_code(self.op)
    }

    /// Whether the MMU translated it instead of the NIC.
    #[must_use]
    pub const fn is_direct(&self) -> bool {
        self.flags & TRACE_FLAG_DIRECT != 0
    }

    /// Whether its data travelled in the command.
    #[must_use]
    pub const fn is_inline(&self) -> bool {
        self.flags & TRACE_FLAG_INLINE != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn codes_and_operations_agree() {
        let ops: alloc::vec::Vec<_> = (0..=255).filter_map(TraceOp::from_code).collect();
        assert_eq!(ops.len(), 23);
        for op in ops {
            assert_eq!(TraceOp::from_code(op as u8), Some(op));
            assert!(!op.to_string().is_empty());
        }
    }

    #[test]
    fn a_record_has_its_golden_bytes() {
        let record = TraceRecord {
            time_ns: 0x0102.into(),
            address: 0x7f00_0000_1000.into(),
            bytes: 4096.into(),
            node: 3.into(),
            process: 1.into(),
            op: TraceOp::Fetch as u8,
            flags: TRACE_FLAG_DIRECT,
            reserved: 0.into(),
        };
        let mut golden = [0_u8; TRACE_RECORD_BYTES];
        golden[..2].copy_from_slice(&[2, 1]);
        golden[8..16].copy_from_slice(&0x7f00_0000_1000_u64.to_le_bytes());
        golden[17] = 0x10;
        golden[24..].copy_from_slice(&[3, 0, 1, 0, 2, 1, 0, 0]);
        assert_eq!(record.as_bytes(), golden);
    }
}
