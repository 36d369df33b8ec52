//! Who is a member: one mechanism for nodes that join, leave and die.
//!
//! The coordinator, the lowest member that lives, announces the members of the next map. Whoever hears of a newer map goes by it,
//! passes it on to everybody, and reports the pages that it stores to those directory nodes that are new for them. When it has, and
//! knows that all members go by this map, it tells everybody. Once all members have said so, the map is *settled*: directories are complete, and nothing that was sent by an
//! earlier map is under way. Only then directory nodes answer, and requesting nodes ask again what was not answered.

use mapwire_vmmc::service::Broken;
use mapwire_wire::NodeId;

use super::{Gms, Stage};
use crate::map::{Bucket, Map, MapVersion};
use crate::message::{BUCKET_BYTES, Message, Refusal};
use crate::nodes::NodeSet;
use crate::outcome::Outcome;

/// Reports that may be unanswered before the next is sent.
const MAX_OPEN_REPORTS: usize = 1024;

impl Gms {
    /// Another node goes by this map.
    pub(super) fn handle_map(&mut self, from: NodeId, version: MapVersion, previous: MapVersion, members: NodeSet) {
        if version > self.view.version() {
            self.adopt(version, previous, members);
        }
        if version == self.view.version() {
            self.view.set_adopted(from);
        }
    }

    fn adopt(&mut self, version: MapVersion, previous: MapVersion, members: NodeSet) {
        let (was_member, was_settled) = (self.view.is_member(), self.view.is_settled());
        let change = self.view.adopt(version, previous, members);
        self.counters.maps += 1;
        let map = Message::Map { version, previous, members };
        self.tell(change.audience, map);
        self.parked.clear();
        if !change.old.members().minus(&members).is_empty() {
            self.forget_nodes(was_settled);
        }
        self.part_from_others();
        self.begin_reports(&change.old, change.in_step);
        self.reports.audience = change.audience;
        let is_member = self.view.is_member();
        if is_member && !was_member {
            self.outcomes.push_back(Outcome::Joined);
        }
        if !is_member && self.stage == Stage::Leaves {
            self.stage = Stage::Stays;
            self.outcomes.push_back(Outcome::Left);
        }
        // Whoever made the map did not know.
        let wishes = self.view.wishes(self.me());
        if is_member != wishes {
            self.say_wish(wishes);
        }
    }

    /// Gives back frames of nodes that are no members with this one any more, and puts nothing there.
    fn part_from_others(&mut self) {
        for node in self.puts.nodes() {
            if !self.view.is_member() || !self.view.is_peer(node) {
                self.part_from(0, node);
            }
        }
    }

    /// Queues the pages whose directory node knows nothing of them.
    fn begin_reports(&mut self, old: &Map, in_step: bool) {
        self.reports.queue.clear();
        self.reports.open = 0;
        self.reports.is_told = false;
        if !self.view.is_member() {
            self.refuse_unlisted();
            return;
        }
        let map = self.view.map();
        let is_new = |bucket: Bucket| !in_step || old.owner(bucket) != map.owner(bucket);
        let mut resets = alloc::collections::BTreeMap::new();
        for bucket in Bucket::all().filter(|&bucket| is_new(bucket)) {
            if let Some(owner) = map.owner(bucket) {
                let buckets = resets.entry(owner).or_insert([0u8; BUCKET_BYTES]);
                buckets[bucket.number() / 8] |= 1 << (bucket.number() % 8);
            }
        }
        let pages = self.pool.pages();
        let moved: alloc::vec::Vec<_> = pages.filter(|(name, _)| is_new(Bucket::of(name.hash()))).collect();
        if self.config.pool_frames > 0 {
            for (owner, buckets) in resets {
                self.out.send(owner, Message::Reset { buckets });
            }
        }
        for (name, frame) in moved {
            let stamp = self.pool.next_stamp();
            if let Some(resident) = self.pool.resident_mut(frame) {
                resident.stamp = stamp;
                resident.is_listed = false;
                self.reports.queue.push_back(name);
            }
        }
    }

    /// Pages that no directory names are of no use to their putters, now that this node is no member.
    fn refuse_unlisted(&mut self) {
        let pages: alloc::vec::Vec<_> = self.pool.pages().collect();
        for (_, frame) in pages {
            let putter = self.pool.resident_mut(frame).and_then(|page| page.putter.take());
            if putter.is_some() {
                self.take_out(frame, false);
                self.refuse(putter, Refusal::Gone);
            }
        }
    }

    /// Reports pages, a limited number at a time, and then tells everybody that all is reported. Before that it waits until all members
    /// go by the map: a directory node may have taken a page out for a getpage that comes too late to be served, and the page is
    /// reported again.
    pub(super) fn report_pages(&mut self) {
        if self.reports.is_told {
            return;
        }
        while self.reports.open < MAX_OPEN_REPORTS
            && let Some(name) = self.reports.queue.pop_front()
        {
            if let Some(frame) = self.pool.find(name) {
                self.report(frame);
            }
        }
        if self.reports.queue.is_empty() && self.view.is_adopted() {
            self.reports.is_told = true;
            let reported = Message::Reported { version: self.view.version(), free: self.pool.free() };
            self.tell(self.reports.audience, reported);
        }
    }

    /// A node has reported all that changes with a map.
    pub(super) fn handle_reported(&mut self, from: NodeId, version: MapVersion, free: u32) -> Result<(), Broken> {
        // Whoever goes by a newer map has told so before.
        if version > self.view.version() {
            return Err(Broken);
        }
        self.donations.insert(from, free);
        if version == self.view.version() {
            self.view.set_reported(from);
        }
        Ok(())
    }

    /// Announces the next map if that is this node's part; looks whether the map is settled.
    pub(super) fn advance_membership(&mut self, now_ns: u64) {
        while let Some((version, members)) = self.view.next_members() {
            self.adopt(version, self.view.version(), members);
            self.report_pages();
        }
        // What this node says to itself counts as said once it is taken.
        if self.reports.is_told && !self.out.has_own() && self.view.settle() {
            self.forget_buckets();
            for spare in core::mem::take(&mut self.parked_spares) {
                self.answer_spare(&spare);
            }
            while let Some(request) = self.parked.pop_front() {
                self.direct(request);
            }
            self.send_requests();
        }
        self.epochs.begin(now_ns);
    }

    /// A peer is gone, with its pages and its part of the directory.
    pub(super) fn lose_peer(&mut self, node: NodeId) {
        if self.view.is_gone(node) || node == self.me() {
            return;
        }
        self.view.set_gone(node);
        self.donations.remove(&node);
        self.recalled.remove(node);
        self.part_from(0, node);
        self.pool.end_grants(node);
        for frame in self.pool.end_reads(node) {
            self.bring_back(frame);
        }
        let pages: alloc::vec::Vec<_> = self.pool.pages().collect();
        for (_, frame) in pages {
            if let Some(resident) = self.pool.resident_mut(frame)
                && resident.putter.is_some_and(|(putter, _)| putter == node)
            {
                resident.putter = None;
            }
        }
        self.tell(self.view.audience(), Message::Gone { node });
    }

    /// A member says that a node is gone. The coordinator believes it.
    pub(super) fn handle_said_gone(&mut self, from: NodeId, node: NodeId) {
        if self.view.is_peer(from) && node != self.me() {
            self.view.bar(node);
        }
    }

    /// Tells everybody whether this node wants to be a member.
    pub(super) fn say_wish(&mut self, wants: bool) {
        self.view.set_wish(self.me(), wants);
        let message = if wants { Message::Join } else { Message::Leave };
        self.tell(self.view.audience(), message);
    }

    /// Leaves, once nothing is under way and no page is left here.
    pub(super) fn advance_leaving(&mut self) {
        let is_idle = self.stage == Stage::Drains
            && self.requests.len() == 0
            && self.puts.is_empty()
            && self.pool.serving() == 0
            && !self.pool.has_readers();
        if !is_idle {
            return;
        }
        for node in self.puts.grantors() {
            self.return_credit(node);
        }
        if self.view.is_member() {
            self.stage = Stage::Leaves;
            self.say_wish(false);
        } else {
            self.view.set_wish(self.me(), false);
            self.stage = Stage::Stays;
            self.outcomes.push_back(Outcome::Left);
        }
    }
}
