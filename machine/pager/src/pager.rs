//! Pagers and their regions.

use std::sync::Arc;

use crate::checksum::Checksum;
use crate::config::Config;
use crate::core::Core;
use crate::error::PagerError;
use crate::freeze::{Frozen, freeze};
use crate::running::Running;
use crate::statistics::Statistics;
use crate::store::BackingStore;

/// Keeps the pages of its regions in RAM, up to a limit, and the others in a store. See the [crate].
///
/// Its resources are freed once it and all of its regions are dropped.
#[derive(Debug, Clone)]
pub struct Pager {
    inner: Arc<Running>,
}

impl Pager {
    /// Makes a pager without regions, which keeps at most `resident_pages` pages of 4096 bytes in RAM, over all regions.
    ///
    /// Other processes may read its counters, by [`Statistics::read`] of a descriptor that `/proc/PID/fd` shows as
    /// [`MEMORY_NAME`](crate::MEMORY_NAME).
    ///
    /// # Errors
    /// An impossible limit, or a refusal of the kernel; the error says how to fix it.
    pub fn new(resident_pages: usize, store: Box<dyn BackingStore>) -> Result<Self, PagerError> {
        Self::with_config(Config::new(resident_pages), store, Checksum::new())
    }

    /// As [`new`](Self::new), with the checksum key of an earlier pager.
    pub(crate) fn with_config(
        config: Config,
        store: Box<dyn BackingStore>,
        checksum: Checksum,
    ) -> Result<Self, PagerError> {
        let running = Running::start(Core::new(config, store, checksum)?)?;
        Ok(Self { inner: Arc::new(running) })
    }

    /// Stops the pager, for a `fork()` by the calling thread: all that its regions hold now is kept for the child, and no thread can
    /// change it until the pager is thawed. Other threads that store to a region, touch a page that is not in RAM, discard pages,
    /// or map regions wait until then; so do others that freeze it.
    ///
    /// Takes as long as storing all resident pages that changed since they were last stored. The calling thread may still use the regions,
    /// as the C library does in `fork()`; the child does not see its stores. It must not map or unmap regions.
    ///
    /// # Errors
    /// The store cannot be inherited, or has no space. The pager then continues.
    pub fn freeze(&self) -> Result<Frozen, PagerError> {
        freeze(&self.inner)
    }

    pub(crate) fn running(&self) -> &Arc<Running> {
        &self.inner
    }

    /// Counters so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let core = self.inner.core();
        let mask = mapwire_host::masking::mask();
        core.counters.show(&core.lock(), core.store.remote());
        drop(mask);
        core.counters.snapshot()
    }
}
