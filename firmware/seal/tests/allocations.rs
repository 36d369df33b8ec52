//! Sealing and opening allocate nothing; nor does a datagram that is rejected before it proves an address.

use counting::{bytes, calls};
use mapwire_seal::{Config, JobSecret, Opened, Rotation, SEALED_BACK_BYTES, SEALED_FRONT_BYTES, Sessions, StaticKey};
use mapwire_wire::NodeId;

#[path = "../../../tests/allocations.rs"]
mod counting;

type Node = Sessions;

fn allocations_of(work: impl FnOnce()) -> u64 {
    let before = calls();
    work();
    calls() - before
}

fn node(me: u16, draw: &mut dyn FnMut(&mut [u8])) -> Node {
    let config = Config {
        me: NodeId(me),
        nodes: 2,
        job: 1,
        secret: JobSecret::new([1; 32]),
        key: StaticKey::new([2 + me as u8; 32]),
        rotation: Rotation::default(),
    };
    let mut node = Sessions::new(config, draw);
    let peer = StaticKey::new([3 - me as u8; 32]);
    node.set_peer(NodeId(1 - me), peer.public());
    node
}

/// Exchanges what both transmit, until both are silent.
fn settle(nodes: &mut [Node; 2], draw: &mut dyn FnMut(&mut [u8])) -> Vec<(usize, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let mut is_silent = true;
        for from in 0..2 {
            while let Some(transmit) = nodes[from].poll_transmit(1, draw) {
                is_silent = false;
                let mut bytes = transmit.bytes().to_vec();
                all.push((1 - from, bytes.clone()));
                nodes[1 - from].handle(1, &[from as u8], &mut bytes, draw);
            }
        }
        if is_silent {
            return all;
        }
    }
}

#[test]
fn the_memory_that_is_told_is_the_memory_that_is_used() {
    let before = bytes();
    let mut drawn = 0u8;
    let mut draw = |bytes: &mut [u8]| {
        drawn += 1;
        bytes.fill(drawn);
    };
    let mut nodes = Box::new([node(0, &mut draw), node(1, &mut draw)]);
    nodes[0].seal(1, NodeId(1), &mut [0; 40]).expect_err("there is no session");
    let first = nodes[0].poll_transmit(1, &mut draw).unwrap();
    for settled in [false, true] {
        if settled {
            let mut initiate = first.bytes().to_vec();
            nodes[1].handle(1, &[0], &mut initiate, &mut draw);
            drop(settle(&mut nodes, &mut draw));
            assert!(nodes[0].is_ready(1, NodeId(1)));
        }
        let told = nodes.iter().map(Sessions::bytes).sum::<usize>() as i64;
        let used = bytes() - before;
        assert!((told - used).abs() < used / 5, "{told} told, {used} used");
    }
}

#[test]
fn sealing_and_opening_allocate_nothing_and_neither_does_rejecting() {
    let mut drawn = 0u64;
    let mut draw = |bytes: &mut [u8]| {
        drawn += 1;
        bytes.fill(0);
        bytes[..4].copy_from_slice(&(drawn as u32).to_le_bytes());
    };
    let mut nodes = [node(0, &mut draw), node(1, &mut draw)];
    let mut datagram = [0; SEALED_FRONT_BYTES + 100 + SEALED_BACK_BYTES];
    nodes[0].seal(1, NodeId(1), &mut datagram).unwrap_err();
    let handshake = settle(&mut nodes, &mut draw);
    let sealed = allocations_of(|| {
        for round in 0..2_000 {
            let (from, to) = (round % 2, (round + 1) % 2);
            nodes[from].seal(2, NodeId(to as u16), &mut datagram).unwrap();
            let opened = nodes[to].handle(2, &[], &mut datagram, &mut draw);
            assert!(matches!(opened, Opened::Data { .. }));
            let again = nodes[to].handle(2, &[], &mut datagram, &mut draw);
            assert!(matches!(again, Opened::Rejected(_)));
        }
    });
    assert_eq!(sealed, 0);
    // Replayed handshakes, and changed ones: the first answers with a cookie.
    let rejected = allocations_of(|| {
        for (to, bytes) in &handshake {
            for change in [0, 1] {
                let mut copy = [0; 200];
                let copy = &mut copy[..bytes.len()];
                copy.copy_from_slice(bytes);
                copy[20] ^= change;
                nodes[*to].handle(3, &[9, 9], copy, &mut draw);
            }
            while let Some(transmit) = nodes[*to].poll_transmit(3, &mut draw) {
                assert!(transmit.bytes().len() <= bytes.len());
            }
        }
    });
    assert_eq!(rejected, 0);
}
