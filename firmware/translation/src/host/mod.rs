//! The host's side of translation for one process: pins the pages of its transfers and keeps the NIC's translations up to date.
//!
//! A driver, which really pins, and a study, which only counts, share this code.

mod pinner;
mod serving;

pub use pinner::{PinPages, SimulatedPinner};

use crate::Counters;
use crate::choosing::ChooseVictims;
use crate::design::{NicSide, Pinning, TranslationDesign, TranslationError};
use crate::limit::{PinError, PinLimit, PinRules};
use crate::page::{Frame, Page, PageRange, Process};
use crate::user::{PinPlan, Prepared, UserTable};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// Most pages that one call pins; their frames wait in a buffer of this size.
const RUN_PAGES: u64 = 512;

/// Why the host could not serve a transfer. Pages pinned before stay pinned, and usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HostError<P, N = TranslationError> {
    /// The limit on pinned pages forbids it.
    #[error(transparent)]
    Limit(PinError),
    /// The pinner failed.
    #[error(transparent)]
    Pin(P),
    /// The NIC's tables refused.
    #[error(transparent)]
    Nic(N),
}

impl<P, N> From<PinError> for HostError<P, N> {
    fn from(error: PinError) -> Self {
        HostError::Limit(error)
    }
}

/// Result of the host side with the NIC `N` and the pinner `P`.
pub type HostResult<N, P> = Result<(), HostError<<P as PinPages>::Error, <N as NicSide>::Error>>;

/// The pinned pages of one process, and which of them the NIC knows.
///
/// * Around a transfer: [`prepare`](Self::prepare), [`hold`](Self::hold), the transfer, [`release`](Self::release).
/// * Around the life of an export: [`prepare_receive`](Self::prepare_receive), [`hold_receive`](Self::hold_receive),
///   [`release_receive`](Self::release_receive).
/// * When the NIC asks: [`serve`](Self::serve), and [`drop_evicted`](Self::drop_evicted) for other processes' pages that it evicted.
/// * From time to time: [`reclaim`](Self::reclaim).
///
/// In a design that pins on a miss, the first two check and pin nothing, and cost almost nothing.
///
/// ```
/// use mapwire_translation::*;
/// let mut nic = Hierarchical::new(CacheConfig::default())?;
/// let mut pinner = SimulatedPinner::default();
/// let process = Process(3);
/// nic.open(process)?;
/// let mut host = HostSide::new(process, PinRules::default(), &nic);
/// let pages = PageRange { first: Page(70), count: 2 };
/// host.prepare(&mut nic, &mut pinner, pages)?;
/// host.hold(pages)?;
/// assert_eq!(nic.lookup(process, Page(71)), Lookup::Miss(Frame(1)));
/// host.release(pages)?;
/// assert_eq!(host.counters().pins, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HostSide {
    process: Process,
    pinning: Pinning,
    pinning_receive: Pinning,
    unpins_evicted: bool,
    high_water_pages: Option<u64>,
    user: UserTable,
    plan: PinPlan,
    frames: Box<[Frame]>,
    /// For a design that unpins what the NIC evicts: pinned pages that the NIC has not cached, because something holds them.
    loose: BTreeSet<Page>,
    /// Those of them that nothing holds any more, as far as releases have shown.
    due: BTreeSet<Page>,
    evicted: Vec<(Process, Page)>,
    /// Pages that the NIC reads for peers while something may be unpinned.
    reading: Vec<PageRange>,
}

impl HostSide {
    /// No page pinned. The limit is the lesser of the rules' and the capacity of the design's table.
    pub fn new(process: Process, rules: PinRules, design: &impl TranslationDesign) -> Self {
        let rules = rules.with_limit(rules.limit.and(design.capacity_pages()));
        let pinning = design.pinning();
        HostSide {
            process,
            pinning,
            pinning_receive: design.pinning_receive(),
            unpins_evicted: design.unpins_evicted(),
            high_water_pages: design.high_water_pages(),
            user: match pinning {
                Pinning::BeforeTransfer => UserTable::with(rules),
                Pinning::OnMiss => UserTable::tracking(rules),
            },
            plan: PinPlan::new(),
            frames: vec![Frame::GARBAGE; RUN_PAGES as usize].into_boxed_slice(),
            loose: BTreeSet::new(),
            due: BTreeSet::new(),
            evicted: Vec::new(),
            reading: Vec::new(),
        }
    }

    /// Runs `work`, which may unpin pages, but none that the NIC still reads for peers. A design that pins exports beforehand, and does
    /// not unpin what leaves its cache, holds those anyway.
    fn sparing<N: NicSide, T>(&mut self, nic: &mut N, work: impl FnOnce(&mut Self, &mut N) -> T) -> T {
        if self.pinning_receive == Pinning::BeforeTransfer && !self.unpins_evicted {
            return work(self, nic);
        }
        let mut reading = core::mem::take(&mut self.reading);
        nic.reading(self.process, &mut reading);
        // The NIC has translated what it reads: such a range can be held.
        reading.retain(|range| self.user.hold_any(*range).is_ok());
        let done = work(self, nic);
        for range in reading.drain(..) {
            let _ = self.release(range);
        }
        self.reading = reading;
        done
    }

    /// Makes every page of the range usable by the NIC: a bit check if they are pinned already, otherwise a call for each run of unpinned
    /// pages (UTLB §3.1), after unpinning others if the limit requires it. Does nothing for a design that pins on a miss.
    ///
    /// # Errors
    /// [`HostError`].
    #[inline]
    pub fn prepare<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        range: PageRange,
    ) -> HostResult<N, P> {
        if self.pinning == Pinning::OnMiss {
            return Ok(());
        }
        match self.user.prepare(range, &mut self.plan)? {
            Prepared::AllPinned => Ok(()),
            Prepared::MustPin => self.sparing(nic, |host, nic| host.carry_out_plan(nic, pinner)),
        }
    }

    #[cold]
    fn carry_out_plan<N: NicSide, P: PinPages>(&mut self, nic: &mut N, pinner: &mut P) -> HostResult<N, P> {
        let plan = core::mem::take(&mut self.plan);
        let outcome = self.carry_out(nic, pinner, &plan);
        self.plan = plan;
        outcome
    }

    fn carry_out<N: NicSide, P: PinPages>(&mut self, nic: &mut N, pinner: &mut P, plan: &PinPlan) -> HostResult<N, P> {
        for &page in &plan.to_unpin {
            self.unpin(nic, pinner, page)?;
        }
        let Some((&last, others)) = plan.to_pin.split_last() else {
            return Ok(());
        };
        for &run in others {
            self.pin(nic, pinner, run, run.count)?;
        }
        // What is pinned ahead may not exist: it is tried together with the last run in one call (UTLB §6.5), and left out on an error.
        let mut ahead = plan.ahead.as_slice();
        if let [joined, rest @ ..] = ahead
            && joined.first == last.end()
            && last.count + joined.count <= RUN_PAGES
            && self.pin(nic, pinner, together(last, *joined), last.count).is_ok()
        {
            ahead = rest;
        } else {
            self.pin(nic, pinner, last, last.count)?;
        }
        for &run in ahead {
            if self.pin(nic, pinner, run, 0).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Pins the run; a transfer needs its first `needed` pages, the others are ahead.
    fn pin<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        run: PageRange,
        needed: u64,
    ) -> HostResult<N, P> {
        let mut rest = run;
        while !rest.is_empty() {
            let part = PageRange { count: rest.count.min(RUN_PAGES), ..rest };
            let frames = &mut self.frames[..part.count as usize];
            pinner.pin(self.process, part, frames).map_err(HostError::Pin)?;
            if let Err(error) = nic.install_pages(self.process, part.first, frames) {
                pinner.unpin(self.process, part, frames).map_err(HostError::Pin)?;
                return Err(HostError::Nic(error));
            }
            let (used, ahead) = part.split_at(run.first.0 + needed);
            self.user.commit_pinned(used)?;
            self.user.commit_ahead(ahead)?;
            rest = PageRange { first: part.end(), count: rest.count - part.count };
        }
        Ok(())
    }

    /// The NIC must forget the page before the system unpins it.
    fn unpin<N: NicSide, P: PinPages>(&mut self, nic: &mut N, pinner: &mut P, page: Page) -> HostResult<N, P> {
        let frame = nic.design().installed(self.process, page);
        let removed = nic.design_mut().remove(self.process, page);
        removed.map_err(|error| HostError::Nic(error.into()))?;
        self.user.commit_unpinned(page);
        self.loose.remove(&page);
        let run = PageRange::single(page);
        pinner.unpin(self.process, run, &[frame]).map_err(HostError::Pin)
    }

    /// Starts a transfer of the range: its pinned pages, and those pinned later on a miss, are not unpinned before as many releases as
    /// holds.
    ///
    /// # Errors
    /// [`PinError::NotPinned`], in a design that pins before a transfer; [`PinError::Range`]. Nothing is held then.
    #[inline]
    pub fn hold(&mut self, range: PageRange) -> Result<(), PinError> {
        match self.pinning {
            Pinning::BeforeTransfer => self.user.hold(range),
            Pinning::OnMiss => self.user.hold_any(range),
        }
    }

    /// Ends a transfer of the range. The pages stay pinned for the next transfer. Those that a design wants unpinned are so at the next
    /// [`serve`](Self::serve) or [`reclaim`](Self::reclaim).
    ///
    /// # Errors
    /// [`PinError::NotHeld`], if the range was not held as often.
    #[inline]
    pub fn release(&mut self, range: PageRange) -> Result<(), PinError> {
        self.user.release(range)?;
        if !self.loose.is_empty() {
            self.note_due(range);
        }
        Ok(())
    }

    /// Lets the application choose the pages to unpin from here on (UTLB §3.4). No effect without a limit. False, without effect, if pages
    /// are pinned already: the chooser would not know of them.
    pub fn set_chooser(&mut self, chooser: Box<dyn ChooseVictims>) -> bool {
        if self.user.map().count() > 0 || self.user.held_pages() > 0 {
            return false;
        }
        let user = core::mem::replace(&mut self.user, UserTable::new(PinLimit::Unlimited));
        self.user = user.choosing(chooser);
        true
    }

    /// Whose pages.
    pub fn process(&self) -> Process {
        self.process
    }

    /// The limit in force.
    pub fn limit(&self) -> PinLimit {
        self.user.limit()
    }

    /// The pages that are pinned, and held.
    pub fn table(&self) -> &UserTable {
        &self.user
    }

    /// Check misses, pins, unpins and pinned pages.
    pub fn counters(&self) -> Counters {
        self.user.counters()
    }
}

fn together(one: PageRange, next: PageRange) -> PageRange {
    PageRange { count: one.count + next.count, ..one }
}

#[cfg(test)]
mod tests;
