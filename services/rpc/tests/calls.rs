//! Calls between nodes, step by step.

#[path = "network/mod.rs"]
mod network;

use mapwire_rpc::{AuthProblem, AuthSys, CallError, CallHeader, Config, Credential, Draft, PeerCredentials, Refusal};
use mapwire_vmmc::service::Service;
use mapwire_wire::{Endpoint, NodeId};
use network::{AREA, Network, PROGRAM, VERSION};

fn two() -> Network {
    let mut network = Network::new(2, Config::default());
    network.connect(0, 1);
    network
}

#[test]
fn short_and_long_bodies_come_whole_and_their_memory_is_used_again() {
    for moves in [false, true] {
        let mut network = two();
        for round in 0..200_u32 {
            let body: Vec<u8> = (0..round * 17 % 1500).map(|at| (at * round) as u8).collect();
            let xid = network.begin(0, 1, &body, moves).unwrap();
            network.settle();
            let (call, arguments) = network.next(1).expect("a call");
            assert_eq!((call.program, call.version, call.procedure), (PROGRAM, VERSION, 1));
            assert_eq!(arguments, body);
            network.reply(1, &call, &arguments, moves).unwrap();
            network.settle();
            assert_eq!(network.outcome(0, 1, xid), Some(Ok(body)));
            assert_eq!(network.outcome(0, 1, xid), None, "an outcome is given once");
        }
        network.settle();
        let all = network.node(0).reserve(NodeId(1), AREA);
        assert!(all.is_ok(), "all of the peer's memory is free again");
    }
}

#[test]
fn replies_in_another_order_go_to_their_own_calls() {
    let mut network = two();
    let xids: Vec<_> = (0..10_u8).map(|number| network.begin(0, 1, &[number; 4], false).unwrap()).collect();
    network.settle();
    let calls: Vec<_> = std::iter::from_fn(|| network.next(1)).collect();
    assert_eq!(calls.len(), 10);
    for (call, arguments) in calls.iter().rev() {
        network.reply(1, call, arguments, false).unwrap();
    }
    network.settle();
    for (number, &xid) in (0..10_u8).zip(&xids) {
        assert_eq!(network.outcome(0, 1, xid), Some(Ok(vec![number; 4])));
    }
}

#[test]
fn a_call_that_a_broken_peer_sends_twice_is_two_calls_and_each_is_answered_once() {
    let mut network = two();
    network.begin(0, 1, b"twice", false).unwrap();
    network.gather();
    let sent = network.under_way.get_mut(&(0, 1)).unwrap();
    let record = sent.back().unwrap().clone();
    sent.push_back(record);
    network.settle();
    let calls: Vec<_> = std::iter::from_fn(|| network.next(1)).collect();
    assert_eq!(calls.len(), 2);
    for (call, arguments) in &calls {
        network.reply(1, call, arguments, false).unwrap();
    }
    assert!(matches!(network.reply(1, &calls[0].0, b"", false), Err(Refusal::NotAwaited(_))));
}

#[test]
fn one_way_calls_are_never_answered_and_their_window_opens_again() {
    let mut network = two();
    let mut sent = 0;
    for _ in 0..1000 {
        match network.one_way(0, 1, b"go") {
            Ok(()) => sent += 1,
            Err(Refusal::NoWindow(NodeId(1))) => {
                network.settle();
                while let Some((call, arguments)) = network.next(1) {
                    assert!(call.id.is_one_way);
                    assert_eq!(arguments, b"go");
                    let refused = network.reply(1, &call, b"", false);
                    assert!(matches!(refused, Err(Refusal::NotAwaited(_))));
                    sent -= 1;
                }
                network.settle();
            }
            Err(other) => panic!("{other}"),
        }
    }
    network.settle();
    while network.next(1).is_some() {
        sent -= 1;
    }
    assert_eq!(sent, 0);
}

#[test]
fn callers_take_turns_however_many_calls_each_has_made() {
    let mut network = Network::new(4, Config::default());
    for caller in 1..4 {
        network.connect(caller, 0);
    }
    for _ in 0..100 {
        network.begin(1, 0, b"greedy", false).unwrap();
    }
    for caller in [2, 3] {
        for _ in 0..3 {
            network.begin(caller, 0, b"modest", false).unwrap();
        }
    }
    network.settle();
    let order: Vec<u16> = (0..9).map(|_| network.next(0).expect("a call").0.id.peer.0).collect();
    for turn in order.chunks(3) {
        let mut turn = turn.to_vec();
        turn.sort_unstable();
        assert_eq!(turn, [1, 2, 3]);
    }
}

#[test]
fn calls_end_with_an_error_when_their_server_is_gone_closes_or_loses_a_message() {
    for (end, error) in [(0, CallError::Gone), (1, CallError::Closed), (2, CallError::Lost)] {
        let mut network = two();
        let xid = network.begin(0, 1, b"late", false).unwrap();
        let long = network.begin(0, 1, &[1; 100], false).unwrap();
        network.settle();
        let (call, _) = network.next(1).expect("a call");
        match end {
            0 => network.node(0).handle_peer_gone(0, NodeId(1)),
            1 => network.node(1).close(NodeId(0)),
            _ => network.node(0).handle_lost(Endpoint::first_of(NodeId(1))),
        }
        network.settle();
        assert_eq!(network.outcome(0, 1, xid), Some(Err(error)));
        assert_eq!(network.outcome(0, 1, long), Some(Err(error)));
        if end > 0 {
            let refused = network.reply(1, &call, b"nobody waits", false);
            assert!(matches!(refused, Err(Refusal::NotAwaited(_))), "{refused:?}");
            // Both begin anew.
            network.connect(0, 1);
            let xid = network.begin(0, 1, b"again", false).unwrap();
            network.settle();
            let (call, _) = network.next(1).expect("a call");
            network.reply(1, &call, b"well", false).unwrap();
            network.settle();
            assert_eq!(network.outcome(0, 1, xid), Some(Ok(b"well".to_vec())));
        } else {
            assert_eq!(network.begin(0, 1, b"more", false), Err(Refusal::NotOpen(NodeId(1))));
        }
    }
}

#[test]
fn a_reply_that_comes_after_its_call_was_given_up_is_dropped_with_its_memory() {
    let mut network = two();
    let deadline = Some(500);
    let mut draft = Some(network.draft(0, 1));
    let timed = network.node(0).begin(NodeId(1), &mut draft, None, deadline).unwrap();
    let given_up = network.begin(0, 1, b"", false).unwrap();
    assert_eq!(network.node(0).poll_at(), deadline);
    network.settle();
    network.node(0).handle_time(499);
    assert_eq!(network.outcome(0, 1, timed), None);
    network.node(0).handle_time(500);
    assert_eq!(network.outcome(0, 1, timed), Some(Err(CallError::TimedOut)));
    assert_eq!(network.node(0).poll_at(), None);
    network.node(0).abandon(given_up);
    while let Some((call, _)) = network.next(1) {
        network.reply(1, &call, &[5; 1000], false).unwrap();
    }
    network.settle();
    assert_eq!(network.node(0).counters().late_replies, 2);
    assert!(network.node(1).reserve(NodeId(0), AREA).is_ok());
}

#[test]
fn what_no_peer_takes_is_refused_before_it_is_sent() {
    let mut network = two();
    let too_long = network.node(0).reserve(NodeId(1), AREA + 1);
    assert!(matches!(too_long, Err(Refusal::TooLong { limit: AREA, .. })));
    let room = network.node(0).reserve(NodeId(1), AREA - 64).unwrap();
    let no_room = network.node(0).reserve(NodeId(1), 128);
    assert_eq!(no_room, Err(Refusal::NoRoom(NodeId(1))));
    network.node(0).cancel(NodeId(1), room);
    assert!(network.node(0).reserve(NodeId(1), AREA).is_ok());
    assert!(matches!(network.begin(0, 0, b"", false), Err(Refusal::NotOpen(NodeId(0)))));
}

/// The outcome of a call with this header.
fn called(network: &mut Network, program: u32, version: u32, credential: Credential) -> CallError {
    let header = CallHeader { xid: 0, program, version, procedure: 1, credential };
    let mut draft = Some(Draft::call(&header, Vec::new()));
    let xid = network.node(0).begin(NodeId(1), &mut draft, None, None).unwrap();
    network.settle();
    match network.outcome(0, 1, xid) {
        Some(Err(error)) => error,
        None => {
            let (call, _) = network.next(1).expect("a call");
            network.reply(1, &call, b"", false).unwrap();
            network.settle();
            let outcome = network.outcome(0, 1, xid).expect("an outcome");
            outcome.map_or_else(|error| error, |_| CallError::TimedOut)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_header_of_a_call_alone_refuses_wrong_programs_versions_and_credentials() {
    let mut network = two();
    let served = CallError::TimedOut;
    let sys = |uid, gid| Credential::Sys(AuthSys { uid, gid, gids: vec![0], ..AuthSys::default() });
    assert_eq!(called(&mut network, 1, 1, Credential::None), CallError::ProgramUnavailable);
    let mismatch = CallError::ProgramMismatch { low: VERSION, high: VERSION };
    assert_eq!(called(&mut network, PROGRAM, 9, Credential::None), mismatch);
    // Nothing is known of the caller: what it says stands.
    assert_eq!(called(&mut network, PROGRAM, VERSION, sys(5, 6)), served);
    let known = PeerCredentials { uid: 5, gid: 6, pid: 7 };
    network.node(1).set_credentials(NodeId(0), Some(known));
    assert_eq!(called(&mut network, PROGRAM, VERSION, sys(5, 6)), served);
    let bad = CallError::AuthError(AuthProblem::BadCredential);
    assert_eq!(called(&mut network, PROGRAM, VERSION, sys(0, 6)), bad);
    assert_eq!(called(&mut network, PROGRAM, VERSION, sys(5, 0)), bad);
    assert_eq!(called(&mut network, PROGRAM, VERSION, Credential::None), served);
    let root = PeerCredentials { uid: 0, gid: 0, pid: 7 };
    network.node(1).set_credentials(NodeId(0), Some(root));
    assert_eq!(called(&mut network, PROGRAM, VERSION, sys(5, 6)), served);
}

#[test]
fn groups_that_the_kernel_does_not_say_are_taken_off() {
    let mut network = two();
    let known = PeerCredentials { uid: 5, gid: 6, pid: 7 };
    network.node(1).set_credentials(NodeId(0), Some(known));
    let header = CallHeader {
        xid: 0,
        program: PROGRAM,
        version: VERSION,
        procedure: 1,
        credential: Credential::Sys(AuthSys { stamp: 1, machine: "here".into(), uid: 5, gid: 6, gids: vec![0, 10] }),
    };
    let mut draft = Some(Draft::call(&header, Vec::new()));
    network.node(0).begin(NodeId(1), &mut draft, None, None).unwrap();
    network.settle();
    let (call, _) = network.next(1).expect("a call");
    assert_eq!(call.peer, Some(known));
    match call.credential {
        Credential::Sys(sys) => assert_eq!((sys.uid, sys.gid, sys.gids), (5, 6, Vec::new())),
        Credential::None => panic!("the credential is gone"),
    }
}
