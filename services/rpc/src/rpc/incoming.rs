//! Calls of others to this node.

use alloc::boxed::Box;

use super::Rpc;
use crate::envelope::{Draft, Placed};
use crate::outcome::{Incoming, Refusal, RequestId};
use mapwire_wire::NodeId;

impl Rpc {
    /// Serves a version of a program from here on. False: it is served already.
    pub fn register(&mut self, program: u32, version: u32) -> bool {
        let is_new = !self.programs.contains(&(program, version));
        if is_new {
            self.programs.push((program, version));
        }
        is_new
    }

    /// Ends that. Calls that were taken may still be answered.
    pub fn unregister(&mut self, program: u32, version: u32) {
        self.programs.retain(|&other| other != (program, version));
    }

    /// The next call of a peer. Peers take turns.
    pub fn next_call(&mut self) -> Option<Box<Incoming>> {
        loop {
            let node = self.ready.pop_front()?;
            let most = self.config.max_in_progress;
            let Some(peer) = self.peer_mut(node) else { continue };
            peer.is_ready = false;
            if peer.in_progress >= most {
                // A reply will make it ready again.
                continue;
            }
            let Some(call) = peer.calls.pop_front() else { continue };
            peer.in_progress += usize::from(!call.id.is_one_way);
            peer.note_taken();
            self.note_ready(node);
            self.note_owed(node);
            return Some(call);
        }
    }

    /// Whether [`next_call`](Self::next_call) may give one.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn note_ready(&mut self, node: NodeId) {
        let most = self.config.max_in_progress;
        if let Some(peer) = self.peer_mut(node)
            && !peer.is_ready
            && !peer.calls.is_empty()
            && peer.in_progress < most
        {
            peer.is_ready = true;
            self.ready.push_back(node);
        }
    }

    /// Whether somebody waits for a reply.
    ///
    /// # Errors
    /// [`Refusal::NotAwaited`].
    pub fn is_awaited(&self, id: &RequestId) -> Result<(), Refusal> {
        let peer = self.peer(id.peer);
        let is_awaited = peer.is_some_and(|peer| {
            peer.mine.is_some_and(|mine| mine.session == id.session) && peer.in_hand.contains(&id.xid)
        });
        if is_awaited { Ok(()) } else { Err(Refusal::NotAwaited(id.xid)) }
    }

    /// Answers a call that was taken. The results are in the draft unless they are `placed`.
    ///
    /// # Errors
    /// [`Refusal::NotAwaited`]: one-way calls, and callers that are gone. Nothing is sent then.
    pub fn reply(&mut self, id: &RequestId, draft: Draft, placed: Option<Placed>) -> Result<(), Refusal> {
        let awaited = self.is_awaited(id).and_then(|()| self.check_room(id.peer, placed));
        if awaited.is_err() {
            self.recycle(draft.into_message());
            return awaited;
        }
        self.counters.replies_sent += 1;
        if let Some(peer) = self.peer_mut(id.peer)
            && let Some(at) = peer.in_hand.iter().position(|&xid| xid == id.xid)
        {
            peer.in_hand.swap_remove(at);
        }
        self.post_record(id.peer, draft, placed, true);
        Ok(())
    }
}
