//! Sets of nodes.

use mapwire_wire::NodeId;

/// Nodes that may share a global memory: those numbered below this.
pub const MAX_NODES: u16 = 256;

pub(crate) const SET_BYTES: usize = MAX_NODES as usize / 8;

/// A set of nodes numbered below [`MAX_NODES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSet([u64; MAX_NODES as usize / 64]);

impl NodeSet {
    /// The set without nodes.
    pub const EMPTY: Self = Self([0; 4]);

    /// Whether a node is in the set.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        let word = self.0.get(usize::from(node.0 / 64));
        word.is_some_and(|word| word >> (node.0 % 64) & 1 == 1)
    }

    /// Adds a node. One beyond [`MAX_NODES`] is left out.
    pub fn insert(&mut self, node: NodeId) {
        if let Some(word) = self.0.get_mut(usize::from(node.0 / 64)) {
            *word |= 1 << (node.0 % 64);
        }
    }

    /// Takes a node out.
    pub fn remove(&mut self, node: NodeId) {
        if let Some(word) = self.0.get_mut(usize::from(node.0 / 64)) {
            *word &= !(1 << (node.0 % 64));
        }
    }

    /// Its nodes, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..).zip(self.0).flat_map(|(at, word)| {
            let mut left = word;
            core::iter::from_fn(move || {
                let bit = left.trailing_zeros() as u16;
                left &= left.checked_sub(1)?;
                Some(NodeId(at * 64 + bit))
            })
        })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// The nodes that are in this set or in the other.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    /// The nodes of this set that are not in the other.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    pub(crate) fn to_bytes(self) -> [u8; SET_BYTES] {
        let mut bytes = [0; SET_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; SET_BYTES]) -> Self {
        Self(core::array::from_fn(|at| {
            let word = core::array::from_fn(|byte| bytes[at * 8 + byte]);
            u64::from_le_bytes(word)
        }))
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        let mut set = Self::EMPTY;
        nodes.into_iter().for_each(|node| set.insert(node));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in_and_survives_its_encoding() {
        let nodes = [0, 1, 63, 64, 200, 255].map(NodeId);
        let mut set: NodeSet = nodes.into_iter().collect();
        assert!(set.iter().eq(nodes));
        assert_eq!(NodeSet::from_bytes(&set.to_bytes()), set);
        set.remove(NodeId(63));
        set.insert(NodeId(256));
        assert_eq!(set.len(), 5);
        assert!(!set.contains(NodeId(63)) && !set.contains(NodeId(256)));
        let one: NodeSet = [NodeId(0)].into_iter().collect();
        assert_eq!(set.minus(&one).len(), 4);
        assert_eq!(set.minus(&one).union(&one), set);
    }
}
