//! Memory that importers can map.

use std::sync::{Arc, Mutex, PoisonError};

use mapwire_host::memory::SharedBuffer;

use crate::error::Result;

/// Memory from [`crate::Node::alloc`]: whole pages of a memfd, so that importers can map it. It stays at its address when an
/// export of it is revoked: its pages are then replaced by a copy. Do not store to it from other threads meanwhile: such a
/// store may be lost.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub(crate) memory: Arc<Mutex<SharedBuffer>>,
    address: usize,
    length: usize,
}

impl Buffer {
    pub(crate) fn allocate(bytes: usize) -> Result<Self> {
        let memory = SharedBuffer::allocate("mapwire-alloc", bytes)?;
        let (address, length) = (memory.as_ptr() as usize, memory.len());
        Ok(Self {
            memory: Arc::new(Mutex::new(memory)),
            address,
            length,
        })
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

    /// Copies bytes in.
    ///
    /// # Errors
    /// A range outside the buffer.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        Ok(self.lock().write(offset, from)?)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// A range outside the buffer.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        Ok(self.lock().read(offset, to)?)
    }

    /// Loads a word with acquire order: what was stored before it is seen by loads after this one.
    ///
    /// # Errors
    /// A word outside the buffer, or not aligned.
    pub fn load_u64(&self, offset: usize) -> Result<u64> {
        Ok(self.lock().load_acquire_u64(offset)?)
    }

    /// Stores a word with release order.
    ///
    /// # Errors
    /// A word outside the buffer, or not aligned.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<()> {
        Ok(self.lock().store_release_u64(offset, value)?)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SharedBuffer> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
