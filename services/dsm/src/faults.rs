//! The requester's and the copy holder's parts of a fault.

use crate::address::Key;
use crate::holds::{PutOff, Work};
use crate::threads::{Grant, Request, Wait};
use crate::{
    Access, Dsm, Error, Message, Minipage, Outcome, Progress, Protection, Rank, Thread, Violation,
};

impl Dsm {
    /// Begins to serve a page fault of a thread, at time `now_ns` of this rank's monotonic clock. `page` counts
    /// from the start of the segment. `Done`: the access is allowed by now, try again. `Pending`: a resume
    /// follows, with [`Outcome::Served`], or with [`Error::NotShared`] if nothing is allocated there.
    pub fn handle_fault(
        &mut self,
        now_ns: u64,
        thread: Thread,
        view: u16,
        page: u64,
        access: Access,
    ) -> Result<Progress, Error> {
        let key = self.begin_access(now_ns, thread, view, page)?;
        let page = page as u32;
        if self.map.protection(key).allows(access) {
            self.out.counters.spurious_faults += 1;
            return Ok(Progress::Done);
        }
        match access {
            Access::Read => self.out.counters.read_faults += 1,
            Access::Write => self.out.counters.write_faults += 1,
        }
        self.threads[usize::from(thread)].waits = Wait::Fault { key, page, access };
        if !self.is_requested(key) {
            self.request(thread, key, access);
        }
        Ok(Progress::Pending)
    }

    /// Begins an input of a thread about a page; the minipage there.
    fn begin_access(
        &mut self,
        now_ns: u64,
        thread: Thread,
        view: u16,
        page: u64,
    ) -> Result<Key, Error> {
        self.release_holds(now_ns);
        self.begin(thread)?;
        if view >= self.config.views || page >= u64::from(self.config.pages) {
            return Err(Error::NotShared { view, page });
        }
        Ok(self.map.key(view, page as u32))
    }

    /// Asks for a minipage before `thread` accesses it, at time `now_ns`. The thread goes on, and nobody is resumed when the
    /// minipage comes. A thread that faults there meanwhile waits for this request.
    ///
    /// Asks nothing if the access is allowed already, or if the minipage is on its way. Nothing comes if nothing is
    /// allocated there. False: [`MAX_PREFETCHES`](crate::MAX_PREFETCHES) are on their way, and nothing was asked.
    pub fn prefetch(
        &mut self,
        now_ns: u64,
        thread: Thread,
        view: u16,
        page: u64,
        access: Access,
    ) -> Result<bool, Error> {
        let key = self.begin_access(now_ns, thread, view, page)?;
        if self.map.protection(key).allows(access) || self.is_requested(key) {
            return Ok(true);
        }
        let free = (self.config.threads..self.config.requests())
            .find(|&number| self.requests[usize::from(number)].is_none());
        let Some(number) = free else {
            return Ok(false);
        };
        self.prefetches += 1;
        self.out.counters.prefetches += 1;
        self.request(number, key, access);
        Ok(true)
    }

    /// Whether a request of this rank for the minipage is on its way.
    fn is_requested(&self, key: Key) -> bool {
        let ahead = match self.prefetches {
            0 => &[],
            _ => &self.requests[usize::from(self.config.threads)..],
        };
        let of_threads = &self.requests[..usize::from(self.used_threads)];
        let mut all = of_threads.iter().chain(ahead).flatten();
        all.any(|request| request.key == key)
    }

    /// A request is over.
    fn end_request(&mut self, number: Thread) {
        if self.requests[usize::from(number)].take().is_some() && number >= self.config.threads {
            self.prefetches -= 1;
        }
    }

    fn request(&mut self, thread: Thread, key: Key, access: Access) {
        self.ackers.clear(usize::from(thread));
        self.requests[usize::from(thread)] = Some(Request {
            key,
            access,
            acked: 0,
            grant: None,
        });
        match self.managed(key) {
            None => {
                let message = Message::Request {
                    thread,
                    view: key.view,
                    page: key.page,
                    access,
                };
                self.out.send(self.spread.manager(key.page), message);
            }
            Some(entry) => {
                if !self.request_here(thread, key, access, entry) {
                    self.refused(thread, key);
                }
            }
        }
    }

    /// The name of what a message is about.
    pub(crate) fn checked_key(&self, view: u16, page: u32) -> Result<Key, Violation> {
        if view < self.config.views && page < self.config.pages {
            Ok(Key { view, page })
        } else {
            Err(Violation::OutOfRange)
        }
    }

    /// The request of this rank with that number, if it is about that minipage.
    fn led(&mut self, thread: Thread, key: Key) -> Result<&mut Request, Violation> {
        let request = self
            .requests
            .get_mut(usize::from(thread))
            .ok_or(Violation::OutOfRange)?;
        request
            .as_mut()
            .filter(|request| request.key == key)
            .ok_or(Violation::Unasked)
    }

    #[allow(clippy::too_many_arguments)] // the fields of the message
    pub(crate) fn handle_grant(
        &mut self,
        from: Rank,
        minipage: Minipage,
        thread: Thread,
        access: Access,
        acks: u16,
        data: bool,
        done: bool,
    ) -> Result<(), Violation> {
        if !minipage.is_well_formed(self.config.pages, self.config.views)
            || acks >= self.config.ranks
        {
            return Err(Violation::OutOfRange);
        }
        let key = minipage.key();
        let known = self.map.minipage(key);
        let request = *self.led(thread, key)?;
        let manager = self.spread.manager(key.page);
        if request.grant.is_some() || request.access != access || request.acked > acks {
            return Err(Violation::Unasked);
        }
        if !done && from != manager && manager != self.config.rank {
            return Err(Violation::NotManager);
        }
        if !self.is_served(thread, key) {
            return Err(Violation::Unasked);
        }
        match known {
            Some(known) if known != minipage => return Err(Violation::Minipage),
            None if minipage.pages() > 1 || !self.map.is_free(&minipage) => {
                return Err(Violation::Minipage);
            }
            _ => {}
        }
        if !data && self.map.protection(key) == Protection::None {
            return Err(Violation::NoCopy);
        }
        if known.is_none() {
            self.map.insert(&minipage, Protection::None);
        }
        self.granted(thread, Grant { acks, data, done });
        Ok(())
    }

    /// Notes the right that a request obtained; the data is in place.
    pub(crate) fn granted(&mut self, thread: Thread, grant: Grant) {
        if let Some(request) = &mut self.requests[usize::from(thread)] {
            request.grant = Some(grant);
            self.complete(thread);
        }
    }

    /// Whether a request of this rank can be answered now: one that this rank manages waits its turn first.
    fn is_served(&self, thread: Thread, key: Key) -> bool {
        self.managed(key)
            .is_none_or(|entry| self.is_serving(entry, self.config.rank, thread))
    }

    pub(crate) fn handle_invalidate_ack(
        &mut self,
        from: Rank,
        thread: Thread,
        key: Key,
    ) -> Result<(), Violation> {
        if !self.is_served(thread, key) {
            return Err(Violation::Unasked);
        }
        if self.led(thread, key)?.access != Access::Write {
            return Err(Violation::Unasked);
        }
        if !self.ackers.insert(usize::from(thread), from) {
            return Err(Violation::Repeated);
        }
        self.led(thread, key)?.acked += 1;
        self.complete(thread);
        Ok(())
    }

    /// Uses a right as soon as nobody else holds what it excludes: opens the pages, lets the threads go on that
    /// waited for it, tells the manager, and asks again for those that want more.
    fn complete(&mut self, thread: Thread) {
        let Some(request) = self.requests[usize::from(thread)] else {
            return;
        };
        let Some(grant) = request.grant.filter(|grant| grant.acks == request.acked) else {
            return;
        };
        let key = request.key;
        let Some(minipage) = self.map.minipage(key) else {
            return;
        };
        self.end_request(thread);
        let protection = self.map.protection(key).max(request.access.into());
        if protection > self.map.protection(key) {
            self.map.set_protection(key, protection);
            self.out.protect(minipage, protection);
        }
        if request.access == Access::Write && !grant.data {
            self.out.counters.upgrades += 1;
        }

        let mut unsatisfied = None;
        for waiter in 0..self.used_threads {
            let slot = &mut self.threads[usize::from(waiter)];
            let Wait::Fault {
                key: wanted,
                access,
                ..
            } = slot.waits
            else {
                continue;
            };
            if wanted != key {
                continue;
            }
            if protection.allows(access) {
                slot.waits = Wait::Nothing;
                self.hold(waiter, key, access);
                self.out.resume(waiter, Outcome::Served(access));
            } else {
                unsatisfied.get_or_insert((waiter, access));
            }
        }

        if let Some(entry) = self.managed(key) {
            self.served(key, entry);
        } else if grant.done {
            let message = Message::Done {
                thread,
                view: key.view,
                page: key.page,
            };
            self.out.send(self.spread.manager(key.page), message);
        }
        if let Some((waiter, access)) = unsatisfied
            && !self.is_requested(key)
        {
            self.request(waiter, key, access);
        }
    }

    pub(crate) fn handle_refuse(
        &mut self,
        from: Rank,
        thread: Thread,
        key: Key,
    ) -> Result<(), Violation> {
        if from != self.spread.manager(key.page) {
            return Err(Violation::NotManager);
        }
        if self.led(thread, key)?.grant.is_some() {
            return Err(Violation::Unasked);
        }
        self.refused(thread, key);
        Ok(())
    }

    /// Nothing is allocated there: all threads that faulted there fail. The answer to a prefetch may be older than their
    /// faults, and than an allocation: then one of them asks again.
    fn refused(&mut self, thread: Thread, key: Key) {
        self.end_request(thread);
        let was_ahead = thread >= self.config.threads;
        for waiter in 0..self.used_threads {
            let slot = &mut self.threads[usize::from(waiter)];
            match slot.waits {
                Wait::Fault {
                    key: wanted,
                    access,
                    ..
                } if wanted == key && was_ahead => {
                    return self.request(waiter, key, access);
                }
                Wait::Fault {
                    key: wanted, page, ..
                } if wanted == key => {
                    slot.waits = Wait::Nothing;
                    let error = Error::NotShared {
                        view: key.view,
                        page: u64::from(page),
                    };
                    self.out.resume(waiter, Outcome::Failed(error));
                }
                _ => {}
            }
        }
    }

    pub(crate) fn handle_forward(
        &mut self,
        from: Rank,
        minipage: Minipage,
        requester: Rank,
        thread: Thread,
        access: Access,
        acks: u16,
    ) -> Result<(), Violation> {
        if !minipage.is_well_formed(self.config.pages, self.config.views) {
            return Err(Violation::OutOfRange);
        }
        let key = minipage.key();
        if self.map.minipage(key) != Some(minipage) {
            return Err(Violation::Minipage);
        }
        let work = Work::Forward { access, acks };
        self.give_up_checked(PutOff {
            key,
            manager: from,
            requester,
            thread,
            work,
        })
    }

    pub(crate) fn handle_invalidate(
        &mut self,
        from: Rank,
        key: Key,
        requester: Rank,
        thread: Thread,
    ) -> Result<(), Violation> {
        let work = Work::Invalidate;
        self.give_up_checked(PutOff {
            key,
            manager: from,
            requester,
            thread,
            work,
        })
    }

    fn give_up_checked(&mut self, work: PutOff) -> Result<(), Violation> {
        if work.requester >= self.config.ranks
            || work.requester == self.config.rank
            || work.thread >= self.config.requests()
        {
            return Err(Violation::OutOfRange);
        }
        if work.manager != self.spread.manager(work.key.page) {
            return Err(Violation::NotManager);
        }
        if self.map.protection(work.key) == Protection::None || self.holds.is_put_off(work.key) {
            return Err(Violation::NoCopy);
        }
        self.give_up_in_time(work);
        Ok(())
    }

    /// Reduces this rank's right, then passes the data on or tells the requester.
    pub(crate) fn give_up(&mut self, work: PutOff) {
        let PutOff {
            key,
            manager,
            requester,
            thread,
            work,
        } = work;
        let Some(minipage) = self.map.minipage(key) else {
            return;
        };
        match work {
            Work::Forward { access, acks } => {
                let leaves = match access {
                    Access::Read => Protection::Read,
                    Access::Write => Protection::None,
                };
                self.reduce(key, minipage, leaves);
                let done = requester != manager;
                let message = Message::Grant {
                    minipage,
                    thread,
                    access,
                    acks,
                    data: true,
                    done,
                };
                self.out.send_minipage(requester, minipage, message);
            }
            Work::Invalidate => {
                self.reduce(key, minipage, Protection::None);
                let message = Message::InvalidateAck {
                    thread,
                    view: key.view,
                    page: key.page,
                };
                self.out.send(requester, message);
            }
        }
    }
}
