//! Attacks by outsiders, and by peers that lie.

use mapwire_seal::{Cause, INITIATE_BYTES, Opened, Rotation, Sessions, VERSION};
use mapwire_wire::NodeId;

use crate::world::{MS, Random, SECOND, World, address, config, fill, key};

fn world() -> World {
    World::new(Random::new(3), Rotation::default())
}

#[test]
fn random_bytes_have_no_effect() {
    let mut world = world();
    let before = world.nodes[1].bytes();
    let mut random = Random::new(8);
    for round in 0..20_000u64 {
        let length = [INITIATE_BYTES, random.below(200) as usize][round as usize % 2];
        let mut bytes = vec![0; length];
        fill(&mut random, &mut bytes);
        if round % 4 == 0 {
            bytes[..2].copy_from_slice(&[1, VERSION]);
            bytes[6..8].fill(0);
        }
        let opened = world.hand(&address(9), 1, bytes);
        assert!(matches!(opened, Opened::Rejected(_)));
    }
    assert!(world.nodes[1].counters().rejected(Cause::Code) > 4_000);
    assert_eq!(world.nodes[1].bytes(), before, "nothing is kept");
    world.converge(SECOND);
}

#[test]
fn initiates_without_a_cookie_are_not_remembered() {
    let mut world = world();
    let before = world.nodes[1].bytes();
    world.loss = 100;
    world.send(0).unwrap_err();
    let initiate = world.captured_to(1).remove(0);
    world.nodes[1].handle(1, &[1], &mut initiate.clone(), &mut |_| ());
    assert_eq!(world.nodes[1].poll_at(), Some(0), "a cookie waits");
    for spoofed in 0..5_000u32 {
        let opened = world.hand(&spoofed.to_le_bytes(), 1, initiate.clone());
        assert_eq!(opened, Opened::Rejected(Cause::NoCookie));
    }
    assert_eq!(world.nodes[1].bytes(), before);
    world.loss = 0;
    world.run_for(SECOND);
    assert!(world.is_ready(0));
}

#[test]
fn a_cookie_is_of_no_use_at_another_address() {
    let mut world = world();
    world.send(0).unwrap_err();
    world.run_for(MS / 2);
    let with_cookie = world.captured_to(1).remove(1);
    world.restart(1, false);
    let opened = world.hand(&address(5), 1, with_cookie);
    assert_eq!(opened, Opened::Rejected(Cause::NoCookie));
}

#[test]
fn an_accepted_initiate_is_not_accepted_again() {
    let mut world = world();
    world.send(0).unwrap_err();
    world.run_for(SECOND);
    let with_cookie = world.captured_to(1).remove(1);
    let opened = world.hand(&address(0), 1, with_cookie.clone());
    assert_eq!(opened, Opened::Rejected(Cause::Repeated));
    // An honest node sends it again, too, before it has the answer.
    assert_eq!(world.nodes[1].counters().rejections(), 0);
    world.run_for(10 * SECOND);
    let opened = world.hand(&address(0), 1, with_cookie);
    assert_eq!(opened, Opened::Rejected(Cause::NoCookie), "it is stale");
}

#[test]
fn a_flip_of_any_bit_of_a_handshake_is_rejected() {
    let mut world = world();
    world.send(0).unwrap_err();
    world.run_for(SECOND);
    for node in 0..2 {
        for datagram in world.captured_to(node) {
            for bit in 0..datagram.len() * 8 {
                let mut changed = datagram.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let opened = world.hand(&address(1 - node), node, changed);
                assert!(matches!(opened, Opened::Rejected(_)), "bit {bit}");
            }
        }
    }
}

/// A node with the job's secret that claims to be node 0 without its key.
#[test]
fn a_peer_that_lies_about_its_number_proves_nothing_and_costs_a_bounded_number_of_computations() {
    let mut world = world();
    world.converge(SECOND);
    let honest = world.public(1);
    let mut entropy = Random::new(10);
    let liar = config(0, key(&mut entropy), Rotation::default());
    let mut liar = Sessions::new(liar, &mut |bytes| fill(&mut entropy, bytes));
    liar.set_peer(NodeId(1), honest);
    world.nodes[0] = liar;
    for _ in 0..100 {
        world.send(0).unwrap_err();
        world.run_for(100 * MS);
    }
    let counters = *world.nodes[1].counters();
    assert!(counters.rejected(Cause::Handshake) > 0);
    assert!(!world.is_ready(0));
    assert_eq!(counters.handshakes(), 1);
    // The same in a burst: one computation in 5 ms.
    let with_cookie = world.captured_to(1).into_iter().rev();
    let with_cookie = with_cookie.filter(|bytes| bytes[0] == 1).nth(1).unwrap();
    let before = counters.rejected(Cause::Handshake);
    let mut rejected = Vec::new();
    for _ in 0..1_000 {
        rejected.push(world.hand(&address(0), 1, with_cookie.clone()));
    }
    assert!(world.nodes[1].counters().rejected(Cause::Handshake) <= before + 1);
    assert!(rejected.contains(&Opened::Rejected(Cause::Limited)));
}

#[test]
fn a_peer_keeps_one_handshake_half_open_and_no_more() {
    let mut world = world();
    // Node 0 begins again and again, and never confirms.
    let mut most = 0;
    for _ in 0..200 {
        world.restart(0, false);
        world.loss = 0;
        world.send(0).unwrap_err();
        while world.captured_to(0).last().is_none_or(|bytes| bytes[0] != 2) {
            assert!(world.step(u64::MAX));
            if world.nodes[1].counters().rejected(Cause::Limited) > 100 {
                break;
            }
        }
        most = most.max(world.nodes[1].bytes());
        world.run_for(6 * MS);
    }
    assert!(most < 20_000, "{most} bytes");
}
