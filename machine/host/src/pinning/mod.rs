//! Pages made usable by the NIC, and released: the driver's part of UTLB (§3.1, §5.1).
//!
//! Two pinners do the same by different means ([`Pinner`]):
//!
//! | pinner | pins by | frame | limit |
//! |---|---|---|---|
//! | [`MlockPinner`] | `mlock` | the page's number | RLIMIT_MEMLOCK of the process |
//! | [`UringPinner`] | a registered buffer of an io_uring | a slot of its table, and the page in it | slots; RLIMIT_MEMLOCK of the user |
//!
//! [`CheapestPinner`], the default, uses both. `mlock` keeps pages in memory, though the kernel may still move them; a registered buffer
//! also keeps them in place, as a NIC needs, and costs a third.
//!
//! A pinner pins what it is told to: [`mapwire_translation::UserTable`] knows which pages are pinned already, and which to unpin. Neither
//! pinner allocates in a call.

mod cheapest;
mod mlock;
#[allow(unsafe_code)]
mod sys;
#[cfg(test)]
mod tests;
mod uring;

use core::fmt;
use core::str::FromStr;

use mapwire_translation::{Frame, Page, PageRange};

pub use cheapest::CheapestPinner;
pub use mlock::MlockPinner;
pub use uring::{DEFAULT_SLOTS, MAX_SLOTS, UringPinner};

use crate::choice::{ChoiceError, choose};
use crate::errno::Errno;
use crate::limits::Limit;

/// Makes pages usable by the NIC.
pub trait Pinner: Send + fmt::Debug {
    /// Pins `pages`, none of which is pinned, and writes their frames in page order. On an error none is pinned. Frames with consecutive
    /// numbers are consecutive pages.
    ///
    /// # Errors
    /// A limit is reached or a page is not mapped; see [`PinError`]. `frames` must have one entry for each page.
    fn pin(&mut self, pages: PageRange, frames: &mut [Frame]) -> Result<(), PinError>;

    /// Unpins `pages`; `frames` are those that [`pin`](Self::pin) wrote for them. They may have been pinned in other runs, together with
    /// pages that stay pinned.
    ///
    /// # Errors
    /// [`PinError::NotPinned`] if a frame is not that of its page; no page is then unpinned.
    fn unpin(&mut self, pages: PageRange, frames: &[Frame]) -> Result<(), PinError>;

    /// Address of a frame's first byte; `None` if no pinned page has the frame, as far as the pinner can tell, and always for
    /// [`Frame::GARBAGE`].
    fn address_of(&self, frame: Frame) -> Option<*mut u8>;

    /// Most pages that can be pinned at once; `None` for no limit.
    fn limit_pages(&self) -> Option<u64>;

    fn pinned_pages(&self) -> u64;

    /// `mlock` or `io_uring`.
    fn name(&self) -> &'static str;
}

#[derive(Default, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PinnerKind {
    #[default]
    Cheapest,
    Mlock,
    IoUring,
}

impl PinnerKind {
    /// Each single way to pin, the cheaper one first.
    pub const ALL: [Self; 2] = [Self::IoUring, Self::Mlock];

    /// Makes a pinner of this kind.
    ///
    /// # Errors
    /// The kernel refuses it; the error says which setting to change.
    pub fn open(self) -> Result<Box<dyn Pinner>, PinError> {
        Ok(match self {
            Self::Cheapest => Box::new(CheapestPinner::new()),
            Self::Mlock => Box::new(MlockPinner::new()),
            Self::IoUring => Box::new(UringPinner::new(DEFAULT_SLOTS)?),
        })
    }

    /// Opens a pinner of this kind and pins a page with it, for `mapwire doctor`.
    ///
    /// # Errors
    /// Why it does not work, and how to fix it.
    pub fn probe(self) -> Result<(), PinError> {
        let memory = vec![1u8; crate::page::PAGE_BYTES];
        let page = PageRange::single(Page::containing(memory.as_ptr().addr() as u64));
        let mut pinner = self.open()?;
        let mut frames = [Frame::GARBAGE];
        pinner.pin(page, &mut frames)?;
        pinner.unpin(page, &frames)
    }
}

impl fmt::Display for PinnerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cheapest => "cheapest",
            Self::Mlock => "mlock",
            Self::IoUring => "io_uring",
        })
    }
}

impl FromStr for PinnerKind {
    type Err = ChoiceError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let all = [Self::Cheapest, Self::Mlock, Self::IoUring];
        choose(&all, word, "way to pin pages", "cheapest, mlock or io_uring (MAPWIRE_PINNER, --pinner)")
    }
}

/// Why pages could not be pinned or unpinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The limit of locked memory is reached.
    #[error(
        "cannot lock {pages} in memory: RLIMIT_MEMLOCK is {limit} bytes and {pinned_pages} pages \
         of 4096 bytes are pinned: raise it with `ulimit -l` or `memlock` in \
         /etc/security/limits.conf, give the program CAP_IPC_LOCK, or lower MAPWIRE_PIN_LIMIT"
    )]
    LockedMemory {
        pages: PageRange,
        /// Number of pages pinned by this pinner.
        pinned_pages: u64,
        limit: Limit,
    },
    /// The io_uring's table is full.
    #[error(
        "cannot pin {pages}: {pinned_pages} of the io_uring's {slots} pages are in use; \
         unpin some (a pin limit below {slots} pages does so by itself), \
         or set MAPWIRE_PINNER=mlock"
    )]
    SlotsExhausted {
        pages: PageRange,
        /// Number of pages pinned by this pinner.
        pinned_pages: u64,
        /// Number of pages that it can pin.
        slots: u32,
    },
    /// A page has no memory behind it.
    #[error("cannot pin {pages}: {page} is not mapped; was the buffer freed?")]
    NotMapped {
        pages: PageRange,
        /// First page that is not mapped.
        page: Page,
    },
    /// A frame is not that of its page.
    #[error("cannot unpin {page}: {frame} is not its frame")]
    NotPinned { page: Page, frame: Frame },
    /// The number of frames differs from that of pages.
    #[error("{pages} need {} frames, not {frames}", pages.count)]
    FrameCount { pages: PageRange, frames: usize },
    /// Locking part of a mapped range splits it, and the kernel's limit of ranges is reached.
    #[error(
        "cannot lock {pages}: this process reached the kernel's limit of {limit} mapped ranges, \
         which mlock splits: raise it with `sysctl vm.max_map_count`, or set \
         MAPWIRE_PINNER=io_uring"
    )]
    TooManyRanges { pages: PageRange, limit: u64 },
    /// The kernel provides no io_uring.
    #[error(
        "io_uring is refused ({errno}; kernel.io_uring_disabled is {}): \
         allow it {}in the container's seccomp profile, or set MAPWIRE_PINNER=mlock",
        Setting(*disabled),
        if *disabled == Some(0) { "" } else { "with `sysctl kernel.io_uring_disabled=0` and " }
    )]
    IoUringRefused {
        errno: Errno,
        /// Value of `kernel.io_uring_disabled`, if that setting exists.
        disabled: Option<u64>,
    },
    /// The kernel's io_uring has no table of buffers that can be changed slot by slot.
    #[error(
        "this kernel's io_uring cannot register {slots} buffers one by one ({errno}): \
         Linux 5.13 or later can, up to {MAX_SLOTS}; or set MAPWIRE_PINNER=mlock"
    )]
    IoUringTooOld { slots: u32, errno: Errno },
    #[error("{call} of {pages}: {errno}")]
    System { call: &'static str, pages: PageRange, errno: Errno },
}

struct Setting(Option<u64>);

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, "{value}"),
            None => f.write_str("not known here"),
        }
    }
}

/// The number of pages, if there is one frame for each.
fn check_frames(pages: PageRange, frames: usize) -> Result<usize, PinError> {
    match usize::try_from(pages.count) {
        Ok(count) if count == frames => Ok(count),
        _ => Err(PinError::FrameCount { pages, frames }),
    }
}

/// The error for a refusal to lock or register `pages`.
#[cold]
fn explain(call: &'static str, pages: PageRange, pinned_pages: u64, errno: rustix::io::Errno) -> PinError {
    use rustix::io::Errno as E;
    let limit = crate::limits::locked_memory();
    let unmapped = || pages.iter().find(|page| !crate::memory::memory_is_mapped(page.address() as usize, 1));
    match errno {
        E::NOMEM | E::FAULT | E::INVAL if unmapped().is_some() => {
            PinError::NotMapped { pages, page: unmapped().unwrap_or(pages.first) }
        }
        E::PERM => PinError::LockedMemory { pages, pinned_pages, limit },
        E::NOMEM | E::AGAIN if !crate::limits::may_lock_without_limit() && limit.0.is_some() => {
            PinError::LockedMemory { pages, pinned_pages, limit }
        }
        E::NOMEM if call == "mlock" => {
            PinError::TooManyRanges { pages, limit: crate::limits::max_map_count().unwrap_or(0) }
        }
        _ => PinError::System { call, pages, errno: errno.into() },
    }
}
