//! Exports: what other nodes may store into and fetch from (VMMC §2; UTLB §4.1).

use core::ops::{Deref, DerefMut};

use mapwire_wire::{ExportId, Key, ProcessId, Refusal, Rights};

use crate::slots::{Ending, Named, Slots};

/// Another buffer of the same process, where what arrives for an export lands (UTLB §4.1, transfer redirection).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landing {
    /// Its first address.
    pub address: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// A range of a process's memory that is offered to others.
#[derive(Clone, Copy, Debug)]
pub struct Export {
    /// Whose memory.
    pub process: ProcessId,
    /// What a packet must show: 128 bits from the operating system's entropy, known to the exporter and its importers.
    pub key: Key,
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// What importers may do.
    pub rights: Rights,
    /// Where stores land and fetches read instead, while redirected: the new place stands for the export.
    pub landing: Option<Landing>,
}

impl Export {
    /// The virtual address of `length` bytes at `offset`, or why there is none. A landing that is longer than the export is open
    /// as far as the export goes.
    #[inline]
    pub(crate) fn address_of(&self, offset: u64, length: u64) -> Result<u64, Refusal> {
        let (address, bytes) = match self.landing {
            None => (self.address, self.length),
            Some(landing) => (landing.address, landing.length.min(self.length)),
        };
        match offset.checked_add(length) {
            // `address + bytes` was checked not to wrap when the export was made or redirected.
            Some(end) if end <= bytes => Ok(address + offset),
            _ => Err(Refusal::OutOfRange),
        }
    }
}

/// The exports of a NIC.
#[derive(Debug)]
pub(crate) struct Exports(Slots<Export>);

impl Deref for Exports {
    type Target = Slots<Export>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Exports {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Exports {
    pub(crate) fn new() -> Self {
        Self(Slots::new(Ending::Retired))
    }

    /// The export that `id` names, if `key` is its key and it gives `right`. Everything that a packet asks of an export
    /// passes through here.
    #[inline]
    pub(crate) fn authenticate(
        &self,
        id: ExportId,
        key: &Key,
        right: Rights,
    ) -> Result<&Export, Refusal> {
        match self.0.named(id.0) {
            Named::Entry(export) => {
                if export.key != *key {
                    Err(Refusal::WrongKey)
                } else if !export.rights.contains(right) {
                    Err(Refusal::NoRight)
                } else {
                    Ok(export)
                }
            }
            Named::Gone => Err(Refusal::Revoked),
            Named::Unknown => Err(Refusal::UnknownExport),
        }
    }
}
