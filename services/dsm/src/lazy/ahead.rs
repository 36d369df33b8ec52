//! Pages fetched ahead of accesses.
//!
//! A page whose home is not known waits until that has been asked for. When no such question is open, or many pages wait, all of them are
//! fetched in their order, and consecutive ones of one home by one action.

use crate::context::Context;
use crate::{Access, Action, Error, MAX_PAGES_AHEAD, Message, Protection, Rank, Views};
use alloc::vec::Vec;

use super::Lazy;
use super::pages::{AHEAD, ALONE, ASKED, ASKED_AHEAD, FETCHING, Pages, run};

/// Pages that one action fetches at most, so that several are under way.
const MOST_AT_ONCE: u32 = 64;

#[derive(Debug)]
pub(super) struct Ahead {
    /// Pages to fetch, whose homes are known.
    ready: Vec<u32>,
    /// Questions that are open.
    asked: u16,
    /// All such pages.
    count: u16,
    /// Actions under way that fetch several pages: the first, and how many.
    runs: Vec<(u32, u32)>,
}

impl Ahead {
    pub(super) fn new() -> Self {
        let most = usize::from(MAX_PAGES_AHEAD);
        Ahead { ready: Vec::with_capacity(most), asked: 0, count: 0, runs: Vec::with_capacity(most) }
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty() && (self.asked == 0 || self.ready.len() >= MOST_AT_ONCE as usize)
    }

    /// How many pages the action fetched that began with this one.
    pub(super) fn landed(&mut self, first: u32) -> u32 {
        let run = self.runs.iter().position(|run| run.0 == first);
        run.map_or(1, |at| self.runs.swap_remove(at).1)
    }

    fn begin(&mut self, pages: &mut Pages, page: u32) {
        pages.set(page, AHEAD);
        self.count += 1;
    }

    /// The page is here, or will not be fetched ahead.
    pub(super) fn end(&mut self, pages: &mut Pages, page: u32) {
        self.count -= u16::from(pages.take(page, AHEAD));
    }

    /// The question for a home is over.
    pub(super) fn end_question(&mut self, pages: &mut Pages, page: u32) -> bool {
        let was_asked = pages.take(page, ASKED_AHEAD);
        self.asked -= u16::from(was_asked);
        was_asked
    }
}

impl Lazy {
    /// Fetches a page before a thread accesses it.
    pub(crate) fn prefetch(&mut self, context: &mut Context, page: u64, access: Access) -> Result<bool, Error> {
        let page = self.page_at(page)?;
        if self.ahead.count >= MAX_PAGES_AHEAD {
            return Ok(false);
        }
        match self.pages.home(page) {
            None if ![AHEAD, ASKED].iter().any(|&flag| self.pages.is(page, flag)) => {
                self.ahead.begin(&mut self.pages, page);
                self.ahead.asked += 1;
                self.pages.set(page, ASKED);
                self.pages.set(page, ASKED_AHEAD);
                self.tell(context, self.manager(page), Message::HomeRequest { page, views: Views::ONE });
            }
            Some(home) if home == self.rank => self.open_alone(context, page, access),
            Some(_) if self.is_to_fetch(page) && !self.pages.is(page, AHEAD) => {
                self.ahead.begin(&mut self.pages, page);
                self.ahead.ready.push(page);
            }
            _ => {}
        }
        Ok(true)
    }

    /// The home of a page that was asked for is known.
    pub(super) fn ahead_answered(&mut self, context: &mut Context, page: u32, home: Rank) {
        if !self.ahead.end_question(&mut self.pages, page) {
            return;
        }
        if home == self.rank {
            self.ahead.end(&mut self.pages, page);
            self.open_alone(context, page, Access::Write);
        } else {
            self.ahead.ready.push(page);
        }
    }

    /// A home that is alone needs no fault to store.
    fn open_alone(&mut self, context: &mut Context, page: u32, access: Access) {
        if self.pages.is(page, ALONE) && access == Access::Write && self.pages.protection(page) != Protection::Write {
            self.allow(context, page, Protection::Write);
        }
    }

    fn is_to_fetch(&self, page: u32) -> bool {
        self.pages.protection(page) == Protection::None && self.home_of_clean(page).is_some()
    }

    /// Fetches all pages that wait.
    pub(super) fn fetch_ahead(&mut self, context: &mut Context) {
        self.ahead.ready.sort_unstable();
        for at in 0..self.ahead.ready.len() {
            let page = self.ahead.ready[at];
            match self.home_of_clean(page).filter(|_| self.is_to_fetch(page)) {
                Some(home) => {
                    context.counters_mut().prefetches += 1;
                    self.fetch(context, home, page, None);
                }
                // A thread that could not wait has begun.
                None if self.pages.is(page, FETCHING) => {}
                None => self.ahead.end(&mut self.pages, page),
            }
        }
        self.ahead.ready.clear();
    }

    /// The next action, which fetches a page: with all that follow it there and in the queue.
    pub(super) fn poll_fetch(&mut self, context: &mut Context, from: Rank, page: u32) -> Action {
        let mut pages = 1;
        context.poll_action();
        while pages < MOST_AT_ONCE
            && context.front() == Some(&Action::Fetch { from, page: page + pages, pages: 1, into: None })
        {
            context.poll_action();
            pages += 1;
        }
        if pages > 1 {
            self.ahead.runs.push((page, pages));
        }
        Action::Fetch { from, page, pages, into: None }
    }

    /// The next action, which allows as much: with all that follow it and in the queue.
    pub(super) fn poll_open(&mut self, context: &mut Context, page: u32, most: Protection) -> Option<Action> {
        context.poll_action();
        let protection = self.pages.open(page, most)?;
        let mut pages = 1;
        while let Some(&Action::Protect { minipage, protection: most }) = context.front()
            && minipage == run(page + pages, 1)
            && self.pages.opens(page + pages, most) == Some(protection)
        {
            context.poll_action();
            self.pages.open(page + pages, most);
            pages += 1;
        }
        Some(Action::Protect { minipage: run(page, pages), protection })
    }
}
