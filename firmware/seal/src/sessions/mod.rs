//! All sessions of a node.

mod handshakes;

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use mapwire_wire::NodeId;

use crate::address::Address;
use crate::aead::TAG_BYTES;
use crate::cookie::Cookies;
use crate::counters::{Cause, Counters};
use crate::identity::{Config, Identity};
use crate::indexes::Indexes;
use crate::keys::PublicKey;
use crate::outcome::{NotReady, Opened};
use crate::peer::Peer;
use crate::session::{Condition, NotOpened};
use crate::transmit::{Destination, Transmit};
use crate::wire::{
    COOKIE, COOKIE_DATAGRAM_BYTES, INITIATE, PLAIN, RESPOND, SEALED, SEALED_BACK_BYTES, SEALED_FRONT_BYTES, read_sealed,
};

/// Most cookies waiting to be sent. Beyond that none are made: a lost cookie is requested again.
const MOST_COOKIES: usize = 64;
/// Most nodes whose keys are wanted at a time. Others are dropped, and ask again.
const MOST_WANTED: usize = 64;

/// The sessions of a node with its peers, and the handshakes that make them.
///
/// * Commands: [`set_peer`](Self::set_peer), [`forget_peer`](Self::forget_peer), [`seal`](Self::seal).
/// * Inputs: [`handle`](Self::handle) for each datagram, [`handle_time`](Self::handle_time).
/// * Outputs: [`poll_transmit`](Self::poll_transmit), [`poll_wanted_key`](Self::poll_wanted_key), both to be drained after
///   each command and input, and [`poll_at`](Self::poll_at).
/// * Getters: [`is_ready`](Self::is_ready), [`counters`](Self::counters), [`bytes`](Self::bytes).
///
/// Times are nanoseconds of a monotonic clock. Entropy comes from the operating system, or from a seed in the simulator.
#[expect(missing_debug_implementations, reason = "it holds secrets, which are never printed")]
pub struct Sessions {
    /// One entry for each node; `None` if its key is unknown.
    peers: Vec<Option<Box<Peer>>>,
    indexes: Indexes,
    identity: Identity,
    cookies: Cookies,
    answers: VecDeque<(Address, [u8; COOKIE_DATAGRAM_BYTES])>,
    /// Peers with something to send. A node occurs at most once, unless its peer was removed.
    queue: VecDeque<NodeId>,
    wanted: VecDeque<NodeId>,
    timers: BTreeSet<(u64, NodeId)>,
    counters: Counters,
}

impl Sessions {
    /// A node without sessions and without peers' keys.
    #[must_use]
    pub fn new(config: Config, entropy: &mut dyn FnMut(&mut [u8])) -> Self {
        let nodes = config.nodes.min(u32::from(u16::MAX) + 1) as usize;
        let mut peers = Vec::new();
        peers.resize_with(nodes, || None);
        Self {
            peers,
            indexes: Indexes::new(),
            identity: Identity::new(config),
            cookies: Cookies::new(entropy),
            answers: VecDeque::with_capacity(MOST_COOKIES),
            queue: VecDeque::new(),
            wanted: VecDeque::new(),
            timers: BTreeSet::new(),
            counters: Counters::default(),
        }
    }

    /// Sets the key of `node`. A changed key ends the sessions with it.
    pub fn set_peer(&mut self, node: NodeId, key: PublicKey) {
        if !self.identity.has_peer(node) {
            return;
        }
        if self.peer(node).is_some_and(|peer| *peer.public() == key) {
            return;
        }
        self.forget_peer(node);
        if let Some(entry) = self.peers.get_mut(usize::from(node.0)) {
            *entry = Some(Box::new(Peer::new(key)));
        }
    }

    /// Ends the sessions with `node` and forgets its key.
    pub fn forget_peer(&mut self, node: NodeId) {
        let entry = self.peers.get_mut(usize::from(node.0));
        if let Some(mut peer) = entry.and_then(Option::take) {
            peer.clear(&mut self.indexes);
            self.timers.remove(&(peer.set_timer(u64::MAX), node));
        }
        self.queue.retain(|queued| *queued != node);
    }

    /// Handles a datagram of `from`, an address of up to [`MAX_ADDRESS_BYTES`](crate::MAX_ADDRESS_BYTES). Its content is decrypted in
    /// place, and handed on only if it is genuine and new. Bytes of a rejected one are undefined.
    #[inline]
    pub fn handle(
        &mut self,
        now_ns: u64,
        from: &[u8],
        datagram: &mut [u8],
        entropy: &mut dyn FnMut(&mut [u8]),
    ) -> Opened {
        let opened = match datagram.first() {
            Some(&SEALED) => self.open(now_ns, datagram),
            Some(&(INITIATE | RESPOND | COOKIE)) => {
                let handled = self.handle_handshake(now_ns, from, datagram, entropy);
                handled.map(|()| Opened::Handled)
            }
            Some(&PLAIN) => Err(Cause::Mode),
            _ => Err(Cause::Malformed),
        };
        opened.unwrap_or_else(|cause| {
            self.counters.reject(cause);
            Opened::Rejected(cause)
        })
    }

    #[inline]
    fn open(&mut self, now_ns: u64, datagram: &mut [u8]) -> Result<Opened, Cause> {
        let length = datagram.len();
        let (front, sealed) = datagram.split_first_chunk_mut().ok_or(Cause::Malformed)?;
        let (index, counter) = read_sealed(front, length).ok_or(Cause::Malformed)?;
        if sealed.len() < TAG_BYTES {
            return Err(Cause::Malformed);
        }
        let from = self.indexes.node(index).ok_or(Cause::UnknownSession)?;
        let peer = self.peers.get_mut(usize::from(from.0));
        let peer = peer.and_then(Option::as_deref_mut);
        let peer = peer.ok_or(Cause::UnknownSession)?;
        let session = peer.session_mut(index, now_ns);
        let (session, is_offer) = session.ok_or(Cause::UnknownSession)?;
        session.open(counter, front, sealed).map_err(|error| match error {
            NotOpened::Replay => Cause::Replay,
            NotOpened::Tag => Cause::Tag,
        })?;
        if is_offer {
            self.accept_offer(now_ns, from);
        } else {
            peer.handle_opened(index);
        }
        if length == SEALED_FRONT_BYTES + SEALED_BACK_BYTES {
            return Ok(Opened::Handled);
        }
        Ok(Opened::Data { from, bytes: SEALED_FRONT_BYTES..length - SEALED_BACK_BYTES })
    }

    /// Seals `datagram` for the peer `to` in place: its first [`SEALED_FRONT_BYTES`] and its last [`SEALED_BACK_BYTES`] are room for the
    /// envelope. Nothing between them is allowed, but is not handed on.
    ///
    /// # Errors
    /// [`NotReady`]: nothing was written. If there is no session, a handshake begins; [`is_ready`](Self::is_ready) says when it is over.
    #[inline]
    pub fn seal(&mut self, now_ns: u64, to: NodeId, datagram: &mut [u8]) -> Result<(), NotReady> {
        let peer = self.peers.get_mut(usize::from(to.0));
        let session = peer.and_then(Option::as_deref_mut).and_then(Peer::current_mut);
        if let Some(session) = session
            && session.condition(now_ns) == Condition::Good
        {
            if !session.seal(datagram) {
                return Err(NotReady::NoRoom(datagram.len()));
            }
            session.await_answer(now_ns, self.identity.rotation());
            return Ok(());
        }
        self.seal_worn(now_ns, to, datagram)
    }

    /// Seals with a worn session, and requests another.
    #[cold]
    fn seal_worn(&mut self, now_ns: u64, to: NodeId, datagram: &mut [u8]) -> Result<(), NotReady> {
        self.ask(to)?;
        let rotation = *self.identity.rotation();
        let session = self.peer_mut(to).and_then(Peer::current_mut);
        match session {
            Some(session) if session.condition(now_ns) != Condition::Spent => {
                if !session.seal(datagram) {
                    return Err(NotReady::NoRoom(datagram.len()));
                }
                session.await_answer(now_ns, &rotation);
                Ok(())
            }
            _ => Err(NotReady::NoSession(to)),
        }
    }

    /// Requests a session with `node`, or its key.
    fn ask(&mut self, node: NodeId) -> Result<(), NotReady> {
        if !self.identity.has_peer(node) {
            return Err(NotReady::NoPeer(node));
        }
        let Some(peer) = self.peer_mut(node) else {
            self.want_key(node);
            return Err(NotReady::NoKey(node));
        };
        peer.ask();
        self.enqueue(node);
        Ok(())
    }

    /// The next handshake datagram to transmit. Send it once; it may be lost.
    pub fn poll_transmit(&mut self, now_ns: u64, entropy: &mut dyn FnMut(&mut [u8])) -> Option<Transmit> {
        if let Some((to, bytes)) = self.answers.pop_front() {
            return Some(Transmit::new(Destination::Address(to), &bytes));
        }
        while let Some(node) = self.queue.pop_front() {
            let peer = self.peers.get_mut(usize::from(node.0));
            let Some(peer) = peer.and_then(Option::as_deref_mut) else {
                continue;
            };
            peer.handle_dequeued();
            let (identity, indexes) = (&self.identity, &mut self.indexes);
            let transmit = peer.transmit(now_ns, node, identity, indexes, entropy);
            self.enqueue(node);
            self.set_timer(node);
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    /// The next node whose key is missing, for [`set_peer`](Self::set_peer). It is named again when it is next needed.
    pub fn poll_wanted_key(&mut self) -> Option<NodeId> {
        self.wanted.pop_front()
    }

    /// Repeats unanswered datagrams, and forgets what has expired.
    pub fn handle_time(&mut self, now_ns: u64) {
        while let Some(&(at_ns, node)) = self.timers.first().filter(|(at_ns, _)| *at_ns <= now_ns) {
            self.timers.remove(&(at_ns, node));
            let peer = self.peers.get_mut(usize::from(node.0));
            if let Some(peer) = peer.and_then(Option::as_deref_mut) {
                peer.set_timer(u64::MAX);
                peer.handle_time(now_ns, &mut self.indexes);
                self.enqueue(node);
                self.set_timer(node);
            }
        }
    }

    /// Time of the next [`handle_time`](Self::handle_time); 0 if [`poll_transmit`](Self::poll_transmit) has something.
    #[must_use]
    pub fn poll_at(&self) -> Option<u64> {
        if !self.answers.is_empty() || !self.queue.is_empty() {
            return Some(0);
        }
        self.timers.first().map(|(at_ns, _)| *at_ns)
    }

    /// Whether [`seal`](Self::seal) to `node` would succeed now.
    #[must_use]
    pub fn is_ready(&self, now_ns: u64, node: NodeId) -> bool {
        let session = self.peer(node).and_then(Peer::current);
        session.is_some_and(|session| session.condition(now_ns) != Condition::Spent)
    }

    /// Counters so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of memory in use, without allocator overhead.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let peers = self.peers.iter().flatten();
        let behind: usize = peers.map(|peer| size_of::<Peer>() + peer.bytes()).sum();
        size_of::<Self>()
            + self.peers.capacity() * size_of::<Option<Box<Peer>>>()
            + behind
            + self.indexes.bytes()
            + self.answers.capacity() * size_of::<(Address, [u8; COOKIE_DATAGRAM_BYTES])>()
            + (self.queue.capacity() + self.wanted.capacity()) * size_of::<NodeId>()
            + self.timers.len() * 2 * size_of::<(u64, NodeId)>()
    }

    fn peer(&self, node: NodeId) -> Option<&Peer> {
        self.peers.get(usize::from(node.0))?.as_deref()
    }

    fn peer_mut(&mut self, node: NodeId) -> Option<&mut Peer> {
        self.peers.get_mut(usize::from(node.0))?.as_deref_mut()
    }

    fn want_key(&mut self, node: NodeId) {
        if self.wanted.len() < MOST_WANTED && !self.wanted.contains(&node) {
            self.wanted.push_back(node);
        }
    }

    fn enqueue(&mut self, node: NodeId) {
        if self.peer_mut(node).is_some_and(Peer::enqueue) {
            self.queue.push_back(node);
        }
    }

    fn set_timer(&mut self, node: NodeId) {
        let Some(peer) = self.peer_mut(node) else {
            return;
        };
        let next_ns = peer.next_ns();
        let former_ns = peer.set_timer(next_ns);
        if former_ns == next_ns {
            return;
        }
        self.timers.remove(&(former_ns, node));
        if next_ns != u64::MAX {
            self.timers.insert((next_ns, node));
        }
    }
}
