//! Pagers and their regions.

use std::sync::Arc;

use super::checksum::Checksum;
use super::config::{FaultService, PagerConfig};
use super::core::Core;
use super::error::PagerError;
use super::freeze::{Frozen, freeze};
use super::handler::Handlers;
pub use super::region::Region;
use super::statistics::Statistics;
use super::store::{BackingStore, StoreError};

/// Keeps the pages of its regions in RAM, up to a limit, and the others in a store. See the [module](super).
///
/// Its resources are freed once it and all of its regions are dropped.
#[derive(Debug, Clone)]
pub struct Pager {
    inner: Arc<Running>,
}

/// A pager's threads, and their shared state.
#[derive(Debug)]
pub(super) struct Running {
    /// Joined before `core` is dropped.
    handlers: Option<Handlers>,
    core: Arc<Core>,
}

impl Running {
    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(super) fn handlers(&self) -> Option<&Handlers> {
        self.handlers.as_ref()
    }
}

impl Pager {
    /// Makes a pager without regions.
    ///
    /// # Errors
    /// An impossible limit, or a refusal of the kernel; the error says how to fix it.
    pub fn new(config: PagerConfig, store: Box<dyn BackingStore>) -> Result<Self, PagerError> {
        Self::with_checksum(config, store, Checksum::new())
    }

    /// As [`new`](Self::new), with the checksum key of an earlier pager.
    pub(super) fn with_checksum(
        config: PagerConfig,
        store: Box<dyn BackingStore>,
        checksum: Checksum,
    ) -> Result<Self, PagerError> {
        let core = Arc::new(Core::new(config, store, checksum)?);
        let handlers = match core.config.service() {
            FaultService::Threads(threads) => Some(Handlers::start(&core, threads)?),
            FaultService::FaultingThread => None,
        };
        Ok(Self { inner: Arc::new(Running { handlers, core }) })
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

    pub(super) fn running(&self) -> &Arc<Running> {
        &self.inner
    }

    /// Counters so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let core = &self.inner.core;
        let mask = crate::masking::mask();
        core.counters.show(&core.lock(), core.store.remote());
        drop(mask);
        core.counters.snapshot()
    }

    /// Why the store last refused pages, if it ever did. Those pages stay in RAM, beyond the limit.
    #[must_use]
    pub fn store_error(&self) -> Option<StoreError> {
        let _mask = crate::masking::mask();
        self.inner.core.lock().store_error
    }
}
