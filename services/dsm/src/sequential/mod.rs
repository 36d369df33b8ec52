//! Sequential consistency: at any time a minipage has a single writer or many readers (Millipage §3).
//!
//! * each minipage has a *manager*, found from its first page ([`Spread`]), with an entry in its [`Directory`]: owner, copyset,
//!   and the requests that wait. It serves them one at a time ([`manager`]);
//! * every rank knows its own rights from its [`Map`], and what its threads have just been granted from its [`Holds`];
//! * a fault leads to a request, and the request to a right ([`requests`]); another's request to the loss of one ([`copies`]).

mod ahead;
mod copies;
mod directory;
mod holds;
mod manager;
mod map;
mod requests;
mod strides;

use crate::address::Key;
use crate::config::{Config, ConfigError};
use crate::context::Context;
use crate::ranks::RankSets;
use crate::spread::Spread;
use crate::units::Units;
use crate::{Access, Message, Minipage, Protection, Rank, Thread, Violation};
use ahead::Ahead;
use alloc::vec;
use alloc::vec::Vec;
use directory::{Directory, Entry, Waiting};
use map::Map;
use strides::Strides;

/// The protocol of one rank.
#[derive(Debug)]
pub(crate) struct SequentialConsistency {
    rank: Rank,
    /// Number of application threads of this rank: requests from this number on are prefetches.
    threads: Thread,
    pages: u32,
    views: u16,
    spread: Spread,
    map: Map,
    directory: Directory,
    /// Outstanding requests, by the number of the leading thread; prefetches follow the last thread.
    requests: Vec<Option<Request>>,
    /// Numbers from this one on have never led a request.
    asked: usize,
    /// Ranks that have acknowledged to each request.
    ackers: RankSets,
    ahead: Ahead,
    strides: Strides,
    holds: Holds,
    /// Latest time of any input.
    now_ns: u64,
}

/// An outstanding request. Threads of the rank that want the same minipage wait for it too.
#[derive(Debug, Clone, Copy)]
struct Request {
    key: Key,
    access: Access,
    /// Number of ranks that have dropped their copy. They may be faster than the grant.
    acked: u16,
    grant: Option<Grant>,
}

/// A right that waits for acknowledgements.
#[derive(Debug, Clone, Copy)]
struct Grant {
    /// Number of ranks that must drop their copy.
    acks: u16,
    data: bool,
    /// Whether the manager, another rank, waits for the end.
    done: bool,
}

/// A manager's order to the holder of a copy.
#[derive(Debug, Clone, Copy)]
struct Order {
    key: Key,
    manager: Rank,
    requester: Rank,
    thread: Thread,
    work: Work,
}

impl Order {
    fn new(key: Key, manager: Rank, requester: Rank, thread: Thread, work: Work) -> Self {
        Order { key, manager, requester, thread, work }
    }
}

#[derive(Debug, Clone, Copy)]
enum Work {
    Forward { access: Access, acks: u16 },
    Invalidate,
}

impl Work {
    /// The right that the rank may keep.
    fn leaves(self) -> Protection {
        match self {
            Work::Forward { access, .. } => left_by(access),
            Work::Invalidate => Protection::None,
        }
    }
}

/// The right that a rank may keep to a minipage that another is granted for `access`.
fn left_by(access: Access) -> Protection {
    match access {
        Access::Read => Protection::Read,
        Access::Write => Protection::None,
    }
}

/// What threads have just been granted, and the orders that wait for them.
#[derive(Debug)]
struct Holds {
    /// Longest hold in nanoseconds; 0: there are none.
    hold_ns: u64,
    /// Indexed by thread.
    holds: Vec<Option<Hold>>,
    /// Delayed orders: at most one for each minipage held, and so one for each thread.
    put_off: Vec<Option<Order>>,
    count: usize,
    /// Number of delayed orders.
    waiting: usize,
    /// Threads from this number on have never held anything.
    end: usize,
}

#[derive(Debug, Clone, Copy)]
struct Hold {
    key: Key,
    access: Access,
    until_ns: u64,
}

impl SequentialConsistency {
    /// A rank without data.
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let Config { rank, ranks, threads, pages, views, .. } = *config;
        let too_large = ConfigError::TooLarge { pages, views };
        let requests = config.requests();
        let rows = pages.div_ceil(u32::from(ranks));
        Ok(SequentialConsistency {
            rank,
            threads,
            pages,
            views,
            spread: Spread::new(ranks),
            map: Map::new(rank, pages, views).ok_or(too_large)?,
            directory: Directory::new(rows, views, ranks, requests).ok_or(too_large)?,
            requests: vec![None; usize::from(requests)],
            asked: 0,
            ackers: RankSets::new(usize::from(requests), ranks).ok_or(too_large)?,
            ahead: Ahead::new(config.threads, config.sets()),
            strides: Strides::new(threads, config.read_ahead, ranks),
            holds: Holds::new(threads, config.hold_ns),
            now_ns: 0,
        })
    }

    /// The minipage that covers a page of a view, as far as this rank knows, and its protection here.
    pub(crate) fn minipage_at(&self, view: u16, page: u64) -> Option<(Minipage, Protection)> {
        if view >= self.views || page >= u64::from(self.pages) {
            return None;
        }
        self.map.lookup(view, page as u32)
    }

    /// The rank that manages the minipages starting on that page; `None` outside the segment.
    pub(crate) fn manager(&self, page: u64) -> Option<Rank> {
        (page < u64::from(self.pages)).then(|| self.spread.manager(page as u32))
    }

    /// The directory entry of a minipage, if this rank manages it.
    fn managed(&self, key: Key) -> Option<Entry> {
        let mine = self.spread.manager(key.page) == self.rank;
        mine.then(|| self.directory.entry(key, self.spread.row(key.page)))
    }

    /// Whether a minipage that this rank manages, with that entry, is known here. The first request for one of a range enters it.
    fn is_registered(&mut self, key: Key, entry: Entry) -> bool {
        if !self.directory.is_registered(entry)
            && let Some(creator) = self.map.creator(key)
        {
            self.directory.register(entry, creator);
        }
        self.directory.is_registered(entry)
    }

    /// Opens what this rank has allocated and not touched before. False if it was open.
    fn open(&mut self, context: &mut Context, key: Key) -> bool {
        let run = self.map.open(key);
        if let Some(run) = run {
            context.protect(run, Protection::Write);
        }
        run.is_some()
    }

    /// Checks the key in a message.
    fn checked(&self, key: Key) -> Result<Key, Violation> {
        if key.view < self.views && key.page < self.pages { Ok(key) } else { Err(Violation::OutOfRange) }
    }

    /// Handles a message about rights from another rank of the job.
    pub(crate) fn handle_message(
        &mut self,
        context: &mut Context,
        from: Rank,
        message: Message,
    ) -> Result<(), Violation> {
        for at in message.views().iter() {
            self.handle_one(context, from, message.about(at))?;
        }
        Ok(())
    }

    /// Handles a message about one minipage.
    fn handle_one(&mut self, context: &mut Context, from: Rank, message: Message) -> Result<(), Violation> {
        match message {
            Message::Request { thread, key, access, .. } => {
                let requester = from;
                let request = Waiting { requester, thread, access };
                self.handle_request(context, self.checked(key)?, request)
            }
            Message::Refuse { thread, key, .. } => self.handle_refuse(context, from, thread, self.checked(key)?),
            Message::Forward { minipage, requester, thread, access, acks, .. } => {
                let key = self.known(&minipage)?;
                let work = Work::Forward { access, acks };
                self.handle_order(context, Order::new(key, from, requester, thread, work))
            }
            Message::Grant { minipage, thread, access, acks, data, done, .. } => {
                let grant = Grant { acks, data, done };
                self.handle_grant(context, from, minipage, thread, access, grant)
            }
            Message::Invalidate { key, requester, thread, .. } => {
                let key = self.checked(key)?;
                let order = Order::new(key, from, requester, thread, Work::Invalidate);
                self.handle_order(context, order)
            }
            Message::InvalidateAck { thread, key, .. } => {
                self.handle_invalidate_ack(context, from, thread, self.checked(key)?)
            }
            Message::Done { thread, key, .. } => self.handle_done(context, from, thread, self.checked(key)?),
            // Other parts of the rank handle the rest.
            _ => Err(Violation::Unasked),
        }
    }
}

/// What allocation asks of it.
impl SequentialConsistency {
    /// Whether no known minipage of the same view overlaps the pages of `minipage`, which must be well-formed.
    pub(crate) fn is_free(&self, minipage: &Minipage) -> bool {
        self.map.is_free(minipage)
    }

    /// Enters a new minipage of this rank, whose pages must be free here: all zero, and writable at once.
    pub(crate) fn create(&mut self, context: &mut Context, minipage: Minipage) {
        self.map.insert(&minipage, Protection::Write);
        context.protect(minipage, Protection::Write);
        if let Some(entry) = self.managed(minipage.key()) {
            self.directory.register(entry, self.rank);
        }
    }

    /// As [`is_free`](Self::is_free), of several minipages, which must be well-formed.
    pub(crate) fn are_free(&self, units: &Units) -> bool {
        self.map.are_free(units)
    }

    /// Enters new minipages that `creator` has allocated, which every rank must know and whose pages must be free here: all zero. The
    /// creator may write; its pages open when it does.
    pub(crate) fn enter_units(&mut self, creator: Rank, units: Units) {
        self.map.insert_units(units, creator);
    }

    /// Its manager, or everybody if it is longer than a page: a rank that faults in the middle of it must know where it begins.
    pub(crate) fn must_know(&self, minipage: &Minipage, rank: Rank) -> bool {
        minipage.pages() > 1 || rank == self.spread.manager(minipage.key().page)
    }

    /// Enters a new, well-formed minipage of another rank, which this rank must know.
    pub(crate) fn enter(&mut self, from: Rank, minipage: Minipage) -> Result<(), Violation> {
        if !self.must_know(&minipage, self.rank) {
            return Err(Violation::NotManager);
        }
        if !self.map.is_free(&minipage) {
            return Err(Violation::Minipage);
        }
        self.map.insert(&minipage, Protection::None);
        if let Some(entry) = self.managed(minipage.key()) {
            self.directory.register(entry, from);
        }
        Ok(())
    }
}
