//! How sessions are made and replaced.

use mapwire_seal::{Cause, INITIATE_BYTES, JobSecret, NotReady, Opened, PublicKey, Rotation, Sessions};
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
    assert_eq!(world.nodes[1].counters().rejections(), 0);
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
fn what_the_former_self_of_a_restarted_peer_sent_does_not_open() {
    for first in 0..2 {
        let mut world = world();
        world.converge(SECOND);
        world.loss = 100;
        world.send(1).unwrap();
        let late = world.captured_to(0).pop().unwrap();
        world.loss = 0;
        world.restart(1, false);
        for _ in 0..60 {
            let _ = world.send(first);
            world.run_for(50 * MS);
        }
        assert!(world.is_ready(1));
        let opened = world.hand(&address(1), 0, late);
        assert_eq!(opened, Opened::Rejected(Cause::UnknownSession));
    }
}

#[test]
fn a_peer_that_lost_the_session_is_noticed_by_its_silence() {
    let mut world = world();
    world.converge(SECOND);
    world.restart(1, false);
    for _ in 0..60 {
        // Node 1 has nothing to send, and could not say that it lacks a session.
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
    let sessions = Sessions::new(large, &mut |bytes| fill(&mut entropy, bytes));
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

#[test]
fn a_session_needs_no_more_memory_after_hundreds_of_rotations() {
    let rotation = Rotation { datagrams: 8, ..Rotation::default() };
    let mut world = World::new(Random::new(1), rotation);
    world.converge(SECOND);
    let mut sizes = Vec::new();
    for count in [200, 2_700] {
        let opened = world.opened;
        for _ in 0..count {
            world.send(0).unwrap();
            world.run_for(MS);
        }
        assert_eq!(world.opened, opened + count);
        world.run_for(rotation.grace_ns);
        sizes.push(world.nodes[0].bytes());
    }
    assert!(world.nodes[0].counters().handshakes() > 300);
    assert_eq!(sizes[0], sizes[1]);
}

#[test]
fn former_keys_open_for_the_grace_time_and_not_after() {
    for (wait_ns, opens) in [(9 * SECOND, true), (11 * SECOND, false)] {
        let rotation = Rotation { datagrams: 8, ..Rotation::default() };
        let mut world = World::new(Random::new(1), rotation);
        world.converge(SECOND);
        world.loss = 100;
        world.send(0).unwrap();
        let late = world.captured_to(1).pop().unwrap();
        world.loss = 0;
        let before = world.nodes[1].counters().handshakes();
        while world.nodes[1].counters().handshakes() == before {
            world.send(0).unwrap();
            world.run_for(MS);
        }
        world.run_for(wait_ns);
        let opened = world.hand(&address(0), 1, late);
        assert_eq!(matches!(opened, Opened::Data { .. }), opens, "{opened:?}");
    }
}

#[test]
fn a_lost_confirmation_is_sent_again_when_the_respond_comes_again() {
    let mut world = world();
    world.send(0).unwrap_err();
    while !world.is_ready(0) {
        assert!(world.step(u64::MAX));
    }
    world.lose_flights();
    assert!(!world.is_ready(1));
    world.run_for(100 * MS);
    assert!(world.is_ready(1), "node 0 has nothing to send but this");
}

#[test]
fn the_node_with_the_smaller_number_goes_first_when_both_begin() {
    let mut world = world();
    world.send(0).unwrap_err();
    world.send(1).unwrap_err();
    world.run_for(SECOND);
    assert!(world.is_ready(0) && world.is_ready(1));
    assert!(world.nodes[0].counters().rejected(Cause::Crossed) > 0);
    assert_eq!(world.nodes[1].counters().rejected(Cause::Crossed), 0);
    let responds = |node: usize| {
        let to = world.captured_to(node).into_iter();
        to.filter(|bytes| bytes[0] == 2).count()
    };
    assert_eq!((responds(0), responds(1)), (1, 0));
}

#[test]
fn a_node_that_answers_an_initiate_drops_its_own() {
    let mut world = world();
    world.blocked = Some((1, 4));
    world.send(0).unwrap_err();
    world.send(1).unwrap_err();
    world.run_for(SECOND);
    let initiates = world.captured_to(0).into_iter();
    assert_eq!(initiates.filter(|bytes| bytes[0] == 1).count(), 2);
}

#[test]
fn a_cookie_that_answers_another_initiate_is_not_taken() {
    let mut world = world();
    world.blocked = Some((0, 2));
    world.send(0).unwrap_err();
    world.run_for(MS / 2);
    let cookie = world.captured_to(0).remove(0);
    assert_eq!(cookie[0], 3);
    let opened = world.hand(&address(1), 0, cookie);
    assert_eq!(opened, Opened::Rejected(Cause::Unasked));
}

#[test]
fn what_is_for_another_node_of_the_job_is_misdirected() {
    let mut world = world();
    let mut entropy = Random::new(3);
    let mut third = config(2, key(&mut entropy), Rotation::default());
    third.nodes = 3;
    let mut third = Sessions::new(third, &mut |bytes| fill(&mut entropy, bytes));
    third.set_peer(NodeId(0), world.public(0));
    world.send(0).unwrap_err();
    let mut initiate = world.captured_to(1).remove(0);
    let opened = third.handle(1, &address(0), &mut initiate, &mut |_| ());
    assert_eq!(opened, Opened::Rejected(Cause::Misdirected));
}

#[test]
fn a_node_gives_way_to_its_peer_when_nothing_comes_of_its_own_initiates() {
    let mut world = world();
    world.blocked = Some((1, 1));
    for _ in 0..20 {
        let _ = (world.send(0), world.send(1));
        world.run_for(50 * MS);
    }
    assert!(world.is_ready(0) && world.is_ready(1));
}

#[test]
fn a_handshake_that_stays_half_open_is_forgotten() {
    for (node, blocked) in [(0, (1, 1)), (1, (1, 4))] {
        let mut world = world();
        let before = world.nodes[node].bytes();
        world.blocked = Some(blocked);
        world.send(0).unwrap_err();
        world.run_for(4 * SECOND);
        assert!(world.nodes[node].bytes() > before, "node {node}");
        world.run_for(20 * SECOND);
        assert!(world.nodes[node].bytes() <= before + 64, "node {node}");
        assert_eq!(world.nodes[node].poll_at(), None);
    }
}

#[test]
fn the_numbers_that_a_secret_gives_a_job_show_nothing_of_it() {
    let (secret, other) = (JobSecret::new([0x11; 32]), JobSecret::new([0x12; 32]));
    for number in [JobSecret::job, JobSecret::label] {
        assert_ne!(number(&secret).to_le_bytes(), [0x11; 4]);
        assert_ne!(number(&secret), number(&other));
    }
    assert_eq!(format!("{secret:?}"), "JobSecret(..)");
}

#[test]
fn a_node_whose_answer_the_peer_uses_nothing_of_begins_a_handshake_of_its_own() {
    let mut world = world();
    world.blocked = Some((0, 2));
    world.send(0).unwrap_err();
    world.run_for(10 * MS);
    // It knows nothing of its former incarnation's request.
    world.restart(0, false);
    world.blocked = None;
    for _ in 0..20 {
        let _ = world.send(1);
        world.run_for(50 * MS);
    }
    assert!(world.is_ready(0) && world.is_ready(1));
}

#[test]
fn cookies_of_several_paths_bring_about_few_initiates() {
    let mut world = world();
    world.paths = 3;
    // Node 0 takes precedence, and is not heard.
    world.blocked = Some((1, 1));
    world.send(0).unwrap_err();
    world.send(1).unwrap_err();
    world.run_for(100 * MS);
    let to_node = world.captured_to(0).into_iter();
    let initiates = to_node.filter(|bytes| bytes[0] == 1).count();
    assert!((6..=60).contains(&initiates), "{initiates} in 100 ms");
    world.run_for(SECOND);
    assert!(world.is_ready(0) && world.is_ready(1));
}
