//! The manager's part of a fault: one request at a time for each minipage.
//!
//! A manager that holds a copy serves the data itself, so that a fault costs a request and a grant. It then
//! need not hear of the end: whatever it sends the requester next arrives after the grant. When others take
//! part (the owner sends the data, holders of copies drop them and tell the requester directly) the minipage
//! stays busy until the requester says [`Message::Done`].

use crate::address::Key;
use crate::directory::{Entry, Waiting};
use crate::threads::Grant;
use crate::{Access, Dsm, Message, Minipage, Protection, Rank, Thread, Violation};

impl Dsm {
    /// The directory entry of a minipage, if this rank manages it.
    pub(crate) fn managed(&self, key: Key) -> Option<Entry> {
        let mine = self.spread.manager(key.page) == self.config.rank;
        mine.then(|| self.directory.entry(key, self.spread.row(key.page)))
    }

    /// A request of another rank.
    pub(crate) fn handle_request(
        &mut self,
        from: Rank,
        thread: Thread,
        key: Key,
        access: Access,
    ) -> Result<(), Violation> {
        if thread >= self.config.requests() {
            return Err(Violation::OutOfRange);
        }
        let entry = self.managed(key).ok_or(Violation::NotManager)?;
        if !self.directory.is_registered(entry) {
            self.out.send(
                from,
                Message::Refuse {
                    thread,
                    view: key.view,
                    page: key.page,
                },
            );
            return Ok(());
        }
        if !self.directory.enqueue(
            entry,
            Waiting {
                requester: from,
                thread,
                access,
            },
        ) {
            return Err(Violation::Repeated);
        }
        self.serve_waiting(key);
        Ok(())
    }

    /// A request of this rank for a minipage that it manages itself; false if there is none.
    pub(crate) fn request_here(
        &mut self,
        thread: Thread,
        key: Key,
        access: Access,
        entry: Entry,
    ) -> bool {
        let request = Waiting {
            requester: self.config.rank,
            thread,
            access,
        };
        if !self.directory.is_registered(entry) || !self.directory.enqueue(entry, request) {
            return false;
        }
        self.serve_waiting(key);
        true
    }

    /// The requester has the right that the minipage is busy with.
    pub(crate) fn handle_done(
        &mut self,
        from: Rank,
        thread: Thread,
        key: Key,
    ) -> Result<(), Violation> {
        let entry = self.managed(key).ok_or(Violation::NotManager)?;
        if !self.is_serving(entry, from, thread) {
            return Err(Violation::Unasked);
        }
        self.served(key, entry);
        Ok(())
    }

    /// Whether the minipage is busy with the request of that thread.
    pub(crate) fn is_serving(&self, entry: Entry, requester: Rank, thread: Thread) -> bool {
        self.directory.is_busy(entry)
            && self
                .directory
                .head(entry)
                .is_some_and(|head| (head.requester, head.thread) == (requester, thread))
    }

    /// Ends the request that the minipage is busy with.
    pub(crate) fn served(&mut self, key: Key, entry: Entry) {
        self.directory.set_busy(entry, false);
        self.directory.pop(entry);
        self.serve_waiting(key);
    }

    /// Whether a request waits because a thread of this rank holds the minipage.
    pub(crate) fn is_stalled(&self, key: Key) -> bool {
        self.managed(key).is_some_and(|entry| {
            !self.directory.is_busy(entry)
                && self
                    .directory
                    .head(entry)
                    .is_some_and(|request| self.must_wait(key, entry, request))
        })
    }

    /// Whether to serve the request now would take from a thread of this rank what it was just granted.
    fn must_wait(&self, key: Key, entry: Entry, request: Waiting) -> bool {
        let leaves = match request.access {
            Access::Read => Protection::Read,
            Access::Write => Protection::None,
        };
        request.requester != self.config.rank
            && self.directory.has_copy(entry, self.config.rank)
            && self.holds.forbid(key, leaves)
    }

    /// Serves the requests for a minipage, if this rank manages it, as far as possible now.
    pub(crate) fn serve_waiting(&mut self, key: Key) {
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
                self.out.counters.held_back += 1;
                return;
            }
            if request.requester == self.config.rank {
                self.directory.set_busy(entry, true);
                self.serve(key, entry, minipage, request);
            } else if self.serve(key, entry, minipage, request) {
                self.directory.set_busy(entry, true);
            } else {
                self.directory.pop(entry);
            }
        }
    }

    /// Sets a request going. Whether the manager must hear of its end.
    fn serve(&mut self, key: Key, entry: Entry, minipage: Minipage, request: Waiting) -> bool {
        let Waiting {
            requester,
            thread,
            access,
        } = request;
        let me = self.config.rank;
        let owner = self.directory.owner(entry);
        let has_copy = self.directory.has_copy(entry, requester);
        let lose_here = requester != me && self.directory.has_copy(entry, me);
        let give_here = !has_copy && lose_here;
        let forward = !has_copy && !give_here;
        // Who drops a copy on the manager's word alone: neither the one who sends the data nor this rank.
        let drops = |&holder: &Rank| {
            access == Access::Write
                && holder != requester
                && holder != me
                && !(forward && holder == owner)
        };
        let acks = self.directory.holders(entry).filter(drops).count() as u16;
        if forward {
            // The longest way goes first.
            let message = Message::Forward {
                minipage,
                requester,
                thread,
                access,
                acks,
            };
            self.out.send(owner, message);
        }
        for holder in self.directory.holders(entry).filter(drops) {
            let message = Message::Invalidate {
                view: key.view,
                page: key.page,
                requester,
                thread,
            };
            self.out.send(holder, message);
        }
        match access {
            Access::Read => self.directory.add_holder(entry, requester),
            Access::Write => self.directory.give_to(entry, requester),
        }
        if forward {
            return true;
        }
        if lose_here && (access == Access::Write || give_here) {
            let leaves = match access {
                Access::Read => Protection::Read,
                Access::Write => Protection::None,
            };
            self.reduce(key, minipage, leaves);
        }
        let done = acks != 0;
        if requester == self.config.rank {
            self.granted(
                thread,
                Grant {
                    acks,
                    data: false,
                    done: false,
                },
            );
        } else {
            let message = Message::Grant {
                minipage,
                thread,
                access,
                acks,
                data: give_here,
                done,
            };
            if give_here {
                self.out.send_minipage(requester, minipage, message);
            } else {
                self.out.send(requester, message);
            }
        }
        done
    }

    /// Reduces what the application may do here, before anybody else is told.
    pub(crate) fn reduce(&mut self, key: Key, minipage: Minipage, protection: Protection) {
        if self.map.protection(key) > protection {
            self.map.set_protection(key, protection);
            self.out.protect(minipage, protection);
            match protection {
                Protection::None => self.out.counters.invalidations += 1,
                _ => self.out.counters.downgrades += 1,
            }
        }
    }
}
