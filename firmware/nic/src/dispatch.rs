//! The handler dispatch table: the ids of handlers whose packets are delivered to the host. Others are rejected.

use alloc::vec::Vec;

use mapwire_wire::HandlerId;

use crate::error::NicError;

/// Whether each id has a handler. Ids are small, so that dispatch is one index.
#[derive(Debug, Default)]
pub(crate) struct Dispatch(Vec<bool>);

/// Size of the table: ids are smaller.
pub(crate) const MAX_HANDLERS: usize = 256;

impl Dispatch {
    pub(crate) fn install(&mut self, id: HandlerId) -> Result<(), NicError> {
        let index = id.0 as usize;
        if index >= MAX_HANDLERS {
            return Err(NicError::TableFull { what: "handler", limit: MAX_HANDLERS });
        }
        if self.0.len() <= index {
            self.0.reserve_exact(index + 1 - self.0.len());
            self.0.resize(index + 1, false);
        }
        match core::mem::replace(&mut self.0[index], true) {
            true => Err(NicError::HandlerTaken(id)),
            false => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn has(&self, id: HandlerId) -> bool {
        self.0.get(id.0 as usize).is_some_and(|&is_installed| is_installed)
    }

    /// Bytes by which the table grows with handler `id`.
    pub(crate) fn growth_bytes(&self, id: HandlerId) -> usize {
        let places = (id.0 as usize).saturating_add(1).min(MAX_HANDLERS);
        places.saturating_sub(self.0.capacity())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.capacity()
    }
}
