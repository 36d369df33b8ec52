//! Serving the NIC's requests, and exported memory.

use super::{HostError, HostResult, HostSide, PinPages};
use crate::design::{HostRequest, NicSide, Pinning, TranslationDesign};
use crate::limit::PinError;
use crate::page::{Page, PageRange, Process};
use crate::user::{PinPlan, Prepared};
use alloc::vec::Vec;

impl HostSide {
    /// Makes exported memory usable by the NIC, unless the design pins it on a miss. Nothing is pinned ahead of it.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn prepare_receive<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        range: PageRange,
    ) -> HostResult<N, P> {
        if self.pinning_receive == Pinning::OnMiss {
            return Ok(());
        }
        let checks = self.pinning == Pinning::BeforeTransfer;
        self.sparing(nic, |host, nic| host.pin_export(nic, pinner, range, checks))?;
        if checks {
            return Ok(());
        }
        for page in range {
            let frame = nic.design().installed(self.process, page);
            let installed = nic.install_export(self.process, page, frame);
            if let Err(error) = installed {
                self.note_due(range);
                return Err(HostError::Nic(error));
            }
        }
        Ok(())
    }

    /// Pins the pages of an export, with or without checking those that are pinned.
    fn pin_export<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        range: PageRange,
        checks: bool,
    ) -> HostResult<N, P> {
        if !checks {
            self.settle(nic, pinner)?;
        }
        let mut plan = core::mem::take(&mut self.plan);
        let prepared = self.user.prepare_export(range, checks, &mut plan);
        let outcome = match prepared {
            Ok(Prepared::AllPinned) => Ok(()),
            Ok(Prepared::MustPin) => self.carry_out(nic, pinner, &plan),
            Err(error) => Err(error.into()),
        };
        if !checks {
            self.note_loose(&plan);
        }
        self.plan = plan;
        outcome
    }

    /// Pages pinned for an export are in no cache: they are unpinned as soon as nothing holds them, at once if nothing ever does.
    fn note_loose(&mut self, plan: &PinPlan) {
        for page in plan.to_pin.iter().copied().flatten() {
            if self.user.map().contains(page) {
                self.loose.insert(page);
                self.due.insert(page);
            }
        }
    }

    /// Holds exported memory, which must be prepared: it is not unpinned before as many releases as holds. No effect in a design that pins
    /// it on a miss: what is not in use may be unpinned at any time.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    pub fn hold_receive(&mut self, range: PageRange) -> Result<(), PinError> {
        match self.pinning_receive {
            Pinning::BeforeTransfer => self.hold(range),
            Pinning::OnMiss => Ok(()),
        }
    }

    /// The memory is no longer exported.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub fn release_receive(&mut self, range: PageRange) -> Result<(), PinError> {
        match self.pinning_receive {
            Pinning::BeforeTransfer => self.release(range),
            Pinning::OnMiss => Ok(()),
        }
    }

    /// Serves a request of the NIC, which may go on then, whether this failed or not. Translations of other processes that it evicted are
    /// added to `others` if their pages are to be unpinned: tell their host sides by [`drop_evicted`](Self::drop_evicted).
    ///
    /// # Errors
    /// [`HostError`]. The looked-up page could not be pinned, and is the garbage frame to the NIC; or a page could not be unpinned.
    pub fn serve<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        request: HostRequest,
        others: &mut Vec<(Process, Page)>,
    ) -> HostResult<N, P> {
        match request {
            HostRequest::Fill { pages, wanted, .. } => self.sparing(nic, |host, nic| {
                let pinned = host.pin_for_fill(nic, pinner, pages, wanted);
                let filled = host.fill(nic, pinner, pages, others);
                pinned.and(filled)
            }),
            HostRequest::LoadTable { process, table } => {
                nic.design_mut().load_table(process, table);
                Ok(())
            }
            HostRequest::FillBuffer { process, buffer } => {
                nic.design_mut().fill_buffer(process, buffer);
                Ok(())
            }
            HostRequest::FillProcess { process } => {
                nic.design_mut().fill_process(process);
                Ok(())
            }
        }
    }

    fn pin_for_fill<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        pages: PageRange,
        wanted: Page,
    ) -> HostResult<N, P> {
        self.settle(nic, pinner)?;
        let mut plan = core::mem::take(&mut self.plan);
        let outcome = self.plan_and_pin(nic, pinner, pages, wanted, &mut plan);
        self.plan = plan;
        outcome
    }

    fn plan_and_pin<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        pages: PageRange,
        wanted: Page,
        plan: &mut PinPlan,
    ) -> HostResult<N, P> {
        self.user.plan_fill(pages, wanted, plan)?;
        if self.unpins_evicted && !plan.to_unpin.is_empty() {
            // What must leave the NIC for the fill is unpinned anyway: that first, others only if it is not enough.
            for page in pages {
                let displaced = nic.design().displaced_by(self.process, page);
                if let Some((process, page)) = displaced
                    && process == self.process
                    && !pages.contains(page)
                    && !self.user.is_held(page)
                {
                    self.unpin(nic, pinner, page)?;
                }
            }
            self.user.plan_fill(pages, wanted, plan)?;
        }
        for &page in &plan.to_unpin {
            self.unpin(nic, pinner, page)?;
        }
        for &run in &plan.to_pin {
            // Some pages around the wanted one may not exist.
            if self.pin(nic, pinner, run, 0).is_err() && run.contains(wanted) && !self.user.map().contains(wanted) {
                self.pin(nic, pinner, PageRange::single(wanted), 0)?;
            }
        }
        self.user.touch(wanted);
        Ok(())
    }

    fn fill<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        pages: PageRange,
        others: &mut Vec<(Process, Page)>,
    ) -> HostResult<N, P> {
        let mut evicted = core::mem::take(&mut self.evicted);
        nic.design_mut().fill(self.process, pages, &mut evicted);
        let mut outcome = Ok(());
        if self.unpins_evicted {
            for page in pages {
                if !self.loose.is_empty() && nic.design().is_cached(self.process, page) {
                    self.loose.remove(&page);
                }
            }
            for &(process, page) in &evicted {
                if process == self.process {
                    outcome = outcome.and(self.drop_one(nic, pinner, page));
                } else {
                    others.push((process, page));
                }
            }
        }
        evicted.clear();
        self.evicted = evicted;
        outcome
    }

    /// The NIC has evicted the translation of the page: unpins it (UTLB §6.2) as soon as nothing holds it.
    ///
    /// # Errors
    /// [`HostError`]: the page could not be unpinned.
    pub fn drop_evicted<N: NicSide, P: PinPages>(
        &mut self,
        nic: &mut N,
        pinner: &mut P,
        page: Page,
    ) -> HostResult<N, P> {
        self.sparing(nic, |host, nic| host.drop_one(nic, pinner, page))
    }

    fn drop_one<N: NicSide, P: PinPages>(&mut self, nic: &mut N, pinner: &mut P, page: Page) -> HostResult<N, P> {
        if !self.user.map().contains(page) || nic.design().is_cached(self.process, page) {
            return Ok(());
        }
        if self.user.is_held(page) {
            self.loose.insert(page);
            return Ok(());
        }
        self.unpin(nic, pinner, page)
    }

    /// Unpins what nothing holds any more, and above the design's high-water mark what is not in the NIC (dynamic handle lookup §IV.B), as
    /// the policy chooses. Call it from time to time.
    ///
    /// # Errors
    /// [`HostError`]: a page could not be unpinned.
    pub fn reclaim<N: NicSide, P: PinPages>(&mut self, nic: &mut N, pinner: &mut P) -> HostResult<N, P> {
        self.sparing(nic, |host, nic| host.reclaim_now(nic, pinner))
    }

    fn reclaim_now<N: NicSide, P: PinPages>(&mut self, nic: &mut N, pinner: &mut P) -> HostResult<N, P> {
        self.settle(nic, pinner)?;
        let Some(mark) = self.high_water_pages else {
            return Ok(());
        };
        let over = self.user.map().count().saturating_sub(mark);
        if over == 0 {
            return Ok(());
        }
        let mut plan = core::mem::take(&mut self.plan);
        let left = |page| !nic.design().is_cached(self.process, page);
        self.user.plan_reclaim(over, left, &mut plan);
        let mut outcome = Ok(());
        for &page in &plan.to_unpin {
            outcome = outcome.and(self.unpin(nic, pinner, page));
        }
        self.plan = plan;
        outcome
    }

    /// Whether pages that have left the NIC wait for [`reclaim`](Self::reclaim).
    #[inline]
    pub fn owes_pages(&self) -> bool {
        !self.due.is_empty()
    }

    #[cold]
    pub(super) fn note_due(&mut self, range: PageRange) {
        for &page in self.loose.range(range.first..range.end()) {
            if !self.user.is_held(page) {
                self.due.insert(page);
            }
        }
    }

    /// Unpins loose pages that nothing holds any more.
    fn settle<N: NicSide, P: PinPages>(&mut self, nic: &mut N, pinner: &mut P) -> HostResult<N, P> {
        // A page that is no longer mapped does not keep the others pinned.
        let mut outcome = Ok(());
        while let Some(page) = self.due.pop_first() {
            if self.loose.contains(&page) && !self.user.is_held(page) {
                outcome = outcome.and(self.unpin(nic, pinner, page));
            }
        }
        outcome
    }
}
