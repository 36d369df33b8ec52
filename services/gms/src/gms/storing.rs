//! The storing node: pages that come, are fetched, and go.

use mapwire_vmmc::service::Broken;
use mapwire_wire::NodeId;

use super::{Gms, Stage};
use crate::ages::{age_ms, last_use_ns};
use crate::message::{FrameList, Listing, MAX_GRANTS, Message, Operation, PageInfo, Refusal, Request};
use crate::name::{PageHash, PageName};
use crate::outbox::Contents;
use crate::outcome::Outcome;
use crate::pool::{Eviction, Resident};
use crate::requests::Asked;

impl Gms {
    /// A getpage that the directory node forwards: stores the page into the requester's landing frame.
    ///
    /// Only a page whose report the directory node has confirmed is given away: that it takes the copy out of the directory as it forwards
    /// the request then concerns this very copy.
    pub(super) fn serve(&mut self, now_ns: u64, from: NodeId, mut request: Request, is_current: bool) {
        let is_its = self.view.map().directory_node(request.hash) == Some(from);
        let (requester, sequence) = (request.requester, request.sequence);
        let gives = request.operation == Operation::ForwardTake;
        let frame = self.pool.find(request.name);
        let is_for_peer = is_current
            && is_its
            && self.view.is_peer(requester)
            && !self.pool.is_reading(requester, sequence)
            && self.pool.reads_of(requester) < self.most_requests();
        let served = frame.and_then(|frame| {
            let resident = self.pool.resident(frame)?;
            (is_for_peer && resident.is_listed).then_some((frame, *resident))
        });
        let Some((frame, resident)) = served else {
            // The directory node may have taken the copy out.
            if let Some(frame) = frame.filter(|_| gives) {
                self.report(frame);
            }
            if is_current && is_its {
                request.operation = if gives { Operation::NotHereTake } else { Operation::NotHere };
                self.out.send(from, Message::Request(request));
            }
            return;
        };
        let page = PageInfo { age_ms: age_ms(now_ns, resident.last_use_ns), ..resident.page };
        if requester == self.me() {
            self.serve_here(frame, sequence, &page, gives);
            return;
        }
        self.begin_read(frame, requester, sequence, gives);
        self.counters.served += 1;
        let contents = Contents { from: frame, to: request.value };
        self.out.store(requester, contents, Message::Page { sequence, page });
    }

    /// The requester is this node: the program copies the page.
    fn serve_here(&mut self, frame: u32, sequence: u32, page: &PageInfo, gives: bool) {
        let pending = self.requests.end(sequence, page.name);
        let Some(Asked::Get(get)) = pending.map(|pending| pending.asked) else {
            if gives {
                self.report(frame);
            }
            return;
        };
        self.begin_read(frame, self.me(), sequence, gives);
        self.requests.begin_copy(get.tag, sequence);
        self.counters.hits += 1;
        self.outcomes.push_back(Outcome::Here {
            tag: get.tag,
            frame,
            version: page.version,
            checksum: page.checksum,
            age_ms: page.age_ms,
        });
    }

    fn begin_read(&mut self, frame: u32, reader: NodeId, sequence: u32, gives: bool) {
        if gives {
            self.evictions.remove(&frame);
        }
        self.pool.begin_read(frame, reader, sequence, gives);
    }

    /// The frame that a page came from is not read any more.
    pub(super) fn handle_landed(&mut self, from: NodeId, sequence: u32, is_taken: bool) -> Result<(), Broken> {
        if !self.pool.is_reading(from, sequence) {
            return Err(Broken);
        }
        if let Some(frame) = self.pool.end_read(from, sequence, is_taken) {
            self.bring_back(frame);
        }
        Ok(())
    }

    /// A page that was to be given away is this node's again.
    pub(super) fn bring_back(&mut self, frame: u32) {
        if let Some(resident) = self.pool.resident_mut(frame) {
            resident.eviction = None;
        }
        self.report(frame);
    }

    /// A page lies in a frame that was granted for it.
    pub(super) fn handle_put(
        &mut self,
        now_ns: u64,
        (from, sequence): (NodeId, u32),
        moved_from: Option<NodeId>,
        frame: u32,
        page: PageInfo,
    ) -> Result<(), Broken> {
        if !self.pool.is_granted(frame, from) || page.version == u32::MAX {
            return Err(Broken);
        }
        let putter = Some((from, sequence));
        let why = if !self.view.is_peer(from) || !self.view.is_member() {
            Some(Refusal::Gone)
        } else if self.pool.serving() > self.pool.target() || self.stage != Stage::Stays {
            Some(Refusal::Shrinking)
        } else {
            None
        };
        let held = self.pool.find(page.name);
        let copy = held.and_then(|held| self.pool.resident(held)).copied();
        let is_same = copy.is_some_and(|copy| copy.page.version == page.version);
        let is_listed = copy.is_some_and(|copy| copy.is_listed);
        if why.is_none() && is_same && is_listed && moved_from.is_none() {
            self.pool.end_grant(frame);
            let grant = self.grant_again(from);
            self.out.send(from, Message::Stored { sequence, grant });
            return Ok(());
        }
        // A page that moves may turn out not to count, and must not take the place of one that does; nor is anything gained if one
        // that waits to be listed makes way for the same.
        let is_older = copy.is_some_and(|copy| copy.page.version > page.version) || is_same;
        if let Some(why) = why.or(is_older.then_some(Refusal::Older)) {
            self.pool.end_grant(frame);
            self.refuse(putter, why);
            return Ok(());
        }
        if let Some(held) = held {
            self.take_out(held, false);
        }
        self.counters.taken_in += 1;
        let resident = Resident {
            page,
            last_use_ns: last_use_ns(now_ns, page.age_ms),
            stamp: 0,
            is_listed: false,
            putter,
            moved_from,
            eviction: None,
        };
        self.pool.put(frame, resident);
        self.epochs.note_taken_in(now_ns, self.config.node);
        self.report(frame);
        Ok(())
    }

    /// Tells the directory node that this node stores a page.
    pub(super) fn report(&mut self, frame: u32) {
        let stamp = self.pool.next_stamp();
        let Some(resident) = self.pool.resident_mut(frame) else { return };
        resident.stamp = stamp;
        resident.is_listed = false;
        let is_asked = matches!(resident.eviction, Some(Eviction::Asking | Eviction::Checking));
        if is_asked {
            resident.eviction = None;
            self.evictions.remove(&frame);
        }
        let (page, moved_from) = (resident.page, resident.moved_from);
        if let Some(directory) = self.view.map().directory_node(page.hash) {
            let insert =
                Message::Insert { frame, stamp, version: page.version, moved_from, hash: page.hash, name: page.name };
            self.reports.open += 1;
            self.out.send(directory, insert);
        }
    }

    /// The directory node has taken note of a page, or has not.
    pub(super) fn handle_listed(&mut self, from: NodeId, frame: u32, stamp: u32, listing: Listing) {
        self.reports.open = self.reports.open.saturating_sub(1);
        let map = self.view.map();
        let Some(resident) = self.pool.resident(frame) else { return };
        let is_its = map.directory_node(resident.page.hash) == Some(from);
        if !is_its || resident.stamp != stamp {
            return;
        }
        let why = match listing {
            Listing::Listed => None,
            Listing::Older => Some(Refusal::Older),
            Listing::Copies => Some(Refusal::Copies),
            Listing::Full => Some(Refusal::DirectoryFull),
        };
        let Some(resident) = self.pool.resident_mut(frame) else { return };
        let putter = resident.putter.take();
        let Some(why) = why else {
            resident.is_listed = true;
            resident.moved_from = None;
            if let Some((to, sequence)) = putter {
                let grant = self.grant_again(to);
                self.out.send(to, Message::Stored { sequence, grant });
            }
            return;
        };
        let is_lost = why == Refusal::DirectoryFull && putter.is_none() && !resident.page.on_disk;
        self.counters.lost += u64::from(is_lost);
        // It may still be listed for an earlier copy.
        self.take_out(frame, true);
        self.refuse(putter, why);
    }

    /// Takes a page out of its frame. Whoever waits for it to be stored is refused. With `tells` the directory node hears of it.
    pub(super) fn take_out(&mut self, frame: u32, tells: bool) {
        let Some(resident) = self.pool.remove(frame) else { return };
        self.evictions.remove(&frame);
        let (hash, name) = (resident.page.hash, resident.page.name);
        if tells && let Some(directory) = self.view.map().directory_node(hash) {
            self.out.send(directory, Message::Remove { hash, name });
        }
        self.refuse(resident.putter, Refusal::Obsolete);
    }

    /// Copies of a page below a version are needed no more.
    pub(super) fn handle_drop(&mut self, from: NodeId, below: u32, hash: PageHash, name: PageName) {
        let Some(frame) = self.pool.find(name) else { return };
        let Some(resident) = self.pool.resident(frame) else { return };
        if resident.page.version < below {
            // The sender has taken out every copy that it had confirmed.
            let is_its = self.view.map().directory_node(hash) == Some(from);
            let tells = !(is_its && resident.is_listed);
            self.take_out(frame, tells);
        }
    }

    // Frames for pages of peers.

    /// Frames that a peer may have granted.
    fn most_grants(&self) -> usize {
        let share = self.pool.target() as usize / (2 * self.view.map().members().len().max(1));
        share.clamp(1, MAX_GRANTS)
    }

    /// Whether pages of others are taken in.
    fn takes_pages(&self) -> bool {
        self.stage == Stage::Stays && self.view.is_member() && self.pool.serving() <= self.pool.target()
    }

    /// A frame in place of one that a peer has used.
    pub(super) fn grant_again(&mut self, to: NodeId) -> Option<u32> {
        let grants = self.takes_pages() && self.view.is_peer(to) && self.pool.granted_to(to) < self.most_grants();
        if grants { self.pool.grant(to) } else { None }
    }

    /// A peer wants frames for pages. It gets none if none is free: it asks another node then.
    pub(super) fn handle_want(&mut self, now_ns: u64, from: NodeId) {
        let takes = self.takes_pages() && self.view.is_peer(from);
        if takes && self.pool.free() == 0 {
            self.make_room(now_ns);
        }
        let mut granted = alloc::vec::Vec::new();
        while let Some(frame) = self.grant_again(from) {
            granted.push(frame);
        }
        if takes && granted.is_empty() {
            self.recall();
        }
        let frames = granted.into_iter().collect();
        self.out.send(from, Message::Grant { frames });
    }

    /// Asks peers to give back frames that they do not use, each once until it has.
    pub(super) fn recall(&mut self) {
        for peer in self.pool.grantees() {
            if !self.recalled.contains(peer) {
                self.recalled.insert(peer);
                self.out.send(peer, Message::Recall);
            }
        }
    }

    pub(super) fn handle_return(&mut self, from: NodeId, frames: &FrameList) -> Result<(), Broken> {
        self.recalled.remove(from);
        for &frame in frames.as_slice() {
            if !self.pool.is_granted(frame, from) {
                return Err(Broken);
            }
            self.pool.end_grant(frame);
        }
        Ok(())
    }
}
