//! Intervals: what was written since the last release, on its way to the homes, and the releases that wait for it.
//!
//! An interval that ends write-protects its pages and sends the diffs of those that have a twin, then a *fence* to each home that got some.
//! When all have answered, it is published, and the tokens and arrivals that waited for it go out. The threads that released them need not
//! wait. Meanwhile pages may be written in the next interval, except those whose diffs are under way.
//!
//! Only one interval is under way at a time. A release during that time waits for the next if something was written since, and so many
//! locks share one. Pages are worked off one by one as the machine asks for actions, so that any number of them needs no room.

use crate::coherence::Release;
use crate::context::Context;
use crate::ranks::RankSets;
use crate::{Action, Config, Message, PAGE_BYTES, Rank, Violation};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Lazy;
use super::log::Run;
use super::pages::{ASKED, DIRTY, FETCHING, FORMER, List, Pages, SENT, WHOLE, run};

/// Runs of pages that an interval names at most; if there are more, it names all pages.
const MOST_RUNS: usize = 1024;

#[derive(Debug)]
pub(super) struct Intervals {
    /// Pages written in the interval that is open.
    open: List,
    /// Pages of the one under way that were not looked at yet, and those whose diffs are under way.
    ending: List,
    sent: List,
    /// Pages of the one under way that its notices name.
    runs: Vec<Run>,
    most_runs: usize,
    /// The one set: homes that diffs were sent to, and that have not answered since.
    homes: RankSets,
    /// Fences that are not answered.
    awaited: u16,
    /// Number of the last fence.
    fence: u32,
    is_under_way: bool,
    /// The one under way has had its first step.
    is_begun: bool,
    /// End the next too as soon as that is possible.
    again: bool,
    /// Intervals that were ended, and that were published.
    ended: u64,
    published: u64,
    /// Releases, and the interval for which each waits.
    waiting: VecDeque<(u64, Release)>,
}

impl Intervals {
    /// Nothing is written; `None` if the machine refuses memory.
    pub(super) fn new(config: &Config) -> Option<Self> {
        let most_runs = MOST_RUNS.min(config.notices as usize / 2);
        // Each lock has one token, each barrier one arrival, and each thread one call.
        let releases = config.locks as usize + config.barriers as usize + 1 + usize::from(config.threads);
        Some(Intervals {
            open: List::default(),
            ending: List::default(),
            sent: List::default(),
            runs: Vec::with_capacity(most_runs),
            most_runs,
            homes: RankSets::new(1, config.ranks)?,
            awaited: 0,
            fence: 0,
            is_under_way: false,
            is_begun: false,
            again: false,
            ended: 0,
            published: 0,
            waiting: VecDeque::with_capacity(releases),
        })
    }

    pub(super) fn note_written(&mut self, pages: &mut Pages, page: u32) {
        pages.push(&mut self.open, page);
    }

    /// Ends the interval that is open.
    pub(super) fn end(&mut self) {
        if self.is_under_way {
            self.again = true;
        } else {
            self.is_under_way = true;
            self.ended += 1;
            self.ending = core::mem::take(&mut self.open);
        }
    }

    /// Ends the interval if anything was written. Whether the release can go on at once.
    pub(super) fn release(&mut self, release: Release) -> bool {
        if !self.open.is_empty() {
            self.end();
        }
        let needed = self.ended + u64::from(self.is_under_way && !self.open.is_empty());
        if needed > self.published {
            self.waiting.push_back((needed, release));
        }
        needed <= self.published
    }

    pub(super) fn has_release(&self) -> bool {
        self.waiting.front().is_some_and(|(needed, _)| *needed <= self.published)
    }

    pub(super) fn poll_release(&mut self) -> Option<Release> {
        if self.has_release() { self.waiting.pop_front().map(|(_, release)| release) } else { None }
    }

    fn name(&mut self, page: u32) {
        if self.runs.first() == Some(&Run::ALL) {
            return;
        }
        let has_room = self.runs.len() < self.most_runs;
        match self.runs.last_mut() {
            Some(Run { first, count }) if *first + u32::from(*count) == page && *count < u16::MAX => *count += 1,
            _ if has_room => self.runs.push(Run { first: page, count: 1 }),
            _ => {
                self.runs.clear();
                self.runs.push(Run::ALL);
            }
        }
    }
}

impl Lazy {
    /// Whether the interval that is under way can go on without another input.
    pub(super) fn can_step(&self) -> bool {
        let Intervals { is_under_way, awaited, ending, .. } = &self.intervals;
        *is_under_way && *awaited == 0 && ending.first().is_none_or(|page| !self.pages.is(page, FETCHING))
    }

    /// Goes on with the interval that is under way.
    pub(super) fn step(&mut self, context: &mut Context) {
        if !self.intervals.is_begun {
            self.intervals.is_begun = true;
            self.note_end();
        }
        let page = self.pages.pop(&mut self.intervals.ending);
        match page {
            Some(page) => self.end_page(context, page),
            None if self.intervals.homes.count(0) > 0 => {
                self.intervals.fence = self.intervals.fence.wrapping_add(1);
                self.intervals.awaited = self.intervals.homes.count(0);
                for home in self.intervals.homes.members(0) {
                    context.send(home, Message::Fence { number: self.intervals.fence });
                }
            }
            None => self.publish(context),
        }
    }

    fn end_page(&mut self, context: &mut Context, page: u32) {
        self.write_protect(page);
        self.intervals.name(page);
        let (is_whole, twin) = (self.pages.take(page, WHOLE), self.pages.twin(page));
        let Some(to) = self.pages.home(page).filter(|_| is_whole || twin.is_some()) else {
            self.pages.clear(page, DIRTY);
            return;
        };
        let message = Message::Diff { page };
        context.counters_mut().diffs += 1;
        context.counters_mut().messages_sent += 1;
        match twin {
            Some(twin) => {
                context.push(Action::SendDiff { to, page, twin, message });
                self.pages.set_twin(page, None);
                self.free.push(twin);
            }
            None => {
                context.counters_mut().bytes_stored += PAGE_BYTES;
                context.push(Action::SendMinipage { to, minipage: run(page, 1), message });
            }
        }
        self.pages.set(page, SENT);
        self.pages.push(&mut self.intervals.sent, page);
        self.intervals.homes.insert(0, to);
        self.feed(context);
    }

    /// All diffs are in place: whoever acquires from now on learns of them.
    fn publish(&mut self, context: &mut Context) {
        self.log.publish(&self.intervals.runs);
        context.counters_mut().intervals += u64::from(!self.intervals.runs.is_empty());
        self.intervals.runs.clear();
        self.intervals.published = self.intervals.ended;
        self.intervals.is_under_way = false;
        self.intervals.is_begun = false;
        if core::mem::take(&mut self.intervals.again) {
            self.intervals.end();
        }
        self.feed(context);
    }

    pub(super) fn handle_fence_ack(&mut self, context: &mut Context, from: Rank, number: u32) -> Result<(), Violation> {
        let intervals = &mut self.intervals;
        if intervals.awaited == 0 || number != intervals.fence || !intervals.homes.contains(0, from) {
            return Err(Violation::Unasked);
        }
        intervals.homes.remove(0, from);
        intervals.awaited -= 1;
        if intervals.awaited == 0 {
            while let Some(page) = self.pages.pop(&mut self.intervals.sent) {
                self.pages.clear(page, SENT);
                self.pages.clear(page, DIRTY);
                self.close_in_time(context, page);
                self.advance(context, page);
            }
        }
        Ok(())
    }

    /// At the home: a rank's diff of a page is in place.
    pub(super) fn handle_diff(&mut self, context: &mut Context, from: Rank, page: u32) -> Result<(), Violation> {
        let is_home = self.pages.home(page) == Some(self.rank);
        // Others may learn from the manager that this rank is the home before it does.
        if !is_home && !self.pages.is(page, FORMER) && !self.pages.is(page, ASKED) {
            return Err(Violation::NotHome);
        }
        if is_home && self.home_moves_after > 0 {
            self.note_changed(context, page, from);
        }
        Ok(())
    }
}
