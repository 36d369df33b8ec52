//! Memory that peers may read where it is.

use std::sync::{Arc, PoisonError};

use crate::buffer::Buffer;
use crate::error::Result;
use crate::node::{Inner, Node};

/// A buffer that is lent to the ranks that this process sends to from it, until this is dropped.
#[derive(Debug)]
#[must_use = "the buffer is lent until this is dropped"]
pub struct Lent {
    inner: Arc<Inner>,
    number: Option<u32>,
    /// Peers may be reading it.
    _buffer: Buffer,
}

impl Node {
    /// Lends a buffer from [`alloc`](Self::alloc) to the ranks that this process sends to from it on the ring path: they then
    /// copy what is sent themselves, so it is copied once rather than twice. For messages from a few kilobytes on.
    ///
    /// The price: such a rank can read *all* of the buffer, not just what was sent, from the first send on. It gives that up when
    /// the value returned here is dropped; a rank that does not keep to the rules can keep it for as long as the buffer lives,
    /// or until an export of it is revoked. And [`crate::Import::send`] returns when the receiver has copied, not when the ring
    /// has room. Sends of less than 1 KiB, those from other memory, fetches and the direct path are as before. When 64 buffers
    /// are lent already, and from when an export of the buffer is revoked, what is sent from it is copied as before, too.
    ///
    /// ```no_run
    /// # let node = mapwire::Node::join()?;
    /// # let import = node.import(0, "results").start()?;
    /// let results = node.alloc(1 << 20)?;
    /// let lent = node.lend(&results)?;
    /// import.send_from(&results, 0..1 << 20, 0)?;
    /// drop(lent);
    /// # Ok::<(), mapwire::Error>(())
    /// ```
    ///
    /// # Errors
    /// No descriptor is left for the buffer's.
    pub fn lend(&self, buffer: &Buffer) -> Result<Lent> {
        // The driver first, then the buffer, as the driver itself does; and both, or the buffer could move in between.
        let number = {
            let mut driver = self.inner.engine.lock();
            let memory = buffer.memory.lock().unwrap_or_else(PoisonError::into_inner);
            driver.lend(memory.addresses(), memory.read_only_fd()?)
        };
        Ok(Lent {
            inner: Arc::clone(&self.inner),
            number,
            _buffer: buffer.clone(),
        })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.inner.engine.lock().take_back(number);
        }
    }
}
