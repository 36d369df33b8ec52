//! The service: messages in, actions out.
//!
//! Two ranks exchange `hello` and `welcome` once, each with an offer of memory. Every message names the receiver's session, so that one of
//! a former connection is recognised and answered with `bye`. Calls take from a window and replies do not: two ranks that call each other
//! could otherwise wait for each other's window.

use alloc::boxed::Box;

use mapwire_vmmc::service::{Action, Broken, Region, Service};
use mapwire_wire::{Endpoint, NodeId};

use super::Rpc;
use crate::envelope::{self, Draft, Envelope, Offer, Stored, tag_of};
use crate::message::{self, CallHeader, Header, ReplyStatus};
use crate::outcome::{Body, CallError, Incoming, Lent, RequestId};

struct Record<'a> {
    from: NodeId,
    session: u64,
    stored: Option<Stored>,
    is_one_way: bool,
    bytes: &'a [u8],
}

impl Service for Rpc {
    fn handle_message(&mut self, _: u64, from: Endpoint, message: &[u8]) -> Result<(), Broken> {
        let taken = self.take_message(from.node, message);
        if taken.is_err() {
            self.counters.broken_messages += 1;
            self.reset(from.node, CallError::Gone);
        }
        taken
    }

    fn handle_peer_gone(&mut self, _: u64, node: NodeId) {
        self.reset(node, CallError::Gone);
        self.known(node).is_gone = true;
        self.note_news(node);
    }

    fn handle_lost(&mut self, to: Endpoint) {
        // Both sides would count differently from here on.
        if let Some(mine) = self.peer(to.node).and_then(|peer| peer.mine) {
            self.reset(to.node, CallError::Lost);
            self.post(to.node, envelope::bye(tag_of(mine.session)));
        }
    }

    fn handle_time(&mut self, now_ns: u64) {
        self.calls.handle_time(now_ns);
    }

    fn has_actions(&self) -> bool {
        self.has_messages() || self.calls.poll_at().is_some()
    }

    fn poll_action(&mut self) -> Option<Action<'_>> {
        let (to, message) = self.next_message()?;
        let bytes = &message.bytes[..];
        Some(match message.moves {
            None => Action::Send { to, message: bytes },
            Some(Stored { at, bytes: long }) => {
                Action::Store { to, region: Region { view: to.node.0, offset: at, bytes: long }, at, message: bytes }
            }
        })
    }

    fn poll_at(&self) -> Option<u64> {
        self.calls.poll_at()
    }

    fn needs_time(&self, _: &[u8]) -> bool {
        false
    }
}

impl Rpc {
    fn take_message(&mut self, from: NodeId, message: &[u8]) -> Result<(), Broken> {
        match envelope::read(message).ok_or(Broken)? {
            Envelope::Hello(offer) => self.handle_hello(from, offer),
            Envelope::Welcome(offer, echo) => self.handle_welcome(from, offer, echo),
            Envelope::Bye { tag } => {
                let theirs = self.peer(from).and_then(|peer| peer.theirs);
                if theirs.is_some_and(|theirs| tag_of(theirs.session) == tag) {
                    self.reset(from, CallError::Closed);
                }
            }
            Envelope::Release { tag, progress } => {
                let peer = self.peer_mut(from);
                let Some(peer) = peer.filter(|peer| peer.is_addressed(tag)) else {
                    self.handle_stray(from, tag);
                    return Ok(());
                };
                peer.handle_progress(progress)?;
            }
            Envelope::Record { tag, progress, stored, is_one_way, record } => {
                let peer = self.peer_mut(from);
                let Some(peer) = peer.filter(|peer| peer.is_addressed(tag)) else {
                    self.counters.stray_records += 1;
                    self.handle_stray(from, tag);
                    return Ok(());
                };
                peer.handle_progress(progress)?;
                if let Some(stored) = stored {
                    peer.note_stored(stored)?;
                }
                let session = peer.mine.map_or(0, |mine| mine.session);
                self.handle_record(&Record { from, session, stored, is_one_way, bytes: record })?;
            }
        }
        Ok(())
    }

    /// A message for a session that is over. The peer may not have heard of that: where both end a connection and begin another at the same
    /// time, they can take each other's messages in such an order.
    fn handle_stray(&mut self, from: NodeId, tag: u16) {
        let mine = self.peer(from).and_then(|peer| peer.mine);
        if mine.is_none_or(|mine| tag_of(mine.session) != tag) {
            self.post(from, envelope::bye(tag));
        }
    }

    fn handle_hello(&mut self, from: NodeId, offer: Offer) {
        let peer = self.known(from);
        if peer.theirs.is_some_and(|theirs| theirs != offer) {
            // It has begun anew, and knows nothing of what was.
            self.reset(from, CallError::Closed);
        }
        let peer = self.known(from);
        peer.theirs = Some(offer);
        peer.is_gone = false;
        if let Some(mine) = peer.mine {
            self.send_welcome(from, mine, offer);
        } else {
            self.note_news(from);
        }
    }

    fn handle_welcome(&mut self, from: NodeId, offer: Offer, echo: u64) {
        let peer = self.known(from);
        // An answer to a hello of a connection that is over says nothing.
        if peer.mine.is_none_or(|mine| mine.session != echo) {
            return;
        }
        if !peer.is_open {
            peer.theirs = Some(offer);
            peer.open();
            self.note_news(from);
        } else if peer.theirs != Some(offer) {
            // Both have called first, and the peer has ended that meanwhile.
            self.close(from);
        }
    }

    fn handle_record(&mut self, record: &Record<'_>) -> Result<(), Broken> {
        let mut rest = record.bytes;
        let header = message::read(&mut rest).map_err(|_| Broken)?;
        // A body is in one place.
        if record.stored.is_some() && !rest.is_empty() {
            return Err(Broken);
        }
        match header {
            Header::Reply { xid, status } => self.handle_reply(record, rest, xid, status),
            Header::Refused((xid, status)) => {
                self.note_received(record)?;
                self.refuse(record, xid, status);
            }
            Header::Call(header) => {
                self.note_received(record)?;
                self.handle_call(record, rest, header);
            }
        }
        Ok(())
    }

    fn note_received(&mut self, record: &Record<'_>) -> Result<(), Broken> {
        self.peer_mut(record.from).ok_or(Broken)?.note_received()
    }

    /// Where the body of a record is from here on: what came in a message is copied out of it, once.
    fn body(&mut self, record: &Record<'_>, rest: &[u8]) -> Body {
        match record.stored {
            Some(Stored { at, bytes }) => Body::Lent(Lent { at, bytes, session: record.session }),
            None => {
                let mut copy = self.take_spare();
                copy.clear();
                copy.extend_from_slice(rest);
                Body::Inline { record: copy, at: 0 }
            }
        }
    }

    /// The body of a record is not needed.
    fn drop_body(&mut self, record: &Record<'_>) {
        if let (Some(stored), Some(peer)) = (record.stored, self.peer_mut(record.from)) {
            peer.release(stored.at);
            self.note_owed(record.from);
        }
    }

    fn drop_call(&mut self, record: &Record<'_>) {
        if let Some(peer) = self.peer_mut(record.from) {
            peer.note_taken();
        }
        self.drop_body(record);
        self.note_owed(record.from);
    }

    fn handle_reply(&mut self, record: &Record<'_>, rest: &[u8], xid: u32, status: ReplyStatus) {
        if !self.calls.awaits(xid, record.from) {
            self.counters.late_replies += 1;
            self.drop_body(record);
            return;
        }
        let outcome = match status.outcome() {
            Ok(()) => Ok(self.body(record, rest)),
            Err(error) => {
                self.drop_body(record);
                Err(error)
            }
        };
        self.calls.end(xid, outcome);
    }

    /// Answers a call of which only the header was looked at.
    fn refuse(&mut self, record: &Record<'_>, xid: u32, status: ReplyStatus) {
        self.counters.calls_refused += 1;
        self.drop_call(record);
        if !record.is_one_way {
            let draft = Draft::reply(xid, status, self.take_spare());
            self.post_record(record.from, draft, None, false);
        }
    }

    fn handle_call(&mut self, record: &Record<'_>, rest: &[u8], mut header: CallHeader) {
        let xid = header.xid;
        let credentials = self.peer(record.from).and_then(|peer| peer.credentials);
        if let Some(status) = self.refusal(&header) {
            self.refuse(record, xid, status);
            return;
        }
        if let Some(credentials) = credentials
            && let Err(problem) = credentials.check(&mut header.credential)
        {
            self.refuse(record, xid, ReplyStatus::AuthError(problem));
            return;
        }
        let body = self.body(record, rest);
        self.counters.calls_taken += 1;
        let Some(peer) = self.peer_mut(record.from) else { return };
        if !record.is_one_way {
            peer.in_hand.push(xid);
        }
        // It is handed on more than once.
        peer.calls.push_back(Box::new(Incoming {
            id: RequestId { peer: record.from, session: record.session, xid, is_one_way: record.is_one_way },
            program: header.program,
            version: header.version,
            procedure: header.procedure,
            credential: header.credential,
            peer: credentials,
            body,
        }));
        self.note_ready(record.from);
    }

    /// Why nobody here can look at a call.
    fn refusal(&self, header: &CallHeader) -> Option<ReplyStatus> {
        if self.programs.contains(&(header.program, header.version)) {
            return None;
        }
        let versions =
            || self.programs.iter().filter(|(program, _)| *program == header.program).map(|&(_, version)| version);
        Some(match (versions().min(), versions().max()) {
            (Some(low), Some(high)) => ReplyStatus::ProgramMismatch { low, high },
            _ => ReplyStatus::ProgramUnavailable,
        })
    }
}
