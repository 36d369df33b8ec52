//! Calls that come again: a caller that has waited long may ask once more, and the server does not carry the call out twice.

use alloc::vec::Vec;

use mapwire_wire::NodeId;

use super::{Message, Rpc};
use crate::envelope::Draft;
use crate::outcome::{Refusal, Xid};

impl Rpc {
    /// Sends a call once more that still waits. The server answers with the reply that it gave, if it keeps that; it drops the call while
    /// another thread has it in hand, and answers with [`SystemError`](crate::CallError::SystemError) if the reply is not kept.
    ///
    /// # Errors
    /// [`Refusal::NotAwaited`], and as [`may_begin`](Self::may_begin).
    pub fn again(&mut self, xid: Xid, to: NodeId, draft: &mut Option<Draft>) -> Result<(), Refusal> {
        if !self.is_waiting(xid, to) {
            return Err(Refusal::NotAwaited(xid.0));
        }
        match self.may_begin(to) {
            // The call is one of them already.
            Ok(()) | Err(Refusal::TooMany(_)) => {}
            Err(other) => return Err(other),
        }
        self.send_call(to, draft, None, xid.0, false);
        Ok(())
    }

    pub(super) fn post_again(&mut self, to: NodeId, reply: Vec<u8>) {
        let message = Message { bytes: reply, moves: None, is_record: true, keeps: None };
        self.outbox.push_back((to, message));
    }
}
