//! The DSM model's port to this computer: views, page protections, and the peers' privileged views, into which minipages are
//! stored in place (Millipage §2.1: no buffer between, and no thread suspended while data arrives).

use std::sync::Arc;

use mapwire_dsm::{
    Access as Wanted, Action, Dsm, MAX_MESSAGE_BYTES, Message, Minipage, Outcome, PeerError,
    Protection as Granted,
};
use mapwire_host::faults::{
    Access, FaultKind, PageProtection, Protection, ProtectionError, WatchError,
};
use mapwire_host::memory::MappedBuffer;
use mapwire_host::views::{MultiView, ViewError};
use mapwire_transport::payload::Received;
use mapwire_wire::{Endpoint, ExportId, NodeId, SHORT_BYTES, TRACE_FLAG_DIRECT, TraceOp};
use thiserror::Error;

use crate::breach::Breach;
use crate::driver::{Driver, Interface, PROCESS, SHARED_HANDLER};
use crate::error::rank;
use crate::mover;

/// What can go wrong with the shared memory.
#[derive(Debug, Error)]
pub enum SharedError {
    /// The model refuses.
    #[error(transparent)]
    Model(#[from] mapwire_dsm::Error),
    /// Its tables cannot have this shape.
    #[error(transparent)]
    Config(#[from] mapwire_dsm::ConfigError),
    /// The views cannot be mapped.
    #[error(transparent)]
    Views(#[from] ViewError),
    /// Pages cannot be protected.
    #[error(transparent)]
    Protection(#[from] ProtectionError),
    /// Faults cannot be caught.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// A peer does not follow the protocol.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A peer sent a message that is none.
    #[error(
        "rank {} sent a message that is none of the shared memory's; end the job, its memory is no longer consistent",
        rank(.0)
    )]
    Garbled(NodeId),
    /// A rank is gone, and with it what it owned.
    #[error("rank {} is gone, and with it the shared memory that it owned", rank(.0))]
    RankGone(NodeId),
    /// A rank has closed the memory while others use it.
    #[error(
        "rank {} has taken its part of the shared memory away: it did not wait for the others to close it too",
        rank(.0)
    )]
    RankClosed(NodeId),
    /// A rank asked for memory before it had joined.
    #[error(
        "rank {} asked for shared memory before it had opened it; end the job, its memory is no longer consistent",
        rank(.0)
    )]
    NoView(NodeId),
    /// A rank broke the rules of the link, and counts as gone.
    #[error("rank {} is broken ({breach}), and with it the shared memory that it owned", rank(.peer))]
    RankBroken {
        /// The rank.
        peer: NodeId,
        /// What it did.
        breach: Breach,
    },
    /// Shared memory is open already.
    #[error("the shared memory of this process is open already")]
    Open,
    /// Shared memory is not open.
    #[error("the shared memory of this process is not open, or no longer")]
    NotOpen,
    /// More threads than were announced.
    #[error("more than {0} threads of this process use the shared memory")]
    TooManyThreads(usize),
}

/// Threads of a process that may use the shared memory.
pub const MAX_THREADS: usize = 64;

/// The shared memory of this process.
#[derive(Debug)]
pub struct SharedPort {
    dsm: Dsm,
    views: Arc<MultiView>,
    protection: PageProtection,
    /// What the application may do now, by view and first page of a minipage: zeroed memory, which the operating system
    /// supplies as it is used.
    access: Vec<u8>,
    /// Every peer's privileged view.
    peers: Vec<Option<MappedBuffer>>,
    /// What each peer exports it as.
    segments: Vec<Option<ExportId>>,
    /// Peers that speak of this opening, as bits: all that was sent in an earlier one came before they asked for the segment.
    heard: u64,
    outcomes: [Option<Outcome>; MAX_THREADS],
    /// What ended the shared memory; every wait gets it from then on.
    broken: Option<Broken>,
}

/// Why the shared memory is at its end.
#[derive(Clone, Copy, Debug)]
enum Broken {
    Gone(NodeId),
    Closed(NodeId),
    Link(NodeId, Breach),
    Peer(PeerError),
    Garbled(NodeId),
    /// It has shown no privileged view to store into.
    NoView(NodeId),
    Protection(ProtectionError),
    /// The model named memory that is not there.
    Model,
}

impl SharedPort {
    /// Joins the model to its views.
    #[must_use]
    pub fn new(dsm: Dsm, views: Arc<MultiView>, protection: PageProtection) -> Self {
        let entries = views.layout().views * views.layout().pages();
        Self {
            views,
            protection,
            access: vec![0; entries],
            peers: (0..dsm.config().ranks).map(|_| None).collect(),
            segments: vec![None; usize::from(dsm.config().ranks)],
            dsm,
            heard: 0,
            outcomes: [None; MAX_THREADS],
            broken: None,
        }
    }

    /// The model.
    #[must_use]
    pub fn dsm(&self) -> &Dsm {
        &self.dsm
    }

    /// The model, for commands; drain by [`Driver::poll`] afterwards.
    pub fn dsm_mut(&mut self) -> &mut Dsm {
        &mut self.dsm
    }

    /// The views.
    #[must_use]
    pub fn views(&self) -> &Arc<MultiView> {
        &self.views
    }

    /// Puts the privileged view of a peer in place.
    pub(crate) fn set_peer(&mut self, peer: NodeId, segment: ExportId, mapped: MappedBuffer) {
        let index = usize::from(peer.0);
        if index < self.peers.len() {
            self.peers[index] = Some(mapped);
            self.segments[index] = Some(segment);
        }
    }

    /// A peer has taken an export back: its segment, perhaps.
    pub(crate) fn handle_revoked(&mut self, peer: NodeId, export: ExportId) {
        if self.segments.get(usize::from(peer.0)) == Some(&Some(export)) {
            self.broken.get_or_insert(Broken::Closed(peer));
        }
    }

    /// What a fault at a page wants, when the processor does not say.
    #[must_use]
    pub fn wanted(&self, view: u16, page: u64, kind: FaultKind) -> Wanted {
        match kind {
            FaultKind::Read => Wanted::Read,
            FaultKind::Write => Wanted::Write,
            FaultKind::Unknown => match self.dsm.minipage_at(view, page) {
                Some((_, Granted::Read)) => Wanted::Write,
                _ => Wanted::Read,
            },
        }
    }

    /// How a thread's operation ended, once; or why it never will.
    ///
    /// # Errors
    /// When the shared memory is broken and the outcome is not there.
    #[inline]
    pub fn take_outcome(&mut self, thread: u16) -> Option<Result<Outcome, SharedError>> {
        if let Some(outcome) = self.outcomes[usize::from(thread)].take() {
            return Some(Ok(outcome));
        }
        self.broken.map(|broken| Err(broken.error()))
    }

    /// Whether the shared memory is at its end.
    ///
    /// # Errors
    /// Why.
    pub fn check(&self) -> Result<(), SharedError> {
        match self.broken {
            None => Ok(()),
            Some(broken) => Err(broken.error()),
        }
    }

    /// What a packet of the shared memory's handler says of data that its sender has stored in the privileged view: address and
    /// bytes.
    #[cold]
    pub(crate) fn arrived(&self, payload: &Received<'_>) -> Option<(u64, u64)> {
        let Received::Inline(bytes) = payload else {
            return None;
        };
        match Message::parse(bytes) {
            Ok(Message::Grant {
                minipage,
                data: true,
                ..
            }) => self.source_of(&minipage),
            _ => None,
        }
    }

    /// A peer has got this rank's segment, and so may send messages.
    pub(crate) fn hear(&mut self, peer: NodeId) {
        self.heard |= 1_u64.checked_shl(u32::from(peer.0)).unwrap_or(0);
    }

    /// Takes a packet of the shared memory's handler. Drops those that are left of an earlier opening.
    #[inline]
    pub(crate) fn handle_packet(&mut self, from: NodeId, payload: &Received<'_>) {
        if self.heard.checked_shr(u32::from(from.0)).unwrap_or(0) & 1 == 0 {
            return;
        }
        let Received::Inline(bytes) = payload else {
            self.broken.get_or_insert(Broken::Garbled(from));
            return;
        };
        match Message::parse(bytes) {
            Ok(message) => {
                let now_ns = if self.dsm.needs_time(&message) {
                    mapwire_host::waiting::now_ns()
                } else {
                    0
                };
                if let Err(error) = self.dsm.handle_message(now_ns, from.0, message) {
                    self.broken.get_or_insert(Broken::Peer(error));
                }
            }
            Err(_) => {
                self.broken.get_or_insert(Broken::Garbled(from));
            }
        }
    }

    pub(crate) fn handle_peer_gone(&mut self, node: NodeId, breach: Option<Breach>) {
        self.broken.get_or_insert(match breach {
            Some(breach) => Broken::Link(node, breach),
            None => Broken::Gone(node),
        });
    }

    /// When the model wants to be called again: it lets a thread finish the access that it was just granted.
    #[inline]
    pub(crate) fn poll_hold(&self) -> Option<u64> {
        self.dsm.poll_hold()
    }

    /// Carries out what the model asks for. Whether there was anything.
    #[inline]
    pub(crate) fn serve(driver: &mut Driver) -> bool {
        let budget = driver.shared_budget();
        let Driver {
            shared,
            nic,
            capture,
            ..
        } = driver;
        let Some(port) = shared else { return false };
        let mut left = budget;
        let mut trace_error = None;
        if let Some(at_ns) = port.dsm.poll_hold() {
            let now_ns = mapwire_host::waiting::now_ns();
            if now_ns >= at_ns {
                port.dsm.release_holds(now_ns);
            }
        }
        let mut worked = false;
        let mut lost_to = None;
        let mut post = |to: u16, message: &Message| {
            if !send(nic, NodeId(to), message) {
                lost_to.get_or_insert(NodeId(to));
            }
        };
        while let Some(action) = (left > 0).then(|| port.dsm.poll_action()).flatten() {
            left -= 1;
            worked = true;
            match action {
                Action::Send { to, message } => post(to, &message),
                Action::SendMinipage {
                    to,
                    minipage,
                    message,
                } => {
                    if let Some(capture) = capture
                        && let Some((address, bytes)) = port.source_of(&minipage)
                    {
                        let now_ns = mapwire_host::waiting::now_ns();
                        let flags = TRACE_FLAG_DIRECT;
                        let noted = capture.record(now_ns, TraceOp::Send, flags, address, bytes);
                        trace_error = trace_error.or(noted.err());
                    }
                    // A grant never goes out without its data.
                    match port.store(to, &minipage) {
                        Ok(()) => post(to, &message),
                        Err(broken) => _ = port.broken.get_or_insert(broken),
                    }
                }
                Action::Protect {
                    minipage,
                    protection,
                } => port.protect(&minipage, protection),
                Action::Resume { thread, outcome } => {
                    if let Some(slot) = port.outcomes.get_mut(usize::from(thread)) {
                        *slot = Some(outcome);
                    }
                }
            }
        }
        if left == 0 {
            driver.deferred.leave();
        }
        if let Some(to) = lost_to {
            Self::handle_lost(driver, to);
        }
        if let Some(error) = trace_error {
            driver.end_trace(error);
        }
        worked
    }

    /// A message was lost, and with it what the ranks agree on.
    #[cold]
    fn handle_lost(driver: &mut Driver, to: NodeId) {
        let breach = if driver.is_gone(to) {
            driver.breaches.of(to)
        } else {
            Some(Breach::Overfull)
        };
        if let Some(port) = &mut driver.shared {
            port.handle_peer_gone(to, breach);
        }
    }

    /// Where a minipage is in the privileged view: its address, and its bytes.
    #[cold]
    fn source_of(&self, minipage: &Minipage) -> Option<(u64, u64)> {
        let (offset, length) = (
            minipage.offset_bytes as usize,
            minipage.length_bytes as usize,
        );
        let from = self.views.privileged(offset, length).ok()?;
        Some((from as u64, minipage.length_bytes))
    }

    /// Stores a minipage in place in a peer's privileged view: the message that follows it through the ring is published
    /// after it (x86 keeps stores in order; the ring's release store does so everywhere).
    #[inline]
    fn store(&self, to: u16, minipage: &Minipage) -> Result<(), Broken> {
        let (offset, length) = (
            minipage.offset_bytes as usize,
            minipage.length_bytes as usize,
        );
        // Ranks meet before any of them uses the memory, and know each other's views then.
        let Some(Some(peer)) = self.peers.get(usize::from(to)) else {
            return Err(Broken::NoView(NodeId(to)));
        };
        match self.views.privileged(offset, length) {
            Ok(from) if peer.at(offset, length).is_some() => {
                mover::store_minipage(from, peer, offset, length);
                Ok(())
            }
            // The model names only minipages inside the segment, which every rank maps at the same length.
            _ => Err(Broken::Model),
        }
    }

    /// Sets the protection of the page at `address` to what it is.
    pub(crate) fn reopen(&mut self, address: usize) {
        let Some((view, offset)) = self.views.locate(address) else {
            return;
        };
        let page = offset / mapwire_translation::PAGE_BYTES;
        let Some((_, protection)) = self.dsm.minipage_at(view as u16, page as u64) else {
            return;
        };
        let access = match protection {
            Granted::None => return,
            Granted::Read => Access::Read,
            Granted::Write => Access::Write,
        };
        if let Err(error) = self.protection.set(view, page, 1, access, access) {
            self.broken.get_or_insert(Broken::Protection(error));
        }
    }

    #[inline]
    fn protect(&mut self, minipage: &Minipage, protection: Granted) {
        let view = usize::from(minipage.view);
        let (first, pages) = (minipage.first_page() as usize, minipage.pages() as usize);
        let to = match protection {
            Granted::None => Access::None,
            Granted::Read => Access::Read,
            Granted::Write => Access::Write,
        };
        let Some(slot) = self
            .access
            .get_mut(view * self.views.layout().pages() + first)
        else {
            return;
        };
        let from = match *slot {
            0 => Access::None,
            1 => Access::Read,
            _ => Access::Write,
        };
        *slot = to as u8;
        if let Err(error) = self.protection.set(view, first, pages, from, to) {
            self.broken.get_or_insert(Broken::Protection(error));
        }
    }
}

impl Broken {
    fn error(self) -> SharedError {
        match self {
            Self::Gone(node) => SharedError::RankGone(node),
            Self::Closed(node) => SharedError::RankClosed(node),
            Self::Link(peer, breach) => SharedError::RankBroken { peer, breach },
            Self::Peer(error) => SharedError::Peer(error),
            Self::Garbled(node) => SharedError::Garbled(node),
            Self::NoView(node) => SharedError::NoView(node),
            Self::Protection(error) => SharedError::Protection(error),
            Self::Model => SharedError::NotOpen,
        }
    }
}

// So that a message is lost only when its rank is gone or the link is overfull.
const _: () = assert!(MAX_MESSAGE_BYTES <= SHORT_BYTES);

/// Hands a message to the NIC; false when it is lost.
#[inline]
fn send(nic: &mut Interface, to: NodeId, message: &Message) -> bool {
    let mut bytes = [0; MAX_MESSAGE_BYTES];
    let length = message.encode(&mut bytes);
    let to = Endpoint::first_of(to);
    nic.send_message(PROCESS, to, SHARED_HANDLER, &bytes[..length])
}
