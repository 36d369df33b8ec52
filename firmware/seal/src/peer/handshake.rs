//! The handshake with one peer.

use alloc::boxed::Box;

use mapwire_wire::NodeId;

use super::{ATTEMPT_NS, Attempt, Due, LEAST_BETWEEN_NS, OFFER_NS, Offer, Peer, STUBBORN_SENDS, goes_first};
use crate::address::Address;
use crate::counters::Cause;
use crate::identity::Identity;
use crate::indexes::Indexes;
use crate::mac::MAC_BYTES;
use crate::noise::Grant;
use crate::repeat::Repeat;
use crate::session::Session;
use crate::transmit::{Destination, Transmit};
use crate::wire::COOKIE_BYTES;
use crate::wire::{
    self, Checked, FIRST_BYTES, INITIATE_BYTES, RESPOND, SEALED_BACK_BYTES, SEALED_FRONT_BYTES, SECOND_BYTES,
};

impl Peer {
    /// Handles an initiate of `from` with a valid cookie, made at `made_ns`.
    pub(crate) fn handle_initiate(
        &mut self,
        now_ns: u64,
        (checked, first): (&Checked<'_>, &[u8; FIRST_BYTES]),
        (made_ns, from): (u64, Address),
        identity: &Identity,
        indexes: &mut Indexes,
        entropy: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Cause> {
        let header = checked.header();
        if self.accepted_ns.is_some_and(|accepted| made_ns <= accepted) {
            return Err(Cause::Repeated);
        }
        let first_here = goes_first(identity.me(), header.from());
        let is_stubborn = |attempt: &Attempt| attempt.repeat.sends() < STUBBORN_SENDS;
        if first_here && self.attempt.as_deref().is_some_and(is_stubborn) {
            return Err(Cause::Crossed);
        }
        self.pass(now_ns)?;
        let index = indexes.draw(header.from(), entropy);
        let grant = Grant::new(index, self.current.is_some());
        let Some((second, keys)) = identity.answer(&self.public, (header, first), grant, entropy) else {
            indexes.free(index);
            return Err(Cause::Handshake);
        };
        self.accepted_ns = Some(made_ns);
        if !first_here {
            self.drop_attempt(indexes);
        }
        self.drop_offer(indexes);
        self.starts = false;
        self.offer = Some(Box::new(Offer {
            session: Session::new(&keys, index, header.index(), now_ns, identity.rotation()),
            code: *checked.code(),
            continues: header.continues(),
            respond: wire::datagram(&header.answer(RESPOND), [&second, &[]], identity.codes()),
            to: from,
            repeat: Repeat::new(now_ns.saturating_add(OFFER_NS)),
        }));
        Ok(())
    }

    /// Whether the initiate with this code was answered already; if so, schedules the answer again.
    pub(crate) fn repeats_offer(&mut self, code: &[u8; MAC_BYTES], now_ns: u64) -> bool {
        let offer = self.offer.as_mut().filter(|offer| offer.code == *code);
        let repeats = offer.map(|offer| offer.repeat.handle_asked(now_ns));
        repeats.is_some()
    }

    /// Handles a cookie for the session `index`, which answers the initiate with the code `answered`.
    pub(crate) fn handle_cookie(
        &mut self,
        now_ns: u64,
        index: u32,
        answered: &[u8; MAC_BYTES],
        cookie: &[u8; COOKIE_BYTES],
    ) -> Result<(), Cause> {
        let attempt = self.attempt.as_mut().filter(|attempt| {
            attempt.header.index() == index && attempt.code == *answered && attempt.repeat.sends() > 0
        });
        let attempt = attempt.ok_or(Cause::Unasked)?;
        // A cookie is valid for one path; each of the other paths brings another.
        if now_ns < attempt.next_cookie_ns {
            return Err(Cause::Limited);
        }
        attempt.next_cookie_ns = now_ns.saturating_add(LEAST_BETWEEN_NS);
        attempt.cookie = *cookie;
        // The next cookie answers the initiate that carries this one.
        attempt.code = [0; MAC_BYTES];
        attempt.repeat.hasten();
        Ok(())
    }

    /// Handles a respond, which completes the session.
    pub(crate) fn handle_respond(
        &mut self,
        now_ns: u64,
        (checked, second): (&Checked<'_>, &[u8; SECOND_BYTES]),
        identity: &Identity,
        indexes: &mut Indexes,
    ) -> Result<(), Cause> {
        if self.unconfirmed.as_ref() == Some(checked.code()) {
            self.confirms = true;
            return Ok(());
        }
        let index = checked.header().index();
        let is_asked = |attempt: &Attempt| attempt.header.index() == index;
        if !self.attempt.as_deref().is_some_and(is_asked) {
            return Err(Cause::Unasked);
        }
        self.pass(now_ns)?;
        let Some(mut attempt) = self.attempt.take() else {
            return Err(Cause::Unasked);
        };
        let Some(grant) = attempt.started.take(second) else {
            self.attempt = Some(attempt);
            return Err(Cause::Handshake);
        };
        let Some(keys) = attempt.started.finish() else {
            indexes.free(index);
            return Err(Cause::Handshake);
        };
        // The peer answers no initiate while it has an attempt of its own to go on with.
        self.drop_offer(indexes);
        let session = Session::new(&keys, index, grant.index(), now_ns, identity.rotation());
        self.replace(Box::new(session), grant.continues(), now_ns, identity, indexes);
        self.unconfirmed = Some(*checked.code());
        self.confirms = true;
        // The peer sends its next initiate when it wants to.
        self.closed_until_ns = 0;
        Ok(())
    }

    /// Makes the offered session current: the peer has used it.
    pub(crate) fn accept_offer(&mut self, now_ns: u64, identity: &Identity, indexes: &mut Indexes) {
        if let Some(offer) = self.offer.take() {
            let Offer { session, continues, .. } = *offer;
            self.drop_attempt(indexes);
            self.replace(Box::new(session), continues, now_ns, identity, indexes);
        }
    }

    /// Replaces the current session by `session`; it becomes the former one if the peer still has it.
    fn replace(
        &mut self,
        session: Box<Session>,
        continues: bool,
        now_ns: u64,
        identity: &Identity,
        indexes: &mut Indexes,
    ) {
        self.drop_former(indexes);
        if continues {
            self.former = self.current.take();
            self.former_until_ns = now_ns.saturating_add(identity.rotation().grace_ns);
        }
        self.drop_current(indexes);
        self.current = Some(session);
        self.starts = false;
    }

    pub(crate) fn transmit(
        &mut self,
        now_ns: u64,
        peer: NodeId,
        identity: &Identity,
        indexes: &mut Indexes,
        entropy: &mut dyn FnMut(&mut [u8]),
    ) -> Option<Transmit> {
        match self.due()? {
            Due::Confirm => {
                self.confirms = false;
                let mut bytes = [0; SEALED_FRONT_BYTES + SEALED_BACK_BYTES];
                let sealed = self.current_mut()?.seal(&mut bytes);
                sealed.then(|| Transmit::new(Destination::Node(peer), &bytes))
            }
            Due::Respond => {
                let offer = self.offer.as_mut()?;
                offer.repeat.handle_sent(now_ns);
                Some(Transmit::new(Destination::Address(offer.to), &offer.respond))
            }
            Due::Start => {
                self.starts = false;
                let index = indexes.draw(peer, entropy);
                let header = identity.initiate(peer, index, self.current.is_some());
                let Some((started, first)) = identity.start(&self.public, &header, entropy) else {
                    indexes.free(index);
                    return None;
                };
                self.attempt = Some(Box::new(Attempt {
                    started,
                    header,
                    first,
                    cookie: [0; COOKIE_BYTES],
                    next_cookie_ns: 0,
                    code: [0; MAC_BYTES],
                    repeat: Repeat::new(now_ns.saturating_add(ATTEMPT_NS)),
                }));
                self.initiate(now_ns, peer, identity)
            }
            Due::Initiate => self.initiate(now_ns, peer, identity),
        }
    }

    fn initiate(&mut self, now_ns: u64, peer: NodeId, identity: &Identity) -> Option<Transmit> {
        let attempt = self.attempt.as_mut()?;
        let (header, cookie) = (&attempt.header, &attempt.cookie);
        let bytes: [u8; INITIATE_BYTES] = wire::datagram(header, [&attempt.first, cookie], identity.codes());
        attempt.code = wire::code_of(&bytes);
        attempt.repeat.handle_sent(now_ns);
        Some(Transmit::new(Destination::Node(peer), &bytes))
    }

    /// Accepts one message of the peer that costs a computation, and rejects others for a while.
    fn pass(&mut self, now_ns: u64) -> Result<(), Cause> {
        if now_ns < self.closed_until_ns {
            return Err(Cause::Limited);
        }
        self.closed_until_ns = now_ns.saturating_add(LEAST_BETWEEN_NS);
        Ok(())
    }
}
