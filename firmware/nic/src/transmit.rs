//! Packets on their way out.

use alloc::boxed::Box;

use mapwire_wire::{ExportId, Header, INLINE_BYTES, NodeId, ProcessId, SIGNAL_TRAILER_BYTES};

use crate::pieces::Piece;

/// The payload of a packet to transmit, by value when it is short and by reference when it is in a process's memory.
#[derive(Clone, Debug)]
pub enum Source {
    /// The bytes themselves.
    Inline {
        /// Only the first `length` bytes are valid; the rest is left from earlier packets and must not leave the NIC.
        bytes: [u8; INLINE_BYTES],
        /// Number of valid bytes.
        length: u8,
    },
    /// A message for a handler that is too long to be inline; rare, so it may live on the heap.
    Message(Box<[u8]>),
    /// A piece of one frame of a process, then `trailer` (the signal of a `put_signal`). If the frame is the garbage frame, the
    /// contents do not matter, but must not be what another process's transfers have left there.
    Memory {
        /// Process that owns the frame.
        process: ProcessId,
        /// Virtual address of the bytes in the process.
        address: u64,
        /// The same bytes in frames.
        piece: Piece,
        /// Signal that follows them.
        trailer: Option<[u8; SIGNAL_TRAILER_BYTES]>,
    },
}

impl Source {
    pub(crate) const EMPTY: Self = Self::Inline { bytes: [0; INLINE_BYTES], length: 0 };

    /// Sets it to `payload`, at most [`INLINE_BYTES`], by value, writing only that many bytes.
    #[inline]
    pub(crate) fn set_inline(&mut self, payload: &[u8]) {
        if !matches!(self, Self::Inline { .. }) {
            *self = Self::EMPTY;
        }
        if let Self::Inline { bytes, length } = self {
            match (payload.first_chunk::<8>(), payload.len()) {
                // The shortest messages are copied without a call.
                (Some(word), 8) => bytes[..8].copy_from_slice(word),
                _ => bytes[..payload.len()].copy_from_slice(payload),
            }
            *length = payload.len() as u8;
        }
    }
}

/// Work that depends on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    None,
    /// A command: its source may be reused once this packet, its last, is out.
    Command {
        process: ProcessId,
        completion: u32,
    },
    /// It is part of the answer to a fetch, and reads the memory of this export.
    Reply {
        export: ExportId,
    },
}

/// A packet to transmit.
#[derive(Clone, Debug)]
pub struct Transmit {
    /// Destination.
    pub to: NodeId,
    /// Complete header.
    pub header: Header,
    /// Source of the payload, which has `header.length` bytes.
    pub source: Source,
    work: Work,
}

impl Transmit {
    #[inline]
    pub(crate) fn work(&self) -> Work {
        self.work
    }

    #[inline]
    pub(crate) fn set_work(&mut self, work: Work) {
        self.work = work;
    }

    pub(crate) const EMPTY: Self =
        Self { to: NodeId(0), header: Header::ZERO, source: Source::EMPTY, work: Work::None };
}
