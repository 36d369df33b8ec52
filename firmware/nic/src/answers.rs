//! Answers that this node owes: the fetches that it serves (UTLB §4.1, remote fetch), and refusals of stores. Both wait here, bounded for
//! each peer, and become packets only while the peer has room: a peer that asks and takes no answers fills its own share alone.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mapwire_translation::Frame;
use mapwire_wire::{ExportId, FetchId, Key, MessageId, NodeId, ProcessId, Refusal};

use crate::outbound::MAX_FETCHES_A_LINK;
use crate::turns::Turns;

/// Refusals that may wait for one peer. Further ones are merged with one that waits for the same export; if there is none, the
/// peer learns of them by its next flush.
pub(crate) const MAX_REFUSALS: usize = 16;

/// A fetch that this node serves for a peer.
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
    /// Frame of the page of `address`, if the lookup of the last chunk found it.
    pub ahead: Option<Frame>,
    /// Once set, the only answer that is still sent.
    pub refused: Option<Refusal>,
    /// Old value of an updated word: the answer, even if the export is revoked.
    pub value: Option<u64>,
    /// How often the next chunk has waited for the host.
    pub tries: u32,
}

impl Serving {
    /// A fetch of no bytes, of which nothing has been sent.
    pub(crate) const fn new(fetch: FetchId, reply_key: Key, export: ExportId) -> Self {
        Self {
            process: ProcessId(0),
            fetch,
            reply_key,
            export,
            address: 0,
            remaining: 0,
            sent: 0,
            ahead: None,
            refused: None,
            value: None,
            tries: 0,
        }
    }

    /// The refusal of a fetch; reads no memory.
    pub(crate) const fn refusal(fetch: FetchId, reply_key: Key, export: ExportId, reason: Refusal) -> Self {
        Self { refused: Some(reason), ..Self::new(fetch, reply_key, export) }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreRefusal {
    pub message: MessageId,
    pub export: ExportId,
    pub reason: Refusal,
    pub offset: u64,
    pub length: u64,
    /// Messages to the export that it reports, this one included.
    pub count: u64,
}

#[derive(Debug, Default)]
struct Owed {
    serving: VecDeque<Serving>,
    refusals: VecDeque<StoreRefusal>,
    /// Stores were refused that only the peer's next flush will report.
    untold: bool,
}

#[derive(Debug)]
pub(crate) struct Answers {
    peers: Vec<Owed>,
    waiting: Turns,
}

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

    /// Whether some peer is owed something and not stalled.
    #[inline]
    pub(crate) fn has_turns(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The first peer in turn for which `ready` is true.
    pub(crate) fn next(&self, ready: impl FnMut(usize) -> bool) -> Option<usize> {
        self.waiting.first_that(ready)
    }

    /// Suspends a peer's answers, which wait for the host, until [`wait_again`](Self::wait_again).
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

    /// Accepts a fetch; false if the peer has as many as it may.
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

    /// Queues a report of a refused store; `open` says that more packets of its message follow, so that its sender wants to know
    /// at once. False if the peer is owed too many.
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

    /// Whether, since the last call, stores of the peer were refused without a report.
    pub(crate) fn take_untold(&mut self, peer: NodeId) -> bool {
        let owed = self.peers.get_mut(usize::from(peer.0));
        owed.is_some_and(|owed| core::mem::take(&mut owed.untold))
    }

    /// Whether a fetch from this export is being served.
    pub(crate) fn is_serving(&self, export: ExportId) -> bool {
        let serving = self.peers.iter().flat_map(|owed| &owed.serving);
        serving.into_iter().any(|serving| serving.export == export)
    }

    /// Process and address of pages that were looked up for chunks still to be sent.
    pub(crate) fn found(&self) -> impl Iterator<Item = (ProcessId, u64)> {
        let serving = self.peers.iter().flat_map(|owed| &owed.serving);
        let found = serving.filter(|serving| serving.ahead.is_some());
        found.map(|serving| (serving.process, serving.address))
    }

    /// The next thing owed to the peer, refusals first. The caller gives back a fetch with chunks left by `serve`, behind the
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

    /// Gives back a fetch from [`take`](Self::take) that cannot be served yet.
    pub(crate) fn put_back(&mut self, index: usize, serving: Serving) {
        if let Some(owed) = self.peers.get_mut(index) {
            owed.serving.push_front(serving);
            self.waiting.insert(index);
        }
    }

    /// Resumes the peer's turns, if it is owed anything.
    pub(crate) fn wait_again(&mut self, index: usize) {
        let owed = self.peers.get(index);
        if owed.is_some_and(|owed| !owed.refusals.is_empty() || !owed.serving.is_empty()) {
            self.waiting.insert(index);
        }
    }

    /// Fetches being served, plus refusals to report.
    pub(crate) fn count(&self) -> usize {
        let owed = self.peers.iter();
        owed.map(|owed| owed.serving.len() + owed.refusals.len()).sum()
    }

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
