//! The map from pages to directory nodes: the small hash table replicated on every node (GMS-NP §2.2).

use alloc::boxed::Box;
use alloc::vec;

use mapwire_wire::NodeId;

use crate::name::{PageHash, mix};
use crate::nodes::{MAX_NODES, NodeSet};

/// Buckets of the map.
pub const BUCKETS: usize = 1024;

/// What a bucket holds when no node is a member.
const NOBODY: u16 = MAX_NODES;

/// A bucket of the map: all pages with the same top bits of their hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket(u16);

impl Bucket {
    /// Its number, below [`BUCKETS`].
    #[must_use]
    pub const fn number(self) -> usize {
        self.0 as usize
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..BUCKETS as u16).map(Self)
    }

    /// The bucket of a page.
    #[must_use]
    pub const fn of(hash: PageHash) -> Self {
        Self((hash.0 >> (u32::BITS - BUCKETS.ilog2())) as u16)
    }
}

/// Which version of the map: larger ones replace smaller ones. The same version is the same map everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapVersion(u64);

impl MapVersion {
    /// The version that every node begins with.
    pub const FIRST: Self = Self(0);

    /// A later version, which only `coordinator` makes: two coordinators never make the same one.
    #[must_use]
    pub(crate) const fn next(self, coordinator: NodeId) -> Self {
        Self(((self.0 >> 16) + 1) << 16 | coordinator.0 as u64)
    }

    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether a correct coordinator could have made it, with room for later ones.
    pub(crate) const fn is_plausible(self) -> bool {
        self.0 >> 62 == 0
    }
}

/// Each bucket's directory node. Every node computes the same map of the same members, by rendezvous hashing: a bucket moves only when
/// its node leaves, or to a node that joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    version: MapVersion,
    members: NodeSet,
    owners: Box<[u16]>,
}

impl Map {
    /// The map of these members.
    #[must_use]
    pub fn new(version: MapVersion, members: NodeSet) -> Self {
        let mut owners = vec![NOBODY; BUCKETS].into_boxed_slice();
        for (bucket, owner) in owners.iter_mut().enumerate() {
            let score = |node: &NodeId| mix(mix(bucket as u64) ^ u64::from(node.0));
            if let Some(best) = members.iter().max_by_key(score) {
                *owner = best.0;
            }
        }
        Self { version, members, owners }
    }

    #[must_use]
    pub fn version(&self) -> MapVersion {
        self.version
    }

    #[must_use]
    pub fn members(&self) -> &NodeSet {
        &self.members
    }

    /// The directory node of a bucket; `None` without members.
    #[must_use]
    pub fn owner(&self, bucket: Bucket) -> Option<NodeId> {
        let owner = self.owners[usize::from(bucket.0)];
        (owner != NOBODY).then_some(NodeId(owner))
    }

    /// The directory node of a page; `None` without members.
    #[must_use]
    pub fn directory_node(&self, hash: PageHash) -> Option<NodeId> {
        self.owner(Bucket::of(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(nodes: impl IntoIterator<Item = u16>) -> Map {
        let members = nodes.into_iter().map(NodeId).collect();
        Map::new(MapVersion::FIRST, members)
    }

    fn owners(map: &Map) -> impl Iterator<Item = Option<NodeId>> {
        (0..BUCKETS as u16).map(|bucket| map.owner(Bucket(bucket)))
    }

    #[test]
    fn every_member_gets_about_an_equal_share_of_the_buckets() {
        let map = map(0..16);
        for node in map.members().iter() {
            let share = owners(&map).filter(|&owner| owner == Some(node)).count();
            assert!((32..=96).contains(&share), "{node}: {share}");
        }
    }

    #[test]
    fn a_bucket_moves_only_from_a_node_that_leaves_or_to_one_that_joins() {
        let (before, after) = (map(0..9), map(0..8));
        let mut moved = 0;
        for (old, new) in owners(&before).zip(owners(&after)) {
            moved += usize::from(old != new);
            assert!(old == new || old == Some(NodeId(8)));
        }
        assert!(moved < BUCKETS / 5, "{moved}");
    }

    #[test]
    fn a_map_without_members_has_no_directory_nodes() {
        assert_eq!(map([]).directory_node(PageHash(u32::MAX)), None);
        assert_eq!(map([3]).directory_node(PageHash(u32::MAX)), Some(NodeId(3)));
    }

    #[test]
    fn two_coordinators_never_make_the_same_version() {
        let first = MapVersion::FIRST;
        let (a, b) = (first.next(NodeId(0)), first.next(NodeId(1)));
        assert!(first < a && a < b && b < a.next(NodeId(0)));
    }
}
