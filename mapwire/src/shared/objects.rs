//! Synchronisation objects anywhere in the memory.

use std::sync::Arc;

use mapwire_segment::sync::{Objects, SyncError};

use super::{Memory, Shared, SharedError};
use crate::error::Error;

impl Shared {
    /// Mutexes, conditions, semaphores, queues and other objects anywhere in the memory; `None` unless the processor keeps it coherent.
    /// They are used by all threads of all ranks, and by forked children.
    #[must_use]
    pub fn objects(&self) -> Option<&Arc<Objects>> {
        match &self.inner.memory {
            Memory::OneHost(memory) => Some(memory.objects()),
            Memory::Protocol(_) => None,
        }
    }
}

impl From<SyncError> for Error {
    fn from(error: SyncError) -> Self {
        SharedError::from(error).into()
    }
}
