//! Synchronisation objects anywhere in the memory.

use std::sync::Arc;

use mapwire_segment::sync::SyncError;

use super::{Shared, SharedError};
use crate::error::Error;
use crate::sync::Objects;

impl Shared {
    /// Mutexes, conditions, semaphores, queues and other objects anywhere in the memory, used by all threads of all ranks, and where the
    /// processor keeps the memory coherent, by forked children.
    #[must_use]
    pub fn objects(&self) -> &Arc<Objects> {
        &self.inner.objects
    }
}

impl From<SyncError> for Error {
    fn from(error: SyncError) -> Self {
        SharedError::from(error).into()
    }
}
