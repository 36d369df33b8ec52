//! The backing store of a pager: donors before a disk.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

use mapwire_gms::{PageName, SpaceId};
use mapwire_host::masking;
use mapwire_host::paging::{
    BackingStore, DiskStore, IncomingPage, OutgoingPage, PageId, RemotePages, StoreError,
};
use mapwire_host::waiting::now_ns;
use mapwire_launch::names::{Asking, Donor, donors};
use mapwire_launch::{LaunchError, NamedJob};
use mapwire_names::{SharedSecret, StoreAddress};

use super::session::{Get, Put, Session};
use super::versions::{Known, MAX_VERSION, Versions};
use crate::error::Result;

/// Donors of a process, at most.
const MOST_DONORS: usize = 16;

/// How long donors have to come.
const MEETING: Duration = Duration::from_secs(10);

/// How long donors are left alone after a meeting that failed.
const PAUSE: Duration = Duration::from_secs(5);

/// How often the number of donors is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// How long a page is waited for that the disk has as well.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why a page is lost that only donors had.
const GONE: StoreError = StoreError::Other("the donors that had it have died");

/// Pages that are brought to the disk at a time.
const BATCH: usize = 64;

/// How long to wait when too many pages that are wanted no more are under way.
const BUSY: Duration = Duration::from_micros(200);

/// Where donors are found, and what they are for.
#[derive(Clone, Debug)]
pub struct Lenders {
    /// The store of names in which donors say that they are there.
    pub store: StoreAddress,
    /// The file of the secret.
    pub secret_file: PathBuf,
    /// Donors that have each page: 1, and the disk has it as well; or 2, and the disk has it only where donors do not.
    pub copies: u8,
}

impl Lenders {
    /// The donors that are there now, those with most memory first.
    ///
    /// # Errors
    /// The store cannot be reached, or the secret is not to be had.
    pub fn donors(&self) -> Result<Vec<Donor>> {
        let shared = SharedSecret::read(&self.secret_file).map_err(LaunchError::from)?;
        Ok(donors(&self.store, &shared)?)
    }

    fn meet(&self) -> Result<Option<Session>> {
        let shared = SharedSecret::read(&self.secret_file).map_err(LaunchError::from)?;
        let mut found = donors(&self.store, &shared)?;
        found.truncate(MOST_DONORS);
        if found.len() < usize::from(self.copies) {
            return Ok(None);
        }
        let asking = Asking::begin(&self.store, &shared, &found)?;
        let job = NamedJob {
            name: asking.job.clone(),
            store: self.store.clone(),
            secret_file: self.secret_file.clone(),
            size: asking.size,
            rank: Some(0),
            incarnation: None,
        };
        Session::meet(&job, MEETING, asking.pages).map(Some)
    }
}

/// Pages at donors, before a file of a local disk.
///
/// Each page that the store has taken is at a donor and on the disk, or at two donors ([`Lenders::copies`]). Where donors are missing the
/// disk serves alone: until they have come, when they have no room, and when they have died. What donors give is checked by the pager's
/// checksum, and [got again](BackingStore::fetch_other) elsewhere where it is wrong.
///
/// A forked child has the disk alone. Donors are met on a thread of its own, when the first page is stored.
pub struct DonorStore {
    shared: Arc<Shared>,
    /// Dropping it ends the thread.
    wake: SyncSender<()>,
}

impl fmt::Debug for DonorStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = &self.shared.session();
        f.debug_struct("DonorStore")
            .field("session", session)
            .finish_non_exhaustive()
    }
}

/// What the store and its thread have in common.
struct Shared {
    lenders: Lenders,
    disk: DiskStore,
    session: RwLock<Option<Arc<Meeting>>>,
    regions: RwLock<Vec<Option<Arc<Versions>>>>,
    next_version: AtomicU32,
    /// Whoever changes what the disk or donors have of a page reads; the thread that brings pages to the disk writes.
    changing: RwLock<()>,
    /// A fork is under way: the disk is left as it is. In the child it stays so.
    is_sealed: AtomicBool,
    process: u32,
    report: fn(&str),
    discards: Mutex<VecDeque<(PageName, u32)>>,
    slow_until_ns: AtomicU64,
    at_donors: Arc<AtomicU64>,
    put: AtomicU64,
    got: AtomicU64,
    missed: AtomicU64,
}

/// A session, and what tells its pages from those of others.
#[derive(Debug)]
struct Meeting {
    session: Session,
    incarnation: u64,
}

impl Meeting {
    fn name(&self, id: PageId) -> PageName {
        let space = SpaceId::Anonymous {
            node: 0,
            incarnation: self.incarnation,
            region: id.region,
        };
        PageName::new(&space, id.page)
    }
}

impl DonorStore {
    /// A store before `disk`, which says by `report` when it has no donors.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn new(disk: DiskStore, lenders: Lenders, report: fn(&str)) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            lenders,
            disk,
            session: RwLock::default(),
            regions: RwLock::default(),
            next_version: AtomicU32::new(1),
            changing: RwLock::default(),
            is_sealed: AtomicBool::new(false),
            process: std::process::id(),
            report,
            discards: Mutex::default(),
            slow_until_ns: AtomicU64::new(0),
            at_donors: Arc::default(),
            put: AtomicU64::new(0),
            got: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        });
        let (wake, woken) = mpsc::sync_channel(1);
        let of_thread = Arc::clone(&shared);
        // Handlers of the program run on threads of the program.
        let masked = masking::mask();
        std::thread::Builder::new()
            .name("mapwire-donors".to_owned())
            .spawn(move || {
                masking::mask_for_good();
                of_thread.keep_donors(&woken);
            })?;
        drop(masked);
        Ok(Self { shared, wake })
    }
}

impl Shared {
    fn session(&self) -> Option<Arc<Meeting>> {
        let session = self.session.read().unwrap_or_else(PoisonError::into_inner);
        session.clone()
    }

    fn versions(&self, region: u32) -> Option<Arc<Versions>> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.get(region as usize)?.clone()
    }

    fn changes(&self) -> RwLockReadGuard<'_, ()> {
        self.is_sealed.store(false, Ordering::Relaxed);
        self.changing.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is a forked child, which has no node.
    fn is_in_child(&self) -> bool {
        let is_sealed = self.is_sealed.load(Ordering::Relaxed);
        let is_in_child = is_sealed && std::process::id() != self.process;
        if is_sealed && !is_in_child {
            self.is_sealed.store(false, Ordering::Relaxed);
        }
        is_in_child
    }

    fn discards(&self) -> MutexGuard<'_, VecDeque<(PageName, u32)>> {
        self.discards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether donors are to have copies of a page apart from the disk.
    fn spares_disk(&self) -> bool {
        self.lenders.copies > 1
    }

    /// Whether donors are left alone, since they did not answer in time.
    fn are_donors_slow(&self) -> bool {
        now_ns() < self.slow_until_ns.load(Ordering::Relaxed)
    }

    fn note_slow(&self) {
        let until_ns = now_ns() + PAUSE.as_nanos() as u64;
        self.slow_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// What the thread does: meets donors, tells them what is wanted no more, and brings pages to the disk when donors die.
    fn keep_donors(&self, woken: &Receiver<()>) {
        if woken.recv().is_err() {
            return;
        }
        let mut has_warned = false;
        let mut living = 0;
        let mut retired = Vec::new();
        loop {
            let pause = match self.session() {
                None => match self.lenders.meet() {
                    Ok(Some(session)) => {
                        has_warned = false;
                        living = session.donors();
                        let incarnation = now_ns();
                        let meeting = Meeting {
                            session,
                            incarnation,
                        };
                        *self.session.write().unwrap_or_else(PoisonError::into_inner) =
                            Some(Arc::new(meeting));
                        LOOK
                    }
                    not => {
                        if !std::mem::replace(&mut has_warned, true) {
                            (self.report)(&why(&not));
                        }
                        PAUSE
                    }
                },
                Some(meeting) => {
                    let now = meeting.session.living();
                    let is_safe = now >= living || !self.spares_disk() || self.secure_all(&meeting);
                    if is_safe {
                        living = now;
                        has_warned = false;
                    } else if !std::mem::replace(&mut has_warned, true) {
                        (self.report)(
                            "a donor has died, and pages that one other has cannot be written to the disk; it is tried again",
                        );
                    }
                    if meeting.session.is_over() {
                        retired.push(self.forget_donors());
                    }
                    self.tell_discards(&meeting);
                    LOOK
                }
            };
            // Here, and never in a thread that serves faults: the end of a node waits for its threads.
            retired.retain(|old: &Option<Arc<Meeting>>| {
                old.as_ref().is_some_and(|old| Arc::strong_count(old) > 1)
            });
            match woken.recv_timeout(pause) {
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// No donor is left, and nothing that they had. The session, which others may still use.
    fn forget_donors(&self) -> Option<Arc<Meeting>> {
        let _alone = self
            .changing
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let session = self.session.write();
        let old = session.unwrap_or_else(PoisonError::into_inner).take();
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions
            .iter()
            .flatten()
            .for_each(|versions| versions.clear());
        self.discards().clear();
        old
    }

    /// Tells donors what is wanted no more, for a moment.
    fn tell_discards(&self, meeting: &Meeting) {
        let ends = Instant::now() + LOOK;
        while Instant::now() < ends {
            let next = self.discards().pop_front();
            let Some((name, version)) = next else { return };
            if !meeting.session.discard(name, version) {
                self.discards().push_front((name, version));
                std::thread::sleep(BUSY);
            }
        }
    }

    /// Brings to the disk what only donors have. False where a page could not be written.
    fn secure_all(&self, meeting: &Meeting) -> bool {
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
                is_whole &= self.secure(meeting, region, versions, batch);
            }
        }
        is_whole
    }

    fn secure(&self, meeting: &Meeting, region: u32, versions: &Versions, pages: &[u64]) -> bool {
        let _alone = self
            .changing
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if self.is_sealed.load(Ordering::Relaxed) {
            return false;
        }
        let still = pages.iter().filter_map(|&page| {
            let known = versions.get(page).filter(|known| !known.is_on_disk)?;
            Some((PageId { region, page }, known))
        });
        let still: Vec<(PageId, Known)> = still.collect();
        let mut buffers = Pages::new(still.len());
        let mut gets: Vec<Get<'_>> = still
            .iter()
            .zip(buffers.iter_mut())
            .map(|((id, known), bytes)| Get {
                name: meeting.name(*id),
                version: known.version,
                bytes,
                takes: false,
                patience: None,
            })
            .collect();
        let (came, _) = meeting.session.get(&mut gets);
        drop(gets);
        let mut is_whole = true;
        for (((id, known), bytes), came) in still.iter().zip(buffers.iter()).zip(came) {
            if !came {
                // It is nowhere: what the program still has in RAM is stored again.
                versions.lose(id.page);
                continue;
            }
            match self.disk.store(&[OutgoingPage { id: *id, bytes }]) {
                Ok(()) => {
                    let is_on_disk = true;
                    versions.set(
                        id.page,
                        Known {
                            is_on_disk,
                            ..*known
                        },
                    );
                }
                Err(_) => is_whole = false,
            }
        }
        is_whole
    }

    /// Puts pages at donors; which of them are at as many as are asked for.
    fn put(&self, meeting: &Meeting, pages: &[OutgoingPage<'_>]) -> Vec<bool> {
        let versions: Vec<u32> = pages
            .iter()
            .map(|_| self.next_version.fetch_add(1, Ordering::Relaxed))
            .collect();
        if versions.last().is_none_or(|&last| last >= MAX_VERSION) {
            // After 2^31 pages: the disk serves alone.
            self.next_version.store(MAX_VERSION, Ordering::Relaxed);
            return vec![false; pages.len()];
        }
        let puts = pages.iter().zip(&versions).map(|(page, &version)| Put {
            name: meeting.name(page.id),
            version,
            bytes: page.bytes,
        });
        let puts: Vec<Put<'_>> = puts.collect();
        let copies = self.lenders.copies;
        let on_disk = !self.spares_disk();
        let (stored, is_over) = meeting.session.put(&puts, copies, on_disk, PATIENCE);
        if !is_over {
            self.note_slow();
        }
        let stored = pages.iter().zip(versions).zip(stored);
        stored
            .map(|((page, version), stored)| {
                self.put.fetch_add(u64::from(stored > 0), Ordering::Relaxed);
                if stored > 0
                    && let Some(of_region) = self.versions(page.id.region)
                {
                    let is_on_disk = !self.spares_disk() || stored < copies;
                    of_region.set(
                        page.id.page,
                        Known {
                            version,
                            is_on_disk,
                        },
                    );
                } else {
                    // An older version may be there, or this one may still get there.
                    let name = meeting.name(page.id);
                    self.discards().push_back((name, version));
                }
                stored >= copies
            })
            .collect()
    }

    /// Fetches from donors; which pages came.
    fn get(&self, pages: &mut [IncomingPage<'_>], takes: bool) -> Vec<bool> {
        let Some(meeting) = self.session() else {
            return vec![false; pages.len()];
        };
        let are_slow = self.are_donors_slow();
        let mut came = vec![false; pages.len()];
        let mut gets = Vec::with_capacity(pages.len());
        let mut places = Vec::with_capacity(pages.len());
        for (place, page) in pages.iter_mut().enumerate() {
            let versions = self.versions(page.id.region);
            let known = versions.and_then(|versions| versions.get(page.id.page));
            if let Some(known) = known.filter(|known| !(are_slow && known.is_on_disk)) {
                places.push(place);
                gets.push(Get {
                    name: meeting.name(page.id),
                    version: known.version,
                    bytes: &mut *page.bytes,
                    takes,
                    patience: known.is_on_disk.then_some(PATIENCE),
                });
            }
        }
        let (got, is_over) = meeting.session.get(&mut gets);
        if !is_over {
            self.note_slow();
        }
        let hits = got.iter().filter(|&&got| got).count();
        self.got.fetch_add(hits as u64, Ordering::Relaxed);
        let misses = (got.len() - hits) as u64;
        self.missed.fetch_add(misses, Ordering::Relaxed);
        for (place, got) in places.into_iter().zip(got) {
            came[place] = got;
        }
        came
    }

    /// Forgets what donors have of pages.
    fn forget(&self, region: u32, first: u64, pages: u64) {
        let Some(versions) = self.versions(region) else {
            return;
        };
        let meeting = self.session();
        versions.take_all(first, pages, |page, known| {
            if let Some(meeting) = &meeting {
                let name = meeting.name(PageId { region, page });
                self.discards().push_back((name, known.version));
            }
        });
    }
}

impl BackingStore for DonorStore {
    fn add_region(&self, region: u32, pages: u64) -> std::result::Result<(), StoreError> {
        self.shared.disk.add_region(region, pages)?;
        let regions = self.shared.regions.write();
        let mut regions = regions.unwrap_or_else(PoisonError::into_inner);
        let index = region as usize;
        if regions.len() <= index {
            regions.resize(index + 1, None);
        }
        regions[index] = Some(Arc::new(Versions::new(
            pages,
            Arc::clone(&self.shared.at_donors),
        )));
        Ok(())
    }

    fn remove_region(&self, region: u32) {
        let _changes = self.shared.changes();
        self.shared.forget(region, 0, u64::MAX);
        let regions = self.shared.regions.write();
        let mut regions = regions.unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = regions.get_mut(region as usize) {
            *place = None;
        }
        self.shared.disk.remove_region(region);
    }

    fn store(&self, pages: &[OutgoingPage<'_>]) -> std::result::Result<(), StoreError> {
        let shared = &self.shared;
        let _changes = shared.changes();
        let meeting = shared.session().filter(|_| !shared.are_donors_slow());
        let Some(meeting) = meeting else {
            // The first page that is stored has the thread look for donors.
            let _ = self.wake.try_send(());
            for page in pages {
                shared.forget(page.id.region, page.id.page, 1);
            }
            return shared.disk.store(pages);
        };
        for page in pages {
            // What donors have is old from here on: the new version takes its place.
            if let Some(versions) = shared.versions(page.id.region) {
                versions.take(page.id.page);
            }
        }
        if !shared.spares_disk() {
            shared.disk.store(pages)?;
            shared.put(&meeting, pages);
            return Ok(());
        }
        let stored = shared.put(&meeting, pages);
        let rest = pages.iter().zip(stored).filter(|(_, stored)| !stored);
        let rest: Vec<OutgoingPage<'_>> = rest.map(|(page, _)| *page).collect();
        match rest.is_empty() {
            true => Ok(()),
            false => shared.disk.store(&rest),
        }
    }

    fn fetch(&self, pages: &mut [IncomingPage<'_>]) -> std::result::Result<(), StoreError> {
        if self.shared.is_in_child() {
            return self.shared.disk.fetch(pages);
        }
        let is_lost = |page: &IncomingPage<'_>| {
            let versions = self.shared.versions(page.id.region);
            versions.is_some_and(|versions| versions.is_lost(page.id.page))
        };
        if pages.iter().any(is_lost) {
            return Err(GONE);
        }
        let came = self.shared.get(pages, false);
        let mut rest: Vec<IncomingPage<'_>> = pages
            .iter_mut()
            .zip(came)
            .filter(|(_, came)| !came)
            .map(|(page, _)| IncomingPage {
                id: page.id,
                bytes: &mut *page.bytes,
            })
            .collect();
        match rest.is_empty() {
            true => Ok(()),
            false => self.shared.disk.fetch(&mut rest),
        }
    }

    fn fetch_other(
        &self,
        page: &mut IncomingPage<'_>,
        attempt: u32,
    ) -> std::result::Result<(), StoreError> {
        let shared = &self.shared;
        shared.missed.fetch_add(1, Ordering::Relaxed);
        let _changes = shared.changes();
        let Some(versions) = shared.versions(page.id.region) else {
            return Err(StoreError::Corrupt(page.id));
        };
        let Some(known) = versions.get(page.id.page) else {
            return Err(StoreError::Corrupt(page.id));
        };
        if known.is_on_disk && attempt == 0 {
            if !shared.spares_disk() {
                shared.forget(page.id.region, page.id.page, 1);
            }
            return shared.disk.fetch(std::slice::from_mut(page));
        }
        // The donor that gave it first was wrong: so it gives it away for good, and then the other one does. The disk has what came,
        // since donors have it no more.
        let came = shared.get(std::slice::from_mut(page), true);
        if came != [true] || attempt > 2 {
            return Err(StoreError::Corrupt(page.id));
        }
        let (id, bytes) = (page.id, &*page.bytes);
        shared.disk.store(&[OutgoingPage { id, bytes }])?;
        let is_on_disk = true;
        versions.set(
            page.id.page,
            Known {
                is_on_disk,
                ..known
            },
        );
        Ok(())
    }

    fn holds(&self, id: PageId) -> bool {
        let versions = self.shared.versions(id.region);
        versions.is_none_or(|versions| !versions.is_lost(id.page))
    }

    fn discard(&self, region: u32, first: u64, pages: u64) {
        let _changes = self.shared.changes();
        self.shared.forget(region, first, pages);
        self.shared.disk.discard(region, first, pages);
    }

    fn remote(&self) -> RemotePages {
        let shared = &self.shared;
        RemotePages {
            pages: shared.at_donors.load(Ordering::Relaxed),
            put: shared.put.load(Ordering::Relaxed),
            got: shared.got.load(Ordering::Relaxed),
            missed: shared.missed.load(Ordering::Relaxed),
        }
    }

    fn seal(&self) -> std::result::Result<(), StoreError> {
        let shared = &self.shared;
        if let Some(meeting) = shared.session()
            && shared.spares_disk()
            && !shared.secure_all(&meeting)
        {
            return Err(StoreError::Other(
                "pages that only donors have cannot be written to the disk, which a forked child reads: free space in its folder",
            ));
        }
        let _alone = shared
            .changing
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        shared.disk.seal()?;
        shared.is_sealed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn of_child(&self) -> std::result::Result<Box<dyn BackingStore>, StoreError> {
        self.shared.disk.of_child()
    }
}

/// Why there are no donors.
fn why(not: &Result<Option<Session>>) -> String {
    match not {
        Err(error) => format!("no donors: {error}; the disk serves alone"),
        Ok(_) => "there are fewer donors than copies; the disk serves alone".to_owned(),
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
