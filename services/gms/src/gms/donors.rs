//! The frames that serve others: how they become more and fewer, and where their pages go.

use alloc::vec::Vec;

use super::Gms;
use crate::ages::age_ms;
use crate::message::{Message, Refusal};
use crate::outcome::Outcome;
use crate::pool::Eviction;
use crate::puts::{Origin, Put};

/// Pages that are on their way to other nodes at a time.
pub(super) const MAX_EVICTIONS: usize = 8;
/// How long a node waits before it offers a page again that nobody took.
const RETRY_NS: u64 = 20_000_000;

impl Gms {
    /// Takes frames out of service, as many as the program wants.
    pub(super) fn advance_donors(&mut self, now_ns: u64) {
        let (serving, target) = (self.pool.serving(), self.pool.target());
        if serving <= target {
            if self.is_shrinking {
                self.is_shrinking = false;
                self.retry_at_ns = None;
                self.outcomes.push_back(Outcome::Shrunk { serving });
            }
            return;
        }
        self.recall();
        if self.retry_at_ns.is_some_and(|at_ns| now_ns < at_ns) {
            return;
        }
        self.retry_at_ns = None;
        let under_way = self.pool.draining() + self.evictions.len();
        let due = ((serving - target) as usize).saturating_sub(under_way);
        let places = MAX_EVICTIONS.saturating_sub(self.evictions.len());
        // Pages on permanent storage go at once, and take no place.
        let oldest = self.pool.oldest();
        let on_disk = |frame: &u32| {
            let resident = self.pool.resident(*frame);
            resident.is_some_and(|page| page.is_listed && page.page.on_disk && page.eviction.is_none())
        };
        let dropped: Vec<_> = oldest.filter(on_disk).take(due).collect();
        let others = due.saturating_sub(dropped.len()).min(places);
        let moved = self.movable(others);
        for frame in dropped {
            self.drop_replaced(frame);
        }
        for frame in moved {
            self.ask_about(frame, Eviction::Asking);
        }
    }

    /// The oldest pages that may be moved.
    fn movable(&self, count: usize) -> Vec<u32> {
        let is_movable = |frame: &u32| {
            let resident = self.pool.resident(*frame);
            resident.is_some_and(|page| page.is_listed && !page.page.on_disk && page.eviction.is_none())
        };
        self.pool.oldest().filter(is_movable).take(count).collect()
    }

    /// All frames serve, and a peer wants one: the oldest page goes, dropped if it is older than MinAge and nothing is lost by
    /// it, else to another node (Feeley §3). Then the frame is there for the next who asks.
    pub(super) fn make_room(&mut self, now_ns: u64) {
        let Some(frame) = self.pool.oldest().next() else { return };
        let Some(resident) = self.pool.resident(frame) else { return };
        if !resident.is_listed || resident.eviction.is_some() {
            return;
        }
        let age_ms = age_ms(now_ns, resident.last_use_ns);
        if resident.page.on_disk && self.epochs.may_drop(age_ms) {
            self.drop_replaced(frame);
        } else if self.evictions.len() < MAX_EVICTIONS && now_ns >= self.full_until_ns {
            self.ask_about(frame, Eviction::Asking);
        }
    }

    fn drop_replaced(&mut self, frame: u32) {
        self.counters.replaced += 1;
        self.epochs.note_replaced();
        self.take_out(frame, true);
    }

    /// Asks the directory node whether a copy may be dropped.
    fn ask_about(&mut self, frame: u32, why: Eviction) {
        let Some(resident) = self.pool.resident_mut(frame) else { return };
        resident.eviction = Some(why);
        let (stamp, page) = (resident.stamp, resident.page);
        self.evictions.insert(frame);
        if let Some(directory) = self.view.map().directory_node(page.hash) {
            let spare = Message::Spare { frame, stamp, on_disk: page.on_disk, hash: page.hash, name: page.name };
            self.out.send(directory, spare);
        }
    }

    /// The directory node answers: the page may be dropped, or must be moved.
    pub(super) fn handle_spared(&mut self, now_ns: u64, frame: u32, stamp: u32, is_spared: bool) {
        let Some(resident) = self.pool.resident(frame) else { return };
        let asked = resident.eviction;
        let was_asked = matches!(asked, Some(Eviction::Asking | Eviction::Checking));
        if resident.stamp != stamp || !was_asked {
            return;
        }
        if is_spared {
            self.counters.replaced += 1;
            self.epochs.note_replaced();
            self.take_out(frame, false);
            return;
        }
        if asked == Some(Eviction::Checking) {
            self.evictions.remove(&frame);
            if let Some(resident) = self.pool.resident_mut(frame) {
                resident.eviction = None;
            }
            return;
        }
        let mut page = resident.page;
        page.age_ms = age_ms(now_ns, resident.last_use_ns);
        // The frame must not change while it is read.
        self.pool.hold(frame);
        let put = Put::new(Origin::Eviction, page, frame);
        let number = self.begin_put(now_ns, put, 1, None);
        // Without a donor the put has ended already.
        if self.puts.get(number).is_some()
            && let Some(resident) = self.pool.resident_mut(frame)
        {
            resident.eviction = Some(Eviction::Putting { number, stamp });
        }
    }

    /// A page that was to go to another node is there, or nobody took it.
    pub(super) fn end_eviction(&mut self, now_ns: u64, number: u32, put: &Put) {
        let frame = put.frame;
        self.pool.unhold(frame);
        let resident = self.pool.resident_mut(frame);
        let own = resident.filter(|resident| {
            let is_own = match resident.eviction {
                Some(Eviction::Putting { number: of, .. }) => of == number,
                // It ended before it was noted.
                Some(Eviction::Asking) => resident.page.name == put.page.name,
                Some(Eviction::Checking) | None => false,
            };
            is_own && resident.page.version == put.page.version
        });
        let Some(resident) = own else {
            // The page is gone from here. If it has come again, the directory may have taken that copy for the one that moved.
            if let Some(frame) = self.pool.find(put.page.name) {
                self.report(frame);
            }
            return;
        };
        let reported = resident.stamp;
        let is_unlisted = match resident.eviction.take() {
            Some(Eviction::Putting { stamp, .. }) => stamp == reported,
            _ => false,
        };
        let on_disk = resident.page.on_disk;
        self.evictions.remove(&frame);
        if put.stored == 0 {
            // Nodes that are all full would else ask each other without end.
            self.full_until_ns = now_ns.saturating_add(RETRY_NS);
        }
        if put.stored > 0 {
            self.counters.moved += 1;
            if is_unlisted {
                // The directory names the new copy in place of this one.
                self.counters.replaced += 1;
                self.epochs.note_replaced();
                self.take_out(frame, false);
            } else {
                // This one was reported anew meanwhile, before the other or after.
                self.ask_about(frame, Eviction::Checking);
            }
        } else if on_disk {
            self.drop_replaced(frame);
        } else if put.why == Refusal::Obsolete {
            self.take_out(frame, true);
        } else if put.why == Refusal::Gone {
            // The directory may have named the other node, which has lost the page.
            self.report(frame);
        } else {
            self.ask_about(frame, Eviction::Checking);
        }
        if put.stored == 0 && self.pool.serving() > self.pool.target() {
            self.retry_at_ns = Some(now_ns.saturating_add(RETRY_NS));
        }
    }
}
