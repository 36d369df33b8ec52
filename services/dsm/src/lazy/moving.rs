//! Homes: who is told, who asks, how one moves to the rank that alone writes the page, and when one is alone. See [`homes`](super::homes) for the manager's
//! tables.

use crate::context::Context;
use crate::{Message, Protection, Rank, Views, Violation};

use super::Lazy;
use super::homes::Answer;
use super::pages::{ALONE, ASKED, CLOSING, DIRTY, FETCHING, FORMER, PLACED, SENT, TAKING, WHOLE};

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
        let mut about = message.views().iter();
        about.try_for_each(|at| self.handle_home_of_one(context, from, message.about(at)))
    }

    fn handle_home_of_one(&mut self, context: &mut Context, from: Rank, message: Message) -> Result<(), Violation> {
        let page = match message {
            Message::HomeRequest { page, .. }
            | Message::Home { page, .. }
            | Message::HomeRefuse { page }
            | Message::HomeMove { page, .. }
            | Message::HomeClose { page, .. }
            | Message::HomeClosed { page, .. }
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
                    Answer::Home(home) => self.tell(context, from, Message::Home { page, home, views: Views::ONE }),
                    Answer::Later => {}
                    Answer::Alone(home) => self.tell(context, home, Message::HomeClose { page, views: Views::ONE }),
                }
                Ok(())
            }
            Message::Home { home, .. } => self.handle_answer(context, page, home),
            Message::HomeRefuse { .. } => {
                if !self.pages.take(page, ASKED) {
                    return Err(Violation::Unasked);
                }
                self.ahead.end_question(&mut self.pages, page);
                self.ahead.end(&mut self.pages, page);
                self.pages.clear(page, WHOLE);
                self.refuse(context, page);
                Ok(())
            }
            Message::HomeMove { to, .. } => self.begin_move(context, from, page, to),
            Message::HomeClose { .. } => self.handle_close(context, page),
            Message::HomeClosed { .. } => {
                self.homes.closed(self.row(page), from)?;
                self.go_on(context, page)
            }
            Message::HomeTake { from: former, .. } => self.handle_take(context, page, former),
            Message::HomeTaken { .. } => self.handle_taken(context, from, page),
            _ => Err(Violation::Unasked),
        }
    }

    fn handle_answer(&mut self, context: &mut Context, page: u32, home: Rank) -> Result<(), Violation> {
        if home >= context.ranks() {
            return Err(Violation::OutOfRange);
        }
        if !self.pages.take(page, ASKED) && (home != self.rank || self.pages.home(page) != Some(home)) {
            return Err(Violation::Unasked);
        }
        self.pages.clear(page, FORMER);
        self.pages.set_home(page, home);
        if home == self.rank {
            self.pages.set(page, ALONE);
        }
        self.ahead_answered(context, page, home);
        if self.pages.take(page, WHOLE) && home != self.rank {
            self.begin_whole(context, page);
        }
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

    /// At the home: a thread writes the page in another interval. If no other rank has changed it for long, the home tries to be alone; the
    /// less often, the more often others have asked for the page again.
    pub(super) fn note_own(&mut self, context: &mut Context, page: u32) {
        let word = &mut self.changed_by[page as usize];
        let (times, tries) = match *word >> 16 == u32::from(self.rank) {
            true => (*word & 0xfff, *word >> 12 & 0xf),
            false => (0, 0),
        };
        let is_due = self.home_moves_after > 0 && times >= u32::from(self.home_moves_after).min(0xf) << tries;
        let (times, tries) = if is_due { (0, (tries + 1).min(8)) } else { (times + 1, tries) };
        *word = u32::from(self.rank) << 16 | tries << 12 | times;
        if is_due {
            self.tell(context, self.manager(page), Message::HomeMove { page, to: self.rank });
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
        context.counters_mut().home_moves += u64::from(to != from);
        // This rank comes last: its answer may be the last, and then nobody is told any more.
        for other in self.homes.told(row).filter(|&other| other != self.rank) {
            context.send(other, Message::HomeClose { page, views: Views::ONE });
        }
        if self.homes.is_told(row, self.rank) {
            self.tell(context, self.rank, Message::HomeClose { page, views: Views::ONE });
            return Ok(());
        }
        self.go_on(context, page)
    }

    /// At the manager: has the home to be take the page, once all have forgotten the former one.
    fn go_on(&mut self, context: &mut Context, page: u32) -> Result<(), Violation> {
        match self.homes.all_closed(self.row(page)) {
            Some((to, former)) if to == former => self.handle_taken(context, to, page),
            Some((to, former)) => {
                self.tell(context, to, Message::HomeTake { page, from: former });
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// At the manager: the home has the page.
    fn handle_taken(&mut self, context: &mut Context, home: Rank, page: u32) -> Result<(), Violation> {
        let row = self.row(page);
        if self.homes.taken(row, home)? {
            self.tell(context, home, Message::Home { page, home, views: Views::ONE });
        }
        while let Some((to, home)) = self.homes.answered(row) {
            self.tell(context, to, Message::Home { page, home, views: Views::ONE });
        }
        Ok(())
    }

    fn handle_close(&mut self, context: &mut Context, page: u32) -> Result<(), Violation> {
        if self.pages.home(page).is_none() || self.pages.is(page, CLOSING) {
            return Err(Violation::Unasked);
        }
        if self.pages.take(page, ALONE) {
            // It stays the home. What was written so far is in place before anyone fetches; what is written from now on is noticed.
            self.write_protect(page);
            self.tell(context, self.manager(page), Message::HomeClosed { page, views: Views::ONE });
            return Ok(());
        }
        self.pages.set(page, CLOSING);
        if self.is_written(page) {
            self.intervals.end();
        }
        self.close_in_time(context, page);
        Ok(())
    }

    /// Whether this rank is not the home and has bytes of the page that it must send there.
    fn is_written(&self, page: u32) -> bool {
        self.pages.twin(page).is_some() || self.pages.is(page, WHOLE)
    }

    pub(super) fn write_protect(&mut self, page: u32) {
        if self.pages.protection(page) == Protection::Write {
            self.pages.protect(page, Protection::Read);
        }
    }

    /// Forgets the home of a page that closes, and drops the copy, if nothing is under way there.
    pub(super) fn close_in_time(&mut self, context: &mut Context, page: u32) {
        let is_busy = self.pages.is(page, FETCHING) || self.pages.is(page, SENT) || self.is_written(page);
        if !self.pages.is(page, CLOSING) || is_busy {
            return;
        }
        self.pages.clear(page, CLOSING);
        if self.pages.home(page) == Some(self.rank) {
            self.pages.set(page, FORMER);
        }
        // The next home may be alone: nobody else keeps a copy.
        if self.pages.protection(page) != Protection::None {
            self.pages.protect(page, Protection::None);
        }
        self.pages.clear(page, PLACED);
        self.tell(context, self.manager(page), Message::HomeClosed { page, views: Views::ONE });
        self.advance(context, page);
    }

    fn handle_take(&mut self, context: &mut Context, page: u32, former: Rank) -> Result<(), Violation> {
        if former >= context.ranks() || former == self.rank {
            return Err(Violation::OutOfRange);
        }
        if self.pages.home(page).is_some() || self.pages.is(page, FETCHING) {
            return Err(Violation::Unasked);
        }
        self.pages.set(page, TAKING);
        self.fetch(context, former, page, None);
        Ok(())
    }

    /// This rank is the home of a page that it has fetched.
    pub(super) fn taken(&mut self, context: &mut Context, page: u32) {
        for flag in [ASKED, FORMER, WHOLE] {
            self.pages.clear(page, flag);
        }
        self.ahead.end_question(&mut self.pages, page);
        self.changed_by[page as usize] = 0;
        self.pages.set_home(page, self.rank);
        self.pages.protect(page, Protection::Read);
        context.protect(super::pages::run(page, 1), Protection::Read);
        self.tell(context, self.manager(page), Message::HomeTaken { page });
    }
}
