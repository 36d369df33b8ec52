//! The requester's part of a fault.

use crate::address::Key;
use crate::context::{Context, Wait};
use crate::{Access, Error, Message, Minipage, Outcome, Progress, Protection, Rank, Thread, Violation};

use super::directory::Waiting;
use super::{Grant, Request, SequentialConsistency};

impl SequentialConsistency {
    /// Begins to serve a page fault of an idle thread.
    pub(crate) fn handle_fault(
        &mut self,
        context: &mut Context,
        thread: Thread,
        view: u16,
        page: u64,
        access: Access,
    ) -> Result<Progress, Error> {
        let key = self.key_at(view, page)?;
        let page = page as u32;
        if self.map.protection(key).allows(access) {
            if !self.open(context, key) {
                context.counters_mut().spurious_faults += 1;
            }
            return Ok(Progress::Done);
        }
        let counters = context.counters_mut();
        match access {
            Access::Read => counters.read_faults += 1,
            Access::Write => counters.write_faults += 1,
        }
        context.set_wait(thread, Wait::Fault { key, page, access });
        if !self.is_requested(key) {
            self.request(context, thread, key, access);
        }
        Ok(Progress::Pending)
    }

    /// Requests a minipage before a thread accesses it. False, without a request, if too many are outstanding.
    pub(crate) fn prefetch(
        &mut self,
        context: &mut Context,
        view: u16,
        page: u64,
        access: Access,
    ) -> Result<bool, Error> {
        let key = self.key_at(view, page)?;
        if self.map.protection(key).allows(access) || self.is_requested(key) {
            return Ok(true);
        }
        let first = usize::from(self.threads);
        let ahead = &self.requests[first..];
        let Some(free) = ahead.iter().position(Option::is_none) else {
            return Ok(false);
        };
        self.prefetches += 1;
        context.counters_mut().prefetches += 1;
        self.request(context, (first + free) as Thread, key, access);
        Ok(true)
    }

    /// The key of the minipage at a page of a view.
    fn key_at(&self, view: u16, page: u64) -> Result<Key, Error> {
        if view >= self.views || page >= u64::from(self.pages) {
            return Err(Error::NotShared { view, page });
        }
        Ok(self.map.key(view, page as u32))
    }

    /// Whether a request of this rank for the minipage is outstanding.
    fn is_requested(&self, key: Key) -> bool {
        let ahead = match self.prefetches {
            0 => &[],
            _ => &self.requests[usize::from(self.threads)..],
        };
        let of_threads = &self.requests[..self.asked];
        let mut all = of_threads.iter().chain(ahead).flatten();
        all.any(|request| request.key == key)
    }

    fn end_request(&mut self, number: Thread) {
        if self.requests[usize::from(number)].take().is_some() && number >= self.threads {
            self.prefetches -= 1;
        }
    }

    fn request(&mut self, context: &mut Context, thread: Thread, key: Key, access: Access) {
        if thread < self.threads {
            self.asked = self.asked.max(usize::from(thread) + 1);
        }
        self.ackers.clear(usize::from(thread));
        self.requests[usize::from(thread)] = Some(Request { key, access, acked: 0, grant: None });
        match self.managed(key) {
            None => {
                let message = Message::Request { thread, key, access };
                context.send(self.spread.manager(key.page), message);
            }
            Some(entry) => {
                let requester = self.rank;
                let request = Waiting { requester, thread, access };
                if self.is_registered(key, entry) && self.directory.enqueue(entry, request) {
                    self.serve_waiting(context, key);
                } else {
                    self.refused(context, thread, key);
                }
            }
        }
    }

    /// This rank's request with that number, if it is for that minipage.
    fn led(&mut self, thread: Thread, key: Key) -> Result<&mut Request, Violation> {
        let request = self.requests.get_mut(usize::from(thread)).ok_or(Violation::OutOfRange)?;
        request.as_mut().filter(|request| request.key == key).ok_or(Violation::Unasked)
    }

    pub(super) fn handle_grant(
        &mut self,
        context: &mut Context,
        from: Rank,
        minipage: Minipage,
        thread: Thread,
        access: Access,
        grant: Grant,
    ) -> Result<(), Violation> {
        let Grant { acks, data, done } = grant;
        if !minipage.is_well_formed(self.pages, self.views) || acks >= context.ranks() {
            return Err(Violation::OutOfRange);
        }
        let key = minipage.key();
        let known = self.map.minipage(key);
        let request = *self.led(thread, key)?;
        let manager = self.spread.manager(key.page);
        if request.grant.is_some() || request.access != access || request.acked > acks {
            return Err(Violation::Unasked);
        }
        if !done && from != manager && manager != self.rank {
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
        self.granted(context, thread, grant);
        Ok(())
    }

    /// Records the right that a request obtained; the data is in place.
    pub(super) fn granted(&mut self, context: &mut Context, thread: Thread, grant: Grant) {
        if let Some(request) = &mut self.requests[usize::from(thread)] {
            request.grant = Some(grant);
            self.complete(context, thread);
        }
    }

    /// Whether a request of this rank can be answered now: one that this rank manages must first wait for its turn.
    fn is_served(&self, thread: Thread, key: Key) -> bool {
        self.managed(key).is_none_or(|entry| self.is_serving(entry, self.rank, thread))
    }

    /// A rank has dropped its copy. The manager told how many do, not which: a rank without a copy could answer in place of one that has
    /// it, which is then refused.
    pub(super) fn handle_invalidate_ack(
        &mut self,
        context: &mut Context,
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
        self.complete(context, thread);
        Ok(())
    }

    /// Uses a right as soon as nobody else holds a conflicting one: opens the pages, resumes the threads that waited for it, tells the
    /// manager, and requests again for those that want more.
    fn complete(&mut self, context: &mut Context, thread: Thread) {
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
            context.protect(minipage, protection);
        }
        if request.access == Access::Write && !grant.data {
            context.counters_mut().upgrades += 1;
        }

        let mut unsatisfied = None;
        for waiter in 0..context.waits().len() {
            let Some((_, access)) = context.fault_on(key, waiter) else {
                continue;
            };
            let waiter = waiter as Thread;
            if protection.allows(access) {
                self.hold(waiter, key, access);
                context.resume(waiter, Outcome::Served(access));
            } else {
                unsatisfied.get_or_insert((waiter, access));
            }
        }

        if let Some(entry) = self.managed(key) {
            self.served(context, key, entry);
        } else if grant.done {
            let message = Message::Done { thread, key };
            context.send(self.spread.manager(key.page), message);
        }
        if let Some((waiter, access)) = unsatisfied
            && !self.is_requested(key)
        {
            self.request(context, waiter, key, access);
        }
    }

    pub(super) fn handle_refuse(
        &mut self,
        context: &mut Context,
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
        self.refused(context, thread, key);
        Ok(())
    }

    /// Nothing is allocated there: all threads that faulted there fail. The answer to a prefetch may be older than their faults, and than
    /// an allocation: then one of them requests again.
    fn refused(&mut self, context: &mut Context, thread: Thread, key: Key) {
        self.end_request(thread);
        let was_ahead = thread >= self.threads;
        for waiter in 0..context.waits().len() {
            let Some((page, access)) = context.fault_on(key, waiter) else {
                continue;
            };
            let waiter = waiter as Thread;
            if was_ahead {
                return self.request(context, waiter, key, access);
            }
            let error = Error::NotShared { view: key.view, page: u64::from(page) };
            context.resume(waiter, Outcome::Failed(error));
        }
    }
}
