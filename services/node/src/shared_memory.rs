//! The shared memory ([`mapwire_dsm`]) as a service: ranks are processes, minipages are regions.
//!
//! The memory may be closed and opened again. A rank sends nothing to another that it has not *met* (imported its memory), and drops
//! messages of a peer that it has not granted its own memory in this opening ([`Service::hear`]): they are of an earlier one.

use alloc::boxed::Box;
use alloc::vec;

use mapwire_dsm::{Action as DsmAction, Dsm, Message, Minipage, Outcome, PeerError, Protection, Rank};
use mapwire_vmmc::service::{Access, Action, Broken, Figures, Region, Service};
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
    /// A message for a rank that has not been met: all that follows waits behind it.
    held: Option<(Rank, Option<Region>, Message)>,
    /// How the operation of each thread ended.
    outcomes: Box<[Option<Outcome>]>,
    end: Option<SharedEnd>,
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

#[inline]
fn region(minipage: &Minipage) -> Region {
    Region { view: minipage.view, offset: minipage.offset_bytes, bytes: minipage.length_bytes }
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

    fn handle_time(&mut self, now_ns: u64) {
        self.dsm.release_holds(now_ns);
    }

    #[inline]
    fn poll_action(&mut self) -> Option<Action<'_>> {
        let next = loop {
            if let Some(held) = self.held.take() {
                break held;
            }
            match self.dsm.poll_action()? {
                DsmAction::Send { to, message } => break (to, None, message),
                DsmAction::SendMinipage { to, minipage, message } => break (to, Some(region(&minipage)), message),
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
        let (to, region, message) = next;
        if self.met.get(usize::from(to)) != Some(&Met::Yes) {
            self.held = Some(next);
            return None;
        }
        let receiver = self.endpoint(to);
        let message = self.dsm.encode(to, &message);
        Some(match region {
            None => Action::Send { to: receiver, message },
            Some(region) => Action::Store { to: receiver, region, at: region.offset, message },
        })
    }

    #[inline]
    fn has_actions(&self) -> bool {
        match &self.held {
            None => self.dsm.has_actions(),
            // All waits for the machine.
            Some((to, ..)) => self.met.get(usize::from(*to)) != Some(&Met::Asked),
        }
    }

    #[inline]
    fn poll_meeting(&mut self) -> Option<Endpoint> {
        let (to, ..) = self.held?;
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
            Ok((Message::Grant { minipage, data: true, .. }, _)) => {
                Some((minipage.offset_bytes, minipage.length_bytes))
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
