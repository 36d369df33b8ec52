//! The backing store of a pager: donors before a disk.

use core::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};

use mapwire_gms::{Elsewhere, Known, PageWord};
use mapwire_pager::{BackingStore, DiskStore, IncomingPage, OutgoingPage, PageId, RemotePages, StoreError};

use super::copies::Copies;
use super::keeper::keep_donors;
use super::lenders::Lenders;
use crate::threads;

/// Why a page is lost that only donors had.
const GONE: StoreError = StoreError::Other("the donors that had it have died");

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
        let session = &self.copies.session();
        f.debug_struct("DonorStore").field("session", session).finish_non_exhaustive()
    }
}

impl DonorStore {
    /// A store before `disk`, which says by `report` when it has no donors.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn new(disk: DiskStore, lenders: Lenders, report: fn(&str)) -> std::io::Result<Self> {
        let copies = Arc::new(Copies::new(disk, lenders.copies));
        let (wake, woken) = mpsc::sync_channel(1);
        let of_thread = Arc::clone(&copies);
        threads::spawn("mapwire-donors", move || keep_donors(&lenders, &of_thread, report, &woken))?;
        Ok(Self { copies, wake })
    }
}

impl BackingStore for DonorStore {
    fn add_region(&self, region: u32, pages: u64) -> Result<(), StoreError> {
        self.copies.disk().add_region(region, pages)?;
        self.copies.set_region(region, Some(pages));
        Ok(())
    }

    fn remove_region(&self, region: u32) {
        let _changes = self.copies.changes();
        self.copies.forget(region, 0, u64::MAX);
        self.copies.set_region(region, None);
        self.copies.disk().remove_region(region);
    }

    fn store(&self, pages: &[OutgoingPage<'_>]) -> Result<(), StoreError> {
        let copies = &self.copies;
        let _changes = copies.changes();
        let meeting = copies.session().filter(|_| !copies.are_donors_slow());
        let Some(meeting) = meeting else {
            // The first page that is stored has the thread look for donors.
            let _ = self.wake.try_send(());
            for page in pages {
                copies.forget(page.id.region, page.id.page, 1);
            }
            return copies.disk().store(pages);
        };
        for page in pages {
            // What donors have is old from here on: the new version takes its place.
            if let Some(versions) = copies.versions(page.id.region) {
                versions.take(page.id.page);
            }
        }
        if !copies.spares_disk() {
            let mut written = Ok(());
            copies.put(&meeting, pages, 1, || written = copies.disk().store(pages));
            if written.is_err() {
                // The disk has an older version, or none: donors' copies count for nothing without it.
                for page in pages {
                    copies.forget(page.id.region, page.id.page, 1);
                }
            }
            return written;
        }
        let stored = copies.put(&meeting, pages, 2, || {});
        let rest = pages.iter().zip(stored).filter(|(_, stored)| !stored);
        let rest: Vec<OutgoingPage<'_>> = rest.map(|(page, _)| *page).collect();
        if rest.is_empty() { Ok(()) } else { copies.disk().store(&rest) }
    }

    fn fetch(&self, pages: &mut [IncomingPage<'_>]) -> Result<(), StoreError> {
        if self.copies.is_in_child() {
            return self.copies.disk().fetch(pages);
        }
        let is_lost = |page: &IncomingPage<'_>| self.copies.page(page.id) == PageWord::LOST;
        if pages.iter().any(is_lost) {
            return Err(GONE);
        }
        let came = self.copies.fetch(pages);
        let mut rest: Vec<IncomingPage<'_>> = pages
            .iter_mut()
            .zip(came)
            .filter(|(_, came)| !came)
            .map(|(page, _)| IncomingPage { id: page.id, bytes: &mut *page.bytes })
            .collect();
        if rest.is_empty() { Ok(()) } else { self.copies.disk().fetch(&mut rest) }
    }

    fn fetch_other(&self, page: &mut IncomingPage<'_>, attempt: u32) -> Result<(), StoreError> {
        let copies = &self.copies;
        copies.note_missed();
        let _looks = copies.looks();
        let Some(versions) = copies.versions(page.id.region) else { return Err(StoreError::Corrupt(page.id)) };
        loop {
            let word = versions.page(page.id.page);
            let known = word.known();
            match word.elsewhere(attempt) {
                Elsewhere::Donor => {
                    known.into_iter().for_each(|known| versions.set(page.id.page, Known { place: None, ..known }));
                    if copies.get(std::slice::from_mut(page), false) == [true] {
                        return Ok(());
                    }
                }
                Elsewhere::Disk => {
                    if !copies.spares_disk() {
                        copies.forget(page.id.region, page.id.page, 1);
                    }
                    return copies.disk().fetch(std::slice::from_mut(page));
                }
                Elsewhere::NextDonor if copies.get(std::slice::from_mut(page), true) == [true] => {
                    let (id, bytes) = (page.id, &*page.bytes);
                    copies.disk().store(&[OutgoingPage { id, bytes }])?;
                    known.into_iter().for_each(|known| versions.set(id.page, Known { is_on_disk: true, ..known }));
                    return Ok(());
                }
                Elsewhere::NextDonor | Elsewhere::Nowhere => return Err(StoreError::Corrupt(page.id)),
            }
        }
    }

    fn holds(&self, id: PageId) -> bool {
        self.copies.page(id).is_kept()
    }

    fn wants(&self, id: PageId) -> bool {
        self.copies.wants(id)
    }

    fn offer(&self, pages: &[OutgoingPage<'_>]) {
        let _changes = self.copies.changes();
        self.copies.offer(pages);
    }

    fn discard(&self, region: u32, first: u64, pages: u64) {
        let _changes = self.copies.changes();
        self.copies.forget(region, first, pages);
        self.copies.disk().discard(region, first, pages);
    }

    fn remote(&self) -> RemotePages {
        self.copies.remote()
    }

    fn seal(&self) -> Result<(), StoreError> {
        let copies = &self.copies;
        if let Some(meeting) = copies.session()
            && copies.spares_disk()
            && !copies.secure_all(&meeting)
        {
            return Err(StoreError::Other(
                "pages that only donors have cannot be written to the disk, which a forked child reads: free space in its folder",
            ));
        }
        copies.seal()
    }

    fn of_child(&self) -> Result<Box<dyn BackingStore>, StoreError> {
        self.copies.disk().of_child()
    }
}
