//! Home-based lazy release consistency (Zhou, Iftode, Li, OSDI'96): what a rank writes is seen by those that synchronise with it
//! afterwards. The unit is a page, all in view 0; several ranks may write different bytes of a page at the same time.
//!
//! * Each page has a *home*, whose copy is always valid: the first rank that touches it, a given one, or the one that alone writes it
//!   ([`homes`], [`moving`]).
//! * A rank reads its own copy. It fetches an invalid one from the home ([`faults`]), also ahead of accesses ([`ahead`]).
//! * A rank that writes a page of another home keeps a *twin*, a copy from before its writes. What it has written in an *interval* is what
//!   differs from the twins; this *diff* goes to the home when the interval ends ([`intervals`]). The home writes in place.
//! * With each token of a lock and each message of a barrier travel *notices* of the intervals that the receiver does not know, its own and
//!   those of others ([`log`]). The receiver invalidates its copies of the pages they name, except those of which it is the home.
//!
//! # Why a fetch reads nothing too old
//!
//! A fetch is a read of the home's memory in which the home's processor has no part, so nothing compares versions. None is needed:
//!
//! 1. An interval is published (its notices enter the log of its writer) only when every home has acknowledged that its diffs are in place.
//!    A home's own writes are in place from the start; before it publishes, its page is write-protected, so that later ones are noticed.
//! 2. A rank learns of an interval only by messages that left its writer, or others that had learned of it, after that.
//! 3. It invalidates its copy as it learns, and fetches after that; a fetch that is under way at that time is repeated. So what it reads
//!    was read at the home after the diffs were in place.
//! 4. A home that no other rank knows writes without notices: nobody else has a copy. It write-protects the page before its manager tells
//!    another rank of it, and that rank fetches after that.
//! 5. The home does not move under a fetch or a diff ([`homes`]), and the new home fetches the page when nothing is under way to the
//!    former one, whose copy thus has all diffs. All others have dropped theirs by then.
//!
//! So each load gives the last store before it in the order of synchronisation, or one that is not ordered with it.
//!
//! A fetch of a page that is dirty here *merges*: bytes that differ from the twin are this rank's and stay; the others, and the whole twin,
//! become the home's. The diff then still names this rank's bytes only.
//!
//! A page of which a program says that it will overwrite it has no twin, is not fetched, and is sent as a whole.
//!
//! A page whose diff is under way is not written again before the acknowledgement: the network interface may still read it.

mod ahead;
mod faults;
mod homes;
mod intervals;
mod log;
mod moving;
mod pages;
mod races;

use crate::coherence::Release;
use crate::context::Context;
use crate::ranges::{PageSet, Ranges};
use crate::spread::Spread;
use crate::{
    Action, Barrier, Config, ConfigError, MAX_PAYLOAD_BYTES, Message, Minipage, PAGE_BYTES, Protection, Rank,
    Violation, tables,
};
use ahead::Ahead;
use alloc::vec::Vec;
use core::ops::Range;
use homes::Homes;
use intervals::Intervals;
use log::{Log, Run};
use pages::{FETCHING, KNOWN, OWN, Pages, STALE, WHOLE};
pub use races::Race;
use races::Races;

/// The protocol of one rank.
#[derive(Debug)]
pub(crate) struct Lazy {
    rank: Rank,
    spread: Spread,
    pages: Pages,
    /// Allocations of several pages without a given home, whose pages have no flags of their own.
    ranges: Ranges,
    /// Pages that have.
    flagged: PageSet,
    homes: Homes,
    intervals: Intervals,
    log: Log,
    ahead: Ahead,
    /// Twins that are free.
    free: Vec<u32>,
    /// Pages under way to be merged, and the twins where they land; one for each thread at most.
    landings: Vec<(u32, u32)>,
    /// A thread waits for a twin.
    is_starving: bool,
    /// At the home: the rank that alone changed each page lately, and how often; in the high and low half of a word. If it is the home, the
    /// low half has 12 bits for that, and above them how often the home has tried to be alone.
    changed_by: Vec<u32>,
    home_moves_after: u16,
    /// While races are looked for.
    races: Option<Races>,
}

impl Lazy {
    /// A rank without data.
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let Config { rank, ranks, pages, views, barriers, twins, notices, home_moves_after, .. } = *config;
        let spread = Spread::in_runs(ranks, pages);
        let make = || {
            let mut free = Vec::new();
            free.try_reserve_exact(twins as usize).ok()?;
            free.extend((0..twins).rev());
            Some(Lazy {
                rank,
                spread,
                pages: Pages::new(pages)?,
                ranges: Ranges::new(pages, 1)?,
                flagged: PageSet::new(pages)?,
                homes: Homes::new(spread.rows(pages), ranks)?,
                intervals: Intervals::new(config)?,
                log: Log::new(rank, ranks, pages, barriers, notices)?,
                ahead: Ahead::new(),
                free,
                landings: Vec::with_capacity(usize::from(config.threads)),
                is_starving: false,
                changed_by: tables::zeroes(pages as usize)?,
                home_moves_after,
                races: config.finds_races.then(|| Races::new(ranks)),
            })
        };
        make().ok_or(ConfigError::TooLarge { pages, views })
    }

    pub(crate) fn manager(&self, page: u32) -> Rank {
        self.spread.manager(page)
    }

    fn row(&self, page: u32) -> u32 {
        self.spread.row(page)
    }

    /// The page, as far as this rank knows of it, and the application's access to it here.
    pub(crate) fn minipage_at(&self, page: u64) -> Option<(Minipage, Protection)> {
        let page = u32::try_from(page).ok().filter(|&page| page < self.pages.count())?;
        let is_known = self.is_known(page) || self.pages.home(page).is_some();
        is_known.then(|| (pages::run(page, 1), self.pages.protection(page)))
    }

    /// The home of a page, as far as this rank knows.
    pub(crate) fn home(&self, page: u64) -> Option<Rank> {
        let page = u32::try_from(page).ok().filter(|&page| page < self.pages.count())?;
        self.pages.home(page)
    }

    /// How often this rank had to forget which pages were written.
    pub(crate) fn condensed(&self) -> u64 {
        self.log.condensed()
    }

    fn pages_of(minipage: &Minipage) -> Range<u32> {
        let first = minipage.first_page() as u32;
        first..first + minipage.pages() as u32
    }

    fn is_known(&self, page: u32) -> bool {
        self.pages.is(page, KNOWN) || self.ranges.creator(page).is_some()
    }

    fn is_own(&self, page: u32) -> bool {
        self.pages.is(page, OWN) || self.ranges.creator(page) == Some(self.rank)
    }

    /// Enters many pages as one, if nothing is allocated on them. Small allocations may have come to their last page before.
    fn enter_range(&mut self, minipage: &Minipage, creator: Rank) -> Result<(), Violation> {
        let Range { start, end } = Self::pages_of(minipage);
        if !self.ranges.are_free(start, end) || self.flagged.has_any(start, end - 1) || self.pages.is(end - 1, OWN) {
            return Err(Violation::Minipage);
        }
        self.ranges.insert((*minipage).into(), creator);
        Ok(())
    }

    /// Whether nobody else has allocated on these pages.
    pub(crate) fn is_free(&self, minipage: &Minipage) -> bool {
        let Range { start, end } = Self::pages_of(minipage);
        if end - start > 1 {
            return self.ranges.are_free(start, end) && !self.flagged.has_any(start, end);
        }
        self.is_own(start) || !self.is_known(start)
    }

    /// Enters a new allocation of this rank.
    pub(crate) fn create(&mut self, minipage: &Minipage, home: Option<Rank>) {
        if minipage.pages() > 1 && home.is_none() {
            // Its pages are free.
            let _ = self.enter_range(minipage, self.rank);
            return;
        }
        for page in Self::pages_of(minipage) {
            self.pages.set(page, OWN);
        }
        self.allocate(minipage, home);
    }

    /// The managers of its pages, which for a long one are everybody, and the home that it was given.
    pub(crate) fn must_know(&self, minipage: &Minipage, home: Option<Rank>, rank: Rank) -> bool {
        minipage.pages() > 1 || rank == self.manager(minipage.first_page() as u32) || home == Some(rank)
    }

    /// Enters an allocation of another rank, which this rank must know. Small ones on the same page are entered one after the other.
    pub(crate) fn enter(&mut self, from: Rank, minipage: &Minipage, home: Option<Rank>) -> Result<(), Violation> {
        if minipage.view != 0 {
            return Err(Violation::OutOfRange);
        }
        if !self.must_know(minipage, home, self.rank) {
            return Err(Violation::NotManager);
        }
        if minipage.pages() > 1 && home.is_none() {
            return self.enter_range(minipage, from);
        }
        // Only whole pages of its own are given a home.
        let is_new = |page| !self.is_known(page) && self.pages.home(page).is_none();
        let is_whole = minipage.offset_bytes.is_multiple_of(PAGE_BYTES);
        let mut pages = Self::pages_of(minipage);
        if home.is_some() && !(is_whole && pages.clone().all(is_new)) || pages.any(|page| self.is_own(page)) {
            return Err(Violation::Minipage);
        }
        self.allocate(minipage, home);
        Ok(())
    }

    fn allocate(&mut self, minipage: &Minipage, home: Option<Rank>) {
        for page in Self::pages_of(minipage) {
            self.pages.set(page, KNOWN);
            self.flagged.insert(page);
            if self.manager(page) == self.rank {
                self.homes.allocate(self.row(page), home);
            }
            if home == Some(self.rank) {
                self.pages.set_home(page, self.rank);
            }
        }
    }

    /// Handles a message from another rank of the job, except for tokens and barriers.
    pub(crate) fn handle_message(
        &mut self,
        context: &mut Context,
        from: Rank,
        message: Message,
        payload: &[u8],
    ) -> Result<(), Violation> {
        match message {
            Message::Notices => self.acquire(context, from, payload),
            Message::Changed { page, interval } => {
                let page = self.checked(page)?;
                self.handle_changed(context, from, (page, interval), payload)
            }
            Message::Overlap { page, other, interval, start, length } => {
                let page = self.checked(page)?;
                self.handle_overlap(from, page, (other, interval), (start, length))
            }
            Message::Diff { page } => self.handle_diff(context, from, self.checked(page)?),
            Message::Fence { number } => {
                context.send(from, Message::FenceAck { number });
                Ok(())
            }
            Message::FenceAck { number } => self.handle_fence_ack(context, from, number),
            _ => self.handle_home(context, from, message),
        }
    }

    fn checked(&self, page: u32) -> Result<u32, Violation> {
        if page < self.pages.count() { Ok(page) } else { Err(Violation::OutOfRange) }
    }

    /// Handles notices: the copies that they name are out of date.
    pub(crate) fn acquire(&mut self, context: &mut Context, from: Rank, payload: &[u8]) -> Result<(), Violation> {
        self.log.check(payload)?;
        let (pages, me) = (&mut self.pages, self.rank);
        let counters = context.counters_mut();
        self.log.learn(from, payload, |run| {
            let Run { first, count } = run;
            let count = if run == Run::ALL { u32::MAX } else { u32::from(count) };
            counters.notices += 1;
            for page in pages.accessible(first, count) {
                // What this rank is about to overwrite it need not read.
                if pages.home(page) == Some(me) || pages.is(page, WHOLE) {
                    continue;
                }
                if pages.is(page, FETCHING) {
                    pages.set(page, STALE);
                } else if pages.protection(page) != Protection::None {
                    pages.protect(page, Protection::None);
                    counters.invalidations += 1;
                }
            }
        });
        Ok(())
    }

    pub(crate) fn note_request(&mut self, from: Rank, of: Rank, payload: &[u8]) -> Result<(), Violation> {
        self.log.note_time(from, of, payload)
    }

    pub(crate) fn arrive(&mut self, barrier: Barrier) {
        self.log.arrive(barrier);
    }

    pub(crate) fn pass(&mut self, barrier: Barrier) {
        self.log.pass(barrier);
    }

    pub(crate) fn release(&mut self, release: Release) -> bool {
        self.intervals.release(release)
    }

    /// A release that can go on.
    pub(crate) fn poll_release(&mut self) -> Option<Release> {
        self.intervals.poll_release()
    }

    /// Writes what a message tells its receiver besides its fields.
    pub(crate) fn payload(&mut self, to: Rank, message: &Message, bytes: &mut [u8]) -> usize {
        match *message {
            Message::LockRequest { .. } => self.log.write_time(self.rank, bytes),
            Message::ObjectRequest { .. } if !message.releases() => self.log.write_time(self.rank, bytes),
            Message::LockForward { successor, .. } => self.log.write_time(successor, bytes),
            Message::Changed { .. } => self.races.as_mut().map_or(0, |races| races.write(bytes)),
            _ => self.log.write(to, bytes),
        }
    }

    /// Whether there may be an action that is not in the queue.
    pub(crate) fn has_work(&self) -> bool {
        self.pages.has_reduced() || self.can_step() || self.ahead.is_ready() || self.intervals.has_release()
    }

    /// The next action. Access is reduced first, whatever waits: that is never too early. What waits to be allowed is looked at anew.
    pub(crate) fn poll_action(&mut self, context: &mut Context) -> Option<Action> {
        loop {
            if let Some((minipage, protection)) = self.pages.poll_reduced() {
                return Some(Action::Protect { minipage, protection });
            }
            match context.front() {
                Some(&Action::Send { to, message }) if message.releases() => {
                    if self.log.lacks_more(to, MAX_PAYLOAD_BYTES) {
                        context.counters_mut().messages_sent += 1;
                        return Some(Action::Send { to, message: Message::Notices });
                    }
                    return context.poll_action();
                }
                Some(&Action::Protect { minipage, protection }) if minipage.view == 0 => {
                    let opened = self.poll_open(context, minipage.first_page() as u32, protection);
                    if opened.is_some() {
                        return opened;
                    }
                }
                Some(&Action::Fetch { from, page, into: None, .. }) => {
                    return Some(self.poll_fetch(context, from, page));
                }
                Some(_) => return context.poll_action(),
                None if self.ahead.is_ready() => self.fetch_ahead(context),
                None if self.can_step() => self.step(context),
                None => return None,
            }
        }
    }
}
