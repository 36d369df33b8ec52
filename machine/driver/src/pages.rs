//! Pins the pages of transfers on demand and keeps the NIC's translations in step (UTLB §3: demand-driven pinning, user-level
//! lookup, protected table).

use mapwire_host::pinning::{PinError as HostPinError, Pinner};
use mapwire_nic::{Nic, NicError};
use mapwire_translation::{
    Frame, PAGE_BYTES, Page, PageRange, PinError, PinLimit, PinPlan, Prepared, TranslationDesign,
    UserTable,
};
use mapwire_wire::ProcessId;
use thiserror::Error;

/// Pages that one call to the operating system pins at most; the frames it yields wait in a buffer of this size.
const RUN_PAGES: usize = 512;

/// Why pages could not be pinned. What was pinned before stays pinned, and usable.
#[derive(Debug, Error)]
pub enum PagesError {
    /// The limit on pinned pages.
    #[error(transparent)]
    Limit(#[from] PinError),
    /// The operating system's limit on locked memory, known beforehand.
    #[error(
        "{needed_pages} pages cannot be pinned at once: RLIMIT_MEMLOCK allows {limit_bytes} bytes, and {held_pages} of its \
         {limit_pages} pages are in use: raise it with `ulimit -l` or `memlock` in /etc/security/limits.conf, give the \
         program CAP_IPC_LOCK, or send less at once"
    )]
    LockedMemory {
        /// Pages of the transfer or export.
        needed_pages: u64,
        /// Pages that the limit allows.
        limit_pages: u64,
        /// Pages of others, which must stay pinned.
        held_pages: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The operating system.
    #[error(transparent)]
    System(#[from] HostPinError),
    /// The NIC's table.
    #[error(transparent)]
    Nic(#[from] NicError),
}

/// The pinned pages of this process.
pub struct Pages {
    process: ProcessId,
    pinner: Box<dyn Pinner>,
    user: UserTable,
    /// RLIMIT_MEMLOCK, when it is what limits.
    locked_bytes: Option<u64>,
    plan: PinPlan,
    frames: Box<[Frame; RUN_PAGES]>,
}

impl core::fmt::Debug for Pages {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pages")
            .field("pinner", &self.pinner.name())
            .field("user", &self.user.counters())
            .finish()
    }
}

impl Pages {
    /// No page pinned; at most `limit_pages` at a time, and no more than `pinner` can.
    pub fn new(process: ProcessId, pinner: Box<dyn Pinner>, limit_pages: Option<u64>) -> Self {
        let limit = match (limit_pages, pinner.limit_pages()) {
            (None, None) => PinLimit::Unlimited,
            (Some(pages), None) | (None, Some(pages)) => PinLimit::Pages(pages),
            (Some(ours), Some(systems)) => PinLimit::Pages(ours.min(systems)),
        };
        let locked_bytes = mapwire_host::limits::locked_memory().0.filter(|bytes| {
            limit == PinLimit::Pages(bytes / PAGE_BYTES as u64)
                && !mapwire_host::limits::may_lock_without_limit()
        });
        Self {
            process,
            pinner,
            user: UserTable::new(limit),
            locked_bytes,
            plan: PinPlan::new(),
            frames: Box::new([Frame::GARBAGE; RUN_PAGES]),
        }
    }

    /// Makes every page of the range usable by the NIC until [`release`](Self::release): a bit check when they are pinned
    /// already, else a call for each run of pages that are not (UTLB §3.1), after unpinning the least recently used where
    /// the limit wants it. Pages of outstanding transfers are never taken.
    ///
    /// # Errors
    /// [`PagesError`]; the range is not held then.
    #[inline]
    pub fn hold<D: TranslationDesign>(
        &mut self,
        nic: &mut Nic<D>,
        range: PageRange,
    ) -> Result<(), PagesError> {
        match self.user.prepare(range, &mut self.plan) {
            Ok(Prepared::MustPin) => self.pin_planned(nic)?,
            Ok(_) => {}
            Err(error) => return Err(self.explain(error)),
        }
        self.user.hold(range)?;
        Ok(())
    }

    #[cold]
    fn explain(&self, error: PinError) -> PagesError {
        match (error, self.locked_bytes) {
            (
                PinError::LimitTooSmall {
                    needed_pages,
                    limit_pages,
                    held_pages,
                },
                Some(limit_bytes),
            ) => PagesError::LockedMemory {
                needed_pages,
                limit_pages,
                held_pages,
                limit_bytes,
            },
            (error, _) => error.into(),
        }
    }

    /// The transfer that held the range is over. The pages stay pinned: the next transfer finds them so.
    #[inline]
    pub fn release(&mut self, range: PageRange) {
        // Every release follows a hold of the same range, so this cannot fail; if it did, pages would stay held.
        let held = self.user.release(range);
        debug_assert!(held.is_ok(), "{held:?}");
    }

    #[cold]
    fn pin_planned<D: TranslationDesign>(&mut self, nic: &mut Nic<D>) -> Result<(), PagesError> {
        let plan = core::mem::take(&mut self.plan);
        let outcome = self.pin_runs(nic, &plan);
        self.plan = plan;
        outcome
    }

    fn pin_runs<D: TranslationDesign>(
        &mut self,
        nic: &mut Nic<D>,
        plan: &PinPlan,
    ) -> Result<(), PagesError> {
        for &page in &plan.to_unpin {
            self.unpin(nic, page)?;
        }
        for run in &plan.to_pin {
            let mut first = run.first;
            let mut left = run.count;
            while left > 0 {
                let count = left.min(RUN_PAGES as u64);
                let frames = &mut self.frames[..count as usize];
                self.pinner.pin(PageRange { first, count }, frames)?;
                let mut page = first;
                for &frame in frames.iter() {
                    nic.install_translation(self.process, page, frame)?;
                    page = page.next();
                }
                self.user.commit_pinned(PageRange { first, count })?;
                first = page;
                left -= count;
            }
        }
        Ok(())
    }

    /// The NIC forgets the page before the operating system does.
    fn unpin<D: TranslationDesign>(
        &mut self,
        nic: &mut Nic<D>,
        page: Page,
    ) -> Result<(), PagesError> {
        let frame = nic.frame_of(self.process, page);
        nic.remove_translation(self.process, page)?;
        self.user.commit_unpinned(page);
        self.pinner.unpin(PageRange::single(page), &[frame])?;
        Ok(())
    }

    /// Where this process sees a frame.
    #[inline]
    pub(crate) fn address_of(&self, frame: Frame) -> Option<*mut u8> {
        self.pinner.address_of(frame)
    }

    /// Check misses, pins, unpins and pinned pages.
    #[must_use]
    pub fn counters(&self) -> mapwire_translation::Counters {
        self.user.counters()
    }

    /// The limit in force.
    #[must_use]
    pub fn limit(&self) -> PinLimit {
        self.user.limit()
    }

    /// Who pins.
    #[must_use]
    pub fn pinner_name(&self) -> &'static str {
        self.pinner.name()
    }
}
