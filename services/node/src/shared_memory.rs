//! The shared memory ([`mapwire_dsm`]) as a service: ranks are processes, minipages are regions.

use alloc::boxed::Box;
use alloc::vec;

use mapwire_dsm::{
    Action as DsmAction, Dsm, Message, Minipage, Outcome, PeerError, Protection, Rank,
};
use mapwire_service::{Access, Action, Broken, Region, Service};
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

/// The shared memory of a process.
#[derive(Debug)]
pub struct SharedMemory {
    dsm: Dsm,
    /// Processes of each node: rank `r` is process `r % n` of node `r / n`.
    per_node: u16,
    /// Ranks whose messages are of this opening of the memory.
    heard: Box<[bool]>,
    /// How the operation of each thread ended.
    outcomes: Box<[Option<Outcome>]>,
    end: Option<SharedEnd>,
}

impl SharedMemory {
    /// Makes a service of the model, where each node has `per_node` processes. Messages of ranks that it has not been told to
    /// [hear](Self::hear) are dropped: they are left of an earlier opening.
    #[must_use]
    pub fn new(dsm: Dsm, per_node: u16) -> Self {
        let config = dsm.config();
        let (ranks, threads) = (usize::from(config.ranks), usize::from(config.threads));
        Self {
            per_node: per_node.max(1),
            heard: vec![false; ranks].into(),
            outcomes: vec![None; threads].into(),
            end: None,
            dsm,
        }
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
            per_node => Endpoint {
                node: NodeId(rank / per_node),
                process: ProcessId(rank % per_node),
            },
        }
    }

    /// The rank that a process is.
    #[must_use]
    #[inline]
    pub fn rank(&self, of: Endpoint) -> Option<Rank> {
        let rank = of.node.0.checked_mul(self.per_node)?;
        let rank = rank.checked_add(of.process.0)?;
        let is_one = of.process.0 < self.per_node && rank < self.dsm.config().ranks;
        is_one.then_some(rank)
    }

    /// A rank has this process's memory, and so sends messages of this opening from here on.
    pub fn hear(&mut self, from: Endpoint) {
        let rank = self.rank(from);
        if let Some(heard) = rank.and_then(|rank| self.heard.get_mut(usize::from(rank))) {
            *heard = true;
        }
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
    Region {
        view: minipage.view,
        offset: minipage.offset_bytes,
        bytes: minipage.length_bytes,
    }
}

impl Service for SharedMemory {
    #[inline]
    fn handle_message(
        &mut self,
        now_ns: u64,
        from: Endpoint,
        message: &[u8],
    ) -> Result<(), Broken> {
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
        let (to, region, message) = loop {
            match self.dsm.poll_action()? {
                DsmAction::Send { to, message } => break (to, None, message),
                DsmAction::SendMinipage {
                    to,
                    minipage,
                    message,
                } => break (to, Some(region(&minipage)), message),
                DsmAction::Protect {
                    minipage,
                    protection,
                } => {
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
        let receiver = self.endpoint(to);
        let message = self.dsm.encode(to, &message);
        Some(match region {
            None => Action::Send {
                to: receiver,
                message,
            },
            Some(region) => Action::Store {
                to: receiver,
                region,
                at: region.offset,
                message,
            },
        })
    }

    #[inline]
    fn has_actions(&self) -> bool {
        self.dsm.has_actions()
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
