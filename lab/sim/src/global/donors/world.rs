//! What a client has around it, in virtual time: to wait is to let other things happen.

use core::ops::Deref;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;

use mapwire_gms::{Client, FRAME_BYTES, Frames, Gms, Known, Loss, Member, PageName, PageWord, Place, Surroundings};
use mapwire_wire::NodeId;

use super::super::{FRAMES_ADDRESS, PROCESS};
use super::{CLIENT, Donors, Own, WAKE, name_of};
use crate::canary::Canary;
use crate::checks::global_memory as check;
use crate::checks::liveness;
use crate::cluster::{Cluster, Observer, Step};
use crate::run::Programs;

/// How long a wait is at a time.
const PIECE_NS: u64 = 5_000_000;

/// Why a page of the program could not be stored or fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The disk takes nothing.
    Full,
    /// The disk does not have it.
    Missing,
    Lost(Loss),
}

/// A client while it does something.
pub(super) struct World<'a> {
    own: &'a Own,
    all: RefCell<(&'a mut Cluster, &'a mut Donors)>,
}

fn address_of(frame: u32) -> u64 {
    FRAMES_ADDRESS + u64::from(frame) * FRAME_BYTES
}

impl<'a> World<'a> {
    pub(super) fn new(own: &'a Own, cluster: &'a mut Cluster, donors: &'a mut Donors) -> Self {
        Self { own, all: RefCell::new((cluster, donors)) }
    }

    /// What else there is. Nothing else of the client may be asked meanwhile.
    pub(super) fn with<R>(&self, look: impl FnOnce(&mut Cluster, &mut Donors) -> R) -> R {
        let (cluster, donors) = &mut *self.all.borrow_mut();
        look(cluster, donors)
    }

    pub(super) fn client(&self) -> &Client {
        &self.own.client
    }

    pub(super) fn forget_on_disk(&self, id: u64) {
        self.own.disk.borrow_mut().remove(&id);
    }

    pub(super) fn has(&self, canary: Canary) -> bool {
        self.all.borrow().1.canary == Some(canary)
    }

    /// The bytes of the page as it was stored.
    pub(super) fn expected(&self, id: u64) -> Vec<u8> {
        let mut bytes = vec![0; FRAME_BYTES as usize];
        let written = self.all.borrow().1.pages[id as usize].written;
        check::write(name_of(id), written, &mut bytes);
        bytes
    }

    fn memory(&self, at: NodeId, frame: u32, bytes: &mut [u8]) {
        self.with(|cluster, _| cluster.parts(at).1.read(PROCESS.0, address_of(frame), bytes));
    }

    pub(super) fn is_near(&self, place: Place) -> bool {
        place.node.0 < self.all.borrow().1.shape.near
    }

    /// A page counts as lost: its bytes do not lie in memory of this host.
    fn check_lost(&self, id: u64, before: Option<Known>) {
        let Some(place) = before.and_then(|known| known.place).filter(|&place| self.is_near(place)) else { return };
        let mut bytes = vec![0; FRAME_BYTES as usize];
        self.memory(place.node, place.frame, &mut bytes);
        if bytes == self.expected(id) {
            let text =
                format!("page {id} is given up, and lies in frame {} of {} on this host", place.frame, place.node);
            self.with(|cluster, donors| donors.broke(cluster.now_ns(), "pages", text));
        }
    }
}

impl Member for World<'_> {
    type Id = u64;

    fn name(&self, id: u64) -> PageName {
        name_of(id)
    }

    fn now_ns(&self) -> u64 {
        self.with(|cluster, _| cluster.now_ns())
    }

    fn call<R>(&self, call: impl FnOnce(&mut Gms, u64) -> R) -> Option<R> {
        self.with(|cluster, donors| if donors.is_stopped() { None } else { donors.call(cluster, CLIENT, call) })
    }

    fn wait(&self, ns: u64, mut check: impl FnMut(&mut Gms) -> bool) -> bool {
        let until_ns = Member::now_ns(self) + ns.min(PIECE_NS);
        self.with(|cluster, _| cluster.schedule(until_ns, WAKE));
        let mut has_news = true;
        loop {
            let is_stopped = self.with(|_, donors| donors.is_stopped());
            if is_stopped || has_news && self.call(|gms, _| check(gms)) == Some(true) {
                return true;
            }
            if Member::now_ns(self) >= until_ns {
                return false;
            }
            has_news = self.with(|cluster, donors| {
                match cluster.step(donors) {
                    Step::Program(number) => _ = donors.event(cluster, number),
                    Step::Interrupted => donors.is_interrupted = true,
                    Step::Inside | Step::Rest => {}
                }
                donors.follow_up(cluster);
                let events = cluster.totals().events;
                if events > donors.most_events {
                    donors.violation.get_or_insert((cluster.now_ns(), liveness::never_rests(cluster.now_ns(), events)));
                }
                donors.gms(cluster, CLIENT).is_some_and(Gms::has_outcomes)
            });
        }
    }

    fn frames<R>(&self, look: impl FnOnce(&mut Frames) -> R) -> R {
        look(&mut self.own.frames.borrow_mut())
    }

    fn take_frames(&self, of: Range<u32>, most: usize, patience_ns: Option<u64>) -> Vec<u32> {
        let begun_ns = Member::now_ns(self);
        loop {
            if self.has(Canary::EarlyFrame) || self.with(|_, donors| donors.is_stopped()) {
                self.frames(|frames| frames.free(&of.clone().collect::<Vec<_>>()));
            }
            let taken = self.frames(|frames| frames.take(of.clone(), most));
            let is_over = patience_ns.is_some_and(|ns| Member::now_ns(self) - begun_ns >= ns);
            if !taken.is_empty() || is_over {
                return taken;
            }
            self.with(|_, donors| donors.seen.late += 1);
            self.wait(100_000, |gms| {
                self.frames(|frames| frames.note(gms));
                false
            });
        }
    }

    fn free(&self, frames: &[u32]) {
        self.frames(|all| all.free(frames));
    }

    fn write(&self, frame: u32, bytes: &[u8]) {
        self.with(|cluster, _| cluster.parts(CLIENT).1.write(PROCESS.0, address_of(frame), bytes));
    }

    fn read(&self, frame: u32, bytes: &mut [u8]) -> bool {
        self.memory(CLIENT, frame, bytes);
        true
    }

    fn load(&self, place: Place, bytes: &mut [u8]) -> bool {
        let is_dead = self.with(|cluster, _| !cluster.is_alive(place.node));
        if !self.is_near(place) || is_dead && self.has(Canary::Unsalvaged) {
            return false;
        }
        self.memory(place.node, place.frame, bytes);
        true
    }
}

impl<'a> Surroundings for World<'a> {
    type Id = u64;
    type Range = Range<u64>;
    type Error = Failed;
    type Session = Self;

    fn now_ns(&self) -> u64 {
        Member::now_ns(self)
    }

    fn session(&self) -> Option<impl Deref<Target = Self>> {
        self.own.has_session.get().then_some(self)
    }

    fn end_session(&self) {
        self.own.has_session.set(false);
    }

    fn word(&self, id: u64) -> PageWord {
        self.own.words.borrow().get(&id).copied().unwrap_or_default()
    }

    fn set_word(&self, id: u64, word: PageWord) {
        let before = self.word(id).known();
        if word == PageWord::NONE && self.has(Canary::KeptWord) {
            return;
        }
        let claimed = word.known().filter(|_| self.has(Canary::ClaimedDisk));
        let word = claimed.map_or(word, |known| PageWord::of(Known { is_on_disk: true, ..known }));
        self.own.words.borrow_mut().insert(id, word);
        if word == PageWord::SALVAGED {
            self.with(|_, donors| donors.seen.salvaged += 1);
        }
        if word == PageWord::LOST && self.all.borrow().1.shape.full_percent == 0 {
            self.check_lost(id, before);
        }
    }

    fn each(&self, of: Option<&Range<u64>>, found: impl FnMut(u64)) {
        let is_of = |id: &u64| of.is_none_or(|of| of.contains(id)) && self.word(*id) != PageWord::NONE;
        let pages = self.with(|_, donors| donors.shape.pages);
        (0..pages).filter(is_of).for_each(found);
    }

    fn write(&self, pages: &[(u64, &[u8])]) -> Result<(), Failed> {
        let is_full = self.with(|_, donors| donors.random.chance(donors.shape.full_percent));
        if is_full {
            return Err(Failed::Full);
        }
        if !self.has(Canary::Unwritten) {
            let mut disk = self.own.disk.borrow_mut();
            disk.extend(pages.iter().map(|(id, bytes)| (*id, bytes.to_vec())));
        }
        Ok(())
    }

    fn read(&self, pages: &mut [(u64, &mut [u8])]) -> Result<(), Failed> {
        let disk = self.own.disk.borrow();
        for (id, bytes) in pages {
            bytes.copy_from_slice(disk.get(id).ok_or(Failed::Missing)?);
        }
        Ok(())
    }

    fn error(&self, _id: u64, why: Loss) -> Failed {
        Failed::Lost(why)
    }

    fn alone<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        Some(change())
    }

    fn beside<R>(&self, change: impl FnOnce() -> R) -> R {
        change()
    }

    fn discards<R>(&self, look: impl FnOnce(&mut VecDeque<(PageName, u32)>) -> R) -> R {
        look(&mut self.own.discards.borrow_mut())
    }
}
