//! What a program has sent towards each peer, and whether the peer is there: a word for each, which imports of that peer share, read on each
//! direct send.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use mapwire_host::memory::MemoryError;
use mapwire_host::own_words::OwnWord;
use mapwire_wire::NodeId;

/// Packets or commands towards the peer may be under way: a direct store now would overtake them.
const RING_DIRTY: u32 = 1;
/// The peer is gone.
const GONE: u32 = 2;
/// What is communicated is written down: direct stores are, too.
const TRACED: u32 = 4;
/// This process is the one that joined: a forked child finds 0 here, and so no way clear.
const HERE: u32 = 8;

/// The words of all peers.
#[derive(Clone, Debug)]
pub(crate) struct PeerWords(Arc<[OwnWord]>);

impl PeerWords {
    /// Of `peers` peers to whom the way is clear.
    pub(crate) fn new(peers: usize) -> Result<Self, MemoryError> {
        let words = OwnWord::several(peers)?;
        words.iter().for_each(|word| word.store(HERE, Ordering::Relaxed));
        Ok(Self(words.into()))
    }

    /// Direct stores are written down from here on.
    pub(crate) fn set_traced(&self) {
        for flags in self.0.iter() {
            flags.fetch_or(TRACED, Ordering::Relaxed);
        }
    }

    /// Notes that something is under way to a peer that a direct store must not overtake.
    #[inline]
    pub(crate) fn mark_dirty(&self, peer: NodeId) {
        let flags = &self.0[usize::from(peer.0)];
        if flags.load(Ordering::Relaxed) & RING_DIRTY == 0 {
            flags.fetch_or(RING_DIRTY, Ordering::Relaxed);
        }
    }

    /// Nothing is under way to a peer.
    pub(crate) fn clear_dirty(&self, peer: NodeId) {
        self.0[usize::from(peer.0)].fetch_and(!RING_DIRTY, Ordering::AcqRel);
    }

    pub(crate) fn set_gone(&self, peer: NodeId) {
        if let Some(flags) = self.0.get(usize::from(peer.0)) {
            flags.fetch_or(GONE, Ordering::Release);
        }
    }

    /// Whether a peer has left or died, or never was.
    #[inline]
    pub(crate) fn is_gone(&self, peer: NodeId) -> bool {
        let flags = self.0.get(usize::from(peer.0));
        flags.is_none_or(|flags| flags.load(Ordering::Acquire) & GONE != 0)
    }

    /// What says whether direct stores to a peer may go ahead.
    pub(crate) fn direct_stores_to(&self, peer: NodeId) -> DirectStores {
        DirectStores(self.0[usize::from(peer.0)].clone())
    }
}

/// Says whether direct stores to a peer may go ahead. Kept by whoever makes them, so that it costs two loads.
#[derive(Clone, Debug)]
pub struct DirectStores(OwnWord);

impl DirectStores {
    /// Whether a direct store may go ahead: nothing sent before is still under way, the peer is there, and this is no forked child.
    #[inline(always)]
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.0.load(Ordering::Acquire) == HERE
    }

    /// Whether direct stores are written down.
    #[inline]
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.0.load(Ordering::Relaxed) & TRACED != 0
    }

    /// Whether nothing that was sent before is still under way, and this is no forked child.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.0.load(Ordering::Acquire) & !TRACED == HERE
    }
}
