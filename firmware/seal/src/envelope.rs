//! One interface for jobs that seal and jobs that do not.

#[cfg(feature = "sealing")]
use alloc::boxed::Box;

use mapwire_wire::NodeId;

use crate::counters::Counters;
use crate::keys::PublicKey;
use crate::outcome::{NotReady, Opened};
use crate::plain::Plain;
#[cfg(feature = "sealing")]
use crate::sessions::Sessions;
use crate::transmit::Transmit;
use crate::wire::{COOKIE, INITIATE, PLAIN, PLAIN_FRONT_BYTES, RESPOND, SEALED, SEALED_BACK_BYTES, SEALED_FRONT_BYTES};

/// Wraps datagrams between nodes. The methods are those of `Sessions`; without sealing every peer is ready, no key is wanted and there is
/// nothing to transmit.
#[expect(missing_debug_implementations, reason = "it holds secrets, which are never printed")]
pub enum Envelope {
    /// Unprotected.
    Plain(Plain),
    /// Authenticated and encrypted; each datagram opens once.
    #[cfg(feature = "sealing")]
    Sealed(Box<Sessions>),
}

/// What a job does that does not seal, and what one that does.
macro_rules! by_kind {
    ($envelope:expr, $plain:pat => $unsealed:expr, $sessions:pat => $sealed:expr) => {
        match $envelope {
            Envelope::Plain($plain) => $unsealed,
            #[cfg(feature = "sealing")]
            Envelope::Sealed($sessions) => $sealed,
        }
    };
}

impl Envelope {
    /// Whether a datagram with this first byte carries a datagram of a link, rather than a handshake.
    #[must_use]
    pub const fn is_data(first: u8) -> bool {
        matches!(first, SEALED | PLAIN)
    }

    /// Whether a datagram with this first byte belongs to a handshake.
    #[must_use]
    pub const fn is_handshake(first: u8) -> bool {
        matches!(first, INITIATE | RESPOND | COOKIE)
    }

    /// Whether handling a datagram with this first byte needs the sender's address, which is answered.
    #[must_use]
    pub const fn needs_sender(first: u8) -> bool {
        first == INITIATE
    }

    /// Room that [`seal`](Self::seal) needs in front, in bytes.
    #[must_use]
    pub const fn front_bytes(&self) -> usize {
        by_kind!(self, _ => PLAIN_FRONT_BYTES, _ => SEALED_FRONT_BYTES)
    }

    /// Room that [`seal`](Self::seal) needs behind, in bytes.
    #[must_use]
    pub const fn back_bytes(&self) -> usize {
        by_kind!(self, _ => 0, _ => SEALED_BACK_BYTES)
    }

    /// As `Sessions::handle`.
    #[inline]
    pub fn handle(
        &mut self,
        now_ns: u64,
        from: &[u8],
        datagram: &mut [u8],
        entropy: &mut dyn FnMut(&mut [u8]),
    ) -> Opened {
        by_kind!(self, plain => plain.handle(datagram), sessions => sessions.handle(now_ns, from, datagram, entropy))
    }

    /// As `Sessions::seal`, with the room of [`front_bytes`](Self::front_bytes) and [`back_bytes`](Self::back_bytes).
    ///
    /// # Errors
    /// [`NotReady`]: nothing was written.
    #[inline]
    pub fn seal(&mut self, now_ns: u64, to: NodeId, datagram: &mut [u8]) -> Result<(), NotReady> {
        by_kind!(self, plain => plain.seal(to, datagram), sessions => sessions.seal(now_ns, to, datagram))
    }

    /// As `Sessions::set_peer`.
    pub fn set_peer(&mut self, node: NodeId, key: PublicKey) {
        by_kind!(self, _ => (), sessions => sessions.set_peer(node, key));
    }

    /// As `Sessions::forget_peer`.
    pub fn forget_peer(&mut self, node: NodeId) {
        by_kind!(self, _ => (), sessions => sessions.forget_peer(node));
    }

    /// As `Sessions::poll_transmit`.
    pub fn poll_transmit(&mut self, now_ns: u64, entropy: &mut dyn FnMut(&mut [u8])) -> Option<Transmit> {
        by_kind!(self, _ => None, sessions => sessions.poll_transmit(now_ns, entropy))
    }

    /// As `Sessions::poll_wanted_key`.
    pub fn poll_wanted_key(&mut self) -> Option<NodeId> {
        by_kind!(self, _ => None, sessions => sessions.poll_wanted_key())
    }

    /// As `Sessions::handle_time`.
    pub fn handle_time(&mut self, now_ns: u64) {
        by_kind!(self, _ => (), sessions => sessions.handle_time(now_ns));
    }

    /// As `Sessions::poll_at`.
    #[must_use]
    pub fn poll_at(&self) -> Option<u64> {
        by_kind!(self, _ => None, sessions => sessions.poll_at())
    }

    /// As `Sessions::is_ready`.
    #[must_use]
    pub fn is_ready(&self, now_ns: u64, node: NodeId) -> bool {
        by_kind!(self, plain => plain.is_peer(node), sessions => sessions.is_ready(now_ns, node))
    }

    /// As `Sessions::counters`.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        by_kind!(self, plain => plain.counters(), sessions => sessions.counters())
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + by_kind!(self, _ => 0, sessions => sessions.bytes())
    }
}
