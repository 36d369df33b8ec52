//! Operations on one word of an export that no other operation comes between.

use mapwire_host::memory::MappedBuffer;
use mapwire_wire::{Atomic, AtomicOp, CommandRepr, Rights, TRACE_FLAG_DIRECT, TraceOp, Width};

use super::Import;
use crate::error::{Error, Result};

/// Atomic operations on a word of the export. Each gives what the word held before.
///
/// They are atomic with each other by whichever path they come, and with the exporter's own atomics on that memory (in Rust: an
/// [`AtomicU64`](core::sync::atomic::AtomicU64) or [`AtomicU32`](core::sync::atomic::AtomicU32) there). They are sequentially consistent
/// among themselves, and come after everything that this process has sent to the exporter before. On the direct path each is one
/// instruction of the processor; on the ring path a message to the exporter and back.
///
/// # Errors
/// All need the rights to store and to fetch, and an offset that is a multiple of the word's width, within the export. With
/// any such error, and when the export is revoked or the exporter gone before the call, the word is unchanged. When that happens during the
/// call, the operation may have been carried out. An export that does not begin at a multiple of the width refuses as out of
/// range.
impl Import {
    /// Adds `value` to the 64-bit word at `offset`; the sum wraps.
    #[inline]
    pub fn fetch_add_u64(&self, offset: u64, value: u64) -> Result<u64> {
        self.update(offset, AtomicOp::Add, Width::Eight, value)
    }

    /// Stores `value` in the 64-bit word at `offset`.
    #[inline]
    pub fn swap_u64(&self, offset: u64, value: u64) -> Result<u64> {
        self.update(offset, AtomicOp::Swap, Width::Eight, value)
    }

    /// Stores `value` in the 64-bit word at `offset` if it holds `expected`: then that is what the call gives.
    #[inline]
    pub fn compare_swap_u64(&self, offset: u64, expected: u64, value: u64) -> Result<u64> {
        let op = AtomicOp::CompareSwap { expected };
        self.update(offset, op, Width::Eight, value)
    }

    /// Adds `value` to the 32-bit word at `offset`; the sum wraps.
    #[inline]
    pub fn fetch_add_u32(&self, offset: u64, value: u32) -> Result<u32> {
        let old = self.update(offset, AtomicOp::Add, Width::Four, value.into())?;
        Ok(old as u32)
    }

    /// Stores `value` in the 32-bit word at `offset`.
    #[inline]
    pub fn swap_u32(&self, offset: u64, value: u32) -> Result<u32> {
        let old = self.update(offset, AtomicOp::Swap, Width::Four, value.into())?;
        Ok(old as u32)
    }

    /// Stores `value` in the 32-bit word at `offset` if it holds `expected`: then that is what the call gives.
    #[inline]
    pub fn compare_swap_u32(&self, offset: u64, expected: u32, value: u32) -> Result<u32> {
        let expected = expected.into();
        let op = AtomicOp::CompareSwap { expected };
        Ok(self.update(offset, op, Width::Four, value.into())? as u32)
    }

    #[inline]
    fn update(&self, offset: u64, op: AtomicOp, width: Width, operand: u64) -> Result<u64> {
        if let Some(mapped) = &self.held.local.mapped
            && self.is_open(mapped)
            && self.held.local.grant.rights.contains(Rights::ALL)
            && let Some(old) = mapped.update(offset as usize, Atomic { op, width, operand })
        {
            return self.updated(mapped, old);
        }
        self.update_slow(offset, op, width, operand)
    }

    /// What a word held that was updated in place.
    #[inline(always)]
    fn updated(&self, mapped: &MappedBuffer, old: u64) -> Result<u64> {
        if mapped.nothing_follows_update() {
            return Ok(old);
        }
        self.after_update(mapped)?;
        Ok(old)
    }

    #[cold]
    fn after_update(&self, mapped: &MappedBuffer) -> Result<()> {
        if mapped.revoked() {
            return Err(self.held.revoked());
        }
        self.wake_awaiting(mapped);
        Ok(())
    }

    #[cold]
    fn update_slow(&self, offset: u64, op: AtomicOp, width: Width, operand: u64) -> Result<u64> {
        self.held.engine.check_here()?;
        // Here and not by the caller, which would store it at each call.
        let atomic = Atomic { op, width, operand };
        let width = width.bytes();
        if !atomic.width.fits(offset) {
            return Err(Error::UnalignedWord { offset, width });
        }
        self.check(Rights::ALL, offset, width)?;
        let mut old = [0_u8; 8];
        let result = &mut old[..width as usize];
        match &self.held.local.mapped {
            Some(mapped) if mapped.holds_word(offset as usize, width as usize) => {
                self.open_direct()?;
                if self.held.direct_stores.is_traced() {
                    self.trace(TraceOp::Fetch, TRACE_FLAG_DIRECT, (&*result).into());
                }
                if let Some(old) = mapped.update(offset as usize, atomic) {
                    return self.updated(mapped, old);
                }
            }
            _ => {}
        }
        let import = self.held.local.id;
        let address = result.as_mut_ptr() as u64;
        let command = |completion| CommandRepr::Atomic { import, offset, address, atomic, completion };
        let word = self.submit_held(address, width, command)?;
        self.held.finish(word, 0)?;
        Ok(u64::from_le_bytes(old))
    }
}
