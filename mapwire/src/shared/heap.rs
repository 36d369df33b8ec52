//! `malloc` and its like in shared memory.

use mapwire_segment::heap::HeapError;

use super::one_host::OneHost;
use super::{Memory, Shared, SharedError};
use crate::error::Result;

/// Blocks by address, which is the same in all ranks: allocated by any thread of any rank, freed by any other.
///
/// What a block holds is unspecified until it is stored to, unless zeros are promised. None of these may be called in a signal handler. With
/// a protocol, only blocks of these functions are freed, and not what [`alloc`](Shared::alloc) gave.
impl Shared {
    /// Allocates `bytes`, aligned to 16; 0 bytes count as 1.
    ///
    /// # Errors
    /// More than is left.
    #[track_caller]
    pub fn malloc(&self, bytes: u64) -> Result<u64> {
        match &self.inner.memory {
            Memory::OneHost(memory) => self.allocated(memory, memory.heap().malloc(bytes.max(1))),
            Memory::Protocol(protocol) => self.noted(protocol.malloc(bytes.max(1)), bytes),
        }
    }

    /// Allocates `count` times `bytes` zeroed bytes, aligned to 16.
    ///
    /// # Errors
    /// More than is left, or than can be counted.
    #[track_caller]
    pub fn calloc(&self, count: u64, bytes: u64) -> Result<u64> {
        let all = count.checked_mul(bytes).ok_or(SharedError::Heap(HeapError::TooLong { count, bytes }))?;
        match &self.inner.memory {
            Memory::OneHost(memory) => self.allocated(memory, memory.heap().calloc(1, all.max(1))),
            Memory::Protocol(protocol) => self.noted(protocol.calloc(all.max(1)), all),
        }
    }

    /// Allocates `bytes` at a multiple of `align`, a power of two: up to 2 MiB on one host, up to a page with minipages.
    ///
    /// # Errors
    /// More than is left; an alignment that cannot be had.
    #[track_caller]
    pub fn aligned_alloc(&self, align: u64, bytes: u64) -> Result<u64> {
        match &self.inner.memory {
            Memory::OneHost(memory) => self.allocated(memory, memory.heap().aligned_alloc(align, bytes.max(1))),
            Memory::Protocol(protocol) => self.noted(protocol.aligned_alloc(align, bytes.max(1)), bytes),
        }
    }

    /// Makes the block at `address` `bytes` long, where it lies or elsewhere: what fits keeps its content. After an error it is as it was.
    ///
    /// # Errors
    /// More than is left; what [`free`](Self::free) refuses.
    #[track_caller]
    pub fn realloc(&self, address: u64, bytes: u64) -> Result<u64> {
        match &self.inner.memory {
            Memory::OneHost(memory) => {
                let offset = memory.offset(address).map_err(SharedError::from)?;
                self.allocated(memory, memory.heap().realloc(offset, bytes.max(1)))
            }
            Memory::Protocol(protocol) => self.noted(protocol.realloc(address, bytes.max(1)), bytes),
        }
    }

    /// Frees the block at `address`, which any rank has allocated.
    ///
    /// # Errors
    /// Nothing is allocated there, or no longer; the address is inside a block. With `MAPWIRE_HEAP_DEBUG`, a store beside the block.
    pub fn free(&self, address: u64) -> Result<()> {
        match &self.inner.memory {
            Memory::OneHost(memory) => {
                let offset = memory.offset(address).map_err(SharedError::from)?;
                Ok(memory.heap().free(offset).map_err(SharedError::from)?)
            }
            Memory::Protocol(protocol) => protocol.free(address),
        }
    }

    /// Bytes that may be used of the block at `address`: as many as were asked for, or more.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    pub fn usable_bytes(&self, address: u64) -> Result<u64> {
        match &self.inner.memory {
            Memory::OneHost(memory) => {
                let offset = memory.offset(address).map_err(SharedError::from)?;
                Ok(memory.heap().usable_bytes(offset).map_err(SharedError::from)?)
            }
            Memory::Protocol(protocol) => protocol.usable_bytes(address),
        }
    }

    /// Counts a block for the place of its caller.
    #[inline]
    #[track_caller]
    fn noted(&self, block: Result<u64>, bytes: u64) -> Result<u64> {
        let address = block?;
        self.note_allocation(address, bytes, None);
        Ok(address)
    }

    pub(super) fn allocated(&self, memory: &OneHost, offset: Result<u64, HeapError>) -> Result<u64> {
        Ok(memory.address(offset.map_err(SharedError::from)?))
    }
}
