//! A node of the global memory.

mod calls;
mod directing;
mod donors;
mod membership;
mod placing;
mod putting;
mod requesting;
mod service;
mod storing;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use mapwire_vmmc::service::Broken;
use mapwire_wire::NodeId;

use crate::config::{Config, ConfigError};
use crate::counters::Counters;
use crate::directory::{Directory, PlainRows, Rows};
use crate::epochs::Epochs;
use crate::map::Map;
use crate::message::{Message, Request};
use crate::name::{PageHash, PageName};
use crate::nodes::{MAX_NODES, NodeSet};
use crate::outbox::Outbox;
use crate::outcome::Outcome;
use crate::pool::{FrameUses, Pool};
use crate::puts::Puts;
use crate::requests::Requests;
use crate::view::View;

/// How far a node is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Stays,
    /// It gives its pages away and waits for what it has begun.
    Drains,
    /// It has told everybody.
    Leaves,
}

/// A storing node asks whether it may drop a copy.
#[derive(Clone, Copy, Debug)]
struct Spare {
    from: NodeId,
    frame: u32,
    stamp: u32,
    on_disk: bool,
    hash: PageHash,
    name: PageName,
}

/// Pages that must be reported because of a new map.
#[derive(Debug, Default)]
struct Reports {
    queue: VecDeque<PageName>,
    /// Reports that have not been answered.
    open: usize,
    audience: NodeSet,
    /// Everybody has been told that all is reported.
    is_told: bool,
}

/// One node of the global memory: requesting node for its program, directory node for its part of the page directory, and storing node
/// for the frames that it donates.
///
/// Four kinds of method:
/// * getters, such as [`counters`](Self::counters) and [`map`](Self::map);
/// * calls of the program: [`get`](Self::get), [`put`](Self::put), [`discard`](Self::discard), [`copied`](Self::copied),
///   [`donate`](Self::donate), [`join`](Self::join), [`leave`](Self::leave);
/// * `handle_*` of its [`Service`](mapwire_vmmc::service::Service), for what comes from outside;
/// * `poll_*`: after each of the calls above, the actions of the service are carried out in their order, and
///   [`poll_outcome`](Self::poll_outcome) tells how operations ended.
///
/// Everything is bounded: requests by [`Config::requests`], frames that a peer may fill by [`MAX_GRANTS`](crate::MAX_GRANTS), what a peer has under way
/// here by its requests, pages by the frames of the pool, the directory by its bytes.
#[derive(Debug)]
pub struct Gms {
    config: Config,
    out: Outbox,
    outcomes: VecDeque<Outcome>,
    view: View,
    stage: Stage,
    reports: Reports,
    directory: Directory<Box<dyn Rows>>,
    /// Newest versions of pages that are listed no more, while reports of older ones may come.
    newest: BTreeMap<PageName, u32>,
    /// Questions of storing nodes that wait until the map is settled.
    parked_spares: Vec<Spare>,
    /// Requests that wait until the map is settled.
    parked: VecDeque<Request>,
    pool: Pool,
    /// Frames whose pages are on their way to other nodes.
    evictions: BTreeSet<u32>,
    /// Peers that have been asked to give back granted frames.
    recalled: NodeSet,
    /// The program waits for fewer frames to serve others.
    is_shrinking: bool,
    /// When pages that nobody took are offered again.
    retry_at_ns: Option<u64>,
    /// Until then no other node is asked to take pages that make room here: nobody did.
    full_until_ns: u64,
    requests: Requests,
    puts: Puts,
    /// Free frames of peers, as they last said.
    donations: BTreeMap<NodeId, u32>,
    epochs: Epochs,
    counters: Counters,
    sequence: u32,
    random: u64,
}

impl Gms {
    /// A node that stores nothing yet.
    ///
    /// # Errors
    /// A configuration that cannot be.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let rows = PlainRows::new(config.row_size, config.directory_bytes);
        Self::with_rows(config, Box::new(rows))
    }

    /// As [`new`](Self::new), with a page directory whose rows lie elsewhere: row size and bytes of the configuration do not count.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_rows(config: Config, rows: Box<dyn Rows>) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            out: Outbox::new(config.node, config.process),
            outcomes: VecDeque::new(),
            view: View::new(config.node, config.members, config.nodes),
            stage: Stage::Stays,
            reports: Reports { is_told: true, ..Reports::default() },
            directory: Directory::new(rows),
            newest: BTreeMap::new(),
            parked_spares: Vec::new(),
            parked: VecDeque::new(),
            pool: Pool::new(config.pool_first, config.pool_frames),
            evictions: BTreeSet::new(),
            recalled: NodeSet::EMPTY,
            is_shrinking: false,
            retry_at_ns: None,
            full_until_ns: 0,
            requests: Requests::default(),
            puts: Puts::default(),
            donations: BTreeMap::new(),
            epochs: Epochs::new(config.epoch_ms),
            counters: Counters::default(),
            sequence: 0,
            random: config.seed,
            config,
        })
    }

    /// How it takes part.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The map that it goes by.
    #[must_use]
    pub fn map(&self) -> &Map {
        self.view.map()
    }

    /// Whether all members go by this map and have reported what changes with it.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.view.is_settled()
    }

    /// Its part of the page directory.
    #[must_use]
    pub fn directory(&self) -> &Directory<Box<dyn Rows>> {
        &self.directory
    }

    /// Getpages and discardpages that are under way.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// The pages that it stores for others, their versions and frames, by name.
    pub fn pages(&self) -> impl Iterator<Item = (PageName, u32, u32)> + '_ {
        let version = |frame| self.pool.resident(frame).map_or(0, |page| page.page.version);
        self.pool.pages().map(move |(name, frame)| (name, version(frame), frame))
    }

    /// Frames that serve others.
    #[must_use]
    pub fn serving(&self) -> u32 {
        self.pool.serving()
    }

    /// Of them, those that hold no page, and that no peer may put one into.
    #[must_use]
    pub fn free_frames(&self) -> u32 {
        self.pool.free()
    }

    /// Frames of the pool that serve nobody: those that [`donate`](Self::donate) takes first come first.
    pub fn idle_frames(&self) -> impl Iterator<Item = u32> + '_ {
        self.pool.idle()
    }

    /// What the frames of the pool are used for. Looks at each of them.
    #[must_use]
    pub fn frame_uses(&self) -> FrameUses {
        self.pool.uses()
    }

    /// Frames of a peer into which this node may put pages.
    #[must_use]
    pub fn credit_of(&self, peer: NodeId) -> usize {
        self.puts.credit_of(peer)
    }

    /// Operations of the program, and pages on their way to other nodes, that have not ended.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.requests.len() + self.puts.len() + self.evictions.len()
    }

    /// What holds in this epoch; `None` before the first.
    #[must_use]
    pub fn epoch(&self) -> Option<&crate::EpochInfo> {
        self.epochs.current()
    }

    /// What it did.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { messages: *self.out.sent(), ..self.counters }
    }

    fn me(&self) -> NodeId {
        self.config.node
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Takes what a peer, or this node itself, says.
    fn take(&mut self, now_ns: u64, from: NodeId, message: Message) -> Result<(), Broken> {
        match message {
            Message::Request(request) => return self.handle_request(now_ns, from, request),
            Message::Page { sequence, page } => self.handle_page(from, sequence, &page),
            Message::Landed { sequence, is_taken } => return self.handle_landed(from, sequence, is_taken),
            Message::Put { sequence, frame, moves, page } => {
                let moved_from = moves.then_some(from);
                return self.handle_put(now_ns, (from, sequence), moved_from, frame, page);
            }
            Message::Stored { sequence, grant } => return self.handle_put_end(now_ns, from, sequence, None, grant),
            Message::Refused { sequence, why, grant } => {
                return self.handle_put_end(now_ns, from, sequence, Some(why), grant);
            }
            Message::Insert { frame, stamp, version, moved_from, hash, name } => {
                let listing = self.handle_insert(from, version, moved_from, hash, name);
                if let Some(listing) = listing {
                    let listed = Message::Listed { frame, stamp, listing };
                    self.out.send(from, listed);
                }
            }
            Message::Listed { frame, stamp, listing } => self.handle_listed(from, frame, stamp, listing),
            Message::Remove { hash, name } => self.handle_remove(from, hash, name),
            Message::Spare { frame, stamp, on_disk, hash, name } => {
                return self.handle_spare(Spare { from, frame, stamp, on_disk, hash, name });
            }
            Message::Spared { frame, stamp, is_spared } => self.handle_spared(now_ns, frame, stamp, is_spared),
            Message::Drop { below, hash, name } => self.handle_drop(from, below, hash, name),
            Message::Want => self.handle_want(now_ns, from),
            Message::Grant { frames } => return self.handle_grant(now_ns, from, &frames),
            Message::Recall => self.return_credit(from),
            Message::Return { frames } => return self.handle_return(from, &frames),
            Message::Map { version, previous, members } => self.handle_map(from, version, previous, members),
            Message::Reset { buckets } => self.handle_reset(from, &buckets),
            Message::Reported { version, free } => return self.handle_reported(from, version, free),
            Message::Join => self.view.set_wish(from, true),
            Message::Leave => self.view.set_wish(from, false),
            Message::Gone { node } => self.handle_said_gone(from, node),
            Message::Free { frames } => {
                self.donations.insert(from, frames);
            }
            Message::AgesWanted { epoch } => self.report_ages(now_ns, from, epoch),
            Message::Ages(report) => self.handle_ages(now_ns, from, report),
            Message::Epoch(info) => {
                let is_node = info.next_initiator.0 < MAX_NODES;
                if self.view.is_peer(from) && is_node {
                    self.epochs.adopt(now_ns, info);
                }
            }
        }
        Ok(())
    }

    /// Does what has become possible, and takes this node's messages to itself.
    fn settle_down(&mut self, now_ns: u64) {
        loop {
            while let Some(message) = self.out.pop_own() {
                // What this node says to itself is no breach.
                let _ = self.take(now_ns, self.me(), message);
            }
            self.report_pages();
            self.advance_membership(now_ns);
            self.advance_donors(now_ns);
            self.advance_leaving();
            if !self.out.has_own() {
                break;
            }
        }
    }
}
