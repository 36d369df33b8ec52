//! Pages protected by mprotect; faults arrive as SIGSEGV.

use std::sync::Arc;

use rustix::io::Errno as Os;

use super::{Access, FaultBackend, Protection, ProtectionError, check_pages};
use crate::mapping::Rights;
use crate::views::MultiView;

/// Works on every kernel. Neighbouring pages of one protection form one mapped range, of which a process may have `vm.max_map_count`.
#[derive(Debug)]
pub struct Mprotect {
    views: Arc<MultiView>,
    max_ranges: u64,
}

impl Mprotect {
    /// Protects `views`, all pages closed at first.
    ///
    /// # Errors
    /// The kernel refuses to close them.
    pub fn new(views: Arc<MultiView>) -> Result<Self, ProtectionError> {
        // Read now: `set` may run in a signal handler and must not allocate.
        let max_ranges = crate::limits::max_map_count().unwrap_or(0);
        let this = Self { views, max_ranges };
        let layout = *this.views.layout();
        for view in 0..layout.views {
            this.set(view, 0, layout.pages(), Access::None, Access::None)?;
        }
        Ok(this)
    }
}

impl Protection for Mprotect {
    fn set(
        &self,
        view: usize,
        first_page: usize,
        pages: usize,
        _from: Access,
        to: Access,
    ) -> Result<(), ProtectionError> {
        let (address, bytes) = check_pages(&self.views, view, first_page, pages)?;
        let rights = match to {
            Access::None => Rights::None,
            Access::Read => Rights::Read,
            Access::Write => Rights::ReadWrite,
        };
        self.views.protect(view, first_page, pages, rights).map_err(|errno| match errno {
            Os::NOMEM => ProtectionError::TooManyRanges {
                limit: self.max_ranges,
                wanted: (self.max_ranges + 1).next_power_of_two() * 2,
            },
            errno => ProtectionError::System { call: "mprotect", address, bytes, errno: errno.into() },
        })
    }

    fn backend(&self) -> FaultBackend {
        FaultBackend::Sigsegv
    }

    fn views(&self) -> &Arc<MultiView> {
        &self.views
    }
}

impl Drop for Mprotect {
    fn drop(&mut self) {
        let layout = *self.views.layout();
        for view in 0..layout.views {
            let _ = self.views.protect(view, 0, layout.pages(), Rights::None);
        }
    }
}
