//! Lets the thread that faults serve itself, in a SIGBUS handler.

use std::sync::Arc;

use super::core::Core;
use super::error::PagerError;
use super::serve::Served;
use crate::faults::{FaultInfo, FaultKind, FaultSignal, Resolution, Watch, watch};

/// Serves the faults of a range until this is dropped.
#[derive(Debug)]
pub(super) struct SelfService {
    /// Dropped before `core`: the handler uses it.
    _watch: Watch,
    _core: Arc<Core>,
}

impl SelfService {
    pub(super) fn start(
        core: &Arc<Core>,
        range: core::ops::Range<usize>,
    ) -> Result<Self, PagerError> {
        let context = Arc::as_ptr(core).expose_provenance();
        Ok(Self {
            _watch: watch(range, FaultSignal::Bus, context, serve)?,
            _core: Arc::clone(core),
        })
    }
}

fn serve(fault: &FaultInfo) -> Resolution {
    // SAFETY: the context is the `Core` of a `SelfService`, which keeps it until its watch is dropped; that waits for handlers
    // that run.
    let core = unsafe { &*core::ptr::with_exposed_provenance::<Core>(fault.context) };
    match core.serve(fault.address, fault.kind == FaultKind::Write, true) {
        Served::Retry | Served::Later => Resolution::Retry,
        Served::Refused => Resolution::Refuse,
    }
}
