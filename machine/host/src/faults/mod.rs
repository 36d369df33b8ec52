//! Protection of the pages of application views, and the handler that their page faults reach.
//!
//! A page of a view is closed, open to loads or open to stores ([`Access`]). Two backends change
//! that ([`PageProtection`]), with the same behaviour and different costs:
//!
//! | backend | a fault arrives as | closing, opening | needs |
//! |---|---|---|---|
//! | [`FaultBackend::Userfaultfd`] | SIGBUS | page table entries alone, no range is ever split | Linux 6.4 |
//! | [`FaultBackend::Sigsegv`] | SIGSEGV | `mprotect`, which splits and joins mapped ranges | `vm.max_map_count` above the number of runs of pages with one protection |
//!
//! With both, the faulting thread itself runs the handler that [`watch`] installed, so no other processor need wake up. The handler runs
//! in a signal: see [`FaultHandler`] for its restrictions.
//!
//! A system call with a pointer into a closed page does not fault: it fails with `EFAULT`. Touch the memory first.
//!
//! # Faults on open pages
//! With [`FaultBackend::Userfaultfd`] the kernel may drop a page table entry under memory pressure; the next
//! access faults although the page is open. [`PageProtection::set`] with `from == to` opens it again.

mod access;
mod paged;
mod probe;
#[allow(unsafe_code)]
mod signals;
#[allow(unsafe_code)]
mod stillness;
#[allow(unsafe_code)]
mod touch;
#[allow(unsafe_code)]
pub mod uffd_abi;
mod userfaultfd;

#[cfg(test)]
mod tests;

use core::fmt;
use core::ops::Range;
use core::str::FromStr;
use std::sync::Arc;

pub use access::{Access, ProtectionError};
pub(crate) use paged::Paged;
pub use probe::probe;
use rustix::io::Errno as Os;
pub use signals::{
    FaultHandler, FaultInfo, FaultKind, Previous, Resolution, Watch, WatchError, end_forked_child, pass_on, watch,
};
pub(crate) use stillness::Stillness;
pub(crate) use touch::is_armed;
pub use touch::touch;
pub use uffd_abi::{DEVICE, Opener, open_userfaultfd};
use userfaultfd::Userfaultfd;

use crate::choice::{ChoiceError, choose};
use crate::errno::CallError;
use crate::mapping::Rights;
use crate::views::MultiView;

/// Backend that protects pages, and so the signal of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultBackend {
    /// userfaultfd in SIGBUS mode.
    Userfaultfd,
    Sigsegv,
}

impl FaultBackend {
    /// Every backend, the preferred one first.
    pub const ALL: [Self; 2] = [Self::Userfaultfd, Self::Sigsegv];

    /// The signal that a fault on a protected page raises.
    pub fn signal(self) -> FaultSignal {
        match self {
            Self::Userfaultfd => FaultSignal::Bus,
            Self::Sigsegv => FaultSignal::Segv,
        }
    }
}

impl fmt::Display for FaultBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Userfaultfd => "userfaultfd",
            Self::Sigsegv => "sigsegv",
        })
    }
}

impl FromStr for FaultBackend {
    type Err = ChoiceError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        choose(&Self::ALL, word, "way to catch faults", "userfaultfd or sigsegv (MAPWIRE_FAULTS)")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultSignal {
    Bus,
    Segv,
}

impl fmt::Display for FaultSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bus => "SIGBUS",
            Self::Segv => "SIGSEGV",
        })
    }
}

/// Changes what application threads may do with pages of views. When it is dropped, the views are closed to everything.
#[derive(Debug)]
pub struct PageProtection {
    views: Arc<MultiView>,
    means: Means,
}

#[derive(Debug)]
enum Means {
    Userfaultfd(Userfaultfd),
    /// Works on every kernel. Neighbouring pages of one protection form one mapped range, of which a process may have so many. The limit is
    /// known from the beginning: `set` may run in a signal handler and must not allocate.
    Mprotect {
        max_ranges: u64,
    },
}

impl PageProtection {
    /// Protects `views`, all pages closed at first, by `backend`.
    ///
    /// # Errors
    /// The kernel refuses the backend; the error says which setting to change.
    pub fn new(backend: FaultBackend, views: Arc<MultiView>) -> Result<Self, ProtectionError> {
        Self::with_opener(backend, views, open_userfaultfd)
    }

    /// As [`new`](Self::new), with the userfaultfd that `open` makes, where the backend takes one.
    fn with_opener(backend: FaultBackend, views: Arc<MultiView>, open: Opener) -> Result<Self, ProtectionError> {
        let means = match backend {
            FaultBackend::Userfaultfd => Means::Userfaultfd(Userfaultfd::new(&views, open)?),
            FaultBackend::Sigsegv => {
                let max_ranges = crate::limits::max_map_count().unwrap_or(0);
                for range in (0..views.layout().views).map(|view| views.layout().view_range(view)) {
                    mprotect(&views, range, Access::None, max_ranges)?;
                }
                Means::Mprotect { max_ranges }
            }
        };
        Ok(Self { views, means })
    }

    /// The first backend of [`FaultBackend::ALL`] that this computer allows.
    ///
    /// # Errors
    /// All were refused: names the reason for the last.
    pub fn best(views: Arc<MultiView>) -> Result<Self, ProtectionError> {
        Self::new(FaultBackend::Userfaultfd, Arc::clone(&views)).or_else(|_| Self::new(FaultBackend::Sigsegv, views))
    }

    /// Gives `pages` pages of view `view` from page `first_page` on the access `to`. All have
    /// the access `from` now; `from == to` restores what memory pressure may have taken.
    ///
    /// When it returns, every thread of the process is bound by `to`. A page opened for the
    /// first time is given memory, zeroed.
    ///
    /// Calls that concern the same page must be ordered by the caller; others may run at once. Safe in a fault handler: it allocates
    /// nothing and takes no lock.
    ///
    /// # Errors
    /// The pages are not in the view, or a limit of the kernel is reached.
    #[inline]
    pub fn set(
        &self,
        view: usize,
        first_page: usize,
        pages: usize,
        from: Access,
        to: Access,
    ) -> Result<(), ProtectionError> {
        let layout = self.views.layout();
        let (start, bytes) = layout.pages_range(view, first_page, pages).ok_or(ProtectionError::OutOfRange {
            view,
            first_page,
            pages,
            views: layout.views,
            view_pages: layout.pages(),
        })?;
        if to != Access::None {
            self.views.keep_in_dumps(first_page, pages);
        }
        match &self.means {
            Means::Userfaultfd(means) => means.set(&self.views, start, bytes, from, to),
            &Means::Mprotect { max_ranges } => mprotect(&self.views, start..start + bytes, to, max_ranges),
        }
    }

    /// The views whose pages it protects.
    pub fn views(&self) -> &Arc<MultiView> {
        &self.views
    }

    pub fn backend(&self) -> FaultBackend {
        match self.means {
            Means::Userfaultfd(_) => FaultBackend::Userfaultfd,
            Means::Mprotect { .. } => FaultBackend::Sigsegv,
        }
    }
}

impl Drop for PageProtection {
    fn drop(&mut self) {
        for view in 0..self.views.layout().views {
            let _ = self.views.protect(self.views.layout().view_range(view), Rights::None);
        }
    }
}

fn mprotect(views: &MultiView, pages: Range<usize>, to: Access, max_ranges: u64) -> Result<(), ProtectionError> {
    let rights = match to {
        Access::None => Rights::None,
        Access::Read => Rights::Read,
        Access::Write => Rights::ReadWrite,
    };
    views.protect(pages.clone(), rights).map_err(|errno| match errno {
        Os::NOMEM => {
            ProtectionError::TooManyRanges { limit: max_ranges, wanted: (max_ranges + 1).next_power_of_two() * 2 }
        }
        errno => CallError::new("mprotect", pages.start, pages.len(), errno).into(),
    })
}
