//! Calls of the program.

use mapwire_wire::NodeId;

use super::{Gms, Stage};
use crate::config::{Error, GetPage, PutPage};
use crate::message::{Message, PageInfo, Refusal};
use crate::name::PageName;
use crate::outcome::Outcome;
use crate::puts::{Origin, Put};
use crate::requests::{Asked, Pending};

impl Gms {
    /// Getpage: fetches a page into a frame. Ends with [`Outcome::Page`], [`Outcome::Here`] or [`Outcome::Absent`].
    ///
    /// # Errors
    /// A frame that serves others, too many requests, or no member.
    pub fn get(&mut self, now_ns: u64, get: GetPage) -> Result<(), Error> {
        self.check_taking_part()?;
        self.check_frame(get.frame)?;
        self.check_requests(self.requests.len())?;
        self.counters.gets += 1;
        self.ask(Asked::Get(get), get.name);
        self.settle_down(now_ns);
        Ok(())
    }

    /// Putpage: stores a page at other nodes. Ends with [`Outcome::Stored`], [`Outcome::Refused`] or [`Outcome::Dropped`].
    ///
    /// # Errors
    /// A frame that serves others, too many puts, no member, or numbers that are not allowed.
    pub fn put(&mut self, now_ns: u64, put: PutPage) -> Result<(), Error> {
        self.check_taking_part()?;
        self.check_frame(put.frame)?;
        self.check_requests(self.puts.of_program())?;
        // Each put may end with a discardpage.
        self.check_requests(self.requests.len())?;
        if !(1..=2).contains(&put.copies) {
            return Err(Error::Copies(put.copies));
        }
        if put.version == u32::MAX {
            return Err(Error::Version(put.version));
        }
        if let Some(to) = put.to
            && (to == self.me() || !self.view.is_peer(to))
        {
            return Err(Error::Node(to));
        }
        self.counters.puts += 1;
        if put.to.is_none() && put.on_disk && self.epochs.is_old(put.age_ms) {
            self.counters.dropped_old += 1;
            self.outcomes.push_back(Outcome::Dropped { tag: put.tag });
            // Copies of the page are not worth their frames either, and may be older than what is on permanent storage.
            self.ask(Asked::Discard(put.version), put.name);
            self.settle_down(now_ns);
            return Ok(());
        }
        let page = PageInfo {
            name: put.name,
            hash: put.name.hash(),
            version: put.version,
            checksum: put.checksum,
            age_ms: put.age_ms,
            on_disk: put.on_disk,
        };
        let origin = Origin::Program(put.tag);
        let copies = if put.to.is_some() { 1 } else { put.copies };
        self.begin_put(now_ns, Put::new(origin, page, put.frame), copies, put.to);
        self.settle_down(now_ns);
        Ok(())
    }

    /// Discardpage: all copies of a page up to this version are needed no more. A putpage of such a version that is under way ends as if
    /// nothing had been said, and is discarded then.
    ///
    /// # Errors
    /// Too many requests, or no member.
    pub fn discard(&mut self, now_ns: u64, name: PageName, version: u32) -> Result<(), Error> {
        self.check_taking_part()?;
        self.check_requests(self.requests.len())?;
        if version == u32::MAX {
            return Err(Error::Version(version));
        }
        self.counters.discards += 1;
        for put in self.puts.iter_mut() {
            if put.page.name == name && put.page.version <= version {
                put.discarded = Some(version);
            }
        }
        self.ask(Asked::Discard(version), name);
        self.settle_down(now_ns);
        Ok(())
    }

    /// The page of [`Outcome::Here`] is copied, and its frame may change.
    ///
    /// # Errors
    /// No such page.
    pub fn copied(&mut self, now_ns: u64, tag: u64) -> Result<(), Error> {
        let sequence = self.requests.end_copy(tag).ok_or(Error::Tag(tag))?;
        let me = self.me();
        self.pool.end_read(me, sequence, true);
        self.settle_down(now_ns);
        Ok(())
    }

    /// Sets how many frames of the pool serve others. More serve at once. To have fewer, pages are dropped where that loses nothing, else
    /// moved to other nodes; [`Outcome::Shrunk`] tells the end of it, and [`serving`](Self::serving) how far it is.
    ///
    /// # Errors
    /// More frames than the pool has.
    pub fn donate(&mut self, now_ns: u64, frames: u32) -> Result<(), Error> {
        let pool_frames = self.config.pool_frames;
        if frames > pool_frames {
            return Err(Error::Pool { frames, pool_frames });
        }
        if self.stage != Stage::Stays {
            return Err(Error::Leaving);
        }
        self.set_donation(frames);
        self.settle_down(now_ns);
        Ok(())
    }

    /// Asks to become a member. Ends with [`Outcome::Joined`] while the coordinator lives.
    ///
    /// # Errors
    /// This node leaves.
    pub fn join(&mut self, now_ns: u64) -> Result<(), Error> {
        if self.stage != Stage::Stays {
            return Err(Error::Leaving);
        }
        self.say_wish(true);
        self.settle_down(now_ns);
        Ok(())
    }

    /// Ends the membership: waits for what is under way, moves the pages that it stores to other nodes, then tells everybody. Ends
    /// with [`Outcome::Left`], or never, while nobody takes a page that is not on permanent storage.
    ///
    /// # Errors
    /// This node leaves already.
    pub fn leave(&mut self, now_ns: u64) -> Result<(), Error> {
        if self.stage != Stage::Stays {
            return Err(Error::Leaving);
        }
        self.stage = Stage::Drains;
        self.set_donation(0);
        self.settle_down(now_ns);
        Ok(())
    }

    fn set_donation(&mut self, frames: u32) {
        self.pool.set_target(frames);
        self.is_shrinking = true;
        self.recalled = crate::NodeSet::EMPTY;
        self.retry_at_ns = None;
        let free = Message::Free { frames: self.pool.free() };
        self.tell(self.view.peers(), free);
    }

    fn check_taking_part(&self) -> Result<(), Error> {
        if self.stage != Stage::Stays {
            return Err(Error::Leaving);
        }
        if !self.view.is_member() { Err(Error::NotMember) } else { Ok(()) }
    }

    fn check_frame(&self, frame: u32) -> Result<(), Error> {
        if frame >= self.config.frames || self.pool.contains(frame) {
            return Err(Error::Frame { frame });
        }
        Ok(())
    }

    fn check_requests(&self, under_way: usize) -> Result<(), Error> {
        let limit = self.config.requests;
        if under_way >= usize::from(limit) { Err(Error::Busy { limit }) } else { Ok(()) }
    }

    /// Begins a request, and sends it if all members go by the same map.
    pub(super) fn ask(&mut self, asked: Asked, name: PageName) {
        let sequence = self.next_sequence();
        let hash = name.hash();
        self.requests.insert(sequence, Pending { asked, name, hash });
        if self.view.is_settled() {
            self.send_request(sequence);
        }
    }

    /// Sends a message to each of these nodes.
    pub(super) fn tell(&mut self, nodes: crate::NodeSet, message: Message) {
        nodes.iter().for_each(|node| self.out.send(node, message));
    }

    pub(super) fn refuse(&mut self, putter: Option<(NodeId, u32)>, why: Refusal) {
        if let Some((to, sequence)) = putter {
            let grant = self.grant_again(to);
            let refused = Message::Refused { sequence, why, grant };
            self.out.send(to, refused);
        }
    }
}
