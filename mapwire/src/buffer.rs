//! Memory that importers can map.

use core::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use mapwire_driver::engine::Engine;
use mapwire_driver::exports::{DirectMemory, ExportRequest};
use mapwire_host::memory::SharedBuffer;
use mapwire_host::memory::raw::Source;
use mapwire_host::processes::Owner;
use mapwire_vmmc::Importers;
use mapwire_wire::{ExportId, Rights};

use crate::error::{Result, check_range};
use crate::node::Node;
use crate::raw;

/// Memory from [`crate::Node::alloc`]: whole pages of a memfd, so that importers can map it. It stays at its address when an
/// export of it is revoked: its pages are then replaced by a copy. Do not store to it from other threads meanwhile: such a
/// store may be lost.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Whoever locks the driver too locks it first.
    memory: Arc<Mutex<SharedBuffer>>,
    address: usize,
    length: usize,
    /// A forked child may neither read nor change it: it shares the memory with its parent and with importers.
    owner: Owner,
}

impl Node {
    /// Memory that can be exported on the direct path: importers map it, and their stores need no help of this process.
    /// Zeroed; `bytes` is rounded up to whole pages in memory, not in [`Buffer::len`].
    ///
    /// # Errors
    /// Zero bytes, or no memory or address space for them.
    pub fn alloc(&self, bytes: usize) -> Result<Buffer> {
        self.check_process()?;
        Buffer::allocate(bytes)
    }
}

impl Buffer {
    pub(crate) fn allocate(bytes: usize) -> Result<Self> {
        let memory = SharedBuffer::allocate("mapwire-alloc", bytes)?;
        let (address, length) = (memory.as_ptr() as usize, memory.len());
        Ok(Self { memory: Arc::new(Mutex::new(memory)), address, length, owner: Owner::me() })
    }

    /// First byte; on a page boundary. Other ranks may change what is there while it is exported: read it by
    /// [`read`](Self::read) and [`load_u64`](Self::load_u64), or through atomics or volatile loads.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.address as *mut u8
    }

    /// Its length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.length
    }

    // None of these takes the buffer's lock: what they copy to or from may be shared memory, and serving its faults may have
    // to lock the buffer.

    /// Copies bytes in.
    ///
    /// # Errors
    /// A range outside the buffer.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        raw::write(self.at(offset, from.len())?, from);
        Ok(())
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// A range outside the buffer.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        raw::read(self.at(offset, to.len())?, to);
        Ok(())
    }

    /// Loads a word with acquire order: what was stored before it is seen by loads after this one.
    ///
    /// # Errors
    /// A word outside the buffer, or not aligned.
    pub fn load_u64(&self, offset: usize) -> Result<u64> {
        raw::load(self.at(offset, size_of::<u64>())?)
    }

    /// Stores a word with release order.
    ///
    /// # Errors
    /// A word outside the buffer, or not aligned.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<()> {
        raw::store(self.at(offset, size_of::<u64>())?, value)
    }

    pub(crate) fn memory(&self) -> &Arc<Mutex<SharedBuffer>> {
        &self.memory
    }

    /// Exports it to `importers` under a name of mapwire's own, for stores and fetches.
    pub(crate) fn offer(&self, engine: &Engine, name: String, importers: Importers) -> Result<ExportId> {
        Ok(engine.lock().export(ExportRequest {
            name,
            address: self.address as u64,
            length: self.length as u64,
            rights: Rights::ALL,
            importers,
            direct: Some(DirectMemory::Buffer(Arc::clone(&self.memory))),
            handler: None,
        })?)
    }

    /// Gives whole pages back to the system; they are zeros from then on.
    pub(crate) fn discard(&self, offset: usize, bytes: usize) -> Result<()> {
        self.owner.check()?;
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(memory.discard(offset, bytes)?)
    }

    /// Bytes to send from.
    #[inline]
    pub(crate) fn bytes(&self, range: Range<usize>) -> Result<Source<'_>> {
        // A range that ends before it begins has no length, and lies outside as such.
        let length = range.end.checked_sub(range.start).unwrap_or(usize::MAX);
        Ok(raw::bytes(self, self.at(range.start, length)?, length))
    }

    /// The address of a range within the buffer.
    fn at(&self, offset: usize, length: usize) -> Result<u64> {
        self.owner.check()?;
        check_range(offset as u64, length as u64, self.length as u64)?;
        Ok((self.address + offset) as u64)
    }
}
