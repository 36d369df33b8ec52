//! The shared memory ([`mapwire_dsm`]) as a service: ranks are processes, minipages are regions.
//!
//! The memory may be closed and opened again. A rank sends nothing to another that it has not *met* (imported its memory), and drops
//! messages of a peer that it has not granted its own memory in this opening ([`Service::hear`]): they are of an earlier one.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use core::fmt::Debug;

use mapwire_dsm::{
    Action as DsmAction, Dsm, Message, Minipage, Outcome, PAGE_BYTES, PeerError, Protection, Protocol, Rank,
};
use mapwire_vmmc::service::{Access, Action, Broken, Change, Figures, Region, Service};
use mapwire_wire::{Endpoint, NodeId, ProcessId};

/// Why a shared memory is at its end. Every operation gets it from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedEnd {
    /// A rank is gone, and with it what it owned.
    Gone(NodeId),
    /// A message to a rank was lost, and with it what the ranks agree on.
    Lost(NodeId),
    /// A rank does not follow the protocol.
    Peer(PeerError),
    /// A rank sent what is no message of the shared memory.
    Garbled(Endpoint),
}

/// Whether a rank can be sent messages: it has opened the memory, and its part can be stored into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    No,
    /// The machine has been asked to see to it.
    Asked,
    Yes,
}

/// Something that involves another rank.
#[derive(Clone, Copy, Debug)]
struct Remote {
    rank: Rank,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Send(Message),
    /// The minipages that the message is about, from this run of adjacent ones on, and the message behind them.
    Store(Minipage, Message, usize),
    /// What differs between a page and its twin, and the message behind it.
    StoreChanges {
        page: u32,
        twin: u32,
        message: Message,
    },
    /// Pages, here, or one to a twin.
    Fetch {
        page: u32,
        pages: u32,
        into: Option<u32>,
    },
}

/// Is told what is done with minipages and pages, where nothing may be allocated.
pub trait Watcher: Debug + Send + Sync {
    /// An action of the model is carried out.
    fn handle_action(&self, action: &DsmAction);

    /// A diff of a page, of so many bytes, goes to its home.
    fn handle_changes(&self, page: u64, bytes: u64);
}

/// The shared memory of a process.
#[derive(Debug)]
pub struct SharedMemory {
    dsm: Dsm,
    /// Processes of each node: rank `r` is process `r % n` of node `r / n`.
    per_node: u16,
    /// Ranks whose messages are of this opening of the memory.
    heard: Box<[bool]>,
    /// How far this rank has met each of the others.
    met: Box<[Met]>,
    /// What concerns a rank that has not been met: all that follows waits behind it.
    held: Option<Remote>,
    /// How the operation of each thread ended.
    outcomes: Box<[Option<Outcome>]>,
    end: Option<SharedEnd>,
    watcher: Option<Arc<dyn Watcher>>,
}

impl SharedMemory {
    /// Makes a service of the model, where each node has `per_node` processes. Messages of ranks that it has not been told to
    /// [hear](Service::hear) are dropped: they are left of an earlier opening.
    #[must_use]
    pub fn new(dsm: Dsm, per_node: u16) -> Self {
        let config = dsm.config();
        let (ranks, threads) = (usize::from(config.ranks), usize::from(config.threads));
        Self {
            per_node: per_node.max(1),
            heard: vec![false; ranks].into(),
            met: vec![Met::Yes; ranks].into(),
            held: None,
            outcomes: vec![None; threads].into(),
            end: None,
            watcher: None,
            dsm,
        }
    }

    /// Makes it wait for [`handle_met`](Service::handle_met) before it sends anything to another rank. Otherwise all count as met.
    #[must_use]
    pub fn with_meetings(mut self) -> Self {
        self.met.fill(Met::No);
        if let Some(own) = self.met.get_mut(usize::from(self.dsm.config().rank)) {
            *own = Met::Yes;
        }
        self
    }

    /// Tells somebody what is done from now on.
    #[must_use]
    pub fn watched_by(self, watcher: Option<Arc<dyn Watcher>>) -> Self {
        Self { watcher, ..self }
    }

    /// The model.
    #[must_use]
    #[inline]
    pub fn dsm(&self) -> &Dsm {
        &self.dsm
    }

    /// The model, for operations of the program.
    #[inline]
    pub fn dsm_mut(&mut self) -> &mut Dsm {
        &mut self.dsm
    }

    /// The process that is a rank.
    #[must_use]
    #[inline]
    pub fn endpoint(&self, rank: Rank) -> Endpoint {
        match self.per_node {
            // A division takes longer than all else here.
            1 => Endpoint::first_of(NodeId(rank)),
            per_node => Endpoint { node: NodeId(rank / per_node), process: ProcessId(rank % per_node) },
        }
    }

    /// The rank that a process is.
    #[must_use]
    #[inline]
    pub fn rank(&self, of: Endpoint) -> Option<Rank> {
        let rank = of.node.0.checked_mul(self.per_node)?.checked_add(of.process.0)?;
        let is_one = of.process.0 < self.per_node && rank < self.dsm.config().ranks;
        is_one.then_some(rank)
    }

    /// How a thread's operation ended, once; or why it never will.
    ///
    /// # Errors
    /// The memory is at its end, and the outcome is not there.
    #[inline]
    pub fn take_outcome(&mut self, thread: u16) -> Option<Result<Outcome, SharedEnd>> {
        let outcome = self.outcomes.get_mut(usize::from(thread));
        match outcome.and_then(Option::take) {
            Some(outcome) => Some(Ok(outcome)),
            None => self.end.map(Err),
        }
    }

    /// Why the memory is at its end, if it is.
    #[must_use]
    #[inline]
    pub fn end(&self) -> Option<SharedEnd> {
        self.end
    }

    fn end_by(&mut self, end: SharedEnd) {
        self.end.get_or_insert(end);
    }
}

fn page_offset(page: u32) -> u64 {
    u64::from(page) * PAGE_BYTES
}

fn page_region(page: u32) -> Region {
    Region { view: 0, offset: page_offset(page), bytes: PAGE_BYTES }
}

impl SharedMemory {
    /// Where a twin lies: behind the pages that all share.
    fn twin_offset(&self, twin: u32) -> u64 {
        page_offset(self.dsm.config().pages) + page_offset(twin)
    }
}

#[inline]
fn region(minipage: &Minipage) -> Region {
    Region { view: minipage.view, offset: minipage.offset_bytes, bytes: minipage.length_bytes }
}

/// The bytes of `count` adjacent minipages as long as this one, of which the first is `first` views after it.
fn adjacent(minipage: &Minipage, first: u16, count: u16) -> Region {
    let Region { view, offset, bytes } = region(minipage);
    let (distance, all) = (bytes.wrapping_mul(first.into()), bytes.wrapping_mul(count.into()));
    Region { view: view.wrapping_add(first), offset: offset.wrapping_add(distance), bytes: all }
}

impl Service for SharedMemory {
    #[inline]
    fn handle_message(&mut self, now_ns: u64, from: Endpoint, message: &[u8]) -> Result<(), Broken> {
        let rank = self.rank(from);
        let heard = rank.filter(|&rank| self.heard[usize::from(rank)]);
        if let Some(rank) = heard {
            match Message::parse(message) {
                Ok((message, payload)) => {
                    let handled = self.dsm.handle_message(now_ns, rank, message, payload);
                    if let Err(error) = handled {
                        self.end_by(SharedEnd::Peer(error));
                    }
                }
                Err(_) => self.end_by(SharedEnd::Garbled(from)),
            }
        }
        // Only this memory is at its end; exports and imports of the peer are as good as before.
        Ok(())
    }

    fn handle_peer_gone(&mut self, _now_ns: u64, node: NodeId) {
        self.end_by(SharedEnd::Gone(node));
    }

    fn handle_lost(&mut self, to: Endpoint) {
        self.end_by(SharedEnd::Lost(to.node));
    }

    fn handle_fetched(&mut self, offset: u64) {
        self.dsm.handle_fetched(offset / PAGE_BYTES);
    }

    fn handle_changes(&mut self, offset: u64, parts: &[(u64, u64)]) {
        if let Some(watcher) = &self.watcher {
            watcher.handle_changes(offset / PAGE_BYTES, parts.iter().map(|part| part.1).sum());
        }
        let within = |part: &(u64, u64)| Some((u16::try_from(part.0).ok()?, u16::try_from(part.1).ok()?));
        self.dsm.handle_changes(offset / PAGE_BYTES, parts.iter().filter_map(within));
    }

    fn spare_bytes(&self) -> u64 {
        let config = self.dsm.config();
        if config.protocol == Protocol::Hlrc { page_offset(config.twins) } else { 0 }
    }

    fn handle_time(&mut self, now_ns: u64) {
        self.dsm.release_holds(now_ns);
    }

    #[inline]
    fn poll_action(&mut self) -> Option<Action<'_>> {
        let next = loop {
            if let Some(held) = self.held.take() {
                break held;
            }
            let action = self.dsm.poll_action()?;
            if let Some(watcher) = &self.watcher {
                watcher.handle_action(&action);
            }
            match action {
                DsmAction::Send { to, message } => break Remote { rank: to, what: What::Send(message) },
                DsmAction::SendMinipage { to, minipage, message } => {
                    break Remote { rank: to, what: What::Store(minipage, message, 0) };
                }
                DsmAction::SendDiff { to, page, twin, message } => {
                    break Remote { rank: to, what: What::StoreChanges { page, twin, message } };
                }
                DsmAction::Fetch { from, page, pages, into } => {
                    break Remote { rank: from, what: What::Fetch { page, pages, into } };
                }
                DsmAction::Twin { page, twin } => {
                    let (from, to) = (page_offset(page), self.twin_offset(twin));
                    return Some(Action::Change(Change::Copy { from, to }));
                }
                DsmAction::Merge { page, twin, fetched } => {
                    let (copy, fetched) = (self.twin_offset(twin), self.twin_offset(fetched));
                    return Some(Action::Change(Change::Merge { page: page_offset(page), copy, fetched }));
                }
                DsmAction::Protect { minipage, protection } => {
                    return Some(Action::Protect {
                        region: region(&minipage),
                        access: match protection {
                            Protection::None => Access::None,
                            Protection::Read => Access::Read,
                            Protection::Write => Access::Write,
                        },
                    });
                }
                // Threads look for their outcomes themselves.
                DsmAction::Resume { thread, outcome } => {
                    if let Some(slot) = self.outcomes.get_mut(usize::from(thread)) {
                        *slot = Some(outcome);
                    }
                }
            }
        };
        let Remote { rank, what } = next;
        if self.met.get(usize::from(rank)) != Some(&Met::Yes) {
            self.held = Some(next);
            return None;
        }
        let to = self.endpoint(rank);
        Some(match what {
            What::Send(message) => Action::Send { to, message: self.dsm.encode(rank, &message) },
            What::Store(minipage, message, run) => {
                let mut runs = message.views().runs().skip(run);
                let (first, count) = runs.next().unwrap_or((0, 1));
                let region = adjacent(&minipage, first, count);
                let message = match runs.next() {
                    None => self.dsm.encode(rank, &message),
                    Some(_) => {
                        self.held = Some(Remote { rank, what: What::Store(minipage, message, run + 1) });
                        &[]
                    }
                };
                Action::Store { to, region, at: region.offset, message }
            }
            What::StoreChanges { page, twin, message } => {
                let copy = self.twin_offset(twin);
                let message = self.dsm.encode(rank, &message);
                Action::StoreChanges { to, region: page_region(page), copy, message }
            }
            What::Fetch { page, pages, into } => {
                let here = into.map_or(page_offset(page), |twin| self.twin_offset(twin));
                let region = Region { bytes: page_offset(pages), ..page_region(page) };
                Action::Fetch { from: to, region, to: here }
            }
        })
    }

    #[inline]
    fn has_actions(&self) -> bool {
        match &self.held {
            None => self.dsm.has_actions(),
            // All waits for the machine.
            Some(held) => self.met.get(usize::from(held.rank)) != Some(&Met::Asked),
        }
    }

    #[inline]
    fn poll_meeting(&mut self) -> Option<Endpoint> {
        let to = self.held?.rank;
        let met = self.met.get_mut(usize::from(to))?;
        let is_new = core::mem::replace(met, Met::Asked) == Met::No;
        is_new.then(|| self.endpoint(to))
    }

    /// Messages for the rank go out from here on.
    fn handle_met(&mut self, of: Endpoint) {
        let rank = self.rank(of);
        if let Some(met) = rank.and_then(|rank| self.met.get_mut(usize::from(rank))) {
            *met = Met::Yes;
        }
    }

    fn hear(&mut self, from: Endpoint) {
        let rank = self.rank(from);
        if let Some(heard) = rank.and_then(|rank| self.heard.get_mut(usize::from(rank))) {
            *heard = true;
        }
    }

    fn stored_before(&self, message: &[u8]) -> Option<(u64, u64)> {
        match Message::parse(message) {
            Ok((Message::Grant { minipage, data: true, views, .. }, _)) => {
                // With what lies between them.
                let Region { offset, bytes, .. } = adjacent(&minipage, 0, views.iter().last()? + 1);
                Some((offset, bytes))
            }
            _ => None,
        }
    }

    fn is_holding(&self) -> bool {
        self.dsm.poll_hold().is_some()
    }

    fn figures(&self) -> Figures {
        let counters = self.dsm.counters();
        Figures {
            read_faults: counters.read_faults,
            write_faults: counters.write_faults,
            invalidations: counters.invalidations,
            regions_sent: counters.minipages_sent,
            bytes_sent: counters.bytes_sent,
            remote_locks: counters.lock_acquires_remote,
            barriers: counters.barriers,
        }
    }

    #[inline]
    fn poll_at(&self) -> Option<u64> {
        self.dsm.poll_hold()
    }

    #[inline]
    fn needs_time(&self, message: &[u8]) -> bool {
        self.dsm.needs_time(message)
    }

    fn allocates_nothing(&self) -> bool {
        true
    }
}
