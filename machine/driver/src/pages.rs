//! Pins the pages of transfers on demand and keeps the NIC's translations in step: the host side of translation
//! ([`mapwire_translation::HostSide`]) on this computer (UTLB §3: demand-driven pinning, user-level lookup, protected table).

use mapwire_host::pinning::{PinError as HostPinError, Pinner};
use mapwire_nic::NicError;
use mapwire_translation::{
    ChooseVictims, Counters, Frame, HostError, HostRequest, HostSide, PAGE_BYTES, PageRange,
    PinError, PinLimit, PinPages, PinRules, Process, TranslationDesign,
};
use mapwire_wire::ProcessId;
use thiserror::Error;

use crate::config::DriverConfig;
use crate::driver::Interface;
use crate::pinning_notes::Notes;

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
    System(HostPinError),
    /// The NIC's table.
    #[error(transparent)]
    Nic(#[from] NicError),
}

/// The operating system's pinning.
struct System {
    pinner: Box<dyn Pinner>,
    /// What is done, while there is a trace.
    notes: Option<Box<Notes>>,
}

impl PinPages for System {
    type Error = HostPinError;

    #[inline]
    fn pin(
        &mut self,
        _: Process,
        run: PageRange,
        frames: &mut [Frame],
    ) -> Result<(), HostPinError> {
        let outcome = self.pinner.pin(run, frames);
        if let Some(notes) = &mut self.notes {
            notes.pinning(run, outcome.is_ok());
        }
        outcome
    }

    #[inline]
    fn unpin(&mut self, _: Process, run: PageRange, frames: &[Frame]) -> Result<(), HostPinError> {
        self.pinner.unpin(run, frames)
    }
}

/// The pinned pages of this process.
pub struct Pages {
    host: HostSide,
    pinner: System,
    /// RLIMIT_MEMLOCK, when it is what limits.
    locked_bytes: Option<u64>,
}

impl core::fmt::Debug for Pages {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pages")
            .field("pinner", &self.pinner.pinner.name())
            .field("host", &self.host.counters())
            .finish()
    }
}

impl Pages {
    /// No page pinned; at most as many at a time as `config`, `pinner` and the design's tables allow.
    pub fn new(
        process: ProcessId,
        pinner: Box<dyn Pinner>,
        config: &DriverConfig,
        design: &impl TranslationDesign,
    ) -> Self {
        let ours = config
            .pin_limit_bytes
            .map(|bytes| bytes / PAGE_BYTES as u64);
        let limit = match (ours, pinner.limit_pages()) {
            (None, None) => PinLimit::Unlimited,
            (Some(pages), None) | (None, Some(pages)) => PinLimit::Pages(pages),
            (Some(ours), Some(systems)) => PinLimit::Pages(ours.min(systems)),
        };
        let rules = PinRules::default()
            .with_limit(limit)
            .with_policy(config.policy)
            .with_prepin_pages(config.prepin_pages);
        let locked_bytes = mapwire_host::limits::locked_memory().0.filter(|bytes| {
            limit == PinLimit::Pages(bytes / PAGE_BYTES as u64)
                && !mapwire_host::limits::may_lock_without_limit()
        });
        Self {
            host: HostSide::new(Process(process.0), rules, design),
            pinner: System {
                pinner,
                notes: None,
            },
            locked_bytes,
        }
    }

    /// Makes every page of the range usable by the NIC until [`release`](Self::release), or, where the design pins on a miss,
    /// keeps those that are pinned from being unpinned until then.
    ///
    /// # Errors
    /// [`PagesError`]; the range is not held then.
    #[inline]
    pub fn hold(&mut self, nic: &mut Interface, range: PageRange) -> Result<(), PagesError> {
        if let Err(error) = self.host.prepare(nic, &mut self.pinner, range) {
            return Err(self.explain(error));
        }
        self.host.hold(range)?;
        if let Some(notes) = &mut self.pinner.notes {
            notes.held(range);
        }
        Ok(())
    }

    /// Begins or ends to note what a trace has to say of pinning.
    pub(crate) fn set_notes(&mut self, on: bool) {
        self.pinner.notes = on.then(Box::default);
    }

    /// What a trace has to say of pinning, since they were taken out last.
    pub(crate) fn notes(&mut self) -> Option<&mut Notes> {
        self.pinner.notes.as_deref_mut()
    }

    /// As [`hold`](Self::hold), for memory that is exported.
    ///
    /// # Errors
    /// [`PagesError`]; the range is not held then.
    pub fn hold_export(&mut self, nic: &mut Interface, range: PageRange) -> Result<(), PagesError> {
        if let Err(error) = self.host.prepare_receive(nic, &mut self.pinner, range) {
            return Err(self.explain(error));
        }
        self.host.hold_receive(range)?;
        if let Some(notes) = &mut self.pinner.notes {
            notes.is_there(range);
        }
        Ok(())
    }

    /// The memory is exported no more.
    pub fn release_export(&mut self, range: PageRange) {
        let held = self.host.release_receive(range);
        debug_assert!(held.is_ok(), "{held:?}");
    }

    /// Does what the NIC asks for.
    ///
    /// # Errors
    /// [`PagesError`]: the page that was looked up cannot be pinned.
    pub fn serve(&mut self, nic: &mut Interface, request: HostRequest) -> Result<(), PagesError> {
        // This NIC has no other process, so nobody else's pages have to leave it.
        let mut others = Vec::new();
        let outcome = self.host.serve(nic, &mut self.pinner, request, &mut others);
        debug_assert!(others.is_empty(), "{others:?}");
        outcome.map_err(|error| self.explain(error))
    }

    /// Whether pages wait for [`reclaim`](Self::reclaim) that have left the NIC.
    #[inline]
    pub(crate) fn owes_pages(&self) -> bool {
        self.host.owes_pages()
    }

    /// Unpins pages whose translations have left the NIC, above the design's high-water mark.
    ///
    /// # Errors
    /// [`PagesError::System`].
    pub fn reclaim(&mut self, nic: &mut Interface) -> Result<(), PagesError> {
        let outcome = self.host.reclaim(nic, &mut self.pinner);
        outcome.map_err(|error| self.explain(error))
    }

    #[cold]
    fn explain(&self, error: HostError<HostPinError, NicError>) -> PagesError {
        match (error, self.locked_bytes) {
            (
                HostError::Limit(PinError::LimitTooSmall {
                    needed_pages,
                    limit_pages,
                    held_pages,
                }),
                Some(limit_bytes),
            ) => PagesError::LockedMemory {
                needed_pages,
                limit_pages,
                held_pages,
                limit_bytes,
            },
            (HostError::Limit(error), _) => error.into(),
            (HostError::Pin(error), _) => PagesError::System(error),
            (HostError::Nic(error), _) => error.into(),
        }
    }

    /// The transfer that held the range is over. The pages stay pinned: the next transfer finds them so.
    #[inline]
    pub fn release(&mut self, range: PageRange) {
        // Every release follows a hold of the same range, so this cannot fail; if it did, pages would stay held.
        let held = self.host.release(range);
        debug_assert!(held.is_ok(), "{held:?}");
        if let Some(notes) = &mut self.pinner.notes {
            notes.released(range);
        }
    }

    /// Where this process sees a frame.
    #[inline]
    pub(crate) fn address_of(&self, frame: Frame) -> Option<*mut u8> {
        self.pinner.pinner.address_of(frame)
    }

    /// Check misses, pins, unpins and pinned pages.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.host.counters()
    }

    /// The application chooses what is unpinned from here on; false when pages are pinned already.
    pub fn set_chooser(&mut self, chooser: Box<dyn ChooseVictims>) -> bool {
        self.host.set_chooser(chooser)
    }
}
