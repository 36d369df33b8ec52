//! Commands, short to write.

use mapwire_wire::{Atomic, AtomicOp, CommandRepr, ImportId, Signal, Width};

/// A long send without frills.
pub(crate) fn long_send(import: ImportId, offset: u64, address: u64, length: u64, completion: u32) -> CommandRepr {
    CommandRepr::LongSend { import, offset, address, length, notify: false, signal: None, completion }
}

/// A long send that notifies.
pub(crate) fn notifying_send(import: ImportId, offset: u64, address: u64, length: u64, completion: u32) -> CommandRepr {
    CommandRepr::LongSend { import, offset, address, length, notify: true, signal: None, completion }
}

pub(crate) fn short_send(
    import: ImportId,
    offset: u64,
    data: &[u8],
    notify: bool,
    signal: Option<Signal>,
) -> CommandRepr {
    CommandRepr::ShortSend { import, offset, length: data.len() as u32, notify, signal }
}

pub(crate) fn fetch(import: ImportId, offset: u64, address: u64, length: u64, completion: u32) -> CommandRepr {
    CommandRepr::Fetch { import, offset, address, length, completion }
}

/// Adds to a word of 8 bytes.
pub(crate) fn add(import: ImportId, offset: u64, address: u64, operand: u64, completion: u32) -> CommandRepr {
    CommandRepr::Atomic {
        import,
        offset,
        address,
        atomic: Atomic { op: AtomicOp::Add, width: Width::Eight, operand },
        completion,
    }
}
