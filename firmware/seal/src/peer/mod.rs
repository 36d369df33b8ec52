//! State of one peer: its key, the sessions with it, and the handshake under way.
//!
//! There are up to three sessions. The *current* one seals. The *former* one still opens for a while after a rotation. The *next* one was
//! offered to a peer that initiated; it opens, and becomes current with the first datagram that it opens, which proves that the peer has
//! the keys. Until then a replayed initiate does no harm.

mod handshake;

use alloc::boxed::Box;

use mapwire_wire::NodeId;

use crate::address::Address;
use crate::indexes::Indexes;
use crate::keys::PublicKey;
use crate::mac::MAC_BYTES;
use crate::noise::{HANDSHAKE_HEAP_BYTES, Started};
use crate::repeat::Repeat;
use crate::session::Session;
use crate::wire::{COOKIE_BYTES, FIRST_BYTES, Header, RESPOND_BYTES};

/// How long an attempt to make a session continues unless requested again.
const ATTEMPT_NS: u64 = 20_000_000_000;
/// How long an offered session waits for the peer's first datagram.
const OFFER_NS: u64 = 5_000_000_000;
/// Least interval between two first or second messages of a peer that cost a Diffie-Hellman computation.
const LEAST_BETWEEN_NS: u64 = 5_000_000;
/// Unanswered initiates after which a node with the smaller number gives way to its peer's.
const STUBBORN_SENDS: u32 = 4;
/// Unused responds after which a node begins a handshake of its own: the peer may have restarted and forgotten its request.
const PATIENT_SENDS: u32 = 3;

/// A handshake that this node began.
struct Attempt {
    started: Started,
    header: Header,
    first: [u8; FIRST_BYTES],
    /// Zeros until the peer has sent one.
    cookie: [u8; COOKIE_BYTES],
    /// Earliest time to accept another.
    next_cookie_ns: u64,
    /// Code of the last initiate sent.
    code: [u8; MAC_BYTES],
    repeat: Repeat,
}

/// A handshake that the peer began, and its answer.
struct Offer {
    session: Session,
    code: [u8; MAC_BYTES],
    continues: bool,
    respond: [u8; RESPOND_BYTES],
    to: Address,
    repeat: Repeat,
}

/// A handshake datagram that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Start,
    Initiate,
    Respond,
    /// An empty sealed datagram, which proves that this node has the keys.
    Confirm,
}

/// One peer, whose key is known.
pub(crate) struct Peer {
    current: Option<Box<Session>>,
    former: Option<Box<Session>>,
    offer: Option<Box<Offer>>,
    attempt: Option<Box<Attempt>>,
    public: PublicKey,
    former_until_ns: u64,
    /// When the cookie of the last accepted initiate was made.
    accepted_ns: Option<u64>,
    /// Until then the peer's first and second messages are ignored.
    closed_until_ns: u64,
    /// Code of the respond that made the current session, until the peer has used the session.
    unconfirmed: Option<[u8; MAC_BYTES]>,
    starts: bool,
    confirms: bool,
    /// Whether the peer is in the queue of those with something to send.
    is_queued: bool,
    timer_ns: u64,
}

impl Peer {
    pub(crate) fn new(public: PublicKey) -> Self {
        Self {
            current: None,
            former: None,
            offer: None,
            attempt: None,
            public,
            former_until_ns: 0,
            accepted_ns: None,
            closed_until_ns: 0,
            unconfirmed: None,
            starts: false,
            confirms: false,
            is_queued: false,
            timer_ns: u64::MAX,
        }
    }

    pub(crate) const fn public(&self) -> &PublicKey {
        &self.public
    }

    #[inline]
    pub(crate) fn current(&self) -> Option<&Session> {
        self.current.as_deref()
    }

    #[inline]
    pub(crate) fn current_mut(&mut self) -> Option<&mut Session> {
        self.current.as_deref_mut()
    }

    /// The session with the index `index`, and whether it was only offered so far.
    #[inline]
    pub(crate) fn session_mut(&mut self, index: u32, now_ns: u64) -> Option<(&mut Session, bool)> {
        let kept = [self.current.as_deref_mut(), self.former.as_deref_mut()];
        for session in kept.into_iter().flatten() {
            if session.local() == index {
                return (now_ns < session.expires_at_ns()).then_some((session, false));
            }
        }
        let offered = self.offer.as_deref_mut().map(|offer| &mut offer.session);
        offered.filter(|session| session.local() == index).map(|session| (session, true))
    }

    /// A session opened something: the peer has used it.
    #[inline]
    pub(crate) fn handle_opened(&mut self, index: u32) {
        if self.unconfirmed.is_some() {
            self.handle_first_opened(index);
        }
    }

    #[cold]
    fn handle_first_opened(&mut self, index: u32) {
        if self.current().is_some_and(|session| session.local() == index) {
            self.unconfirmed = None;
            self.confirms = false;
        }
    }

    /// Begins a handshake, unless one is under way.
    pub(crate) fn ask(&mut self) {
        let is_patient = |offer: &Offer| offer.repeat.sends() < PATIENT_SENDS;
        let waits = self.offer.as_deref().is_some_and(is_patient);
        self.starts |= self.attempt.is_none() && !waits;
    }

    /// The most urgent datagram to send.
    pub(crate) fn due(&self) -> Option<Due> {
        let attempt = self.attempt.as_ref().filter(|it| it.repeat.is_due());
        let offer = self.offer.as_ref().filter(|it| it.repeat.is_due());
        if self.confirms {
            Some(Due::Confirm)
        } else if offer.is_some() {
            Some(Due::Respond)
        } else if attempt.is_some() {
            Some(Due::Initiate)
        } else {
            self.starts.then_some(Due::Start)
        }
    }

    /// Enqueues the peer if it has something to send; `false` if it is queued already, or has nothing.
    pub(crate) fn enqueue(&mut self) -> bool {
        let joins = !self.is_queued && self.due().is_some();
        self.is_queued |= joins;
        joins
    }

    pub(crate) const fn handle_dequeued(&mut self) {
        self.is_queued = false;
    }

    /// Time of the next [`handle_time`](Self::handle_time); `u64::MAX` for never.
    pub(crate) fn next_ns(&self) -> u64 {
        let times = [
            self.attempt.as_ref().map(|it| it.repeat.next_ns()),
            self.offer.as_ref().map(|it| it.repeat.next_ns()),
            self.former.as_ref().map(|_| self.former_until_ns),
            self.current().map(Session::expires_at_ns),
        ];
        times.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Sets the time of the peer's entry in the list of timers; returns the former one.
    pub(crate) const fn set_timer(&mut self, at_ns: u64) -> u64 {
        core::mem::replace(&mut self.timer_ns, at_ns)
    }

    /// Repeats unanswered datagrams, and forgets what has expired.
    pub(crate) fn handle_time(&mut self, now_ns: u64, indexes: &mut Indexes) {
        if self.former.is_some() && now_ns >= self.former_until_ns {
            self.drop_former(indexes);
        }
        if self.current().is_some_and(|it| now_ns >= it.expires_at_ns()) {
            self.drop_current(indexes);
        }
        if let Some(attempt) = &mut self.attempt
            && !attempt.repeat.handle_time(now_ns)
        {
            self.drop_attempt(indexes);
        }
        if let Some(offer) = &mut self.offer
            && !offer.repeat.handle_time(now_ns)
        {
            self.drop_offer(indexes);
        }
    }

    /// Forgets everything but the key.
    pub(crate) fn clear(&mut self, indexes: &mut Indexes) {
        self.drop_former(indexes);
        self.drop_current(indexes);
        self.drop_attempt(indexes);
        self.drop_offer(indexes);
        self.starts = false;
    }

    /// Heap memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let session = size_of::<Session>();
        let sessions = [self.current.is_some(), self.former.is_some()];
        let sessions = sessions.into_iter().filter(|has| *has).count() * session;
        let attempt = self.attempt.as_ref().map_or(0, |_| size_of::<Attempt>() + HANDSHAKE_HEAP_BYTES);
        let offer = self.offer.as_ref().map_or(0, |_| size_of::<Offer>());
        sessions + attempt + offer
    }

    fn drop_current(&mut self, indexes: &mut Indexes) {
        if let Some(session) = self.current.take() {
            indexes.free(session.local());
        }
        self.unconfirmed = None;
        self.confirms = false;
    }

    fn drop_former(&mut self, indexes: &mut Indexes) {
        if let Some(session) = self.former.take() {
            indexes.free(session.local());
        }
    }

    fn drop_attempt(&mut self, indexes: &mut Indexes) {
        if let Some(attempt) = self.attempt.take() {
            indexes.free(attempt.header.index());
        }
    }

    fn drop_offer(&mut self, indexes: &mut Indexes) {
        if let Some(offer) = self.offer.take() {
            indexes.free(offer.session.local());
        }
    }
}

/// Whether the initiate of `node` takes precedence when both sides began a handshake: the smaller number does.
pub(crate) fn goes_first(node: NodeId, other: NodeId) -> bool {
    node < other
}
