//! The host's side of translation for one process: pins what its transfers need and keeps the NIC's translations in step.
//!
//! The same code serves a driver, which pins for real, and a study, which only counts.

use crate::Counters;
use crate::design::{NicSide, Pinning, TranslationDesign, TranslationError};
use crate::limit::{PinError, PinLimit, PinRules};
use crate::page::{Frame, Page, PageRange, Process};
use crate::policy::ChooseVictims;
use crate::user::{PinPlan, Prepared, UserTable};
use alloc::boxed::Box;
use alloc::vec;
use core::convert::Infallible;

/// Pages that one call pins at most; the frames that it yields wait in a buffer of this size.
const RUN_PAGES: u64 = 512;

/// Whoever makes pages usable by the NIC's DMA.
pub trait PinPages {
    /// Why pages cannot be pinned or given back.
    type Error;

    /// Pins the pages, none of which is pinned, and writes their frames in order of pages. On an error none is pinned.
    ///
    /// # Errors
    /// The system refuses.
    fn pin(
        &mut self,
        process: Process,
        run: PageRange,
        frames: &mut [Frame],
    ) -> Result<(), Self::Error>;

    /// Gives the pages back; `frames` are what [`pin`](Self::pin) wrote for them, perhaps in other runs.
    ///
    /// # Errors
    /// The system refuses.
    fn unpin(
        &mut self,
        process: Process,
        run: PageRange,
        frames: &[Frame],
    ) -> Result<(), Self::Error>;
}

/// Pins at once whatever it is asked to; every page gets a frame that no other has had.
///
/// ```
/// use mapwire_translation::*;
/// let mut pinner = SimulatedPinner::default();
/// let mut frames = [Frame::GARBAGE; 3];
/// pinner.pin(Process(0), PageRange { first: Page(7), count: 3 }, &mut frames)?;
/// assert_eq!(frames, [Frame(0), Frame(1), Frame(2)]);
/// assert_eq!((pinner.pin_calls, pinner.pinned_pages), (1, 3));
/// # Ok::<(), core::convert::Infallible>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SimulatedPinner {
    /// The frame of the page that is pinned next.
    pub next_frame: u64,
    /// Calls that pinned pages.
    pub pin_calls: u64,
    /// Calls that gave pages back.
    pub unpin_calls: u64,
    /// Pages pinned now.
    pub pinned_pages: u64,
}

impl PinPages for SimulatedPinner {
    type Error = Infallible;

    fn pin(
        &mut self,
        _process: Process,
        run: PageRange,
        frames: &mut [Frame],
    ) -> Result<(), Infallible> {
        for frame in frames {
            *frame = Frame(self.next_frame);
            self.next_frame += 1;
        }
        self.pin_calls += 1;
        self.pinned_pages += run.count;
        Ok(())
    }

    fn unpin(
        &mut self,
        _process: Process,
        run: PageRange,
        _frames: &[Frame],
    ) -> Result<(), Infallible> {
        self.unpin_calls += 1;
        self.pinned_pages -= run.count;
        Ok(())
    }
}

/// Why the host could not do what a transfer needs. What was pinned before stays pinned, and usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HostError<P, N = TranslationError> {
    /// The limit on pinned pages.
    #[error(transparent)]
    Limit(PinError),
    /// Whoever pins.
    #[error(transparent)]
    Pin(P),
    /// The NIC's tables.
    #[error(transparent)]
    Nic(N),
}

impl<P, N> From<PinError> for HostError<P, N> {
    fn from(error: PinError) -> Self {
        HostError::Limit(error)
    }
}

/// Result of what the host does with the NIC `N` and the pinner `P`.
pub type HostResult<N, P> = Result<(), HostError<<P as PinPages>::Error, <N as NicSide>::Error>>;

/// The pinned pages of one process, and what the NIC knows of them.
///
/// Order of one transfer: [`prepare`](Self::prepare), [`hold`](Self::hold), the transfer, [`release`](Self::release).
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
    user: UserTable,
    plan: PinPlan,
    frames: Box<[Frame]>,
}

impl HostSide {
    /// No page pinned. The limit is that of the rules, or what the design's table of a process has room for if that is less.
    pub fn new(process: Process, rules: PinRules, design: &impl TranslationDesign) -> Self {
        let limit = rules.limit.and(design.capacity_pages());
        HostSide {
            process,
            pinning: design.pinning(),
            user: UserTable::with(rules.with_limit(limit)),
            plan: PinPlan::new(),
            frames: vec![Frame::GARBAGE; RUN_PAGES as usize].into_boxed_slice(),
        }
    }

    /// Makes every page of the range usable by the NIC: a bit check when they are pinned already, else a call for each run of
    /// pages that are not (UTLB §3.1), after unpinning others where the limit wants it. For a design that pins on a miss there
    /// is nothing to do.
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
            Prepared::MustPin => self.carry_out_plan(nic, pinner),
        }
    }

    #[cold]
    fn carry_out_plan<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
    ) -> HostResult<N, P> {
        let plan = core::mem::take(&mut self.plan);
        let outcome = self.carry_out(nic, pinner, &plan);
        self.plan = plan;
        outcome
    }

    fn carry_out<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        plan: &PinPlan,
    ) -> HostResult<N, P> {
        for &page in &plan.to_unpin {
            self.unpin(nic, pinner, page)?;
        }
        let Some((&last, others)) = plan.to_pin.split_last() else {
            return Ok(());
        };
        for &run in others {
            self.pin(nic, pinner, run, run.count)?;
        }
        // What is pinned ahead may not exist: it is tried with the last run in one call (UTLB §6.5), and left out on an error.
        let mut ahead = plan.ahead.as_slice();
        if let [joined, rest @ ..] = ahead
            && joined.first == last.end()
            && last.count + joined.count <= RUN_PAGES
            && self
                .pin(nic, pinner, together(last, *joined), last.count)
                .is_ok()
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

    /// Pins the run, of which the first `needed` pages are for a transfer and the others ahead.
    fn pin<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        run: PageRange,
        needed: u64,
    ) -> HostResult<N, P> {
        let mut rest = run;
        while !rest.is_empty() {
            let part = PageRange {
                count: rest.count.min(RUN_PAGES),
                ..rest
            };
            let frames = &mut self.frames[..part.count as usize];
            pinner
                .pin(self.process, part, frames)
                .map_err(HostError::Pin)?;
            if let Err(error) = nic.install_pages(self.process, part.first, frames) {
                pinner
                    .unpin(self.process, part, frames)
                    .map_err(HostError::Pin)?;
                return Err(HostError::Nic(error));
            }
            let (used, ahead) = part.split_at(run.first.0 + needed);
            self.user.commit_pinned(used)?;
            self.user.commit_ahead(ahead)?;
            rest = PageRange {
                first: part.end(),
                count: rest.count - part.count,
            };
        }
        Ok(())
    }

    /// The NIC forgets the page before the system does.
    fn unpin<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        page: Page,
    ) -> HostResult<N, P> {
        let frame = nic.design().installed(self.process, page);
        let removed = nic.design_mut().remove(self.process, page);
        removed.map_err(|error| HostError::Nic(error.into()))?;
        self.user.commit_unpinned(page);
        let run = PageRange::single(page);
        pinner
            .unpin(self.process, run, &[frame])
            .map_err(HostError::Pin)
    }

    /// A transfer of the range starts: its pages are not unpinned before as many releases as holds.
    ///
    /// # Errors
    /// [`PinError::NotPinned`]; nothing is held then.
    #[inline]
    pub fn hold(&mut self, range: PageRange) -> Result<(), PinError> {
        match self.pinning {
            Pinning::BeforeTransfer => self.user.hold(range),
            Pinning::OnMiss => Ok(()),
        }
    }

    /// A transfer of the range has completed. The pages stay pinned: the next transfer finds them so.
    ///
    /// # Errors
    /// [`PinError::NotHeld`], if it was not held as often.
    #[inline]
    pub fn release(&mut self, range: PageRange) -> Result<(), PinError> {
        match self.pinning {
            Pinning::BeforeTransfer => self.user.release(range),
            Pinning::OnMiss => Ok(()),
        }
    }

    /// The same, with victims that the application chooses (UTLB §3.4). Has no effect without a limit; with one, to be called
    /// before any page is pinned.
    #[must_use]
    pub fn choosing(mut self, chooser: Box<dyn ChooseVictims>) -> Self {
        self.user = self.user.choosing(chooser);
        self
    }

    /// Whose pages.
    pub fn process(&self) -> Process {
        self.process
    }

    /// The limit in force.
    pub fn limit(&self) -> PinLimit {
        self.user.limit()
    }

    /// Which pages are pinned, and held.
    pub fn table(&self) -> &UserTable {
        &self.user
    }

    /// Check misses, pins, unpins and pinned pages.
    pub fn counters(&self) -> Counters {
        self.user.counters()
    }
}

fn together(one: PageRange, next: PageRange) -> PageRange {
    PageRange {
        count: one.count + next.count,
        ..one
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CacheConfig, Hierarchical};
    use alloc::collections::BTreeMap;
    use std::vec::Vec;

    fn range(first: u64, count: u64) -> PageRange {
        PageRange {
            first: Page(first),
            count,
        }
    }

    /// Pins what is below a page, and remembers every call.
    struct Memory {
        end: Page,
        pinned: BTreeMap<Page, Frame>,
        calls: Vec<PageRange>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
    #[error("no such memory")]
    struct NoSuchMemory;

    impl PinPages for Memory {
        type Error = NoSuchMemory;

        fn pin(
            &mut self,
            _: Process,
            run: PageRange,
            frames: &mut [Frame],
        ) -> Result<(), NoSuchMemory> {
            if run.end() > self.end {
                return Err(NoSuchMemory);
            }
            self.calls.push(run);
            for (page, frame) in run.iter().zip(frames) {
                *frame = Frame(page.0 + 1000);
                assert_eq!(
                    self.pinned.insert(page, *frame),
                    None,
                    "{page} is pinned twice"
                );
            }
            Ok(())
        }

        fn unpin(
            &mut self,
            _: Process,
            run: PageRange,
            frames: &[Frame],
        ) -> Result<(), NoSuchMemory> {
            for (page, frame) in run.iter().zip(frames) {
                assert_eq!(self.pinned.remove(&page), Some(*frame), "{page}");
            }
            Ok(())
        }
    }

    struct World {
        nic: Hierarchical,
        memory: Memory,
        host: HostSide,
    }

    impl World {
        fn new(rules: PinRules) -> Self {
            let mut nic = Hierarchical::new(CacheConfig::default()).unwrap();
            nic.open(Process(0)).unwrap();
            let host = HostSide::new(Process(0), rules, &nic);
            let memory = Memory {
                end: Page(100_000),
                pinned: BTreeMap::new(),
                calls: Vec::new(),
            };
            World { nic, memory, host }
        }

        fn prepare(&mut self, pages: PageRange) -> Result<(), HostError<NoSuchMemory>> {
            self.host.prepare(&mut self.nic, &mut self.memory, pages)
        }

        fn calls(&mut self) -> Vec<PageRange> {
            core::mem::take(&mut self.memory.calls)
        }
    }

    #[test]
    fn runs_that_are_not_pinned_are_pinned_in_one_call_each_and_known_to_the_nic() {
        let mut world = World::new(PinRules::default());
        world.prepare(range(10, 2)).unwrap();
        world.prepare(range(8, 1000)).unwrap();
        let expected = [range(10, 2), range(8, 2), range(12, 512), range(524, 484)];
        assert_eq!(world.calls(), expected);
        for page in range(8, 1000) {
            assert_eq!(world.nic.installed(Process(0), page), Frame(page.0 + 1000));
        }
        assert_eq!(world.host.counters().pins, 1000);
    }

    #[test]
    fn under_a_limit_the_nic_forgets_pages_as_they_are_unpinned() {
        let mut world = World::new(PinRules::default().with_limit(PinLimit::Pages(3)));
        for page in 0..3 {
            world.prepare(range(page, 1)).unwrap();
        }
        world.host.hold(range(0, 1)).unwrap();
        world.prepare(range(7, 2)).unwrap();
        let pinned: Vec<_> = world.memory.pinned.keys().map(|page| page.0).collect();
        assert_eq!(pinned, [0, 7, 8]);
        assert!(world.nic.installed(Process(0), Page(1)).is_garbage());
        let refused = world.prepare(range(20, 3));
        assert!(matches!(refused, Err(HostError::Limit(_))), "{refused:?}");
        world.host.release(range(0, 1)).unwrap();
        world.prepare(range(20, 3)).unwrap();
        assert_eq!(world.host.counters().unpins, 5);
    }

    #[test]
    fn memory_that_does_not_exist_is_not_pinned_ahead() {
        let mut world = World::new(PinRules::default().with_prepin_pages(16));
        world.memory.end = Page(20);
        world.prepare(range(0, 1)).unwrap();
        assert_eq!(world.calls(), [range(0, 16)]);
        world.prepare(range(15, 3)).unwrap();
        assert_eq!(world.calls(), [range(16, 2)]);
        let refused = world.prepare(range(19, 2));
        assert_eq!(refused, Err(HostError::Pin(NoSuchMemory)));
        assert_eq!(world.host.counters().pins, 18);
    }

    #[test]
    fn what_the_nic_does_not_take_in_is_unpinned_again() {
        let mut world = World::new(PinRules::default());
        world.nic.close(Process(0)).unwrap();
        let refused = world.prepare(range(4, 4));
        let expected = TranslationError::NotOpen(Process(0));
        assert_eq!(refused, Err(HostError::Nic(expected)));
        assert!(world.memory.pinned.is_empty());
        assert_eq!(world.host.counters().pins, 0);
    }
}
