//! Exports: memory that other nodes may store into and fetch from (VMMC §2; UTLB §4.1).

use core::ops::{Deref, DerefMut};

use alloc::vec::Vec;

use mapwire_wire::{ExportId, Key, NodeId, ProcessId, Refusal, Rights};

use crate::slots::{Ending, Named, Slots};

/// Another buffer of the same process, which receives what arrives for an export (UTLB §4.1, transfer redirection).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landing {
    /// First address of the buffer.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A range of a process's memory that is offered to others.
#[derive(Clone, Copy, Debug)]
pub struct Export {
    /// Process that owns the memory.
    pub process: ProcessId,
    /// Key that a packet must show: 128 bits from the operating system's entropy, known to the exporter and its importers.
    pub key: Key,
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// What importers may do.
    pub rights: Rights,
    /// While redirected, the buffer that stores and fetches use instead of the range.
    pub landing: Option<Landing>,
}

impl Export {
    /// The virtual address of `length` bytes at `offset`, or the reason of a refusal. A landing longer than the export is usable
    /// up to the export's length.
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

/// The exports of a NIC, and which nodes were granted them.
#[derive(Debug)]
pub(crate) struct Exports {
    slots: Slots<Export>,
    /// Rights granted, by slot of the export, then by node. An export without grants is open to whoever shows its key, which has
    /// then been told to nobody.
    grants: Vec<Vec<u8>>,
}

impl Deref for Exports {
    type Target = Slots<Export>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.slots
    }
}

impl DerefMut for Exports {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.slots
    }
}

impl Exports {
    pub(crate) fn new() -> Self {
        Self { slots: Slots::new(Ending::Retired), grants: Vec::new() }
    }

    pub(crate) fn insert(&mut self, export: Export) -> Option<u32> {
        let id = self.slots.insert(export)?;
        // Drops the grants of the slot's former export.
        if let Some(grants) = self.grants.get_mut(Slots::<Export>::place(id)) {
            *grants = Vec::new();
        }
        Some(id)
    }

    /// Bytes by which a grant to `node` makes this grow.
    pub(crate) fn grant_bytes(&self, id: ExportId, node: NodeId) -> usize {
        let grants = self.grants.get(Slots::<Export>::place(id.0));
        let length = grants.map_or(0, Vec::len);
        (usize::from(node.0) + 1).saturating_sub(length)
    }

    /// Adds `rights` to those that `node` has on an export. False if there is no such export.
    pub(crate) fn grant(&mut self, id: ExportId, node: NodeId, rights: Rights) -> bool {
        if self.slots.get(id.0).is_none() {
            return false;
        }
        let (place, node) = (Slots::<Export>::place(id.0), usize::from(node.0));
        if self.grants.len() <= place {
            self.grants.resize_with(place + 1, Vec::new);
        }
        let grants = &mut self.grants[place];
        if grants.len() <= node {
            grants.resize(node + 1, 0);
        }
        grants[node] |= rights.bits() as u8;
        true
    }

    /// Drops the grants of a node that is gone: its successor starts with none.
    pub(crate) fn forget_node(&mut self, node: NodeId) {
        let of_it = |grants: &mut Vec<u8>| grants.get_mut(usize::from(node.0)).map(|rights| *rights = 0);
        self.grants.iter_mut().filter_map(of_it).for_each(drop);
    }

    /// Bytes of NIC memory in use.
    pub(crate) fn bytes(&self) -> usize {
        let grants = self.grants.iter().map(Vec::capacity).sum::<usize>();
        self.slots.bytes() + grants + self.grants.capacity() * size_of::<Vec<u8>>()
    }

    /// The rights granted to `node`; all if nobody was granted any.
    #[inline]
    fn granted(&self, id: ExportId, node: NodeId) -> Rights {
        match self.grants.get(Slots::<Export>::place(id.0)) {
            Some(grants) if !grants.is_empty() => {
                let bits = grants.get(usize::from(node.0)).copied();
                Rights::from_bits(bits.unwrap_or(0).into()).unwrap_or(Rights::NONE)
            }
            _ => Rights::ALL,
        }
    }

    /// The export `id`, provided that `key` is its key, it allows `right`, and `node` was granted that right. Every packet that
    /// asks for an export passes through here.
    #[inline]
    pub(crate) fn authenticate(
        &self,
        node: NodeId,
        id: ExportId,
        key: &Key,
        right: Rights,
    ) -> Result<&Export, Refusal> {
        match self.slots.named(id.0) {
            Named::Entry(export) => {
                if export.key != *key {
                    Err(Refusal::WrongKey)
                } else if !export.rights.contains(right) {
                    Err(Refusal::NoRight)
                } else if !self.granted(id, node).contains(right) {
                    // The packet shows the key of another export.
                    Err(Refusal::NotPermitted)
                } else {
                    Ok(export)
                }
            }
            Named::Gone => Err(Refusal::Revoked),
            Named::Unknown => Err(Refusal::UnknownExport),
        }
    }
}
