//! Gives a forked child a pager of its own.

use core::mem::{self, ManuallyDrop};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::error::PagerError;
use super::freeze::Frozen;
use super::handler::Handlers;
use super::pager::{Pager, Region};
use super::region;

impl Frozen {
    /// In the child: a pager with the same limits, and the regions at their addresses, with what they held when the parent's pager
    /// was frozen. Counts begin at 0. The store is the parent's [`of_child`](super::BackingStore::of_child).
    ///
    /// What the parent's pager takes in the child's heap, some 800 KiB of which next to nothing is ever touched, is not freed.
    ///
    /// # Errors
    /// As of [`Pager::new`] and [`Pager::map`]. The child does not have its memory then, and can only end.
    ///
    /// # Safety
    /// The caller is the only thread of a child that the thread forked which froze the pager. Nobody uses or drops the parent's
    /// [`Pager`] and [`Region`]s in the child.
    pub unsafe fn revive(self) -> Result<(Pager, Vec<Region>), PagerError> {
        let mut old = ManuallyDrop::new(self);
        let _mask = old.mask.take();
        let regions = mem::take(&mut old.regions);
        let core = old.running.core();
        let stop = old.running.handlers().map(Handlers::stop);
        for descriptor in [Some(&core.uffd), stop].into_iter().flatten() {
            // SAFETY: their owners are never used nor dropped again, by the caller's promise.
            unsafe { rustix::io::close(descriptor.as_raw_fd()) };
        }
        let store = core.store.of_child();
        let store = store.map_err(|cause| PagerError::Fork { cause })?;
        let pager = Pager::with_checksum(core.config.clone(), store, core.checksum)?;
        let regions = regions.into_iter().map(|inherited| {
            // SAFETY: the state of the parent's pager owns one count, and is never used nor dropped again. `inherited` has another.
            unsafe { Arc::decrement_strong_count(Arc::as_ptr(&inherited.table)) };
            region::inherit(pager.running(), inherited)
        });
        let regions = regions.collect::<Result<_, _>>()?;
        Ok((pager, regions))
    }
}
