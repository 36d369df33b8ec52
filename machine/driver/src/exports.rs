//! What a process asks to export.

use std::sync::{Arc, Mutex, PoisonError};

use mapwire_host::memory::{SharedBuffer, Writers};
use mapwire_host::views::MultiView;
use mapwire_vmmc::Importers;
use mapwire_wire::{HandlerId, MappedPart, Rights};

use crate::notices::NotificationHandler;

/// Memory that importers can map.
#[derive(Clone, Debug)]
pub enum DirectMemory {
    /// A buffer, or memory of the program that was adopted.
    Buffer(Arc<Mutex<SharedBuffer>>),
    /// The memory of a service, by way of its privileged view: for peers of the service, and never revoked while it is open.
    Views(HandlerId, Arc<MultiView>),
}

/// Whom an export with these rights lets store: who may not is kept out by the kernel.
#[must_use]
pub fn writers(rights: Rights) -> Writers {
    if rights.contains(Rights::STORE) { Writers::All } else { Writers::Present }
}

/// What a process asks to export.
pub struct ExportRequest {
    /// Under which name.
    pub name: String,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// What importers may do.
    pub rights: Rights,
    /// Who they may be.
    pub importers: Importers,
    /// What importers may map (the direct path): memory that lies in the range, all of it or its whole pages.
    pub direct: Option<DirectMemory>,
    /// Who is told of messages with a notification.
    pub handler: Option<NotificationHandler>,
}

impl ExportRequest {
    /// Which bytes of the range importers may map.
    pub(crate) fn mapped_part(&self) -> Option<MappedPart> {
        match self.direct.as_ref()? {
            DirectMemory::Buffer(buffer) => {
                let buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
                let first = buffer.as_ptr().addr() as u64;
                // Nothing, if the memory does not lie there.
                let offset = first.checked_sub(self.address)?;
                let bytes = (buffer.len() as u64).min(self.length.checked_sub(offset)?);
                (bytes > 0).then_some(MappedPart { offset, bytes })
            }
            DirectMemory::Views(..) => Some(MappedPart { offset: 0, bytes: self.length }),
        }
    }
}
