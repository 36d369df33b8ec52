//! Handshake datagrams, checked from the cheapest test to the costliest: length and header, the code by the job's secret, the cookie; then
//! the peer, and last the Diffie-Hellman computations.

use mapwire_wire::NodeId;

use super::{MOST_COOKIES, Sessions};
use crate::address::Address;
use crate::counters::Cause;
use crate::wire::{self, COOKIE, Checked, INITIATE, NotChecked, RESPOND};

impl Sessions {
    #[cold]
    pub(super) fn handle_handshake(
        &mut self,
        now_ns: u64,
        from: &[u8],
        datagram: &[u8],
        entropy: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Cause> {
        let checked = Checked::new(datagram, self.identity.codes()).map_err(|error| match error {
            NotChecked::Malformed => Cause::Malformed,
            NotChecked::Code => Cause::Code,
        })?;
        if !self.identity.is_addressed(checked.header()) {
            return Err(Cause::Misdirected);
        }
        let node = checked.header().from();
        let handled = match datagram.first() {
            Some(&INITIATE) => self.handle_initiate(now_ns, from, &checked, entropy),
            Some(&RESPOND) => self.handle_respond(now_ns, &checked),
            _ => self.handle_cookie(now_ns, &checked),
        };
        self.enqueue(node);
        self.set_timer(node);
        handled
    }

    fn handle_initiate(
        &mut self,
        now_ns: u64,
        from: &[u8],
        checked: &Checked<'_>,
        entropy: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Cause> {
        let (node, address) = (checked.header().from(), Address::new(from));
        let (first, cookie) = checked.initiate().ok_or(Cause::Malformed)?;
        let address = address.ok_or(Cause::Malformed)?;
        let repeats = |peer: &mut crate::peer::Peer| peer.repeats_offer(checked.code(), now_ns);
        if self.peer_mut(node).is_some_and(repeats) {
            return Ok(());
        }
        let Some(made_ns) = self.cookies.check(now_ns, node, &address, cookie) else {
            self.give_cookie(now_ns, address, checked, entropy);
            return Err(Cause::NoCookie);
        };
        let peer = self.peers.get_mut(usize::from(node.0));
        let Some(peer) = peer.and_then(Option::as_deref_mut) else {
            self.want_key(node);
            return Err(Cause::UnknownPeer);
        };
        let (identity, indexes) = (&self.identity, &mut self.indexes);
        let (initiate, proof) = ((checked, first), (made_ns, address));
        peer.handle_initiate(now_ns, initiate, proof, identity, indexes, entropy)
    }

    /// Answers an initiate with a cookie, keeping no state.
    fn give_cookie(
        &mut self,
        now_ns: u64,
        address: Address,
        checked: &Checked<'_>,
        entropy: &mut dyn FnMut(&mut [u8]),
    ) {
        if self.answers.len() >= MOST_COOKIES {
            return;
        }
        let header = checked.header();
        let cookie = self.cookies.make(now_ns, header.from(), &address, entropy);
        let answer = header.answer(COOKIE);
        let datagram = wire::datagram(&answer, [checked.code(), &cookie], self.identity.codes());
        self.answers.push_back((address, datagram));
    }

    fn handle_cookie(&mut self, now_ns: u64, checked: &Checked<'_>) -> Result<(), Cause> {
        let (answered, cookie) = checked.cookie().ok_or(Cause::Malformed)?;
        let index = checked.header().index();
        let peer = self.peer_mut(checked.header().from());
        peer.ok_or(Cause::UnknownPeer)?.handle_cookie(now_ns, index, answered, cookie)
    }

    fn handle_respond(&mut self, now_ns: u64, checked: &Checked<'_>) -> Result<(), Cause> {
        let second = checked.respond().ok_or(Cause::Malformed)?;
        let peer = self.peers.get_mut(usize::from(checked.header().from().0));
        let peer = peer.and_then(Option::as_deref_mut);
        let peer = peer.ok_or(Cause::UnknownPeer)?;
        let was_made = peer.current().map(|session| session.local());
        let (identity, indexes) = (&self.identity, &mut self.indexes);
        peer.handle_respond(now_ns, (checked, second), identity, indexes)?;
        if peer.current().map(|session| session.local()) != was_made {
            self.counters.finish_handshake();
        }
        Ok(())
    }

    /// Makes an offered session current because `node` has used it.
    #[cold]
    pub(super) fn accept_offer(&mut self, now_ns: u64, node: NodeId) {
        let peer = self.peers.get_mut(usize::from(node.0));
        if let Some(peer) = peer.and_then(Option::as_deref_mut) {
            peer.accept_offer(now_ns, &self.identity, &mut self.indexes);
            self.counters.finish_handshake();
            self.set_timer(node);
        }
    }
}
