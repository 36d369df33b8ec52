//! Pages protected by mprotect; faults arrive as SIGSEGV.

use rustix::io::Errno as Os;

use super::{Access, ProtectionError};
use crate::errno::CallError;
use crate::mapping::Rights;
use crate::views::MultiView;

/// Works on every kernel. Neighbouring pages of one protection form one mapped range, of which a process may have `vm.max_map_count`.
#[derive(Debug)]
pub(super) struct Mprotect {
    max_ranges: u64,
}

impl Mprotect {
    pub(super) fn new(views: &MultiView) -> Result<Self, ProtectionError> {
        // Read now: `set` may run in a signal handler and must not allocate.
        let this = Self { max_ranges: crate::limits::max_map_count().unwrap_or(0) };
        let layout = views.layout();
        for view in 0..layout.views {
            this.set(views, layout.view_range(view).start, layout.bytes, Access::None)?;
        }
        Ok(this)
    }

    pub(super) fn set(
        &self,
        views: &MultiView,
        address: usize,
        bytes: usize,
        to: Access,
    ) -> Result<(), ProtectionError> {
        let rights = match to {
            Access::None => Rights::None,
            Access::Read => Rights::Read,
            Access::Write => Rights::ReadWrite,
        };
        views.protect(address..address + bytes, rights).map_err(|errno| match errno {
            Os::NOMEM => ProtectionError::TooManyRanges {
                limit: self.max_ranges,
                wanted: (self.max_ranges + 1).next_power_of_two() * 2,
            },
            errno => CallError::new("mprotect", address, bytes, errno).into(),
        })
    }
}
