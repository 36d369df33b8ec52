//! Homes: who is told, who asks, and how one moves to the rank that alone writes the page. See [`homes`](super::homes) for the manager's
//! tables.

use crate::context::Context;
use crate::{Message, Protection, Rank, Violation};

use super::Lazy;
use super::homes::Answer;
use super::pages::{ASKED, CLOSING, DIRTY, FETCHING, FORMER, PLACED, SENT, TAKING};

impl Lazy {
    /// Sends a message, which may be to this rank itself.
    pub(super) fn tell(&mut self, context: &mut Context, to: Rank, message: Message) {
        if to != self.rank {
            return context.send(to, message);
        }
        let handled = self.handle_home(context, to, message);
        debug_assert_eq!(handled, Ok(()), "{message:?}");
    }

    /// Handles a message about homes, of any rank.
    pub(super) fn handle_home(&mut self, context: &mut Context, from: Rank, message: Message) -> Result<(), Violation> {
        let page = match message {
            Message::HomeRequest { page }
            | Message::Home { page, .. }
            | Message::HomeRefuse { page }
            | Message::HomeMove { page, .. }
            | Message::HomeClose { page }
            | Message::HomeClosed { page }
            | Message::HomeTake { page, .. }
            | Message::HomeTaken { page } => self.checked(page)?,
            // Other parts of the rank handle the rest.
            _ => return Err(Violation::Unasked),
        };
        let manages = match message {
            Message::Home { .. }
            | Message::HomeRefuse { .. }
            | Message::HomeClose { .. }
            | Message::HomeTake { .. } => from,
            _ => self.rank,
        };
        if self.manager(page) != manages {
            return Err(Violation::NotManager);
        }
        match message {
            Message::HomeRequest { .. } => {
                if self.ranges.creator(page).is_some() {
                    self.homes.allocate(self.row(page), None);
                }
                match self.homes.ask(self.row(page), from)? {
                    Answer::Refused => self.tell(context, from, Message::HomeRefuse { page }),
                    Answer::Home(home) => self.tell(context, from, Message::Home { page, home }),
                    Answer::Later => {}
                }
                Ok(())
            }
            Message::Home { home, .. } => self.handle_answer(context, page, home),
            Message::HomeRefuse { .. } => {
                if !self.pages.take(page, ASKED) {
                    return Err(Violation::Unasked);
                }
                self.refuse(context, page);
                Ok(())
            }
            Message::HomeMove { to, .. } => self.begin_move(context, from, page, to),
            Message::HomeClose { .. } => self.handle_close(context, page),
            Message::HomeClosed { .. } => {
                if let Some((to, former)) = self.homes.closed(self.row(page), from)? {
                    self.tell(context, to, Message::HomeTake { page, from: former });
                }
                Ok(())
            }
            Message::HomeTake { from: former, .. } => self.handle_take(context, page, former),
            Message::HomeTaken { .. } => {
                let row = self.row(page);
                self.homes.taken(row, from)?;
                while let Some((to, home)) = self.homes.answered(row) {
                    self.tell(context, to, Message::Home { page, home });
                }
                Ok(())
            }
            _ => Err(Violation::Unasked),
        }
    }

    fn handle_answer(&mut self, context: &mut Context, page: u32, home: Rank) -> Result<(), Violation> {
        if home >= context.ranks() {
            return Err(Violation::OutOfRange);
        }
        if !self.pages.take(page, ASKED) {
            return Err(Violation::Unasked);
        }
        self.pages.clear(page, FORMER);
        self.pages.set_home(page, home);
        self.advance(context, page);
        Ok(())
    }

    /// At the home: another rank has changed the page. If it alone did so for long, the home moves there.
    pub(super) fn note_changed(&mut self, context: &mut Context, page: u32, by: Rank) {
        let word = &mut self.changed_by[page as usize];
        let times = if *word >> 16 == u32::from(by) { *word & 0xffff } else { 0 };
        let times = (times + 1).min(0xffff);
        *word = u32::from(by) << 16 | times;
        if times >= u32::from(self.home_moves_after) && !self.pages.is(page, DIRTY) {
            *word = 0;
            self.tell(context, self.manager(page), Message::HomeMove { page, to: by });
        }
    }

    fn begin_move(&mut self, context: &mut Context, from: Rank, page: u32, to: Rank) -> Result<(), Violation> {
        if to >= context.ranks() {
            return Err(Violation::OutOfRange);
        }
        let row = self.row(page);
        if !self.homes.begin_move(row, from, to)? {
            return Ok(());
        }
        context.counters_mut().home_moves += 1;
        // This rank comes last: its answer may be the last, and then nobody is told any more.
        for other in self.homes.told(row).filter(|&other| other != self.rank) {
            context.send(other, Message::HomeClose { page });
        }
        if self.pages.home(page).is_some() {
            self.tell(context, self.rank, Message::HomeClose { page });
        }
        Ok(())
    }

    fn handle_close(&mut self, context: &mut Context, page: u32) -> Result<(), Violation> {
        if self.pages.home(page).is_none() || self.pages.is(page, CLOSING) {
            return Err(Violation::Unasked);
        }
        self.pages.set(page, CLOSING);
        if self.pages.twin(page).is_some() {
            self.intervals.end();
        }
        self.close_in_time(context, page);
        Ok(())
    }

    /// Forgets the home of a page that closes, if nothing is under way there.
    pub(super) fn close_in_time(&mut self, context: &mut Context, page: u32) {
        let is_busy = self.pages.is(page, FETCHING) || self.pages.is(page, SENT) || self.pages.twin(page).is_some();
        if !self.pages.is(page, CLOSING) || is_busy {
            return;
        }
        self.pages.clear(page, CLOSING);
        if self.pages.home(page) == Some(self.rank) {
            self.pages.set(page, FORMER);
            if self.pages.protection(page) == Protection::Write {
                self.pages.protect(page, Protection::Read);
            }
        }
        self.pages.clear(page, PLACED);
        self.tell(context, self.manager(page), Message::HomeClosed { page });
        self.advance(context, page);
    }

    fn handle_take(&mut self, context: &mut Context, page: u32, former: Rank) -> Result<(), Violation> {
        if former >= context.ranks() || former == self.rank {
            return Err(Violation::OutOfRange);
        }
        if self.pages.home(page).is_some() || self.pages.is(page, FETCHING) || self.pages.twin(page).is_some() {
            return Err(Violation::Unasked);
        }
        self.pages.set(page, TAKING);
        self.fetch(context, former, page, None);
        Ok(())
    }

    /// This rank is the home of a page that it has fetched.
    pub(super) fn taken(&mut self, context: &mut Context, page: u32) {
        for flag in [ASKED, FORMER] {
            self.pages.clear(page, flag);
        }
        self.changed_by[page as usize] = 0;
        self.pages.set_home(page, self.rank);
        self.pages.protect(page, Protection::Read);
        context.protect(super::pages::run(page, 1), Protection::Read);
        self.tell(context, self.manager(page), Message::HomeTaken { page });
    }
}
