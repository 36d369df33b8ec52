//! Calls of a peer that are in hand, and replies that are kept: a call that comes again is not carried out again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Bytes that a kept reply takes besides its message.
const ENTRY_BYTES: usize = 40;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known<'a> {
    New,
    /// It is in hand: its reply will come.
    InHand,
    Answered(&'a [u8]),
    /// It was seen, and its reply is not kept.
    Forgotten,
}

#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// The newest call. Callers number their calls upwards, modulo 2^32, and send them in this order.
    newest: Option<u32>,
    /// Few: a caller has a window of calls that nobody has taken, and the server a limit of those that were.
    in_hand: Vec<u32>,
    /// Replies, oldest first; empty where one was too long to keep.
    kept: VecDeque<(u32, Vec<u8>)>,
    kept_bytes: usize,
}

impl Answers {
    pub(crate) fn look_up(&self, xid: u32) -> Known<'_> {
        match self.newest {
            None => return Known::New,
            Some(newest) if xid.wrapping_sub(newest).cast_signed() > 0 => return Known::New,
            Some(_) => {}
        }
        if self.in_hand.contains(&xid) {
            return Known::InHand;
        }
        match self.kept.iter().rev().find(|(of, _)| *of == xid) {
            Some((_, reply)) if !reply.is_empty() => Known::Answered(reply),
            _ => Known::Forgotten,
        }
    }

    /// Takes a new call in hand, unless nobody waits for a reply.
    pub(crate) fn begin(&mut self, xid: u32, is_one_way: bool) {
        self.newest = Some(xid);
        if !is_one_way {
            self.in_hand.push(xid);
        }
    }

    pub(crate) fn is_in_hand(&self, xid: u32) -> bool {
        self.in_hand.contains(&xid)
    }

    /// Keeps the reply to a call, which is out of hand then; of long ones only that they were given.
    pub(crate) fn keep(&mut self, xid: u32, reply: Vec<u8>, limit: usize) -> Option<Vec<u8>> {
        self.in_hand.retain(|&other| other != xid);
        let takes = |reply: &Vec<u8>| reply.capacity() + ENTRY_BYTES;
        let (reply, left) = if takes(&reply) <= limit { (reply, None) } else { (Vec::new(), Some(reply)) };
        self.kept_bytes += takes(&reply);
        self.kept.push_back((xid, reply));
        let mut oldest = left;
        while self.kept_bytes > limit
            && let Some((_, reply)) = self.kept.pop_front()
        {
            self.kept_bytes -= takes(&reply);
            oldest = Some(reply);
        }
        // Its memory can be used again.
        oldest
    }
}
