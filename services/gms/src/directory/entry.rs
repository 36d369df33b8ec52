//! An entry of the directory in bytes.

use mapwire_wire::NodeId;

use crate::name::PageName;

/// Bytes of an entry (GMS-NP §4.4).
pub const ENTRY_BYTES: usize = 32;
/// Copies of a page that an entry lists.
pub const MAX_COPIES: usize = 4;

/// What the directory knows of a page: who stores copies of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    name: PageName,
    copies: [u16; MAX_COPIES],
    count: u8,
    version: u32,
}

impl Entry {
    /// An entry without copies.
    #[must_use]
    pub const fn new(name: PageName, version: u32) -> Self {
        Self { name, copies: [0; MAX_COPIES], count: 0, version }
    }

    #[must_use]
    pub const fn name(&self) -> PageName {
        self.name
    }

    /// The version of the page that all copies have.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The nodes that store a copy.
    pub fn copies(&self) -> impl ExactSizeIterator<Item = NodeId> + '_ {
        self.copies[..usize::from(self.count)].iter().map(|&node| NodeId(node))
    }

    /// Adds a copy. False if there is no room for it.
    #[must_use]
    pub fn add(&mut self, node: NodeId) -> bool {
        if self.copies().any(|copy| copy == node) {
            return true;
        }
        match self.copies.get_mut(usize::from(self.count)) {
            None => false,
            Some(slot) => {
                *slot = node.0;
                self.count += 1;
                true
            }
        }
    }

    /// Takes a copy out. False if it was not there.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let Some(at) = self.copies().position(|copy| copy == node) else { return false };
        self.count -= 1;
        let last = usize::from(self.count);
        self.copies[at] = self.copies[last];
        self.copies[last] = 0;
        true
    }

    /// Writes the entry: name, copies, version, count, a byte of 0, and two bytes that belong to the row.
    pub(super) fn to_bytes(self, link: u16) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.name.space.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.name.page.to_le_bytes());
        for (to, copy) in bytes[16..24].chunks_exact_mut(2).zip(self.copies) {
            to.copy_from_slice(&copy.to_le_bytes());
        }
        bytes[24..28].copy_from_slice(&self.version.to_le_bytes());
        bytes[28] = self.count;
        bytes[30..].copy_from_slice(&link.to_le_bytes());
        bytes
    }

    /// Reads an entry; `None` if the place is empty.
    pub(super) fn from_bytes(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| bytes[at + byte]));
        let copy = |at: usize| u16::from_le_bytes([bytes[16 + 2 * at], bytes[17 + 2 * at]]);
        let count = bytes[28].min(MAX_COPIES as u8);
        (count > 0).then(|| Self {
            name: PageName { space: word(0), page: word(8) },
            copies: core::array::from_fn(copy),
            count,
            version: u32::from_le_bytes(core::array::from_fn(|byte| bytes[24 + byte])),
        })
    }

    /// The row's two bytes.
    pub(super) fn link_of(bytes: &[u8; ENTRY_BYTES]) -> u16 {
        u16::from_le_bytes([bytes[30], bytes[31]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let mut entry = Entry::new(PageName { space: 1, page: 2 }, 3);
        assert_eq!(Entry::from_bytes(&entry.to_bytes(9)), None, "it is empty");
        for node in [5, 6, 7, 8] {
            assert!(entry.add(NodeId(node)));
        }
        assert!(entry.add(NodeId(5)) && !entry.add(NodeId(9)));
        assert!(entry.remove(NodeId(6)) && !entry.remove(NodeId(6)));
        assert_eq!(entry.copies().len(), 3);
        let bytes = entry.to_bytes(0xABCD);
        assert_eq!(Entry::from_bytes(&bytes), Some(entry));
        assert_eq!(Entry::link_of(&bytes), 0xABCD);
    }
}
