//! Answers that this node owes: the fetches that it serves (UTLB §4.1, remote fetch), and refusals of stores. Both wait here, bounded for
//! each peer, and become packets only while the peer has room: a peer that asks and takes no answers fills its own share alone.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mapwire_translation::Frame;
use mapwire_wire::{ExportId, FetchId, Key, MessageId, NodeId, ProcessId, Refusal};

use crate::outbound::MAX_FETCHES_A_LINK;
use crate::turns::Turns;

/// Refusals that may wait for one peer. More are told together with one that waits for the same export; when there is none, the
/// peer learns by its next flush only.
pub(crate) const MAX_REFUSALS: usize = 16;

/// A fetch that this node serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Serving {
    pub process: ProcessId,
    pub fetch: FetchId,
    pub reply_key: Key,
    /// Looked up again before each chunk, since it may be revoked in between.
    pub export: ExportId,
    pub address: u64,
    pub remaining: u64,
    /// Bytes sent so far.
    pub sent: u64,
    /// Where the page of `address` is, if it was looked up with the last chunk.
    pub ahead: Option<Frame>,
    /// Nothing more is sent but this.
    pub refused: Option<Refusal>,
    /// What a word held that has been updated: the answer, whatever becomes of the export.
    pub value: Option<u64>,
}

impl Serving {
    /// The refusal of a fetch: reads no memory.
    pub(crate) const fn refusal(fetch: FetchId, reply_key: Key, export: ExportId, reason: Refusal) -> Self {
        Self {
            process: ProcessId(0),
            fetch,
            reply_key,
            export,
            address: 0,
            remaining: 0,
            sent: 0,
            ahead: None,
            refused: Some(reason),
            value: None,
        }
    }
}

/// A store that this node refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreRefusal {
    pub message: MessageId,
    pub export: ExportId,
    pub reason: Refusal,
    pub offset: u64,
    pub length: u64,
    /// Messages to the export that are told of with it, itself included.
    pub count: u64,
}

#[derive(Debug, Default)]
struct Owed {
    serving: VecDeque<Serving>,
    refusals: VecDeque<StoreRefusal>,
    /// Stores were refused that it is told of by its next flush only.
    untold: bool,
}

/// What is owed to each peer.
#[derive(Debug)]
pub(crate) struct Answers {
    peers: Vec<Owed>,
    /// Peers that are owed something.
    waiting: Turns,
}

/// The next thing for a peer.
#[derive(Debug)]
pub(crate) enum Answer {
    Serve(Serving),
    Refuse(StoreRefusal),
}

impl Answers {
    pub(crate) fn new(nodes: usize) -> Self {
        let mut peers = Vec::new();
        peers.resize_with(nodes, Owed::default);
        Self { peers, waiting: Turns::new(nodes) }
    }

    /// Whether a peer is owed something and its turn is to come.
    #[inline]
    pub(crate) fn has_turns(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The first peer in turn that `ready` says yes to.
    pub(crate) fn next(&self, ready: impl FnMut(usize) -> bool) -> Option<usize> {
        self.waiting.first_that(ready)
    }

    /// What is owed to a peer waits for the host, until [`wait_again`](Self::wait_again).
    pub(crate) fn stall(&mut self, index: usize) {
        self.waiting.remove(index);
    }

    /// Makes room for all that a peer may be owed.
    pub(crate) fn reserve(&mut self, peer: NodeId) {
        if let Some(owed) = self.peers.get_mut(usize::from(peer.0)) {
            owed.serving.reserve_exact(usize::from(MAX_FETCHES_A_LINK));
            owed.refusals.reserve_exact(MAX_REFUSALS);
        }
    }

    /// Whether the peer has fewer fetches under way than it may.
    pub(crate) fn has_room(&self, peer: NodeId) -> bool {
        let owed = self.peers.get(usize::from(peer.0));
        owed.is_some_and(|owed| owed.serving.len() < usize::from(MAX_FETCHES_A_LINK))
    }

    /// Takes a fetch in; false when the peer has as many as it may.
    pub(crate) fn serve(&mut self, peer: NodeId, serving: Serving) -> bool {
        let index = usize::from(peer.0);
        if !self.has_room(peer) {
            return false;
        }
        let Some(owed) = self.peers.get_mut(index) else {
            return false;
        };
        if owed.serving.capacity() == 0 {
            owed.serving.reserve_exact(usize::from(MAX_FETCHES_A_LINK));
        }
        owed.serving.push_back(serving);
        self.waiting.insert(index);
        true
    }

    /// Notes that the peer is to be told of a refused store; `open` says that more packets of its message follow, so that its
    /// sender wants to know at once. False when the peer is owed too many.
    pub(crate) fn refuse(&mut self, peer: NodeId, refusal: StoreRefusal, open: bool) -> bool {
        let index = usize::from(peer.0);
        let Some(owed) = self.peers.get_mut(index) else {
            return false;
        };
        let is_full = owed.refusals.len() >= MAX_REFUSALS;
        if !open || is_full {
            let same = |other: &&mut StoreRefusal| other.export == refusal.export;
            if let Some(other) = owed.refusals.iter_mut().find(same) {
                other.count = other.count.saturating_add(refusal.count);
                return true;
            }
        }
        if is_full {
            owed.untold = true;
            return false;
        }
        if owed.refusals.capacity() == 0 {
            owed.refusals.reserve_exact(MAX_REFUSALS);
        }
        owed.refusals.push_back(refusal);
        self.waiting.insert(index);
        true
    }

    /// Whether stores of the peer were refused that it was not told of, since it was asked last.
    pub(crate) fn take_untold(&mut self, peer: NodeId) -> bool {
        let owed = self.peers.get_mut(usize::from(peer.0));
        owed.is_some_and(|owed| core::mem::take(&mut owed.untold))
    }

    /// Whether a fetch from this export is served.
    pub(crate) fn is_serving(&self, export: ExportId) -> bool {
        let serving = self.peers.iter().flat_map(|owed| &owed.serving);
        serving.into_iter().any(|serving| serving.export == export)
    }

    /// Where the pages lie that were looked up for chunks which are still to be sent: whose memory, and the address.
    pub(crate) fn found(&self) -> impl Iterator<Item = (ProcessId, u64)> {
        let serving = self.peers.iter().flat_map(|owed| &owed.serving);
        let found = serving.filter(|serving| serving.ahead.is_some());
        found.map(|serving| (serving.process, serving.address))
    }

    /// The next thing for the peer, refusals first; a fetch of which more is to be sent is given back by `serve`, behind the
    /// others, so that the fetches of a peer take turns.
    pub(crate) fn take(&mut self, index: usize) -> Option<Answer> {
        let owed = self.peers.get_mut(index)?;
        let answer = match owed.refusals.pop_front() {
            Some(refusal) => Some(Answer::Refuse(refusal)),
            None => owed.serving.pop_front().map(Answer::Serve),
        };
        if owed.refusals.is_empty() && owed.serving.is_empty() {
            self.waiting.remove(index);
        }
        self.waiting.served(index);
        answer
    }

    /// Gives back a fetch that [`take`](Self::take) gave and that cannot be served yet.
    pub(crate) fn put_back(&mut self, index: usize, serving: Serving) {
        if let Some(owed) = self.peers.get_mut(index) {
            owed.serving.push_front(serving);
            self.waiting.insert(index);
        }
    }

    /// The peer's turn comes again, if it is owed anything.
    pub(crate) fn wait_again(&mut self, index: usize) {
        let owed = self.peers.get(index);
        if owed.is_some_and(|owed| !owed.refusals.is_empty() || !owed.serving.is_empty()) {
            self.waiting.insert(index);
        }
    }

    /// Fetches that are served, and refusals that are to be told.
    pub(crate) fn count(&self) -> usize {
        let owed = self.peers.iter();
        owed.map(|owed| owed.serving.len() + owed.refusals.len()).sum()
    }

    /// Forgets a peer.
    pub(crate) fn clear(&mut self, peer: NodeId) {
        let index = usize::from(peer.0);
        if let Some(owed) = self.peers.get_mut(index) {
            owed.serving.clear();
            owed.refusals.clear();
            owed.untold = false;
            self.waiting.remove(index);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let owed = |owed: &Owed| {
            owed.serving.capacity() * size_of::<Serving>() + owed.refusals.capacity() * size_of::<StoreRefusal>()
        };
        self.peers.iter().map(owed).sum::<usize>() + self.peers.capacity() * size_of::<Owed>() + self.waiting.bytes()
    }
}
