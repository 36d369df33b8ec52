//! Sealed datagrams.

use mapwire_seal::{Cause, Opened, Rotation, WINDOW};
use mapwire_wire::NodeId;

use crate::world::{MS, Random, SECOND, World, address};

fn ready() -> World {
    let mut world = World::new(Random::new(2), Rotation::default());
    world.converge(SECOND);
    world.run_for(SECOND);
    world
}

#[test]
fn a_flip_of_any_bit_is_rejected_and_the_datagram_itself_still_opens() {
    let mut world = ready();
    world.loss = 100;
    world.send(0).unwrap();
    let sealed = world.captured_to(1).pop().unwrap();
    for bit in 0..sealed.len() * 8 {
        let mut changed = sealed.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let opened = world.hand(&address(0), 1, changed);
        assert!(matches!(opened, Opened::Rejected(_)), "bit {bit}");
    }
    for length in 0..sealed.len() {
        let opened = world.hand(&address(0), 1, sealed[..length].to_vec());
        assert!(matches!(opened, Opened::Rejected(_)), "length {length}");
    }
    let opened = world.hand(&address(0), 1, sealed.clone());
    assert!(matches!(opened, Opened::Data { .. }));
    let again = world.hand(&address(0), 1, sealed);
    assert_eq!(again, Opened::Rejected(Cause::Replay));
}

#[test]
fn datagrams_open_in_any_order_within_the_window() {
    let mut world = ready();
    world.loss = 100;
    let first = world.captured_to(1).len();
    for _ in 0..1_000 {
        world.send(0).unwrap();
    }
    let mut sealed = world.captured_to(1).split_off(first);
    sealed.reverse();
    for datagram in sealed {
        let opened = world.hand(&address(0), 1, datagram);
        assert!(matches!(opened, Opened::Data { .. }));
    }
}

#[test]
fn a_datagram_older_than_the_window_does_not_open() {
    let mut world = ready();
    world.loss = 100;
    world.send(0).unwrap();
    let old = world.captured_to(1).pop().unwrap();
    let mut last = Vec::new();
    for _ in 0..WINDOW {
        last = vec![0; 40];
        let now_ns = world.now_ns;
        world.nodes[0].seal(now_ns, NodeId(1), &mut last).unwrap();
    }
    // Nobody sealed zeros in the world's books: open it at the node itself.
    let opened = world.nodes[1].handle(world.now_ns, &address(0), &mut last, &mut |_| ());
    assert!(matches!(opened, Opened::Data { .. }));
    let opened = world.hand(&address(0), 1, old);
    assert_eq!(opened, Opened::Rejected(Cause::Replay));
}

#[test]
fn a_replay_of_everything_has_no_effect() {
    let mut world = ready();
    for _ in 0..30 {
        for node in 0..2 {
            world.send(node).unwrap();
            world.run_for(MS);
        }
    }
    let (opened, handshakes) = (world.opened, world.nodes[1].counters().handshakes());
    world.replay_all();
    world.run_for(30 * SECOND);
    world.replay_all();
    assert_eq!(world.opened, opened);
    assert_eq!(world.nodes[1].counters().handshakes(), handshakes);
    for node in 0..2 {
        world.send(node).expect("the session is as it was");
        world.run_for(MS);
    }
    assert_eq!(world.opened, opened + 2);
}

#[test]
fn a_key_seals_no_more_than_four_times_its_datagrams() {
    let rotation = Rotation { datagrams: 10, ..Rotation::default() };
    let mut world = World::new(Random::new(2), rotation);
    world.converge(SECOND);
    world.loss = 100;
    let sealed = (0..100).filter(|_| world.send(0).is_ok()).count();
    assert!((30..=40).contains(&sealed), "{sealed}");
    world.loss = 0;
    world.run_for(SECOND);
    world.send(0).unwrap();
}
