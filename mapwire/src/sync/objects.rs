//! The handle to the objects of a memory.

use core::ops::Range;
use std::sync::{Arc, Weak};

use mapwire_dsm::ObjectKind;
use mapwire_host::views::ViewLayout;
use mapwire_segment::sync as one_host;

use super::kinds::{Barrier, Condition, Flag, Mutex, Once, Reduction, RwLock, Semaphore};
use super::queue::{Queue, ServedQueue};
use super::served::Served;
use super::{BARRIER_BYTES, CONDITION_BYTES, FLAG_BYTES, MUTEX_BYTES, ONCE_BYTES, QUEUE_BYTES};
use super::{Backed, REDUCTION_BYTES, RWLOCK_BYTES, SEMAPHORE_BYTES};
use crate::error::Result;
use crate::shared::Protocol;

/// The synchronisation objects of a memory, for all threads of a process.
#[derive(Debug)]
pub struct Objects(Backed<Arc<one_host::Objects>, Home>);

/// The way to the ranks that keep objects, while the memory is open.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) protocol: Weak<Protocol>,
    layout: ViewLayout,
}

/// Makes the functions that give handles to objects.
macro_rules! handles {
    ($($(#[$doc:meta])* $method:ident: $kind:ident, $bytes:expr;)*) => {
        impl Objects {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// [`SyncError::Misplaced`](super::SyncError::Misplaced).
                #[inline]
                pub fn $method(&self, offset: u64) -> Result<$kind<'_>> {
                    Ok($kind(match &self.0 {
                        Backed::OneHost(objects) => Backed::OneHost(objects.$method(offset)?),
                        Backed::Served(home) => Backed::Served(home.at(ObjectKind::$kind, offset, $bytes)?),
                    }))
                }
            )*
        }
    };
}

handles! {
    /// The mutex at `offset`: [`MUTEX_BYTES`], which zeros unlock.
    mutex: Mutex, MUTEX_BYTES;
    /// The reader-writer lock at `offset`: [`RWLOCK_BYTES`], which zeros unlock.
    rwlock: RwLock, RWLOCK_BYTES;
    /// The condition variable at `offset`: [`CONDITION_BYTES`], zero at first.
    condition: Condition, CONDITION_BYTES;
    /// The semaphore at `offset`: [`SEMAPHORE_BYTES`]; zeros: of value 0.
    semaphore: Semaphore, SEMAPHORE_BYTES;
    /// The flag at `offset`: [`FLAG_BYTES`]; zeros: of value 0.
    flag: Flag, FLAG_BYTES;
    /// The barrier at `offset`: [`BARRIER_BYTES`], which [`Barrier::init`] makes one.
    barrier_at: Barrier, BARRIER_BYTES;
    /// What is done once, at `offset`: [`ONCE_BYTES`]; zeros: not done.
    once: Once, ONCE_BYTES;
    /// The reduction at `offset`: [`REDUCTION_BYTES`], which [`Reduction::init`] makes one.
    reduction: Reduction, REDUCTION_BYTES;
}

impl Objects {
    pub(crate) fn of_one_host(objects: &Arc<one_host::Objects>) -> Self {
        Self(Backed::OneHost(Arc::clone(objects)))
    }

    pub(crate) fn served(protocol: &Arc<Protocol>) -> Self {
        Self(Backed::Served(Home { protocol: Arc::downgrade(protocol), layout: *protocol.layout() }))
    }

    /// The queue at `offset`: [`QUEUE_BYTES`] and the values, which [`Queue::init`] makes one.
    ///
    /// # Errors
    /// [`SyncError::Misplaced`](super::SyncError::Misplaced).
    #[inline]
    pub fn queue(&self, offset: u64) -> Result<Queue<'_>> {
        Ok(Queue(match &self.0 {
            Backed::OneHost(objects) => Backed::OneHost(objects.queue(offset)?),
            Backed::Served(home) => Backed::Served(ServedQueue(home.at(ObjectKind::Queue, offset, QUEUE_BYTES)?)),
        }))
    }

    /// The addresses of the memory.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        match &self.0 {
            Backed::OneHost(objects) => objects.segment().range(),
            Backed::Served(home) => home.layout.views_range(),
        }
    }

    /// The offset of an address, for the functions that make handles: they refuse one outside of the memory.
    #[inline]
    #[must_use]
    pub fn offset(&self, address: usize) -> u64 {
        match &self.0 {
            Backed::OneHost(objects) => objects.offset(address),
            Backed::Served(home) => address.wrapping_sub(home.layout.views_range().start) as u64,
        }
    }

    /// Whether waits still have a point.
    ///
    /// # Errors
    /// A rank is gone; the memory is closed.
    pub fn check(&self) -> Result<()> {
        match &self.0 {
            Backed::OneHost(objects) => Ok(objects.check()?),
            Backed::Served(home) => home.protocol()?.check().map_err(Into::into),
        }
    }
}

impl Home {
    fn at(&self, kind: ObjectKind, offset: u64, bytes: u64) -> Result<Served<'_>> {
        let address = (self.layout.views_range().start as u64).wrapping_add(offset);
        let located = self.layout.locate(address as usize);
        let is_held = located.is_some_and(|(_, at)| bytes <= self.layout.bytes.saturating_sub(at) as u64);
        let served = Served { home: self, kind, address };
        match is_held && address.is_multiple_of(8) {
            true => Ok(served),
            false => Err(one_host::SyncError::Misplaced { object: served.name() }.into()),
        }
    }
}
