//! Who pins pages on this computer, and why pages could not be pinned.

use mapwire_host::pinning::{PinError as HostPinError, Pinner};
use mapwire_nic::NicError;
use mapwire_translation::{Frame, HostError, PAGE_BYTES, PageRange, PinError, PinLimit, PinPages, PinRules, Process};
use thiserror::Error;

use crate::config::DriverConfig;

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
        limit_bytes: u64,
    },
    /// The operating system.
    #[error(transparent)]
    System(HostPinError),
    /// The NIC's table.
    #[error(transparent)]
    Nic(#[from] NicError),
}

pub(crate) struct Pins {
    pinner: Box<dyn Pinner>,
    /// RLIMIT_MEMLOCK, when it is what limits.
    locked_bytes: Option<u64>,
}

impl core::fmt::Debug for Pins {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pins").field("pinner", &self.pinner.name()).finish_non_exhaustive()
    }
}

impl PinPages for Pins {
    type Error = HostPinError;

    #[inline]
    fn pin(&mut self, _: Process, run: PageRange, frames: &mut [Frame]) -> Result<(), HostPinError> {
        self.pinner.pin(run, frames)
    }

    #[inline]
    fn unpin(&mut self, _: Process, run: PageRange, frames: &[Frame]) -> Result<(), HostPinError> {
        self.pinner.unpin(run, frames)
    }
}

impl Pins {
    /// The pinner that `config` asks for, and the rules by which a process may pin: at most as many pages at a time as `config` and
    /// the pinner allow.
    pub(crate) fn new(pinner: Box<dyn Pinner>, config: &DriverConfig) -> (Self, PinRules) {
        let ours = config.pin_limit_bytes.map(|bytes| bytes / PAGE_BYTES as u64);
        let limit = match (ours, pinner.limit_pages()) {
            (None, None) => PinLimit::Unlimited,
            (Some(pages), None) | (None, Some(pages)) => PinLimit::Pages(pages),
            (Some(ours), Some(systems)) => PinLimit::Pages(ours.min(systems)),
        };
        let rules =
            PinRules::default().with_limit(limit).with_policy(config.policy).with_prepin_pages(config.prepin_pages);
        let locked_bytes = mapwire_host::limits::locked_memory().0.filter(|bytes| {
            limit == PinLimit::Pages(bytes / PAGE_BYTES as u64) && !mapwire_host::limits::may_lock_without_limit()
        });
        let pins = Self { pinner, locked_bytes };
        (pins, rules)
    }

    /// What an error of the node says on this computer.
    #[cold]
    pub(crate) fn explain(&self, error: HostError<HostPinError, NicError>) -> PagesError {
        match (error, self.locked_bytes) {
            (
                HostError::Limit(PinError::LimitTooSmall { needed_pages, limit_pages, held_pages }),
                Some(limit_bytes),
            ) => PagesError::LockedMemory { needed_pages, limit_pages, held_pages, limit_bytes },
            (HostError::Limit(error), _) => error.into(),
            (HostError::Pin(error), _) => PagesError::System(error),
            (HostError::Nic(error), _) => error.into(),
        }
    }

    /// Where this process sees a frame.
    #[inline]
    pub(crate) fn address_of(&self, frame: Frame) -> Option<*mut u8> {
        self.pinner.address_of(frame)
    }
}
