//! Where pages go, and where they are looked for.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::frames::Ended;
use super::page::{Elsewhere, Known, MAX_VERSION, PageWord};
use super::transfer::{self, DonorPage, Member};
use crate::name::PageName;

/// Why a page cannot be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The donors that had it have died.
    Gone,
    /// All copies have wrong bytes.
    Corrupt,
}

/// What a client has around it: a session with donors, a disk, and a word for each page.
pub trait Surroundings {
    /// A page of the program.
    type Id: Copy;
    /// Pages of the program that follow each other.
    type Range;
    /// Why a page cannot be stored or fetched.
    type Error;
    /// A session with donors.
    type Session: Member<Id = Self::Id>;

    /// The time, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// The session, if donors have been met.
    fn session(&self) -> Option<impl Deref<Target = Self::Session>>;

    /// There is no session any more.
    fn end_session(&self);

    /// What is known of a page.
    fn word(&self, id: Self::Id) -> PageWord;

    /// Changes what is known of a page.
    fn set_word(&self, id: Self::Id, word: PageWord);

    /// Calls `found` with each page, or each of a range, of which something is known.
    fn each(&self, of: Option<&Self::Range>, found: impl FnMut(Self::Id));

    /// Writes pages to the disk.
    ///
    /// # Errors
    /// Any may or may not be written.
    fn write(&self, pages: &[(Self::Id, &[u8])]) -> Result<(), Self::Error>;

    /// Reads pages from the disk.
    ///
    /// # Errors
    /// The bytes of all of them are undefined.
    fn read(&self, pages: &mut [(Self::Id, &mut [u8])]) -> Result<(), Self::Error>;

    /// The error that says so.
    fn error(&self, id: Self::Id, why: Loss) -> Self::Error;

    /// Calls `change` while nothing else changes what the disk or donors have. `None`: the disk is to be left as it is for now.
    fn alone<R>(&self, change: impl FnOnce() -> R) -> Option<R>;

    /// Calls `change` while nothing is changed [alone](Self::alone). It may run beside others of its kind.
    fn beside<R>(&self, change: impl FnOnce() -> R) -> R;

    /// Discards that donors have not been told of yet, under a lock.
    fn discards<R>(&self, look: impl FnOnce(&mut VecDeque<(PageName, u32)>) -> R) -> R;
}

/// How a client deals with donors.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// Donors that are to have each page: 1, and the disk has it as well; or 2, and the disk has it only where donors do not.
    pub copies: u8,
    /// How long a page is waited for that the disk has as well, or can have.
    pub patience_ns: u64,
    /// How long donors are left alone that did not answer in time.
    pub pause_ns: u64,
    /// How long donors are offered nothing that had no room.
    pub full_ns: u64,
}

/// What a client has put and got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Pages put at donors.
    pub put: u64,
    /// Pages that came from donors.
    pub got: u64,
    /// Pages that did not, or with wrong bytes.
    pub missed: u64,
}

/// Decides where the pages of a program go, and where they are looked for.
///
/// Each page that was stored is at a donor and on the disk, or at two donors. Where donors are missing the disk serves alone. Nobody stores
/// or fetches a page while another thread does with the same page.
#[derive(Debug)]
pub struct Client {
    pub(super) config: ClientConfig,
    next_version: AtomicU32,
    slow_until_ns: AtomicU64,
    full_until_ns: AtomicU64,
    put: AtomicU64,
    got: AtomicU64,
    missed: AtomicU64,
}

impl Client {
    /// One that has stored nothing yet.
    #[must_use]
    pub const fn new(config: ClientConfig) -> Self {
        Self {
            config,
            next_version: AtomicU32::new(1),
            slow_until_ns: AtomicU64::new(0),
            full_until_ns: AtomicU64::new(0),
            put: AtomicU64::new(0),
            got: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        }
    }

    /// What was put and got so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let [put, got, missed] = [&self.put, &self.got, &self.missed].map(|count| count.load(Ordering::Relaxed));
        Traffic { put, got, missed }
    }

    /// Whether donors are to have copies of a page apart from the disk.
    #[must_use]
    pub const fn spares_disk(&self) -> bool {
        self.config.copies > 1
    }

    /// Whether donors are left alone, since they did not answer in time.
    fn are_donors_slow(&self, now_ns: u64) -> bool {
        now_ns < self.slow_until_ns.load(Ordering::Relaxed)
    }

    /// Leaves donors alone for a while that did not answer in time; whether they did.
    pub(super) fn finished<S: Surroundings>(&self, around: &S, is_over: bool) -> bool {
        if !is_over {
            // They may come back, and with them what they have.
            self.slow_until_ns.store(around.now_ns() + self.config.pause_ns, Ordering::Relaxed);
        }
        is_over
    }

    /// Stores pages, each in the place of an older version.
    ///
    /// # Errors
    /// As [`Surroundings::write`].
    pub fn store<S: Surroundings>(&self, around: &S, pages: &[(S::Id, &[u8])]) -> Result<(), S::Error> {
        let session = around.session().filter(|_| !self.are_donors_slow(around.now_ns()));
        let Some(session) = session else {
            pages.iter().for_each(|&(id, _)| self.forget(around, id));
            return self.note_written(around, pages, around.write(pages));
        };
        for &(id, _) in pages {
            // What donors have is old from here on: the new version takes its place.
            forget_word(around, id);
        }
        if !self.spares_disk() {
            let mut written = Ok(());
            self.put(around, &*session, pages, 1, || written = around.write(pages));
            return self.note_written(around, pages, written);
        }
        let stored = self.put(around, &*session, pages, 2, || {});
        let rest: Vec<_> = pages.iter().zip(stored).filter(|(_, stored)| !stored).map(|(page, _)| *page).collect();
        if rest.is_empty() { Ok(()) } else { self.note_written(around, &rest, around.write(&rest)) }
    }

    /// Where the disk has not taken pages, it has an older version, or none: donors' copies count for nothing without it, and nobody has the
    /// pages but the program.
    fn note_written<S: Surroundings>(
        &self,
        around: &S,
        pages: &[(S::Id, &[u8])],
        written: Result<(), S::Error>,
    ) -> Result<(), S::Error> {
        if written.is_err() {
            for &(id, _) in pages {
                self.forget(around, id);
                around.set_word(id, PageWord::LOST);
            }
        }
        written
    }

    /// Puts pages at so many donors, and does something else `meanwhile`; which of them are at as many. With one, the disk must have them as
    /// well.
    fn put<S: Surroundings>(
        &self,
        around: &S,
        session: &S::Session,
        pages: &[(S::Id, &[u8])],
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
        let patience_ns = Some(self.config.patience_ns);
        let put = |(&(id, bytes), version)| DonorPage::new(id, version, bytes, patience_ns);
        let mut puts: Vec<_> = pages.iter().zip(versions).map(put).collect();
        // The disk has what fewer donors have.
        let on_disk = copies < 2;
        self.finished(around, transfer::put(session, &mut puts, copies, on_disk, meanwhile));
        let noted = puts.iter().map(|&DonorPage { id, version, ended, .. }| {
            let Some(Ended::Put(stored)) = ended else {
                // An older version may be there, or this one may still get there.
                around.discards(|discards| discards.push_back((session.name(id), version)));
                return false;
            };
            self.put.fetch_add(u64::from(stored.copies > 0), Ordering::Relaxed);
            let is_on_disk = on_disk || stored.copies < copies;
            around.set_word(id, PageWord::of(Known { version, is_on_disk, place: Some(stored.place) }));
            stored.copies >= copies
        });
        noted.collect()
    }

    /// Whether donors may take a page that only the disk has.
    pub fn wants<S: Surroundings>(&self, around: &S, id: S::Id) -> bool {
        let now_ns = around.now_ns();
        let is_nowhere_else = around.word(id) == PageWord::NONE && around.session().is_some();
        is_nowhere_else && !self.are_donors_slow(now_ns) && now_ns >= self.full_until_ns.load(Ordering::Relaxed)
    }

    /// Puts pages at donors that the disk has.
    pub fn offer<S: Surroundings>(&self, around: &S, pages: &[(S::Id, &[u8])]) {
        let Some(session) = around.session() else { return };
        if self.put(around, &*session, pages, 1, || {}).contains(&false) {
            self.full_until_ns.store(around.now_ns() + self.config.full_ns, Ordering::Relaxed);
        }
    }

    /// Fetches pages that were stored. Some may have wrong bytes: [`fetch_other`](Self::fetch_other) gets them elsewhere.
    ///
    /// # Errors
    /// One of them cannot be fetched.
    pub fn fetch<S: Surroundings>(&self, around: &S, pages: &mut [(S::Id, &mut [u8])]) -> Result<(), S::Error> {
        if let Some((id, _)) = pages.iter().find(|(id, _)| around.word(*id) == PageWord::LOST) {
            return Err(around.error(*id, Loss::Gone));
        }
        let mut rest = Vec::new();
        for (id, bytes) in pages {
            if !self.load(around, *id, bytes) {
                rest.push((*id, &mut **bytes));
            }
        }
        let came = self.get(around, &mut rest, false);
        let mut on_disk = Vec::new();
        for ((id, bytes), _) in rest.into_iter().zip(came).filter(|(_, came)| !came) {
            match around.word(id).known() {
                Some(known) if !known.is_on_disk => {
                    around.beside(|| self.look_elsewhere(around, (id, bytes), 0, Loss::Gone))?;
                }
                _ => on_disk.push((id, bytes)),
            }
        }
        if on_disk.is_empty() { Ok(()) } else { around.read(&mut on_disk) }
    }

    /// Reads a page in memory of this host, if it lies there. It has wrong bytes where a donor has moved it.
    fn load<S: Surroundings>(&self, around: &S, id: S::Id, bytes: &mut [u8]) -> bool {
        let place = around.word(id).known().and_then(|known| known.place);
        let is_loaded = place.zip(around.session()).is_some_and(|(place, session)| session.load(place, bytes));
        self.got.fetch_add(u64::from(is_loaded), Ordering::Relaxed);
        is_loaded
    }

    /// Asks donors for pages; which came.
    fn get<S: Surroundings>(&self, around: &S, pages: &mut [(S::Id, &mut [u8])], takes: bool) -> Vec<bool> {
        let mut came = vec![false; pages.len()];
        let Some(session) = around.session() else { return came };
        let are_slow = self.are_donors_slow(around.now_ns());
        let mut gets = Vec::with_capacity(pages.len());
        let mut positions = Vec::with_capacity(pages.len());
        for (position, (id, bytes)) in pages.iter_mut().enumerate() {
            let known = around.word(*id).known();
            if let Some(known) = known.filter(|known| !(are_slow && known.is_on_disk)) {
                positions.push(position);
                let patience_ns = known.is_on_disk.then_some(self.config.patience_ns);
                gets.push(DonorPage::new(*id, known.version, &mut **bytes, patience_ns));
            }
        }
        self.finished(around, transfer::get(&*session, &mut gets, takes));
        let hits = gets.iter().filter(|get| get.has_come()).count();
        self.got.fetch_add(hits as u64, Ordering::Relaxed);
        self.missed.fetch_add((gets.len() - hits) as u64, Ordering::Relaxed);
        for (position, get) in positions.into_iter().zip(&gets) {
            came[position] = get.has_come();
        }
        came
    }

    /// Fetches a page elsewhere that came with wrong bytes, the `attempt`th time, from 0.
    ///
    /// # Errors
    /// It is nowhere else.
    pub fn fetch_other<S: Surroundings>(
        &self,
        around: &S,
        id: S::Id,
        bytes: &mut [u8],
        attempt: u32,
    ) -> Result<(), S::Error> {
        self.missed.fetch_add(1, Ordering::Relaxed);
        around.beside(|| self.look_elsewhere(around, (id, bytes), attempt, Loss::Corrupt))
    }

    /// Looks for a page wherever it may be besides. `why` is the error if it is nowhere.
    fn look_elsewhere<S: Surroundings>(
        &self,
        around: &S,
        (id, bytes): (S::Id, &mut [u8]),
        mut attempt: u32,
        why: Loss,
    ) -> Result<(), S::Error> {
        loop {
            let word = around.word(id);
            match word.elsewhere(attempt) {
                Elsewhere::Donor => {
                    change(around, id, |known| Known { place: None, ..known });
                    if self.get(around, &mut [(id, &mut *bytes)], false) == [true] {
                        return Ok(());
                    }
                }
                Elsewhere::Disk => {
                    if !self.spares_disk() {
                        self.forget(around, id);
                    }
                    return around.read(&mut [(id, bytes)]);
                }
                Elsewhere::NextDonor => {
                    // What the disk may have is wrong: donors are waited for as if it had nothing.
                    change(around, id, |known| Known { is_on_disk: false, ..known });
                    if self.get(around, &mut [(id, &mut *bytes)], true) == [true] {
                        // Where the disk takes nothing, nobody else may have what came: it is not kept, and no error hides it.
                        let is_on_disk = around.write(&[(id, bytes)]).is_ok();
                        change(around, id, |known| Known { is_on_disk, ..known });
                        return Ok(());
                    }
                    // Another donor is asked the next time.
                    attempt += 1;
                }
                Elsewhere::Nowhere => return Err(around.error(id, why)),
            }
        }
    }

    /// Whether a page that was stored can still be fetched, as far as is known.
    pub fn holds<S: Surroundings>(&self, around: &S, id: S::Id) -> bool {
        around.word(id).is_kept()
    }

    /// Forgets what donors have of pages.
    pub fn forget_all<S: Surroundings>(&self, around: &S, pages: &S::Range) {
        around.each(Some(pages), |id| self.forget(around, id));
    }

    fn forget<S: Surroundings>(&self, around: &S, id: S::Id) {
        if let Some(known) = forget_word(around, id)
            && let Some(session) = around.session()
        {
            around.discards(|discards| discards.push_back((session.name(id), known.version)));
        }
    }
}

/// Donors have nothing of a page that anybody wants; what they had.
fn forget_word<S: Surroundings>(around: &S, id: S::Id) -> Option<Known> {
    let word = around.word(id);
    if word != PageWord::NONE {
        around.set_word(id, PageWord::NONE);
    }
    word.known()
}

/// Changes what is known of a page that donors have.
pub(super) fn change<S: Surroundings>(around: &S, id: S::Id, change: impl FnOnce(Known) -> Known) {
    if let Some(known) = around.word(id).known() {
        around.set_word(id, PageWord::of(change(known)));
    }
}
