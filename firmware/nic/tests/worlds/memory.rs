//! Memory use of an idle NIC in a large job.

use mapwire_nic::Nic;
use mapwire_translation::TranslationDesign;
use mapwire_wire::NodeId;

use crate::world::forgetful::Forgetful;
use crate::world::{lossy_nic_of, nic_of};

const NODES: usize = 1000;

/// Bytes of NIC memory besides the translation design's.
fn besides_translation(nic: &Nic<Forgetful>) -> u64 {
    let design: usize = nic.translation().nic_memory().map(|(_, bytes)| bytes).sum();
    nic.memory().used_bytes() - design as u64
}

#[test]
fn a_nic_of_a_thousand_idle_nodes_takes_300_kb_with_recovery_or_without() {
    for nic in [nic_of(3, NODES, 1 << 20), lossy_nic_of(3, NODES, 1 << 20)] {
        let bytes = besides_translation(&nic);
        assert!(bytes <= 300 << 10, "{bytes} B: {:?}", nic.memory().rows);
    }
}

#[test]
fn memory_grows_with_the_peers_that_are_used() {
    let mut nic = lossy_nic_of(3, NODES, 4 << 20);
    let mut growth = |peer| {
        let before = besides_translation(&nic);
        nic.make_room(NodeId(peer));
        besides_translation(&nic) - before
    };
    // The first also allocates what all share.
    assert!(growth(7) > 0);
    let one = growth(8);
    assert!((1..64 << 10).contains(&one), "{one}");
    assert_eq!(growth(9), one);
    assert_eq!(growth(9), 0, "once each");
}
