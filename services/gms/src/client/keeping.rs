//! What is done when donors die, so that no page is lost that another donor or the disk can have.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::copies::{Client, Surroundings, change};
use super::page::{Known, PageWord};
use super::pages::Pages;
use super::transfer::{self, DonorPage, Member};

/// How long discards are sent in a row.
const TELLING_NS: u64 = 250_000_000;

/// How long to wait when too many discards are under way.
const BUSY_NS: u64 = 200_000;

/// How often a page is asked for that does not come as it was put: donors that have it take turns.
const TURNS: usize = 4;

/// Pages that are brought to the disk at a time.
const BATCH: usize = 32;

impl Client {
    /// Looks after what donors have, of which `living` lived at the last look. False: one has died, and pages that only one other has are not
    /// on the disk. It is to be tried again.
    pub fn tend<S: Surroundings>(&self, around: &S, session: &S::Session, living: &mut usize) -> bool {
        let now = living_donors(session);
        let is_safe = now >= *living || !self.spares_disk() || self.secure_all(around, session);
        if is_safe {
            *living = now;
        }
        is_safe
    }

    /// Brings to the disk what only donors have. False where a page could not be written, or a donor does not answer: it is to be tried
    /// again.
    pub fn secure_all<S: Surroundings>(&self, around: &S, session: &S::Session) -> bool {
        if transfer::are_gets_late(session) {
            // Each page that is asked for again would take another frame for as long.
            return false;
        }
        let mut ids = Vec::new();
        around.each(None, |id| ids.extend(not_on_disk(around, id).map(|_| id)));
        let mut is_whole = true;
        for batch in ids.chunks(BATCH) {
            let Some(is_written) = self.secure(around, session, batch) else { return false };
            is_whole &= is_written;
        }
        is_whole
    }

    /// Whether all these pages could be written; `None`: a donor does not answer.
    fn secure<S: Surroundings>(&self, around: &S, session: &S::Session, ids: &[S::Id]) -> Option<bool> {
        let secured = around.alone(|| {
            let still: Vec<_> = ids.iter().filter_map(|&id| Some((id, not_on_disk(around, id)?))).collect();
            let mut buffers = Pages::new(still.len());
            let patience_ns = Some(self.config.patience_ns);
            let wanted = still.iter().zip(buffers.iter_mut());
            let mut gets: Vec<_> =
                wanted.map(|((id, known), bytes)| DonorPage::new(*id, known.version, bytes, patience_ns)).collect();
            let mut is_over = self.finished(around, transfer::get(session, &mut gets, false));
            for get in &mut gets {
                for _ in 1..TURNS {
                    if is_over && !get.has_come() {
                        is_over = self.finished(around, transfer::get(session, core::slice::from_mut(get), false));
                    }
                }
            }
            let came: Vec<bool> = gets.iter().map(DonorPage::has_come).collect();
            let mut is_whole = true;
            for ((&(id, known), bytes), came) in still.iter().zip(buffers.iter()).zip(came) {
                if came {
                    let is_written = around.write(&[(id, bytes)]).is_ok();
                    if is_written {
                        change(around, id, |known| Known { is_on_disk: true, ..known });
                    }
                    is_whole &= is_written;
                } else if is_over && !salvage(around, session, id, known) {
                    // It is nowhere: what the program still has in RAM is stored again.
                    around.set_word(id, around.word(id).without_donors());
                }
            }
            is_over.then_some(is_whole)
        });
        secured.unwrap_or(Some(false))
    }

    /// No donor is left, and nothing that they had, but for what can be salvaged. Others may still use the session. False: the disk is to be
    /// left as it is for now.
    pub fn forget_donors<S: Surroundings>(&self, around: &S) -> bool {
        let forgotten = around.alone(|| {
            if let Some(session) = around.session() {
                around.each(None, |id| {
                    if let Some(known) = not_on_disk(around, id) {
                        salvage(around, &*session, id, known);
                    }
                });
            }
            around.end_session();
            around.each(None, |id| around.set_word(id, around.word(id).without_donors()));
            around.discards(VecDeque::clear);
        });
        forgotten.is_some()
    }

    /// Sends pending discards, for 250 ms at most.
    pub fn tell_discards<S: Surroundings>(&self, around: &S, session: &S::Session) {
        let end_ns = session.now_ns() + TELLING_NS;
        while session.now_ns() < end_ns {
            let Some((name, version)) = around.discards(VecDeque::pop_front) else { return };
            if !transfer::discard(session, name, version) {
                around.discards(|discards| discards.push_front((name, version)));
                session.wait(BUSY_NS, |_| false);
            }
        }
    }
}

/// Donors that are members now.
pub(crate) fn living_donors<M: Member>(session: &M) -> usize {
    let members = session.call(|gms, _| gms.map().members().len());
    members.unwrap_or(1).saturating_sub(1)
}

/// What donors have of a page that the disk does not have.
fn not_on_disk<S: Surroundings>(around: &S, id: S::Id) -> Option<Known> {
    around.word(id).known().filter(|known| !known.is_on_disk)
}

/// Brings a page to the disk from the memory of a donor of this host, which stays mapped when the donor dies. The bytes may be another
/// page's by now: the checksum tells when the page is fetched, and a copy in RAM is stored again.
fn salvage<S: Surroundings>(around: &S, session: &S::Session, id: S::Id, known: Known) -> bool {
    let mut page = Pages::new(1);
    let Some(bytes) = page.iter_mut().next() else { return false };
    let is_loaded = known.place.is_some_and(|place| session.load(place, bytes));
    let is_written = is_loaded && around.write(&[(id, bytes)]).is_ok();
    if is_written {
        around.set_word(id, PageWord::SALVAGED);
    }
    is_written
}
