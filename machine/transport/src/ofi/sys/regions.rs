//! What is open in a domain.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::abi::*;

/// The endpoint of a domain, and its registered regions.
#[derive(Default)]
pub(super) struct Regions(Mutex<Registered>);

#[derive(Default)]
pub(super) struct Registered {
    /// Of this domain; none once it is closed.
    pub(super) endpoint: Option<EpPointer>,
    pub(super) regions: Vec<Option<MrPointer>>,
}

pub(super) struct EpPointer(pub(super) *mut FidEp);
pub(super) struct MrPointer(pub(super) *mut FidMr);

// SAFETY: the domain is opened with FI_THREAD_SAFE; the pointers are used under the lock.
unsafe impl Send for EpPointer {}
// SAFETY: as above.
unsafe impl Send for MrPointer {}

impl Regions {
    pub(super) fn lock(&self) -> MutexGuard<'_, Registered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The domain's endpoint is open.
    pub(super) fn open(&self, endpoint: *mut FidEp) {
        self.lock().endpoint = Some(EpPointer(endpoint));
    }

    /// Closes all regions: the endpoint is about to be closed, and regions may be bound to it.
    pub(super) fn close(&self) {
        let mut open = self.lock();
        open.endpoint = None;
        for region in open.regions.drain(..).flatten() {
            // SAFETY: open until here, and nobody finds it any more.
            unsafe { close(region.0.cast()) };
        }
    }
}

/// Closes anything that begins with a `Fid`, and says whether it is closed now.
///
/// # Safety
/// `fid` is null, or was opened and nobody uses it any more.
pub(super) unsafe fn close(fid: *mut Fid) -> bool {
    if fid.is_null() {
        return true;
    }
    // SAFETY: what is open has its table; the rest is this function's contract.
    unsafe { (*(*fid).ops).close.is_some_and(|close| close(fid) == 0) }
}
