//! The limit of a fault of the shared memory: a fault and a protection change on this computer alone, which no protocol can undercut.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mapwire::Shared;
use mapwire_host::faults::{Access, FaultInfo, FaultKind, PageProtection, Resolution, Watch, watch};
use mapwire_host::views::{MultiView, ViewLayout};
use mapwire_translation::PAGE_BYTES;

use super::MINIPAGES;
use crate::BenchError;
use crate::measure::{median, timed_us};

/// Pages that [`open_page`] opens.
pub(super) struct RawFault {
    protection: PageProtection,
    _watch: Watch,
}

static RAW: AtomicUsize = AtomicUsize::new(0);

fn open_page(info: &FaultInfo) -> Resolution {
    // SAFETY: `RawFault` keeps the protection, boxed, until its watch is dropped, which waits for handlers.
    let protection = unsafe { &*(RAW.load(Ordering::Acquire) as *const PageProtection) };
    let Some((view, offset)) = protection.views().locate(info.address) else {
        return Resolution::Refuse;
    };
    let (from, to) = match info.kind {
        FaultKind::Write => (Access::Read, Access::Write),
        _ => (Access::None, Access::Read),
    };
    match protection.set(view, offset / PAGE_BYTES, 1, from, to) {
        Ok(()) => Resolution::Retry,
        Err(_) => Resolution::Refuse,
    }
}

impl RawFault {
    pub(super) fn new(shared: &Shared) -> Result<Box<Self>, BenchError> {
        // Far above the shared memory.
        let layout = ViewLayout::new(0x5000_0000_0000, MINIPAGES * PAGE_BYTES, 1)?;
        let views = Arc::new(MultiView::new("bench-faults", layout)?);
        let backend =
            shared.faults().ok_or("the raw fault is compared with those of a protocol: --coherence minipages")?;
        let protection = PageProtection::new(backend, views)?;
        let watched = watch(layout.views_range(), backend.signal(), 0, open_page)?;
        let raw = Box::new(Self { protection, _watch: watched });
        RAW.store(std::ptr::from_ref(&raw.protection) as usize, Ordering::Release);
        Ok(raw)
    }

    /// Microseconds of a load fault, of a store fault after it, and of what the owner of a page does for a reader (bars
    /// stores) and for a writer (closes it, from `held` on).
    pub(super) fn costs(&self, held: Access) -> Result<[f64; 4], BenchError> {
        let at = |page: usize| self.protection.views().application(0, page * PAGE_BYTES).cast::<u64>();
        let mut times: [Vec<f64>; 4] = Default::default();
        for page in 0..MINIPAGES {
            // SAFETY: mapped and aligned; `open_page` opens it.
            times[0].push(timed_us(|| unsafe {
                black_box(at(page).read_volatile());
            }));
        }
        for page in 0..MINIPAGES {
            // SAFETY: as above.
            times[1].push(timed_us(|| unsafe { at(page).write_volatile(1) }));
        }
        for page in 0..MINIPAGES {
            let set = |from, to| self.protection.set(0, page, 1, from, to);
            let mut outcome = Ok(());
            times[2].push(timed_us(|| outcome = set(Access::Write, Access::Read)));
            outcome?;
            set(Access::Read, held)?;
            times[3].push(timed_us(|| outcome = set(held, Access::None)));
            outcome?;
        }
        Ok(times.map(|mut times| median(&mut times)))
    }
}
