//! Who is a member, as this node sees it.

use mapwire_wire::NodeId;

use crate::map::{Map, MapVersion};
use crate::nodes::NodeSet;

/// The map that a node goes by, and what it knows of its peers.
#[derive(Debug)]
pub(crate) struct View {
    me: NodeId,
    map: Map,
    /// The largest version seen.
    newest: MapVersion,
    /// Nodes that want to be members, as far as this node has heard.
    wish: NodeSet,
    /// Nodes that are gone. They do not come back.
    gone: NodeSet,
    /// Nodes that others say are gone: they are never made members.
    barred: NodeSet,
    /// All nodes heard of.
    known: NodeSet,
    /// Nodes that have said that they go by this map.
    adopted: NodeSet,
    /// Members that have reported all that changes with this map.
    reported: NodeSet,
    is_settled: bool,
}

#[derive(Debug)]
pub(crate) struct Change {
    pub old: Map,
    /// Whether the new map was made from the old one, and this node was a member: what it reported before still stands.
    pub in_step: bool,
    /// Who is to hear of it.
    pub audience: NodeSet,
}

impl View {
    pub(crate) fn new(me: NodeId, members: NodeSet, nodes: NodeSet) -> Self {
        Self {
            me,
            map: Map::new(MapVersion::FIRST, members),
            newest: MapVersion::FIRST,
            wish: members,
            gone: NodeSet::EMPTY,
            barred: NodeSet::EMPTY,
            known: members.union(&nodes),
            adopted: members,
            reported: members,
            // Nobody has anything to report yet.
            is_settled: members.contains(me),
        }
    }

    pub(crate) fn map(&self) -> &Map {
        &self.map
    }

    pub(crate) fn version(&self) -> MapVersion {
        self.map.version()
    }

    pub(crate) fn is_member(&self) -> bool {
        self.map.members().contains(self.me)
    }

    /// Whether a node is a member that is not gone.
    pub(crate) fn is_peer(&self, node: NodeId) -> bool {
        self.map.members().contains(node) && !self.gone.contains(node)
    }

    pub(crate) fn is_gone(&self, node: NodeId) -> bool {
        self.gone.contains(node)
    }

    /// Whether all members have reported by this map.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// All nodes that may want to hear of changes, but this one.
    pub(crate) fn audience(&self) -> NodeSet {
        let mut audience = self.known.union(self.map.members()).minus(&self.gone);
        audience.remove(self.me);
        audience
    }

    /// The other members.
    pub(crate) fn peers(&self) -> NodeSet {
        let mut peers = self.map.members().minus(&self.gone);
        peers.remove(self.me);
        peers
    }

    pub(crate) fn note_known(&mut self, node: NodeId) {
        self.known.insert(node);
    }

    pub(crate) fn set_wish(&mut self, node: NodeId, wants: bool) {
        self.known.insert(node);
        if wants {
            self.wish.insert(node);
        } else {
            self.wish.remove(node);
        }
    }

    pub(crate) fn wishes(&self, node: NodeId) -> bool {
        self.wish.contains(node)
    }

    /// A peer is gone for this node.
    pub(crate) fn set_gone(&mut self, node: NodeId) {
        self.gone.insert(node);
        self.bar(node);
    }

    /// A node is not to be a member any more.
    pub(crate) fn bar(&mut self, node: NodeId) {
        self.barred.insert(node);
        self.wish.remove(node);
    }

    /// The lowest member that nobody says is gone; if there is none, the lowest node that wants to be one. A node may be the only one
    /// that has not noticed that the coordinator is gone, and be the next.
    pub(crate) fn coordinator(&self) -> Option<NodeId> {
        let living = self.map.members().minus(&self.barred);
        let wishing = self.wish.minus(&self.barred);
        living.iter().next().or_else(|| wishing.iter().next())
    }

    /// The members of the next map, if this node is to announce one: at once if a member is gone, else once the last map is settled.
    pub(crate) fn next_members(&self) -> Option<(MapVersion, NodeSet)> {
        let members = self.wish.minus(&self.barred);
        let current = self.map.members();
        let lost = current.minus(&self.barred) != *current;
        let is_due = members != *current && (lost || self.is_settled || current.is_empty());
        (is_due && self.coordinator() == Some(self.me)).then(|| (self.newest.next(self.me), members))
    }

    /// Goes by a newer map from now on.
    pub(crate) fn adopt(&mut self, version: MapVersion, previous: MapVersion, members: NodeSet) -> Change {
        let old_members = *self.map.members();
        // Whoever made the map knew what these nodes want.
        let joined = members.minus(&old_members);
        let left = old_members.minus(&members);
        let mine = self.wish.contains(self.me);
        self.wish = self.wish.union(&joined.minus(&self.barred)).minus(&left);
        self.set_wish(self.me, mine);
        self.known = self.known.union(&members);
        self.newest = self.newest.max(version);
        let map = Map::new(version, members);
        let old = core::mem::replace(&mut self.map, map);
        self.adopted = NodeSet::EMPTY;
        self.reported = NodeSet::EMPTY;
        self.is_settled = false;
        self.known = self.known.union(&old_members);
        let audience = self.audience();
        Change { in_step: previous == old.version() && old_members.contains(self.me), audience, old }
    }

    /// A node goes by this map, too.
    pub(crate) fn set_adopted(&mut self, node: NodeId) {
        self.adopted.insert(node);
    }

    /// Whether all members go by this map: what they sent by an earlier one has come.
    pub(crate) fn is_adopted(&self) -> bool {
        self.peers().minus(&self.adopted).is_empty()
    }

    /// A member has reported all that changes with this map.
    pub(crate) fn set_reported(&mut self, node: NodeId) {
        self.reported.insert(node);
    }

    /// Whether the map has become settled by now. True once.
    pub(crate) fn settle(&mut self) -> bool {
        let missing = self.peers().minus(&self.reported);
        let settles = !self.is_settled && missing.is_empty();
        self.is_settled |= settles;
        settles
    }
}
