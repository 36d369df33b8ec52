//! The manager's part of a fault: one request at a time for each minipage.
//!
//! A manager that holds a copy serves the data itself, so that a fault costs a request and a grant. It need not then hear of the end:
//! whatever it sends the requester next arrives after the grant. If others take part (the owner sends the data, holders of copies drop
//! them and tell the requester directly) the minipage stays busy until the requester sends [`Message::Done`].

use crate::address::Key;
use crate::context::Context;
use crate::{Access, Message, Minipage, Rank, Thread, Violation};

use super::directory::{Entry, Waiting};
use super::{Grant, SequentialConsistency, left_by};

impl SequentialConsistency {
    pub(super) fn handle_request(
        &mut self,
        context: &mut Context,
        key: Key,
        request: Waiting,
    ) -> Result<(), Violation> {
        let thread = request.thread;
        if usize::from(thread) >= self.requests.len() {
            return Err(Violation::OutOfRange);
        }
        let entry = self.managed(key).ok_or(Violation::NotManager)?;
        if !self.is_registered(key, entry) {
            context.send(request.requester, Message::Refuse { thread, key });
        } else if self.directory.enqueue(entry, request) {
            self.serve_waiting(context, key);
        } else {
            return Err(Violation::Repeated);
        }
        Ok(())
    }

    /// The requester has obtained the right for which the minipage is busy.
    pub(super) fn handle_done(
        &mut self,
        context: &mut Context,
        from: Rank,
        thread: Thread,
        key: Key,
    ) -> Result<(), Violation> {
        let entry = self.managed(key).ok_or(Violation::NotManager)?;
        if !self.is_serving(entry, from, thread) {
            return Err(Violation::Unasked);
        }
        self.served(context, key, entry);
        Ok(())
    }

    /// Whether the minipage is busy with that thread's request.
    pub(super) fn is_serving(&self, entry: Entry, requester: Rank, thread: Thread) -> bool {
        self.directory.is_busy(entry)
            && self.directory.head(entry).is_some_and(|head| (head.requester, head.thread) == (requester, thread))
    }

    /// Ends the request with which the minipage is busy.
    pub(super) fn served(&mut self, context: &mut Context, key: Key, entry: Entry) {
        self.directory.set_busy(entry, false);
        self.directory.pop(entry);
        self.serve_waiting(context, key);
    }

    /// Whether a request waits because a thread of this rank holds the minipage.
    pub(super) fn is_stalled(&self, key: Key) -> bool {
        self.managed(key).is_some_and(|entry| {
            !self.directory.is_busy(entry)
                && self.directory.head(entry).is_some_and(|request| self.must_wait(key, entry, request))
        })
    }

    /// Whether serving the request now would take away what a thread of this rank was just granted.
    fn must_wait(&self, key: Key, entry: Entry, request: Waiting) -> bool {
        request.requester != self.rank
            && self.directory.has_copy(entry, self.rank)
            && self.holds.forbid(key, left_by(request.access))
    }

    /// Serves the waiting requests for a minipage, if this rank manages it, as far as possible now.
    pub(super) fn serve_waiting(&mut self, context: &mut Context, key: Key) {
        let Some(entry) = self.managed(key) else {
            return;
        };
        while !self.directory.is_busy(entry) {
            let Some(request) = self.directory.head(entry) else {
                return;
            };
            let Some(minipage) = self.map.minipage(key) else {
                return;
            };
            if self.must_wait(key, entry, request) {
                context.counters_mut().held_back += 1;
                return;
            }
            if request.requester == self.rank {
                self.directory.set_busy(entry, true);
                self.serve(context, key, entry, minipage, request);
            } else if self.serve(context, key, entry, minipage, request) {
                self.directory.set_busy(entry, true);
            } else {
                self.directory.pop(entry);
            }
        }
    }

    /// Starts to serve a request. Returns whether the manager must hear of its end.
    fn serve(&mut self, context: &mut Context, key: Key, entry: Entry, minipage: Minipage, request: Waiting) -> bool {
        let Waiting { requester, thread, access } = request;
        let me = self.rank;
        let owner = self.directory.owner(entry);
        let has_copy = self.directory.has_copy(entry, requester);
        let lose_here = requester != me && self.directory.has_copy(entry, me);
        let give_here = !has_copy && lose_here;
        let forward = !has_copy && !give_here;
        let acks = match access {
            Access::Read => 0,
            Access::Write => {
                // Ranks that drop a copy on the manager's word alone: neither the sender of the data nor this rank.
                self.directory.remove_holder(entry, requester);
                self.directory.remove_holder(entry, me);
                if forward {
                    self.directory.remove_holder(entry, owner);
                }
                self.directory.count_holders(entry)
            }
        };
        if forward {
            // The message with the longest way goes first.
            let message = Message::Forward { minipage, requester, thread, access, acks };
            context.send(owner, message);
        }
        if acks > 0 {
            for holder in self.directory.holders(entry) {
                let message = Message::Invalidate { key, requester, thread };
                context.send(holder, message);
            }
        }
        match access {
            Access::Read => self.directory.add_holder(entry, requester),
            Access::Write => self.directory.give_to(entry, requester),
        }
        if forward {
            return true;
        }
        if lose_here && (access == Access::Write || give_here) {
            self.reduce(context, key, minipage, left_by(access));
        }
        let done = acks != 0;
        if requester == self.rank {
            self.granted(context, thread, Grant { acks, data: false, done: false });
        } else {
            let message = Message::Grant { minipage, thread, access, acks, data: give_here, done };
            if give_here {
                context.send_minipage(requester, minipage, message);
            } else {
                context.send(requester, message);
            }
        }
        done
    }
}
