//! Pins pages by registering them.

use std::collections::HashMap;
use std::sync::Arc;

use mapwire_host::pinning::{PinError, Pinner};
use mapwire_translation::{Frame, PAGE_SHIFT, PageRange};
use rustix::io::Errno;

use super::region::{Access, Region, Registrar};
use crate::ofi::OfiError;
use crate::ofi::rma::RemoteRights;

/// A pinned page: its run's region, and where in it the page lies.
#[derive(Clone, Debug)]
struct Pinned {
    region: Arc<Region>,
    offset: usize,
}

/// Pins with fi_mr_reg, a region for each run of pages that is pinned at once. A frame is the page's number. A run's region is closed
/// when the last of its pages is given back.
#[derive(Debug)]
pub struct OfiPinner {
    registrar: Registrar,
    pinned: HashMap<u64, Pinned>,
}

impl OfiPinner {
    /// A pinner for operations of one endpoint.
    ///
    /// # Safety
    /// Pages that are pinned stay mapped for stores until they are unpinned, and nobody assumes anything of the values of bytes that an
    /// operation reads into.
    #[must_use]
    pub unsafe fn new(registrar: Registrar) -> Self {
        Self { registrar, pinned: HashMap::new() }
    }

    /// The region of a pinned page, and where in it the page starts: what [`LocalPiece`](crate::ofi::rma::LocalPiece) takes.
    #[must_use]
    pub fn region_of(&self, frame: Frame) -> Option<(&Arc<Region>, usize)> {
        let pinned = self.pinned.get(&frame.0)?;
        Some((&pinned.region, pinned.offset))
    }
}

impl Pinner for OfiPinner {
    fn pin(&mut self, pages: PageRange, frames: &mut [Frame]) -> Result<(), PinError> {
        check_count(pages, frames)?;
        if pages.count == 0 {
            return Ok(());
        }
        let address = (pages.first.0 << PAGE_SHIFT) as usize;
        let bytes = frames.len() << PAGE_SHIFT;
        // A provider without hardware does not look at the memory.
        let mapped = mapwire_host::memory::memory_is_mapped;
        if !mapped(address, bytes)
            && let Some(page) = pages.iter().find(|page| !mapped((page.0 << PAGE_SHIFT) as usize, 1))
        {
            return Err(PinError::NotMapped { pages, page });
        }
        // SAFETY: the promise of `new`.
        let region = unsafe {
            let address = core::ptr::with_exposed_provenance_mut(address);
            self.registrar.register_for(address, bytes, Access::Peers(RemoteRights::NONE))
        };
        let region = Arc::new(region.map_err(|error| refused(pages, &error))?);
        for (index, (frame, page)) in frames.iter_mut().zip(pages).enumerate() {
            *frame = Frame(page.0);
            let pinned = Pinned { region: Arc::clone(&region), offset: index << PAGE_SHIFT };
            self.pinned.insert(page.0, pinned);
        }
        Ok(())
    }

    fn unpin(&mut self, pages: PageRange, frames: &[Frame]) -> Result<(), PinError> {
        check_count(pages, frames)?;
        let wrong =
            pages.iter().zip(frames).find(|(page, frame)| page.0 != frame.0 || !self.pinned.contains_key(&page.0));
        if let Some((page, &frame)) = wrong {
            return Err(PinError::NotPinned { page, frame });
        }
        for frame in frames {
            self.pinned.remove(&frame.0);
        }
        Ok(())
    }

    fn address_of(&self, frame: Frame) -> Option<*mut u8> {
        self.pinned
            .contains_key(&frame.0)
            .then(|| core::ptr::with_exposed_provenance_mut((frame.0 << PAGE_SHIFT) as usize))
    }

    fn limit_pages(&self) -> Option<u64> {
        None
    }

    fn pinned_pages(&self) -> u64 {
        self.pinned.len() as u64
    }

    fn name(&self) -> &'static str {
        "libfabric"
    }
}

fn check_count(pages: PageRange, frames: &[Frame]) -> Result<(), PinError> {
    let count = frames.len();
    (count as u64 == pages.count).then_some(()).ok_or(PinError::FrameCount { pages, frames: count })
}

#[cold]
fn refused(pages: PageRange, error: &OfiError) -> PinError {
    let number = match error {
        OfiError::Call { code, .. } => *code,
        _ => libc::EIO,
    };
    PinError::System { call: "fi_mr_reg", pages, errno: Errno::from_raw_os_error(number).into() }
}
