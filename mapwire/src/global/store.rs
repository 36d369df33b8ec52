//! The backing store of a pager: donors before a disk.

use core::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};

use mapwire_pager::{BackingStore, DiskStore, IncomingPage, OutgoingPage, PageId, RemotePages, StoreError};

use super::copies::{Copies, Pages};
use super::keeper::keep_donors;
use super::lenders::Lenders;
use crate::threads;

/// Pages at donors, before a file of a local disk.
///
/// Each page that the store has taken is at a donor and on the disk, or at two donors ([`Lenders::copies`]). Where donors are missing the
/// disk serves alone: until they have come, when they have no room, and when they have died. What donors give is checked by the pager's
/// checksum, and [got again](BackingStore::fetch_other) elsewhere where it is wrong.
///
/// A forked child has the disk alone. Donors are met on a thread of its own, when the first page is stored.
pub struct DonorStore {
    copies: Arc<Copies>,
    /// Dropping it ends the thread.
    wake: SyncSender<()>,
}

impl fmt::Debug for DonorStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = &self.copies.meeting();
        f.debug_struct("DonorStore").field("session", session).finish_non_exhaustive()
    }
}

impl DonorStore {
    /// A store before `disk`, which says by `report` when it has no donors.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn new(disk: DiskStore, lenders: Lenders, report: fn(&str)) -> std::io::Result<Self> {
        let (wake, woken) = mpsc::sync_channel(1);
        let copies = Arc::new(Copies::new(disk, lenders.copies));
        let of_thread = Arc::clone(&copies);
        threads::spawn("mapwire-donors", move || keep_donors(&lenders, &of_thread, report, &woken))?;
        Ok(Self { copies, wake })
    }
}

/// Pages as a client of donors takes them.
fn outgoing<'a>(pages: &[OutgoingPage<'a>]) -> Vec<(PageId, &'a [u8])> {
    pages.iter().map(|page| (page.id, page.bytes)).collect()
}

impl BackingStore for DonorStore {
    fn add_region(&self, region: u32, pages: u64) -> Result<(), StoreError> {
        self.copies.disk().add_region(region, pages)?;
        self.copies.set_region(region, Some(pages));
        Ok(())
    }

    fn remove_region(&self, region: u32) {
        let copies = &*self.copies;
        let _changes = copies.changes();
        copies.client.forget_all(copies, &Pages { region, first: 0, count: u64::MAX });
        copies.set_region(region, None);
        copies.disk().remove_region(region);
    }

    fn store(&self, pages: &[OutgoingPage<'_>]) -> Result<(), StoreError> {
        let _changes = self.copies.changes();
        if self.copies.meeting().is_none() {
            // The first page that is stored has the thread look for donors.
            let _ = self.wake.try_send(());
        }
        self.copies.client.store(&*self.copies, &outgoing(pages))
    }

    fn fetch(&self, pages: &mut [IncomingPage<'_>]) -> Result<(), StoreError> {
        if self.copies.is_in_child() {
            return self.copies.disk().fetch(pages);
        }
        let mut pages: Vec<_> = pages.iter_mut().map(|page| (page.id, &mut *page.bytes)).collect();
        self.copies.client.fetch(&*self.copies, &mut pages)
    }

    fn fetch_other(&self, page: &mut IncomingPage<'_>, attempt: u32) -> Result<(), StoreError> {
        if self.copies.is_in_child() {
            return Err(StoreError::Corrupt(page.id));
        }
        self.copies.client.fetch_other(&*self.copies, page.id, page.bytes, attempt)
    }

    fn holds(&self, id: PageId) -> bool {
        self.copies.client.holds(&*self.copies, id)
    }

    fn wants(&self, id: PageId) -> bool {
        !self.copies.is_in_child() && self.copies.client.wants(&*self.copies, id)
    }

    fn offer(&self, pages: &[OutgoingPage<'_>]) {
        let _changes = self.copies.changes();
        self.copies.client.offer(&*self.copies, &outgoing(pages));
    }

    fn discard(&self, region: u32, first: u64, pages: u64) {
        let _changes = self.copies.changes();
        self.copies.client.forget_all(&*self.copies, &Pages { region, first, count: pages });
        self.copies.disk().discard(region, first, pages);
    }

    fn remote(&self) -> RemotePages {
        self.copies.remote()
    }

    fn seal(&self) -> Result<(), StoreError> {
        self.copies.seal()
    }

    fn of_child(&self) -> Result<Box<dyn BackingStore>, StoreError> {
        self.copies.disk().of_child()
    }
}
