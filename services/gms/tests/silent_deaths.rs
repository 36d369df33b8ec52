//! Deaths that not every node is told of.

use std::collections::VecDeque;

use mapwire_gms::{Config, Gms, MAX_NODES, Message, NodeSet};
use mapwire_vmmc::service::{Action, Service};
use mapwire_wire::{Endpoint, NodeId};

/// Nodes of which node 0 is dead: what is sent there is lost.
fn nodes() -> Vec<Gms> {
    let members: NodeSet = (0..4).map(NodeId).collect();
    (0..4)
        .map(|node| {
            let config = Config { epoch_ms: 10, ..Config::new(NodeId(node), members, 16, 8) };
            let mut gms = Gms::new(config).unwrap();
            gms.donate(0, 8).unwrap();
            gms
        })
        .collect()
}

/// Delivers all that the living nodes send; gives the senders of what went to the dead one.
fn deliver(nodes: &mut [Gms], now_ns: u64) -> Vec<NodeId> {
    let mut packets = VecDeque::new();
    let mut lost = Vec::new();
    loop {
        for (node, gms) in (0..).map(NodeId).zip(&mut *nodes).skip(1) {
            while let Some(action) = gms.poll_action() {
                match action {
                    Action::Send { to, message } => {
                        packets.push_back((node, to.node, message.to_vec()));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        let Some((from, to, message)) = packets.pop_front() else {
            return lost;
        };
        if to == NodeId(0) {
            lost.push(from);
            continue;
        }
        let from = Endpoint::first_of(from);
        let taken = nodes[usize::from(to.0)].handle_message(now_ns, from, &message);
        assert_eq!(taken, Ok(()), "{:?}", Message::parse(&message));
    }
}

#[test]
fn a_coordinator_that_only_one_node_knows_to_be_gone_is_replaced() {
    let mut nodes = nodes();
    deliver(&mut nodes, 0);
    nodes[3].handle_peer_gone(1, NodeId(0));
    deliver(&mut nodes, 1);
    for gms in &nodes[1..] {
        let members = gms.map().members();
        assert!(!members.contains(NodeId(0)) && members.len() == 3);
        assert!(gms.is_settled());
    }
}

#[test]
fn a_coordinator_that_died_in_silence_is_spoken_to_so_that_its_death_is_found() {
    let mut nodes = nodes();
    deliver(&mut nodes, 0);
    let mut spoke = [false; MAX_NODES as usize];
    for step in 1..20 {
        let now_ns = step * 10_000_000;
        nodes[1..].iter_mut().for_each(|gms| gms.handle_time(now_ns));
        for from in deliver(&mut nodes, now_ns) {
            spoke[usize::from(from.0)] = true;
        }
    }
    assert_eq!(spoke[1..4], [true; 3]);
}
