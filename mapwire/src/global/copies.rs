//! What donors and the disk have of a process's pages.

use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use mapwire_gms::{Client, ClientConfig, Loss, PageName, PageWord, Surroundings};
use mapwire_host::waiting::now_ns;
use mapwire_pager::{BackingStore, DiskStore, IncomingPage, OutgoingPage, PageId, RemotePages, StoreError};

use super::session::Session;
use super::versions::Versions;

const NS: u64 = 1_000_000_000;

/// How long a fork takes at most from the seal on; the next store says that it is over.
const FORK_NS: u64 = 10 * NS;

/// Pages of a region: how many, from which on.
pub(super) struct Pages {
    pub(super) region: u32,
    pub(super) first: u64,
    pub(super) count: u64,
}

/// What donors and the disk have of a process's pages: what the store and its thread have in common.
pub(super) struct Copies {
    pub(super) client: Client,
    disk: DiskStore,
    session: RwLock<Option<Arc<Session>>>,
    regions: RwLock<Vec<Option<Arc<Versions>>>>,
    /// Whoever changes what the disk or donors have of a page reads; the thread that brings pages to the disk writes.
    changing: RwLock<()>,
    /// Until then a fork may be under way, and the disk is left as it is.
    sealed_until_ns: AtomicU64,
    process: u32,
    discards: Mutex<VecDeque<(PageName, u32)>>,
    at_donors: Arc<AtomicU64>,
}

impl Copies {
    pub(super) fn new(disk: DiskStore, copies: u8) -> Self {
        let config = ClientConfig { copies, patience_ns: 2 * NS, pause_ns: 5 * NS, full_ns: NS };
        Self {
            client: Client::new(config),
            disk,
            session: RwLock::default(),
            regions: RwLock::default(),
            changing: RwLock::default(),
            sealed_until_ns: AtomicU64::new(0),
            process: std::process::id(),
            discards: Mutex::default(),
            at_donors: Arc::default(),
        }
    }

    fn versions(&self, region: u32) -> Option<Arc<Versions>> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.get(region as usize)?.clone()
    }

    /// For changes of what the disk has, which no thread makes during a fork: the seal ends.
    pub(super) fn changes(&self) -> RwLockReadGuard<'_, ()> {
        self.sealed_until_ns.store(0, Ordering::Relaxed);
        self.changing.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is a forked child, which has no node.
    pub(super) fn is_in_child(&self) -> bool {
        std::process::id() != self.process
    }

    pub(super) fn disk(&self) -> &DiskStore {
        &self.disk
    }

    pub(super) fn begin_session(&self, session: Session) {
        *self.session.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(session));
    }

    pub(super) fn meeting(&self) -> Option<Arc<Session>> {
        self.session.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes a region of so many pages known, or forgets it.
    pub(super) fn set_region(&self, region: u32, pages: Option<u64>) {
        let regions = self.regions.write();
        let mut regions = regions.unwrap_or_else(PoisonError::into_inner);
        let index = region as usize;
        if regions.len() <= index {
            regions.resize(index + 1, None);
        }
        let count = || Arc::clone(&self.at_donors);
        regions[index] = pages.map(|pages| Arc::new(Versions::new(pages, count())));
    }

    /// What is at donors, and was put and got.
    pub(super) fn remote(&self) -> RemotePages {
        let traffic = self.client.traffic();
        RemotePages {
            pages: self.at_donors.load(Ordering::Relaxed),
            put: traffic.put,
            got: traffic.got,
            missed: traffic.missed,
        }
    }

    /// Leaves the disk as it is, for a child that is about to be forked, until the next call of the store.
    pub(super) fn seal(&self) -> Result<(), StoreError> {
        if let Some(session) = self.meeting()
            && self.client.spares_disk()
            && !self.client.secure_all(self, &session)
        {
            return Err(StoreError::Other(
                "pages that only donors have cannot be written to the disk, which a forked child reads: free space in its folder",
            ));
        }
        let _alone = self.changing.write().unwrap_or_else(PoisonError::into_inner);
        self.disk.seal()?;
        self.sealed_until_ns.store(now_ns() + FORK_NS, Ordering::Relaxed);
        Ok(())
    }
}

impl Surroundings for Copies {
    type Id = PageId;
    type Range = Pages;
    type Error = StoreError;
    type Session = Session;

    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn session(&self) -> Option<impl Deref<Target = Session>> {
        self.meeting()
    }

    fn end_session(&self) {
        self.session.write().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn word(&self, id: PageId) -> PageWord {
        self.versions(id.region).map_or(PageWord::NONE, |versions| versions.word(id.page))
    }

    fn set_word(&self, id: PageId, word: PageWord) {
        if let Some(versions) = self.versions(id.region) {
            versions.set(id.page, word);
        }
    }

    fn each(&self, of: Option<&Pages>, mut found: impl FnMut(PageId)) {
        let all = || self.regions.read().unwrap_or_else(PoisonError::into_inner).clone();
        let (first_region, regions) = match of {
            Some(of) => (of.region, vec![self.versions(of.region)]),
            None => (0, all()),
        };
        let (first, count) = of.map_or((0, u64::MAX), |of| (of.first, of.count));
        for (region, versions) in (first_region..).zip(&regions) {
            let pages = versions.iter().flat_map(|versions| versions.known(first, count));
            pages.for_each(|page| found(PageId { region, page }));
        }
    }

    fn write(&self, pages: &[(PageId, &[u8])]) -> Result<(), StoreError> {
        let pages: Vec<_> = pages.iter().map(|&(id, bytes)| OutgoingPage { id, bytes }).collect();
        self.disk.store(&pages)
    }

    fn read(&self, pages: &mut [(PageId, &mut [u8])]) -> Result<(), StoreError> {
        let pages = pages.iter_mut().map(|(id, bytes)| IncomingPage { id: *id, bytes });
        self.disk.fetch(&mut pages.collect::<Vec<_>>())
    }

    fn error(&self, id: PageId, why: Loss) -> StoreError {
        match why {
            Loss::Gone => StoreError::Other("the donors that had it have died"),
            Loss::Corrupt => StoreError::Corrupt(id),
        }
    }

    fn alone<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        let _alone = self.changing.write().unwrap_or_else(PoisonError::into_inner);
        let is_sealed = now_ns() < self.sealed_until_ns.load(Ordering::Relaxed);
        (!is_sealed).then(change)
    }

    fn beside<R>(&self, change: impl FnOnce() -> R) -> R {
        // For a fault: the seal stays, as the thread that forks may fault, too.
        let _looks = self.changing.read().unwrap_or_else(PoisonError::into_inner);
        change()
    }

    fn discards<R>(&self, look: impl FnOnce(&mut VecDeque<(PageName, u32)>) -> R) -> R {
        look(&mut self.discards.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
