//! What must hold once nothing is under way.

use std::collections::{BTreeMap, BTreeSet};

use mapwire_gms::PageName;
use mapwire_wire::NodeId;

use crate::cluster::{Cluster, contents};

impl Cluster {
    /// Checks all of it.
    pub(crate) fn check(&mut self) {
        assert!(self.is_calm());
        self.check_operations();
        self.check_maps();
        self.check_directory();
        self.check_frames();
    }

    /// The nodes that live and are members.
    fn members(&self) -> BTreeSet<NodeId> {
        let living = self.hosts.iter().filter(|host| !host.is_dead);
        living
            .map(|host| host.gms.config().node)
            .filter(|&node| self.hosts[usize::from(node.0)].gms.map().members().contains(node))
            .collect()
    }

    fn check_operations(&self) {
        for host in self.hosts.iter().filter(|host| !host.is_dead) {
            let node = host.gms.config().node;
            assert!(host.operations.is_empty(), "{node} waits for {:?}", host.operations);
            assert!(!host.gms.has_outcomes());
            if !host.is_leaving {
                assert_eq!(host.gms.under_way(), 0, "{node}: {:?}", host.gms);
            }
        }
    }

    /// All members go by the same map, which is settled and names exactly them.
    fn check_maps(&self) {
        let members = self.members();
        let mut maps = members.iter().map(|node| &self.hosts[usize::from(node.0)].gms);
        let Some(first) = maps.next() else {
            return;
        };
        let named: BTreeSet<_> = first.map().members().iter().collect();
        assert_eq!(named, members, "the map names others than the members");
        for gms in maps.chain([first]) {
            assert_eq!(gms.map(), first.map());
            assert!(gms.is_settled(), "{} is not settled", gms.config().node);
        }
    }

    /// The directory names exactly the pages that are stored, with their versions.
    fn check_directory(&mut self) {
        let members = self.members();
        let mut stored = BTreeMap::<PageName, BTreeSet<(NodeId, u32)>>::new();
        for &node in &members {
            for (name, version, _) in self.hosts[usize::from(node.0)].gms.pages() {
                stored.entry(name).or_default().insert((node, version));
            }
        }
        let mut named = BTreeMap::<PageName, BTreeSet<(NodeId, u32)>>::new();
        for &node in &members {
            let gms = &self.hosts[usize::from(node.0)].gms;
            gms.directory().for_each(|entry| {
                let directory = gms.map().directory_node(entry.name().hash());
                assert_eq!(directory, Some(node), "{node} keeps what is not its own");
                let copies = entry.copies().map(|copy| (copy, entry.version()));
                named.entry(entry.name()).or_default().extend(copies);
            });
        }
        assert_eq!(named, stored, "the directory and the pages differ");
    }

    /// Each page lies in a frame of its own with its contents, and no frame is lost.
    fn check_frames(&self) {
        for host in self.hosts.iter().filter(|host| !host.is_dead) {
            let mut used = BTreeSet::new();
            for (name, version, frame) in host.gms.pages() {
                assert!(used.insert(frame), "frame {frame} holds two pages");
                assert_eq!(host.memory[frame as usize], contents(name, version));
            }
            let uses = host.gms.frame_uses();
            let sum = uses.idle + uses.free + uses.granted + uses.pages + uses.draining;
            assert_eq!(sum, self.shape.pool_frames, "{uses:?}");
            assert_eq!((uses.pages, uses.draining), (used.len() as u32, 0), "{uses:?}");
        }
        // What a node counts as granted is what its peers hold.
        for host in self.hosts.iter().filter(|host| !host.is_dead) {
            let node = host.gms.config().node;
            let peers = self.hosts.iter().filter(|peer| !peer.is_dead);
            let held: usize = peers.map(|peer| peer.gms.credit_of(node)).sum();
            assert_eq!(host.gms.frame_uses().granted as usize, held, "{node}'s grants");
        }
    }
}
