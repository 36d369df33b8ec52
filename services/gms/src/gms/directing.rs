//! The directory node: lookups, and what storing nodes report (GMS-NP §2.5, §3.2).
//!
//! Only a storing node says what it stores, and it says so in order: what a directory node knows of it was so at some time, and once
//! nothing is under way the directory names exactly the pages that are stored.

use alloc::vec::Vec;

use mapwire_vmmc::service::Broken;
use mapwire_wire::NodeId;

use super::{Gms, Spare};
use crate::directory::Entry;
use crate::map::{BUCKETS, Bucket};
use crate::message::{BucketSet, Listing, Message, Operation, Request};
use crate::name::{PageHash, PageName};

/// Storing nodes that a getpage is forwarded to, one after the other, at most.
const MAX_ATTEMPTS: u8 = 8;
/// Questions of a storing node that wait, at most.
const MOST_SPARES: usize = 64 * super::donors::MAX_EVICTIONS;
/// Pages whose newest version is remembered until a map is settled. Beyond it an older copy may come back.
const MAX_NEWEST: usize = 1 << 16;

impl Gms {
    /// A request for this node in one of its roles.
    pub(super) fn handle_request(&mut self, now_ns: u64, from: NodeId, mut request: Request) -> Result<(), Broken> {
        // Whoever goes by a newer map has told so before.
        if request.map > self.view.version() {
            return Err(Broken);
        }
        let is_current = request.map == self.view.version();
        match request.operation {
            Operation::Get | Operation::Take | Operation::Discard => {
                if request.requester != from {
                    return Err(Broken);
                }
                request.attempts = 0;
            }
            Operation::NotHere | Operation::NotHereTake => {
                request.operation = match request.operation {
                    Operation::NotHere => Operation::Get,
                    _ => Operation::Take,
                };
                request.attempts = request.attempts.saturating_add(1);
            }
            Operation::Forward | Operation::ForwardTake => {
                self.serve(now_ns, from, request, is_current);
                return Ok(());
            }
            Operation::Absent | Operation::Discarded => {
                self.handle_answer(from, &request);
                return Ok(());
            }
        }
        // The requester asks again once all go by the newer map.
        if !is_current || !self.view.is_peer(from) {
            return Ok(());
        }
        if self.view.map().directory_node(request.hash) != Some(self.me()) {
            return Err(Broken);
        }
        if self.view.is_settled() {
            self.direct(request);
            return Ok(());
        }
        let requester = request.requester;
        let parked = self.parked.iter();
        if parked.filter(|parked| parked.requester == requester).count() > self.most_requests() {
            return Err(Broken);
        }
        self.parked.push_back(request);
        Ok(())
    }

    /// Requests that a peer that keeps to the protocol may have under way, with the discardpages that its puts and evictions add.
    pub(super) fn most_requests(&self) -> usize {
        3 * usize::from(self.config.requests) + 2 * super::donors::MAX_EVICTIONS
    }

    /// Looks the page up and turns the request into the next message on its way.
    pub(super) fn direct(&mut self, mut request: Request) {
        let entry = self.directory.lookup(request.name, request.hash);
        if request.operation == Operation::Discard {
            if let Some(entry) = entry.filter(|entry| entry.version() <= request.value) {
                let below = request.value.saturating_add(1);
                self.drop_copies(&entry, request.hash, below);
                self.write(&Entry::new(request.name, 0), request.hash);
            }
            request.operation = Operation::Discarded;
            self.out.send(request.requester, Message::Request(request));
            return;
        }
        let copy = entry.filter(|_| request.attempts < MAX_ATTEMPTS);
        let Some(mut entry) = copy else {
            request.operation = Operation::Absent;
            self.out.send(request.requester, Message::Request(request));
            return;
        };
        let count = entry.copies().len();
        let nth = (request.sequence as usize).wrapping_add(usize::from(request.attempts)) % count;
        let own = entry.copies().find(|&copy| copy == request.requester);
        let nth = entry.copies().nth(nth);
        let Some(storing) = own.filter(|_| request.attempts == 0).or(nth) else { return };
        self.counters.forwarded += 1;
        if request.operation == Operation::Take {
            // The storing node gives it away, unless it says otherwise.
            entry.remove(storing);
            self.write(&entry, request.hash);
            request.operation = Operation::ForwardTake;
        } else {
            request.operation = Operation::Forward;
        }
        self.out.send(storing, Message::Request(request));
    }

    /// Writes an entry that the directory has, or takes it out: needs no room.
    fn write(&mut self, entry: &Entry, hash: PageHash) {
        let _ = self.directory.update(entry, hash);
    }

    fn drop_copies(&mut self, entry: &Entry, hash: PageHash, below: u32) {
        let name = entry.name();
        for copy in entry.copies() {
            self.out.send(copy, Message::Drop { below, hash, name });
        }
    }

    /// A storing node has a copy. `None` if it is no member.
    pub(super) fn handle_insert(
        &mut self,
        from: NodeId,
        version: u32,
        moved_from: Option<NodeId>,
        hash: PageHash,
        name: PageName,
    ) -> Option<Listing> {
        if !self.view.is_peer(from) {
            return None;
        }
        // What the node asked about its copy before is answered by this.
        self.parked_spares.retain(|spare| spare.from != from || spare.name != name);
        let found = self.directory.lookup(name, hash);
        if self.newest.get(&name).is_some_and(|&newest| newest > version) {
            return Some(Listing::Older);
        }
        if let Some(origin) = moved_from {
            let holds = |entry: Entry| entry.version() == version && entry.copies().any(|copy| copy == origin);
            // Before the map is settled, word that the page is discarded may still be on its way from its former directory node to the
            // node that it moves from. That node keeps it meanwhile, and tries again.
            let is_settled = self.view.is_settled();
            let Some(mut entry) = found.filter(|&entry| is_settled && holds(entry)) else {
                return Some(Listing::Older);
            };
            // The new copy takes the place of the old one at once: neither is dropped because of the other.
            entry.remove(origin);
            let is_added = entry.add(from);
            debug_assert!(is_added, "one was taken out");
            self.write(&entry, hash);
            return Some(Listing::Listed);
        }
        let mut entry = match found {
            Some(entry) if entry.version() > version => return Some(Listing::Older),
            Some(entry) if entry.version() == version => entry,
            Some(mut older) => {
                older.remove(from);
                self.drop_copies(&older, hash, version);
                Entry::new(name, version)
            }
            None => Entry::new(name, version),
        };
        if !entry.add(from) {
            return Some(Listing::Copies);
        }
        Some(match self.directory.update(&entry, hash) {
            Ok(()) => Listing::Listed,
            Err(_) => Listing::Full,
        })
    }

    pub(super) fn handle_remove(&mut self, from: NodeId, hash: PageHash, name: PageName) {
        if let Some(mut entry) = self.directory.lookup(name, hash)
            && entry.remove(from)
        {
            if entry.copies().len() == 0 && !self.view.is_settled() {
                self.note_newest(name, entry.version());
            }
            self.write(&entry, hash);
        }
    }

    /// Remembers that a version existed, until all have reported: an older copy may still be reported, and must not come back.
    fn note_newest(&mut self, name: PageName, version: u32) {
        if self.newest.len() < MAX_NEWEST {
            let newest = self.newest.entry(name).or_default();
            *newest = version.max(*newest);
        }
    }

    /// A storing node asks whether it may drop its copy. Before all have reported, a copy may be listed that is gone: the answer waits.
    pub(super) fn handle_spare(&mut self, spare: Spare) -> Result<(), Broken> {
        if self.view.is_settled() {
            self.answer_spare(&spare);
            return Ok(());
        }
        if self.parked_spares.iter().filter(|parked| parked.from == spare.from).count() >= MOST_SPARES {
            return Err(Broken);
        }
        self.parked_spares.push(spare);
        Ok(())
    }

    pub(super) fn answer_spare(&mut self, spare: &Spare) {
        let spared = Message::Spared { frame: spare.frame, stamp: spare.stamp, is_spared: self.spares(spare) };
        self.out.send(spare.from, spared);
    }

    /// Whether a storing node may drop its copy: because it is not listed, or there is another of a page that is on permanent storage. It is
    /// not listed any more then.
    fn spares(&mut self, spare: &Spare) -> bool {
        let &Spare { from, hash, name, on_disk, .. } = spare;
        if self.view.map().directory_node(hash) != Some(self.me()) || !self.view.is_peer(from) {
            return false;
        }
        // One that is not listed has moved: a copy that was given away or discarded is not there any more when it hears the answer.
        let Some(mut entry) = self.directory.lookup(name, hash) else { return true };
        let is_listed = entry.copies().any(|copy| copy == from);
        let stays = is_listed && (!on_disk || entry.copies().eq([from]));
        if !stays && entry.remove(from) {
            self.write(&entry, hash);
        }
        !stays
    }

    /// Forgets what a node has reported in these buckets.
    pub(super) fn handle_reset(&mut self, from: NodeId, buckets: &BucketSet) {
        if self.directory.is_empty() {
            return;
        }
        self.directory.change_all(|entry| {
            if has(buckets, Bucket::of(entry.name().hash())) {
                entry.remove(from);
            }
        });
    }

    /// Takes nodes that are no members out of all entries.
    pub(super) fn forget_nodes(&mut self, was_settled: bool) {
        let members = *self.view.map().members();
        let mut vanished = Vec::new();
        self.directory.change_all(|entry| {
            let copies = *entry;
            for copy in copies.copies().filter(|&copy| !members.contains(copy)) {
                entry.remove(copy);
            }
            if entry.copies().len() == 0 && !was_settled {
                vanished.push((entry.name(), entry.version()));
            }
        });
        for (name, version) in vanished {
            self.note_newest(name, version);
        }
    }

    /// Forgets the pages that other nodes are directory nodes of. All have reported to these.
    pub(super) fn forget_buckets(&mut self) {
        self.newest.clear();
        let (me, map) = (Some(self.config.node), self.view.map());
        if !self.directory.is_empty() {
            self.directory.change_all(|entry| {
                if map.directory_node(entry.name().hash()) != me {
                    *entry = Entry::new(entry.name(), 0);
                }
            });
        }
    }
}

/// Whether a bucket is in a set.
fn has(buckets: &BucketSet, bucket: Bucket) -> bool {
    let number = bucket.number();
    debug_assert!(number < BUCKETS);
    buckets[number / 8] >> (number % 8) & 1 == 1
}
