//! Faults: what a thread waits for until it may access a page.

use crate::address::Key;
use crate::context::{Context, Wait};
use crate::{Access, Action, Error, Message, Outcome, PAGE_BYTES, Progress, Protection, Rank, Thread, Views};

use super::Lazy;
use super::pages::{ALONE, ASKED, CLOSING, DIRTY, FETCHING, SENT, STALE, TAKING, WHOLE, run};

fn key(page: u32) -> Key {
    Key { view: 0, page }
}

impl Lazy {
    pub(super) fn page_at(&self, page: u64) -> Result<u32, Error> {
        let within = u32::try_from(page).ok().filter(|&page| page < self.pages.count());
        within.ok_or(Error::NotShared { view: 0, page })
    }

    /// Begins to serve a page fault of an idle thread.
    pub(crate) fn handle_fault(
        &mut self,
        context: &mut Context,
        thread: Thread,
        page: u64,
        access: Access,
    ) -> Result<Progress, Error> {
        let page = self.page_at(page)?;
        let counters = context.counters_mut();
        if self.pages.protection(page).allows(access) {
            counters.spurious_faults += 1;
            return Ok(Progress::Done);
        }
        match access {
            Access::Read => counters.read_faults += 1,
            Access::Write => counters.write_faults += 1,
        }
        context.set_wait(thread, Wait::Fault { key: key(page), page, access });
        self.advance(context, page);
        Ok(Progress::Pending)
    }

    /// Allows stores to a page that a thread is about to overwrite: it is not fetched, and goes to its home as a whole.
    pub(crate) fn overwrite(&mut self, context: &mut Context, page: u64) -> Result<(), Error> {
        let page = self.page_at(page)?;
        if self.home_of_clean(page).is_some() {
            self.begin_whole(context, page);
        } else if self.pages.home(page).is_none() && !self.pages.is(page, ASKED) {
            // A thread that stores there first waits for the home alone.
            self.pages.set(page, WHOLE);
            self.pages.set(page, ASKED);
            self.tell(context, self.manager(page), Message::HomeRequest { page, views: Views::ONE });
        }
        Ok(())
    }

    pub(super) fn begin_whole(&mut self, context: &mut Context, page: u32) {
        self.pages.set(page, WHOLE);
        self.note_written(page);
        self.allow(context, page, Protection::Write);
    }

    /// The home of a page that is elsewhere and known, if nothing is under way there and this rank does not write it.
    pub(super) fn home_of_clean(&self, page: u32) -> Option<Rank> {
        let is_clean = [CLOSING, FETCHING, TAKING, SENT, WHOLE].iter().all(|&flag| !self.pages.is(page, flag));
        let home = self.pages.home(page).filter(|&home| home != self.rank)?;
        (is_clean && self.pages.twin(page).is_none()).then_some(home)
    }

    /// The greatest access for which a thread waits there.
    fn wanted(&self, context: &Context, page: u32) -> Option<Access> {
        let waits = 0..context.waits().len();
        waits.filter_map(|thread| context.fault_on(key(page), thread)).map(|(_, access)| access).max()
    }

    /// Takes the next step towards what threads wait for at a page.
    pub(super) fn advance(&mut self, context: &mut Context, page: u32) {
        let Some(wanted) = self.wanted(context, page) else { return };
        if [CLOSING, FETCHING, TAKING].iter().any(|&flag| self.pages.is(page, flag)) {
            return;
        }
        let Some(home) = self.pages.home(page) else {
            if !self.pages.is(page, ASKED) {
                self.pages.set(page, ASKED);
                self.tell(context, self.manager(page), Message::HomeRequest { page, views: Views::ONE });
            }
            return;
        };
        let has = self.pages.protection(page);
        if home == self.rank {
            let is_noticed = wanted == Access::Write && has != Protection::Write && !self.pages.is(page, ALONE);
            if is_noticed {
                self.note_written(page);
            }
            self.allow(context, page, has.max(wanted.into()));
            if is_noticed {
                self.note_own(context, page);
            }
            return;
        }
        if has == Protection::None {
            if self.pages.is(page, SENT) {
                return;
            }
            let into = match self.pages.twin(page) {
                None => None,
                Some(_) => match self.free.pop() {
                    None => return self.starve(),
                    into => into,
                },
            };
            return self.fetch(context, home, page, into);
        }
        if wanted == Access::Write && self.pages.twin(page).is_none() {
            // Those that load need not wait.
            self.allow(context, page, Protection::Read);
            if self.pages.is(page, SENT) {
                return;
            }
            let Some(twin) = self.free.pop() else { return self.starve() };
            self.pages.set_twin(page, Some(twin));
            self.note_written(page);
            context.counters_mut().twins += 1;
            context.push(Action::Twin { page, twin });
        }
        self.allow(context, page, wanted.into());
    }

    /// Notes that the page may be written from now on, in the interval that is open.
    fn note_written(&mut self, page: u32) {
        if !self.pages.is(page, DIRTY) {
            self.pages.set(page, DIRTY);
            self.intervals.note_written(&mut self.pages, page);
        }
    }

    /// Allows the application an access to a page, and resumes the threads that waited for no more.
    pub(super) fn allow(&mut self, context: &mut Context, page: u32, to: Protection) {
        let to = to.max(self.pages.protection(page));
        self.pages.protect(page, to);
        context.protect(run(page, 1), to);
        for thread in 0..context.waits().len() {
            if let Some((_, access)) = context.fault_on(key(page), thread)
                && to.allows(access)
            {
                context.resume(thread as Thread, Outcome::Served(access));
            }
        }
    }

    /// Lets all threads that wait at a page fail: nothing is allocated there.
    pub(super) fn refuse(&mut self, context: &mut Context, page: u32) {
        for thread in 0..context.waits().len() {
            if context.fault_on(key(page), thread).is_some() {
                let error = Error::NotShared { view: 0, page: u64::from(page) };
                context.resume(thread as Thread, Outcome::Failed(error));
            }
        }
    }

    /// No twin is free: ends the interval, which frees those of all pages.
    fn starve(&mut self) {
        self.is_starving = true;
        self.intervals.end();
    }

    /// Twins are free again: goes on with all that threads wait for.
    pub(super) fn feed(&mut self, context: &mut Context) {
        if !core::mem::take(&mut self.is_starving) {
            return;
        }
        for thread in 0..context.waits().len() {
            if let Wait::Fault { key: Key { view: 0, page }, .. } = context.waits()[thread] {
                self.advance(context, page);
            }
        }
    }

    pub(super) fn fetch(&mut self, context: &mut Context, from: Rank, page: u32, into: Option<u32>) {
        self.pages.set(page, FETCHING);
        self.pages.clear(page, STALE);
        self.pages.protect(page, Protection::None);
        if let Some(twin) = into {
            self.landings.push((page, twin));
        }
        let counters = context.counters_mut();
        counters.pages_fetched += 1;
        counters.bytes_fetched += PAGE_BYTES;
        context.push(Action::Fetch { from, page, pages: 1, into });
    }

    /// What was fetched from that page on is here, or in the twin in which it was to land.
    pub(crate) fn handle_fetched(&mut self, context: &mut Context, page: u64) {
        let Ok(first) = self.page_at(page) else { return };
        for page in first..first + self.ahead.landed(first) {
            self.landed(context, page);
        }
    }

    fn landed(&mut self, context: &mut Context, page: u32) {
        self.ahead.end(&mut self.pages, page);
        if !self.pages.take(page, FETCHING) {
            return;
        }
        let is_stale = self.pages.take(page, STALE);
        let landing = self.landings.iter().position(|&(of, _)| of == page);
        if let Some((_, fetched)) = landing.map(|at| self.landings.swap_remove(at)) {
            self.free.push(fetched);
            if let Some(twin) = self.pages.twin(page)
                && !is_stale
            {
                context.push(Action::Merge { page, twin, fetched });
            }
        }
        if self.pages.take(page, TAKING) {
            self.taken(context, page);
        } else if !is_stale {
            let to = if self.pages.twin(page).is_some() { Protection::Write } else { Protection::Read };
            self.allow(context, page, to);
        }
        self.close_in_time(context, page);
        self.advance(context, page);
        self.feed(context);
    }
}
