//! How sessions are made and replaced.

use mapwire_seal::{
    Cause, INITIATE_BYTES, JobSecret, NotReady, Opened, PublicKey, Rotation, Sessions, SoftAead,
};
use mapwire_wire::NodeId;

use crate::world::{MS, Random, SECOND, World, address, config, fill, key};

fn world() -> World {
    World::new(Random::new(1), Rotation::default())
}

#[test]
fn a_session_costs_four_datagrams_and_one_that_confirms() {
    let mut world = world();
    assert_eq!(world.send(0), Err(NotReady::NoSession(NodeId(1))));
    world.run_for(SECOND);
    assert!(world.is_ready(0) && world.is_ready(1));
    assert_eq!(world.captured_to(1).len(), 3, "initiate twice, confirm");
    assert_eq!(world.captured_to(0).len(), 2, "cookie, respond");
    world.send(1).unwrap();
    world.send(0).unwrap();
    world.run_for(MS);
    assert_eq!(world.opened, 2);
}

#[test]
fn an_answer_is_never_longer_than_what_it_answers() {
    let mut world = world();
    world.send(0).unwrap_err();
    world.run_for(SECOND);
    let answers = world.captured_to(0);
    assert!(answers.iter().all(|bytes| bytes.len() <= INITIATE_BYTES));
}

#[test]
fn a_peer_whose_key_is_missing_is_named_and_has_no_effect() {
    let mut world = world();
    world.nodes[1].forget_peer(NodeId(0));
    world.send(0).unwrap_err();
    world.run_for(10 * MS);
    assert_eq!(world.nodes[1].poll_wanted_key(), Some(NodeId(0)));
    assert_eq!(world.nodes[1].poll_wanted_key(), None);
    assert!(world.nodes[1].counters().rejected(Cause::UnknownPeer) > 0);
    assert_eq!(world.send(1), Err(NotReady::NoKey(NodeId(0))));
    assert_eq!(world.nodes[1].poll_wanted_key(), Some(NodeId(0)));
    let public = world.public(0);
    world.nodes[1].set_peer(NodeId(0), public);
    world.run_for(SECOND);
    assert!(world.is_ready(0) && world.is_ready(1));
}

#[test]
fn a_restarted_peer_replaces_its_former_session_with_the_same_key_or_another() {
    for new_key in [false, true] {
        let mut world = world();
        world.converge(SECOND);
        world.restart(1, new_key);
        world.send(1).unwrap_err();
        world.run_for(100 * MS);
        let opened = world.opened;
        for node in 0..2 {
            world.send(node).unwrap();
            world.run_for(MS);
        }
        assert_eq!(world.opened, opened + 2, "new key: {new_key}");
    }
}

#[test]
fn a_peer_that_lost_the_session_is_noticed_by_its_silence() {
    let mut world = world();
    world.converge(SECOND);
    world.restart(1, false);
    for _ in 0..60 {
        // Node 1 has nothing to send, and could not say that it knows no session.
        world.send(0).unwrap();
        world.run_for(50 * MS);
    }
    assert!(world.is_ready(1));
    let opened = world.opened;
    world.send(0).unwrap();
    world.run_for(MS);
    assert_eq!(world.opened, opened + 1);
}

#[test]
fn keys_that_are_old_are_forgotten() {
    let mut world = world();
    world.converge(SECOND);
    let before = world.nodes[0].bytes();
    world.run_for(200 * SECOND);
    assert!(!world.is_ready(0) && !world.is_ready(1));
    assert!(world.nodes[0].bytes() < before);
    world.converge(SECOND);
}

#[test]
fn nodes_of_another_job_secret_key_or_number_get_nowhere() {
    let cases: [fn(&mut mapwire_seal::Config); 3] = [
        |config| config.job = 78,
        |config| config.secret = JobSecret::new([8; 32]),
        |config| config.key = key(&mut Random::new(5)),
    ];
    for (case, change) in cases.into_iter().enumerate() {
        let mut world = world();
        let mut other = config(1, key(&mut Random::new(6)), Rotation::default());
        change(&mut other);
        let mut entropy = Random::new(7);
        world.nodes[1] = Sessions::new(other, &mut |bytes| fill(&mut entropy, bytes));
        let public = world.public(0);
        world.nodes[1].set_peer(NodeId(0), public);
        for _ in 0..50 {
            world.send(0).unwrap_err();
            world.send(1).unwrap_err();
            world.run_for(100 * MS);
        }
        assert!(!world.is_ready(0) && !world.is_ready(1), "case {case}");
    }
}

#[test]
fn what_is_no_peer_is_refused() {
    let mut world = world();
    let mut datagram = [0; 40];
    let mut seal = |to| world.nodes[0].seal(1, NodeId(to), &mut datagram);
    assert_eq!(seal(0), Err(NotReady::NoPeer(NodeId(0))));
    assert_eq!(seal(2), Err(NotReady::NoPeer(NodeId(2))));
    world.nodes[0].set_peer(NodeId(2), PublicKey([1; 32]));
    assert_eq!(world.nodes[0].poll_wanted_key(), None);
    world.converge(SECOND);
    let now_ns = world.now_ns;
    let short = world.nodes[0].seal(now_ns, NodeId(1), &mut [0; 31]);
    assert_eq!(short, Err(NotReady::NoRoom(31)));
}

#[test]
fn a_node_that_nobody_talks_to_costs_a_pointer() {
    let mut entropy = Random::new(3);
    let mut large = config(0, key(&mut entropy), Rotation::default());
    large.nodes = 65_536;
    let sessions = Sessions::<SoftAead>::new(large, &mut |bytes| fill(&mut entropy, bytes));
    assert!(sessions.bytes() < 65_536 * size_of::<usize>() + 10_000);
}

#[test]
fn an_initiate_from_an_address_that_cannot_be_is_malformed() {
    let mut world = world();
    world.send(0).unwrap_err();
    let initiate = world.captured_to(1).remove(0);
    let opened = world.hand(&[0; 19], 1, initiate.clone());
    assert_eq!(opened, Opened::Rejected(Cause::Malformed));
    let opened = world.hand(&address(0), 1, initiate);
    assert_eq!(opened, Opened::Rejected(Cause::NoCookie));
}
