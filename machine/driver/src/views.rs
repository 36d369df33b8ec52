//! The views of shared memory that the program sees: what it may do with each of their pages.

use std::sync::Arc;

use mapwire_host::faults::{Access, PageProtection, ProtectionError};
use mapwire_host::views::MultiView;
use mapwire_translation::PAGE_BYTES;
use mapwire_vmmc::service::{Access as Wish, Region};

/// See [the module](self).
#[derive(Debug)]
pub(crate) struct ViewPages {
    views: Arc<MultiView>,
    protection: PageProtection,
    /// What the program may do now, by view and first page of a region: zeroed memory, which the operating system supplies as it is used.
    access: Vec<u8>,
}

impl ViewPages {
    pub(crate) fn new(views: Arc<MultiView>, protection: PageProtection) -> Self {
        let entries = views.layout().views * views.layout().pages();
        Self { views, protection, access: vec![0; entries] }
    }

    pub(crate) fn views(&self) -> &Arc<MultiView> {
        &self.views
    }

    /// Gives the program an access to the pages of a region.
    #[inline]
    pub(crate) fn protect(&mut self, region: &Region, to: Wish) -> Result<(), ProtectionError> {
        let view = usize::from(region.view);
        let page_bytes = PAGE_BYTES as u64;
        let first = (region.offset / page_bytes) as usize;
        let pages = (region.offset + region.bytes).div_ceil(page_bytes) as usize - first;
        let to = match to {
            Wish::None => Access::None,
            Wish::Read => Access::Read,
            Wish::Write => Access::Write,
        };
        let Some(now) = self.access.get_mut(view * self.views.layout().pages() + first) else {
            return Ok(());
        };
        let from = match *now {
            0 => Access::None,
            1 => Access::Read,
            _ => Access::Write,
        };
        *now = to as u8;
        self.protection.set(view, first, pages, from, to)
    }

    pub(crate) fn reopen(&mut self, view: u16, page: u64, access: Access) -> Result<(), ProtectionError> {
        self.protection.set(usize::from(view), page as usize, 1, access, access)
    }
}
