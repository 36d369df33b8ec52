//! What donors and the disk have of a process's pages.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

use mapwire_gms::{Ended, Known, MAX_VERSION, PageName, PageWord, SpaceId};
use mapwire_host::waiting::now_ns;
use mapwire_pager::{BackingStore, DiskStore, IncomingPage, OutgoingPage, PageId, RemotePages, StoreError};

use super::session::{DonorPage, Session};
use super::versions::Versions;

/// How long donors are left alone that did not answer in time.
const PAUSE: Duration = Duration::from_secs(5);

/// How long donors are told in a row what is wanted no more.
const TELLING: Duration = Duration::from_millis(250);

/// How long donors are offered nothing that had no room.
const FULL: Duration = Duration::from_secs(1);

/// How long a fork takes at most from the seal on; the next store says that it is over.
const FORK: Duration = Duration::from_secs(10);

/// How long a page is waited for that the disk has as well.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pages that are brought to the disk at a time.
const BATCH: usize = 32;

/// How long to wait when too many pages that are wanted no more are under way.
const BUSY: Duration = Duration::from_micros(200);

/// What donors and the disk have of a process's pages: what the store and its thread have in common.
pub(super) struct Copies {
    /// Donors that are to have each page.
    wanted: u8,
    disk: DiskStore,
    session: RwLock<Option<Arc<Meeting>>>,
    regions: RwLock<Vec<Option<Arc<Versions>>>>,
    next_version: AtomicU32,
    /// Whoever changes what the disk or donors have of a page reads; the thread that brings pages to the disk writes.
    changing: RwLock<()>,
    /// Until then a fork may be under way, and the disk is left as it is.
    sealed_until_ns: AtomicU64,
    process: u32,
    discards: Mutex<VecDeque<(PageName, u32)>>,
    slow_until_ns: AtomicU64,
    full_until_ns: AtomicU64,
    at_donors: Arc<AtomicU64>,
    put: AtomicU64,
    got: AtomicU64,
    missed: AtomicU64,
}

/// A session, and what tells its pages from those of others.
#[derive(Debug)]
pub(super) struct Meeting {
    session: Session,
    incarnation: u64,
}

impl Meeting {
    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    fn name(&self, id: PageId) -> PageName {
        let space = SpaceId::Anonymous { node: 0, incarnation: self.incarnation, region: id.region };
        PageName::new(&space, id.page)
    }

    fn page<B>(&self, id: PageId, version: u32, bytes: B, patience: Option<Duration>) -> DonorPage<B> {
        DonorPage { name: self.name(id), version, bytes, patience, ended: None }
    }
}

impl Copies {
    pub(super) fn new(disk: DiskStore, copies: u8) -> Self {
        Self {
            disk,
            wanted: copies,
            session: RwLock::default(),
            regions: RwLock::default(),
            next_version: AtomicU32::new(1),
            changing: RwLock::default(),
            sealed_until_ns: AtomicU64::new(0),
            process: std::process::id(),
            discards: Mutex::default(),
            slow_until_ns: AtomicU64::new(0),
            full_until_ns: AtomicU64::new(0),
            at_donors: Arc::default(),
            put: AtomicU64::new(0),
            got: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        }
    }

    pub(super) fn session(&self) -> Option<Arc<Meeting>> {
        let session = self.session.read().unwrap_or_else(PoisonError::into_inner);
        session.clone()
    }

    pub(super) fn versions(&self, region: u32) -> Option<Arc<Versions>> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.get(region as usize)?.clone()
    }

    pub(super) fn page(&self, id: PageId) -> PageWord {
        self.versions(id.region).map_or(PageWord::NONE, |versions| versions.page(id.page))
    }

    /// For changes of what the disk has, which no thread makes during a fork: the seal ends.
    pub(super) fn changes(&self) -> RwLockReadGuard<'_, ()> {
        self.sealed_until_ns.store(0, Ordering::Relaxed);
        self.looks()
    }

    /// For a fault. The seal stays, as the thread that forks may fault, too.
    pub(super) fn looks(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a fork may be under way, for which the disk is left as it is.
    fn is_sealed(&self) -> bool {
        now_ns() < self.sealed_until_ns.load(Ordering::Relaxed)
    }

    /// Whether this is a forked child, which has no node.
    pub(super) fn is_in_child(&self) -> bool {
        std::process::id() != self.process
    }

    fn discards(&self) -> MutexGuard<'_, VecDeque<(PageName, u32)>> {
        self.discards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether donors are to have copies of a page apart from the disk.
    pub(super) fn spares_disk(&self) -> bool {
        self.wanted > 1
    }

    /// Whether donors are left alone, since they did not answer in time.
    pub(super) fn are_donors_slow(&self) -> bool {
        now_ns() < self.slow_until_ns.load(Ordering::Relaxed)
    }

    /// Leaves donors alone for a while that did not answer in time; whether they did.
    fn finished(&self, is_over: bool) -> bool {
        if !is_over {
            // They may come back, and with them what they have.
            self.slow_until_ns.store(now_ns() + PAUSE.as_nanos() as u64, Ordering::Relaxed);
        }
        is_over
    }

    /// No donor is left, and nothing that they had, but for what can be salvaged. The session, which others may still use. `None` if there is
    /// none, or a fork is under way.
    pub(super) fn forget_donors(&self) -> Option<Arc<Meeting>> {
        let _alone = self.changing.write().unwrap_or_else(PoisonError::into_inner);
        if self.is_sealed() {
            return None;
        }
        if let Some(meeting) = self.session() {
            self.salvage_all(&meeting);
        }
        let session = self.session.write();
        let old = session.unwrap_or_else(PoisonError::into_inner).take();
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.iter().flatten().for_each(|versions| versions.clear());
        self.discards().clear();
        old
    }

    /// Tells donors what is wanted no more, for a moment.
    pub(super) fn tell_discards(&self, meeting: &Meeting) {
        let ends = Instant::now() + TELLING;
        while Instant::now() < ends {
            let next = self.discards().pop_front();
            let Some((name, version)) = next else { return };
            if !meeting.session.discard(name, version) {
                self.discards().push_front((name, version));
                std::thread::sleep(BUSY);
            }
        }
    }

    /// Brings to the disk what only donors have. False where a page could not be written, or a donor does not answer: it is to be tried
    /// again.
    pub(super) fn secure_all(&self, meeting: &Meeting) -> bool {
        if meeting.session.are_gets_late() {
            // Each page that is asked for again would take another frame for as long.
            return false;
        }
        let regions = {
            let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
            regions.clone()
        };
        let mut is_whole = true;
        for (region, versions) in (0_u32..).zip(&regions) {
            let Some(versions) = versions else { continue };
            let not_on_disk = versions.all().filter(|(_, known)| !known.is_on_disk);
            let pages: Vec<u64> = not_on_disk.map(|(page, _)| page).collect();
            for batch in pages.chunks(BATCH) {
                let Some(is_written) = self.secure(meeting, region, versions, batch) else { return false };
                is_whole &= is_written;
            }
        }
        is_whole
    }

    /// Whether all these pages could be written; `None`: a donor does not answer.
    fn secure(&self, meeting: &Meeting, region: u32, versions: &Versions, pages: &[u64]) -> Option<bool> {
        let _alone = self.changing.write().unwrap_or_else(PoisonError::into_inner);
        if self.is_sealed() {
            return Some(false);
        }
        let still = |&page: &u64| {
            let known = versions.get(page).filter(|known| !known.is_on_disk)?;
            Some((PageId { region, page }, known))
        };
        let still: Vec<(PageId, Known)> = pages.iter().filter_map(still).collect();
        let mut buffers = Pages::new(still.len());
        let wanted = still.iter().zip(buffers.iter_mut());
        let mut gets: Vec<_> =
            wanted.map(|((id, known), bytes)| meeting.page(*id, known.version, bytes, Some(PATIENCE))).collect();
        let is_over = self.finished(meeting.session.get(&mut gets, false));
        let came: Vec<bool> = gets.iter().map(DonorPage::has_come).collect();
        let mut is_whole = true;
        for (((id, known), bytes), came) in still.iter().zip(buffers.iter()).zip(came) {
            if came {
                is_whole &= self.write(versions, *id, *known, bytes);
            } else if is_over && !self.salvage(meeting, versions, *id, *known) {
                // It is nowhere: what the program still has in RAM is stored again.
                versions.lose(id.page);
            }
        }
        is_over.then_some(is_whole)
    }

    /// Writes a page to the disk that only donors had.
    fn write(&self, versions: &Versions, id: PageId, known: Known, bytes: &[u8]) -> bool {
        let is_written = self.disk.store(&[OutgoingPage { id, bytes }]).is_ok();
        if is_written {
            versions.set(id.page, Known { is_on_disk: true, ..known });
        }
        is_written
    }

    /// Brings a page to the disk from the memory of a donor of this host, which stays mapped when the donor dies. The bytes may be another
    /// page's by now: the checksum tells when the page is fetched, and a copy in RAM is stored again.
    fn salvage(&self, meeting: &Meeting, versions: &Versions, id: PageId, known: Known) -> bool {
        let mut page = Pages::new(1);
        let Some(bytes) = page.iter_mut().next() else { return false };
        let is_loaded = known.place.is_some_and(|place| meeting.session.load(place, bytes));
        let is_written = is_loaded && self.disk.store(&[OutgoingPage { id, bytes }]).is_ok();
        if is_written {
            versions.salvage(id.page);
        }
        is_written
    }

    /// As [`salvage`](Self::salvage), all that only donors had.
    fn salvage_all(&self, meeting: &Meeting) {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        for (region, versions) in (0_u32..).zip(&*regions) {
            let Some(versions) = versions else { continue };
            for (page, known) in versions.all().filter(|(_, known)| !known.is_on_disk) {
                self.salvage(meeting, versions, PageId { region, page }, known);
            }
        }
    }

    /// Puts pages at so many donors, and does something else `meanwhile`; which of them are at as many. With one, the disk must have them as
    /// well.
    pub(super) fn put<'a>(
        &self,
        meeting: &Meeting,
        pages: &[OutgoingPage<'a>],
        copies: u8,
        meanwhile: impl FnOnce(),
    ) -> Vec<bool> {
        let versions: Vec<u32> = pages.iter().map(|_| self.next_version.fetch_add(1, Ordering::Relaxed)).collect();
        if versions.last().is_none_or(|&last| last >= MAX_VERSION) {
            // After 2^31 pages: the disk serves alone.
            self.next_version.store(MAX_VERSION, Ordering::Relaxed);
            meanwhile();
            return vec![false; pages.len()];
        }
        let put =
            |(page, version): (&OutgoingPage<'a>, u32)| meeting.page(page.id, version, page.bytes, Some(PATIENCE));
        let mut puts: Vec<_> = pages.iter().zip(versions).map(put).collect();
        // The disk has what fewer donors have.
        let on_disk = copies < 2;
        self.finished(meeting.session.put(&mut puts, copies, on_disk, meanwhile));
        pages
            .iter()
            .zip(&puts)
            .map(|(page, &DonorPage { name, version, ended, .. })| {
                let stored = if let Some(Ended::Put(stored)) = ended { Some(stored) } else { None };
                let count = stored.map_or(0, |stored| stored.copies);
                self.put.fetch_add(u64::from(count > 0), Ordering::Relaxed);
                if let Some(stored) = stored
                    && let Some(of_region) = self.versions(page.id.region)
                {
                    let known = Known { version, is_on_disk: on_disk || count < copies, place: Some(stored.place) };
                    of_region.set(page.id.page, known);
                } else {
                    // An older version may be there, or this one may still get there.
                    self.discards().push_back((name, version));
                }
                count >= copies
            })
            .collect()
    }

    /// Whether donors may take a page that only the disk has.
    pub(super) fn wants(&self, id: PageId) -> bool {
        let session = self.session.read().unwrap_or_else(PoisonError::into_inner);
        if session.is_none() || self.is_in_child() || self.are_donors_slow() {
            return false;
        }
        let is_nowhere_else = self.versions(id.region).is_some_and(|it| it.page(id.page) == PageWord::NONE);
        is_nowhere_else && now_ns() >= self.full_until_ns.load(Ordering::Relaxed)
    }

    /// Puts pages at donors that the disk has.
    pub(super) fn offer(&self, pages: &[OutgoingPage<'_>]) {
        let Some(meeting) = self.session() else { return };
        if self.put(&meeting, pages, 1, || {}).contains(&false) {
            let until_ns = now_ns() + FULL.as_nanos() as u64;
            self.full_until_ns.store(until_ns, Ordering::Relaxed);
        }
    }

    /// Fetches from donors; which pages came. What lies in memory of this host is read there, and has wrong bytes where a donor has moved
    /// it; all else is asked for.
    pub(super) fn fetch(&self, pages: &mut [IncomingPage<'_>]) -> Vec<bool> {
        let Some(meeting) = self.session() else { return vec![false; pages.len()] };
        let load = |page: &mut IncomingPage<'_>| {
            let place = self.page(page.id).known()?.place?;
            meeting.session.load(place, page.bytes).then_some(())
        };
        let mut came: Vec<bool> = pages.iter_mut().map(|page| load(page).is_some()).collect();
        let loaded = came.iter().filter(|&&came| came).count();
        self.got.fetch_add(loaded as u64, Ordering::Relaxed);
        if loaded == pages.len() {
            return came;
        }
        let missing = pages.iter_mut().zip(&came).filter(|(_, came)| !**came);
        let mut rest: Vec<_> = missing.map(|(page, _)| IncomingPage { id: page.id, bytes: &mut *page.bytes }).collect();
        let mut got = self.get(&mut rest, false).into_iter();
        for came in came.iter_mut().filter(|came| !**came) {
            *came = got.next().unwrap_or(false);
        }
        came
    }

    /// Asks donors for pages; which came.
    pub(super) fn get(&self, pages: &mut [IncomingPage<'_>], takes: bool) -> Vec<bool> {
        let Some(meeting) = self.session() else { return vec![false; pages.len()] };
        let are_slow = self.are_donors_slow();
        let mut came = vec![false; pages.len()];
        let mut gets = Vec::with_capacity(pages.len());
        let mut places = Vec::with_capacity(pages.len());
        for (place, page) in pages.iter_mut().enumerate() {
            let known = self.page(page.id).known();
            if let Some(known) = known.filter(|known| !(are_slow && known.is_on_disk)) {
                places.push(place);
                let patience = known.is_on_disk.then_some(PATIENCE);
                gets.push(meeting.page(page.id, known.version, &mut *page.bytes, patience));
            }
        }
        self.finished(meeting.session.get(&mut gets, takes));
        let hits = gets.iter().filter(|get| get.has_come()).count();
        self.got.fetch_add(hits as u64, Ordering::Relaxed);
        self.missed.fetch_add((gets.len() - hits) as u64, Ordering::Relaxed);
        for (place, get) in places.into_iter().zip(&gets) {
            came[place] = get.has_come();
        }
        came
    }

    /// Forgets what donors have of pages.
    pub(super) fn forget(&self, region: u32, first: u64, pages: u64) {
        let Some(versions) = self.versions(region) else { return };
        let meeting = self.session();
        versions.take_all(first, pages, |page, known| {
            if let Some(meeting) = &meeting {
                let name = meeting.name(PageId { region, page });
                self.discards().push_back((name, known.version));
            }
        });
    }

    pub(super) fn disk(&self) -> &DiskStore {
        &self.disk
    }

    pub(super) fn begin_session(&self, session: Session) {
        let meeting = Meeting { session, incarnation: now_ns() };
        *self.session.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(meeting));
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

    /// A page came with wrong bytes.
    pub(super) fn note_missed(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// What is at donors, and was put and got.
    pub(super) fn remote(&self) -> RemotePages {
        RemotePages {
            pages: self.at_donors.load(Ordering::Relaxed),
            put: self.put.load(Ordering::Relaxed),
            got: self.got.load(Ordering::Relaxed),
            missed: self.missed.load(Ordering::Relaxed),
        }
    }

    /// Leaves the disk as it is, for a child that is about to be forked, until the next call of the store.
    pub(super) fn seal(&self) -> Result<(), StoreError> {
        let _alone = self.changing.write().unwrap_or_else(PoisonError::into_inner);
        self.disk.seal()?;
        let until_ns = now_ns() + FORK.as_nanos() as u64;
        self.sealed_until_ns.store(until_ns, Ordering::Relaxed);
        Ok(())
    }
}

/// Pages that begin at multiples of their length, as the disk wants it.
struct Pages {
    memory: Vec<u8>,
    skip: usize,
}

impl Pages {
    const BYTES: usize = 4096;

    fn new(count: usize) -> Self {
        let memory = vec![0; (count + 1) * Self::BYTES];
        let skip = memory.as_ptr().align_offset(Self::BYTES);
        Self { memory, skip }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.memory[self.skip..].chunks_exact(Self::BYTES)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.memory[self.skip..].chunks_exact_mut(Self::BYTES)
    }
}
