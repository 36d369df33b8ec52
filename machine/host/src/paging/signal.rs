//! Lets the faulting thread serve itself, in a SIGBUS handler.

use std::sync::Arc;

use super::error::PagerError;
use super::handler::Serves;
use crate::faults::uffd_paging::Event;
use crate::faults::{FaultInfo, FaultKind, FaultSignal, Resolution, Watch, watch};

/// Serves the faults of a range until this is dropped.
#[derive(Debug)]
pub(super) struct Watched<S> {
    /// Dropped before the server, which the handler uses.
    _watch: Watch,
    _server: Arc<S>,
}

impl<S: Serves> Watched<S> {
    pub(super) fn start(server: &Arc<S>, range: core::ops::Range<usize>) -> Result<Self, PagerError> {
        let context = Arc::as_ptr(server).expose_provenance();
        Ok(Self { _watch: watch(range, FaultSignal::Bus, context, serve::<S>)?, _server: Arc::clone(server) })
    }
}

fn serve<S: Serves>(fault: &FaultInfo) -> Resolution {
    // SAFETY: the context is the server of a `Watched<S>`, which keeps it until its watch is dropped; that waits for handlers that
    // run.
    let server = unsafe { &*core::ptr::with_exposed_provenance::<S>(fault.context) };
    let event = Event { address: fault.address, write: fault.kind == FaultKind::Write, thread: 0 };
    if server.serve(event, true) { Resolution::Retry } else { Resolution::Refuse }
}
