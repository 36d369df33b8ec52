//! Memory of this process that a transfer uses, and what follows its bytes.

use mapwire_host::faults::touch;
use mapwire_host::memory::raw::Source;
use mapwire_wire::{Rights, SHORT_BYTES, SHORT_SIGNAL_BYTES, Signal, TraceOp};

use crate::error::Result;

/// The memory on this side of a transfer.
pub(super) enum Memory<'a> {
    /// Stored into the export.
    From(Source<'a>),
    /// Filled from the export.
    Into(&'a mut [u8]),
}

impl Memory<'_> {
    #[inline]
    pub(super) fn bytes(&self) -> Source<'_> {
        match self {
            Self::From(data) => *data,
            Self::Into(into) => (&**into).into(),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes().len()
    }

    #[inline]
    pub(super) fn is_stored(&self) -> bool {
        matches!(self, Self::From(_))
    }

    pub(super) fn right(&self) -> Rights {
        if self.is_stored() { Rights::STORE } else { Rights::FETCH }
    }

    pub(super) fn op(&self) -> TraceOp {
        if self.is_stored() { TraceOp::Send } else { TraceOp::Fetch }
    }

    /// Address and length, for a command.
    pub(super) fn range(&mut self) -> (u64, u64) {
        match self {
            Self::From(data) => (data.as_ptr() as u64, data.len() as u64),
            Self::Into(into) => (into.as_mut_ptr() as u64, into.len() as u64),
        }
    }

    /// Bytes that a failed transfer may have stored at most.
    pub(super) fn stored_bytes(&self) -> u64 {
        if self.is_stored() { self.len() as u64 } else { 0 }
    }

    /// Finds out whether the memory is there: an error here is one address, a fault in the driver would be the end of the process.
    pub(super) fn touch(&mut self) -> Result<()> {
        let (address, length) = self.range();
        Ok(touch(address as usize, length as usize, !self.is_stored())?)
    }

    /// Copies what is stored to `buffer`.
    pub(super) fn gather(&self, buffer: &mut [u8]) {
        if let Self::From(data) = self {
            data.copy_to_slice(buffer);
        }
    }

    /// Fills what is filled from `buffer`.
    pub(super) fn scatter(&mut self, buffer: &[u8]) {
        if let Self::Into(into) = self {
            into.copy_from_slice(buffer);
        }
    }

    /// `buffer`, used as this is.
    pub(super) fn in_place_of<'b>(&self, buffer: &'b mut [u8]) -> Memory<'b> {
        match self {
            Self::From(_) => Memory::From((&*buffer).into()),
            Self::Into(_) => Memory::Into(buffer),
        }
    }

    /// The first `length` bytes, and the rest.
    pub(super) fn split(self, length: usize) -> (Self, Self) {
        match self {
            Self::From(data) => (Self::From(data.part(0, length)), Self::From(data.part(length, data.len() - length))),
            Self::Into(into) => {
                let (first, rest) = into.split_at_mut(length);
                (Self::Into(first), Self::Into(rest))
            }
        }
    }
}

/// What follows the bytes of a store, once they are in place.
#[derive(Clone, Copy)]
pub(super) enum Then {
    Nothing,
    /// The exporter's notification handler runs.
    Notify,
    Signal(Signal),
}

impl Then {
    /// Bytes that a command can carry besides.
    #[inline]
    pub(super) fn short_bytes(self) -> usize {
        if matches!(self, Self::Signal(_)) { SHORT_SIGNAL_BYTES } else { SHORT_BYTES }
    }

    pub(super) fn is_notify(self) -> bool {
        matches!(self, Self::Notify)
    }

    pub(super) fn signal(self) -> Option<Signal> {
        if let Self::Signal(signal) = self { Some(signal) } else { None }
    }
}
