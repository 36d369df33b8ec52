use mapwire_node::Breach as NodeBreach;
use mapwire_transport::job::JobFabric;
use mapwire_wire::NodeId;

use super::{MOST_GLANCES, Paths};
use crate::breach::Breach;
use crate::config::DriverConfig;
use crate::local::tests::local;
use crate::log::Line;
use crate::peer_words::PeerWords;

const PEER: NodeId = NodeId(1);

fn paths() -> Paths<JobFabric> {
    let fabric = JobFabric::without_broker(3).unwrap();
    let (paths, _) = Paths::new(&DriverConfig::default(), fabric, PeerWords::new(3).unwrap()).unwrap();
    paths
}

#[test]
fn a_peer_that_breaks_the_rules_is_gone_and_its_first_breach_says_why() {
    let (mut paths, mut local) = (paths(), local(3));
    for breach in [NodeBreach::Malformed, NodeBreach::Control] {
        paths.handle_breach(&mut local, (PEER, breach.into()));
    }
    assert!(paths.is_gone(PEER) && local.node.is_gone(PEER));
    assert_eq!(paths.breach_of(PEER), Some(Breach::Node(NodeBreach::Malformed)));
    assert!(matches!(local.outcomes.take_line(), Some(Line::PeerBroken { node: PEER, .. })));
    assert!(!paths.is_gone(NodeId(2)));
}

#[test]
fn this_process_is_never_gone_to_itself() {
    let (mut paths, mut local) = (paths(), local(3));
    let me = paths.me();
    paths.handle_breach(&mut local, (me, NodeBreach::Malformed.into()));
    paths.handle_gone(&mut local, me);
    assert!(!paths.is_gone(me));
}

#[test]
fn a_bell_is_due_once_for_each_peer_and_not_for_this_process() {
    let mut paths = paths();
    let me = paths.me();
    for peer in [PEER, me, PEER, NodeId(2)] {
        paths.owe_ring(peer);
    }
    assert_eq!(paths.to_ring, [PEER, NodeId(2)]);
    paths.ring_due();
    assert!(paths.to_ring.is_empty());
}

#[test]
fn only_looks_after_a_turn_that_found_nothing_are_glances_and_so_many_at_most() {
    let mut paths = paths();
    assert!(!paths.may_only_glance());
    paths.end_turn(true);
    assert!(!paths.may_only_glance());
    paths.end_turn(false);
    let glances = (0..100).take_while(|_| paths.may_only_glance());
    assert_eq!(glances.count(), MOST_GLANCES as usize);
}
