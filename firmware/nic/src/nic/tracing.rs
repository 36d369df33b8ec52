//! Translations of the NIC, in order, for traces.

use alloc::collections::VecDeque;

use mapwire_translation::TranslationDesign;
use mapwire_wire::{ProcessId, TraceOp};

use super::Nic;
use crate::actions::Traced;
use crate::nic::cutting::Path;

impl<D: TranslationDesign> Nic<D> {
    /// Starts or stops recording translations. Drain [`poll_traced`](Self::poll_traced) after each call: the record grows without
    /// bound.
    pub fn set_tracing(&mut self, on: bool) {
        self.traced = on.then(VecDeque::new);
    }

    /// The oldest recorded translation. A transfer that had to wait for the host is recorded when it went on.
    #[inline]
    pub fn poll_traced(&mut self) -> Option<Traced> {
        self.traced.as_mut()?.pop_front()
    }

    #[cold]
    pub(crate) fn trace(&mut self, process: ProcessId, address: u64, length: u32, path: Path) {
        let op = match path {
            Path::Send => TraceOp::Send,
            Path::Fetch => TraceOp::Fetch,
            Path::Receive => TraceOp::Receive,
        };
        if let Some(traced) = &mut self.traced {
            traced.push_back(Traced { op, process, address, length });
        }
    }
}
