//! Maps a session's index to its node: a table with open addressing. Indexes are random, and are their own hash.

use alloc::vec;
use alloc::vec::Vec;

use mapwire_wire::NodeId;

/// Initial number of entries; a power of two.
const LEAST_ENTRIES: usize = 16;

/// A session's index, not 0, and its node; index 0 is an empty entry.
type Entry = (u32, NodeId);
const EMPTY: Entry = (0, NodeId(0));

pub(crate) struct Indexes {
    entries: Vec<Entry>,
    used: usize,
}

impl Indexes {
    pub(crate) fn new() -> Self {
        Self { entries: vec![EMPTY; LEAST_ENTRIES], used: 0 }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.used
    }

    /// The node of the session `index`.
    #[inline]
    pub(crate) fn node(&self, index: u32) -> Option<NodeId> {
        let (found, node) = self.entries[self.find(index)];
        (found == index && index != 0).then_some(node)
    }

    /// Draws a free index, and assigns it to `node`.
    pub(crate) fn draw(&mut self, node: NodeId, entropy: &mut dyn FnMut(&mut [u8])) -> u32 {
        if (self.used + 1) * 2 > self.entries.len() {
            let entries = vec![EMPTY; self.entries.len() * 2];
            for entry in core::mem::replace(&mut self.entries, entries) {
                if entry.0 != 0 {
                    let at = self.find(entry.0);
                    self.entries[at] = entry;
                }
            }
        }
        let mut bytes = [0; 4];
        entropy(&mut bytes);
        let mut index = u32::from_le_bytes(bytes);
        while index == 0 || self.node(index).is_some() {
            index = index.wrapping_add(1);
        }
        let at = self.find(index);
        self.entries[at] = (index, node);
        self.used += 1;
        index
    }

    /// Frees `index`; later entries move up, so that each stays reachable (Knuth, vol. 3, 6.4 R).
    pub(crate) fn free(&mut self, index: u32) {
        let mask = self.entries.len() - 1;
        let mut hole = self.find(index);
        if index == 0 || self.entries[hole].0 != index {
            return;
        }
        self.used -= 1;
        let mut at = hole;
        loop {
            self.entries[hole] = EMPTY;
            loop {
                at = (at + 1) & mask;
                let (found, _) = self.entries[at];
                if found == 0 {
                    return;
                }
                let home = found as usize & mask;
                // It may move unless its home lies behind the hole.
                if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                    break;
                }
            }
            self.entries[hole] = self.entries[at];
            hole = at;
        }
    }

    /// The entry of `index`, or the empty one where it would go.
    #[inline]
    fn find(&self, index: u32) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = index as usize & mask;
        loop {
            let (found, _) = self.entries[at];
            if found == index || found == 0 {
                return at;
            }
            at = (at + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_table_agrees_with_a_map_also_where_indexes_collide(
            steps in proptest::collection::vec((any::<bool>(), 0u32..64, 0u32..4), 1..300)
        ) {
            let (mut table, mut map) = (Indexes::new(), BTreeMap::new());
            for (draw, low, high) in steps {
                let wanted = low | high << 20;
                if draw {
                    let node = NodeId(low as u16);
                    let mut entropy = |bytes: &mut [u8]| bytes.copy_from_slice(&wanted.to_le_bytes());
                    let index = table.draw(node, &mut entropy);
                    prop_assert!(index != 0 && map.insert(index, node).is_none());
                } else {
                    table.free(wanted);
                    map.remove(&wanted);
                }
                prop_assert_eq!(table.len(), map.len());
                for index in (0..66).flat_map(|low| (0..4).map(move |high| low | high << 20)) {
                    prop_assert_eq!(table.node(index), map.get(&index).copied());
                }
            }
        }
    }
}
