//! Datagrams on their way out.

use mapwire_seal::{Destination as Whither, Envelope, NotReady};
use mapwire_wire::NodeId;

use super::{Net, Remote, Sessions, address_of, entropy};
use crate::payload::Payload;
use crate::udp::{Batch, Destination, Shortened};

/// Several datagrams, which go together.
#[expect(missing_debug_implementations, reason = "it holds secrets, which are never printed")]
pub struct Outbound<'a> {
    batch: Batch<'a>,
    sessions: &'a mut Sessions,
    now_ns: u64,
    /// No session is begun: that needs memory.
    is_confined: bool,
}

/// Why a datagram was lost at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The card of its receiver is not known.
    Stranger,
    /// There is no session with its receiver yet; one begins.
    NoSession,
    /// It is longer than any datagram.
    TooLong,
    /// This is a forked child of the process that the sessions belong to: nothing is sealed here.
    Forked,
}

impl Net {
    /// Begins to send, and sends what handshakes want to.
    #[inline]
    pub fn begin(&mut self, now_ns: u64) -> Outbound<'_> {
        let is_due = self.is_due(now_ns);
        let (batch, sessions) = (self.udp.batch(), &mut self.sessions);
        let mut outbound = Outbound { batch, sessions, now_ns, is_confined: false };
        if is_due {
            outbound.greet();
        }
        outbound
    }
}

impl<'a> Outbound<'a> {
    /// Says whether memory may not be taken: what has no session is lost then, and no session begins.
    pub fn set_confined(&mut self, on: bool) {
        self.is_confined = on;
    }

    /// Sends what handshakes want to.
    #[cold]
    fn greet(&mut self) {
        if !self.sessions.owner.is_me() {
            return;
        }
        self.sessions.greets = false;
        self.sessions.envelope.handle_time(self.now_ns);
        while let Some(transmit) = self.sessions.envelope.poll_transmit(self.now_ns, &mut entropy) {
            let destination = match transmit.to() {
                Whither::Node(node) => {
                    let Some(Some(remote)) = self.sessions.peers.get(usize::from(node.0)) else {
                        continue;
                    };
                    // All paths: one of them may be down.
                    for path in &remote.paths {
                        self.batch.push(&path.main, transmit.bytes(), Payload::EMPTY, &[]);
                    }
                    continue;
                }
                Whither::Address(address) => match address_of(address.as_bytes()) {
                    Some(to) => Destination { via: self.socket_towards(to), to, may_fragment: false },
                    None => continue,
                },
            };
            self.batch.push(&destination, transmit.bytes(), Payload::EMPTY, &[]);
        }
    }

    /// A socket of the family of `to`: that of a path there, if there is one.
    fn socket_towards(&self, to: std::net::SocketAddr) -> usize {
        let remotes = self.sessions.peers.iter().flatten();
        let mut paths = remotes.flat_map(|remote| &remote.paths);
        paths.find(|path| path.main.to.is_ipv4() == to.is_ipv4()).map_or(0, |path| path.main.via)
    }

    /// Adds a datagram to `to`: `head`, then `payload`, which is read before [`finish`](Self::finish) returns, then `tail`.
    ///
    /// # Errors
    /// [`Lost`].
    #[inline]
    pub fn push(&mut self, to: NodeId, path: u8, head: &[u8], payload: Payload<'a>, tail: &[u8]) -> Result<(), Lost> {
        if !self.sessions.owner.is_me() {
            return Err(Lost::Forked);
        }
        let Some(Some(remote)) = self.sessions.peers.get(usize::from(to.0)) else {
            return Err(Lost::Stranger);
        };
        let (front, back) = (self.sessions.envelope.front_bytes(), self.sessions.envelope.back_bytes());
        let length = front + head.len() + payload.len_bytes() + tail.len() + back;
        let mut destination = remote.path(path).usual;
        // Longer ones were cut before the path became shorter.
        destination.may_fragment = length > remote.max_bytes;
        if let Envelope::Plain(plain) = &mut self.sessions.envelope {
            let Ok(envelope) = plain.front_to(to, length) else {
                return Err(Lost::NoSession);
            };
            if let Some(capture) = &mut self.sessions.capture {
                capture.send(to, head, &payload, tail);
            }
            self.batch.push_behind(&destination, (&envelope, head), payload, tail);
            return Ok(());
        }
        if !self.sessions.envelope.is_ready(self.now_ns, to) {
            if self.is_confined {
                return Err(Lost::NoSession);
            }
            return Err(self.begin_session(to, front + back));
        }
        let Some(datagram) = self.batch.reserve(&destination, length) else {
            return Err(Lost::TooLong);
        };
        if let Some(capture) = &mut self.sessions.capture {
            capture.send(to, head, &payload, tail);
        }
        let (copy, mut rest) = datagram[front..].split_at_mut(head.len());
        copy.copy_from_slice(head);
        for piece in payload.pieces() {
            let (copy, behind) = rest.split_at_mut(piece.len());
            piece.copy_to_slice(copy);
            rest = behind;
        }
        rest[..tail.len()].copy_from_slice(tail);
        match self.sessions.envelope.seal(self.now_ns, to, datagram) {
            Ok(()) => Ok(()),
            Err(NotReady::NoRoom(_)) => Err(Lost::TooLong),
            Err(_) => Err(Lost::NoSession),
        }
    }

    /// Asks for a session, by sealing what is sent to nobody.
    #[cold]
    fn begin_session(&mut self, to: NodeId, bytes: usize) -> Lost {
        let mut nothing = [0; 64];
        let _ = self.sessions.envelope.seal(self.now_ns, to, &mut nothing[..bytes]);
        self.greet();
        Lost::NoSession
    }

    /// Sends what was added.
    #[inline]
    pub fn finish(self) {
        if let Some(path) = self.batch.finish().shortened {
            note_shortened(self.sessions, path);
        }
    }
}

/// Notes whose path no longer lets long datagrams pass.
#[cold]
fn note_shortened(sessions: &mut Sessions, path: Shortened) {
    let leads_there = |remote: &Remote| remote.paths.iter().any(|own| own.usual.to == path.to);
    let peer = sessions.peers.iter().position(|remote| remote.as_deref().is_some_and(leads_there));
    let peer = peer.map(|number| NodeId(number as u16));
    sessions.shortened.extend(peer.filter(|peer| !sessions.shortened.contains(peer)));
}
