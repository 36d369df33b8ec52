//! Touches memory by address: exported memory, whose range was checked when it was exported, and buffers.

use core::sync::atomic::{AtomicU64, Ordering};

use mapwire_driver::DriverError;
use mapwire_driver::engine::Engine;
use mapwire_host::memory::raw::Source;

use crate::error::{Error, Result};

/// Copies out of exported memory or of a buffer.
#[inline]
pub(crate) fn read(address: u64, to: &mut [u8]) {
    // SAFETY: the caller checked the range against its export or its buffer. An export's memory stays mapped while it stands
    // (`Node::export_range`'s contract, or a `Buffer` that the export keeps); a `Buffer` stays mapped at its address while it
    // lives, also when it is revoked. A copy of bytes that a peer changes meanwhile is some mix of old and new, and nothing
    // more is claimed of it.
    unsafe { mapwire_host::memory::raw::copy_out(address as *const u8, to) };
}

/// The bytes of a range of a buffer that was checked, to be sent.
#[inline]
pub(crate) fn bytes<Buffer>(_buffer: &Buffer, address: u64, length: usize) -> Source<'_> {
    // SAFETY: the caller checked that the range lies in its buffer, which stays mapped at its address while it lives.
    unsafe { Source::from_raw(address as *const u8, length) }
}

/// Copies into exported memory or into a buffer.
#[inline]
pub(crate) fn write(address: u64, from: &[u8]) {
    // SAFETY: as in `read`; the memory was checked to be writable when it was exported.
    unsafe { mapwire_host::memory::raw::copy_in(address as *mut u8, from) };
}

/// Loads a signal with acquire order.
#[inline]
pub(crate) fn load(address: u64) -> Result<u64> {
    let word = address as *const AtomicU64;
    if !word.is_aligned() {
        return Err(Error::Unaligned(address));
    }
    // SAFETY: in a range that is exported and mapped, as in `read`, and aligned; signals are stored atomically.
    Ok(unsafe { (*word).load(Ordering::Acquire) })
}

/// Stores a word with release order.
#[inline]
pub(crate) fn store(address: u64, value: u64) -> Result<()> {
    let word = address as *mut u64;
    if !word.is_aligned() {
        return Err(Error::Unaligned(address));
    }
    // SAFETY: in a buffer, mapped as in `read` and always writable, and aligned.
    unsafe { mapwire_host::memory::raw::store_release_u64(word, value) };
    Ok(())
}

/// Refuses a range in the shared memory's views: it has no fixed place, and the driver must not fault on it.
pub(crate) fn refuse_shared(engine: &Engine, address: u64, length: u64) -> Result<()> {
    if in_shared(engine, address, length) { Err(Error::InSharedMemory { address, length }) } else { Ok(()) }
}

/// Whether a range touches the shared memory's views.
#[inline]
pub(crate) fn in_shared(engine: &Engine, address: u64, length: u64) -> bool {
    engine
        .faulting_range()
        .is_some_and(|range| (address as usize) < range.end && address.saturating_add(length) as usize > range.start)
}

/// Refuses a range that is not all memory of this process, which it may read, and write if `stores`.
pub(crate) fn require_mapped(address: u64, length: u64, stores: bool) -> Result<()> {
    mapwire_host::memory::check_memory(address as usize, length as usize, stores).map_err(|error| match error {
        mapwire_host::memory::MemoryError::NotMapped { .. } => Error::Driver(DriverError::NotMapped {
            address,
            length,
            access: if stores { "read and write" } else { "read" },
        }),
        other => other.into(),
    })
}
