//! The handler dispatch table: a packet's handler id selects delivery to the host, or a handler that runs here on the NIC
//! (the shape that GMS-NP's directory operations need).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use mapwire_wire::{Endpoint, HandlerId};

use crate::error::NicError;

/// Sends messages of a handler on the NIC to handlers of other nodes.
pub trait Outbox {
    /// Sends `payload`, at most [`mapwire_wire::SHORT_BYTES`], to `handler` of `to`, in the name of the process that was asked.
    /// False if it is too long, if the node does not exist or is gone, or if 64 packets wait for it already: a peer that asks
    /// without taking answers gets no more of them.
    fn send(&mut self, to: Endpoint, handler: HandlerId, payload: &[u8]) -> bool;
}

/// A handler that runs on the NIC.
pub trait NicHandler: Send {
    /// Handles a message of `from`. Its contents were written by another process and must be checked.
    fn handle(&mut self, from: Endpoint, payload: &[u8], outbox: &mut dyn Outbox);
}

/// Receiver of a handler's packets.
pub enum HandlerTarget {
    /// The host: the driver gets a [`crate::Completion::Message`].
    Host,
    /// The NIC itself.
    Nic(Box<dyn NicHandler>),
}

impl fmt::Debug for HandlerTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "Host",
            Self::Nic(_) => "Nic",
        })
    }
}

/// Handlers by id. Ids are small, so dispatch is one index.
#[derive(Debug, Default)]
pub(crate) struct Dispatch(Vec<Option<HandlerTarget>>);

/// Size of the table: ids are smaller.
pub(crate) const MAX_HANDLERS: usize = 256;

impl Dispatch {
    pub(crate) fn install(&mut self, id: HandlerId, target: HandlerTarget) -> Result<(), NicError> {
        let index = id.0 as usize;
        if index >= MAX_HANDLERS {
            return Err(NicError::TableFull { what: "handler", limit: MAX_HANDLERS });
        }
        if self.0.len() <= index {
            self.0.reserve_exact(index + 1 - self.0.len());
            self.0.resize_with(index + 1, || None);
        }
        match &mut self.0[index] {
            Some(_) => Err(NicError::HandlerTaken(id)),
            slot => {
                *slot = Some(target);
                Ok(())
            }
        }
    }

    #[inline]
    pub(crate) fn get(&mut self, id: HandlerId) -> Option<&mut HandlerTarget> {
        self.0.get_mut(id.0 as usize)?.as_mut()
    }

    /// Bytes by which the table grows with handler `id`.
    pub(crate) fn growth_bytes(&self, id: HandlerId) -> usize {
        let places = (id.0 as usize).saturating_add(1).min(MAX_HANDLERS);
        places.saturating_sub(self.0.capacity()) * size_of::<Option<HandlerTarget>>()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Option<HandlerTarget>>()
    }
}
