//! Services behind nodes: whom their messages reach, who is told of what, and when their time comes.

#[path = "../../../../tests/counter.rs"]
mod service;

use mapwire_node::RegisterError;
use mapwire_vmmc::service::{Action, Broken, Service};
use mapwire_wire::{Endpoint, HandlerId, NodeId, ProcessId};

use crate::world::{World, at};
pub(crate) use service::{COUNTER, Counter};

/// Two nodes of two processes, each with a counter.
fn counters() -> World {
    let mut world = World::new(2, 2);
    for node in 0..2 {
        for process in 0..2 {
            let counter = Box::new(Counter::default());
            world.nodes[node].register(ProcessId(process), COUNTER, counter).unwrap();
        }
    }
    world
}

fn call<R>(world: &mut World, of: Endpoint, call: impl FnOnce(&mut Counter) -> R) -> R {
    let node = &mut world.nodes[usize::from(of.node.0)];
    node.call(of.process, COUNTER, call).unwrap()
}

#[test]
fn messages_of_a_service_reach_the_process_that_they_name_and_answers_come_back() {
    let mut world = counters();
    let (asker, asked, other) = (at(0, 1), at(1, 0), at(1, 1));
    for amount in 1..=5 {
        call(&mut world, asker, |counter| counter.add(asked, amount));
    }
    call(&mut world, asker, |counter| counter.add(at(0, 0), 9));
    world.settle();
    let mut answers = call(&mut world, asker, |counter| counter.answers().to_vec());
    answers.sort_unstable();
    assert_eq!(answers, [0, 0, 1, 3, 6, 10]);
    let mut value = |of| call(&mut world, of, |counter| counter.value());
    assert_eq!([value(asked), value(other), value(at(0, 0))], [15, 0, 9]);
}

#[test]
fn the_count_of_calls_stands_still_only_while_no_service_of_the_process_is_called() {
    let mut world = counters();
    let (asker, asked) = (at(0, 1), at(1, 0));
    let count = |world: &World, of: Endpoint| {
        let node = &world.nodes[usize::from(of.node.0)];
        node.service_calls(of.process)
    };
    let before = [asker, asked].map(|of| count(&world, of));
    let looked_at = world.nodes[0].service::<Counter>(asker.process, COUNTER);
    assert!(looked_at.is_some());
    assert_eq!(count(&world, asker), before[0], "a look is no call");

    call(&mut world, asker, |counter| counter.add(asked, 1));
    let called = count(&world, asker);
    assert!(called > before[0]);
    assert_eq!(count(&world, asked), before[1], "its message has not come");
    world.settle();
    assert!(count(&world, asked) > before[1]);
    assert!(count(&world, asker) > called, "the answer has come");

    let settled = count(&world, asker);
    world.nodes[0].deregister(asker.process, COUNTER).unwrap();
    assert!(count(&world, asker) > settled);
    let gone = count(&world, asker);
    let counter = Box::new(Counter::default());
    world.nodes[0].register(asker.process, COUNTER, counter).unwrap();
    assert!(count(&world, asker) > gone);
}

#[test]
fn a_message_that_no_peer_sends_makes_its_node_count_as_gone() {
    let mut world = counters();
    world.send(at(1, 0), at(0, 0), COUNTER, &[2; 9]);
    world.settle();
    assert!(world.nodes[0].is_gone(NodeId(1)));
    let counter = call(&mut world, at(0, 1), |counter| counter.gone().to_vec());
    assert_eq!(counter, [NodeId(1)], "each service is told, once");
    let told = world.told[0]
        .iter()
        .any(|told| matches!(told, mapwire_node::Told::PeerBroken { node, .. } if *node == NodeId(1)));
    assert!(told, "{:?}", world.told[0]);
    call(&mut world, at(0, 1), |counter| counter.add(at(1, 0), 1));
    world.settle();
    assert!(call(&mut world, at(0, 1), |counter| counter.is_lost()));
}

/// Three nodes with a counter each: requests to the first wait for its host.
fn host_counters() -> World {
    let mut world = World::new(3, 1);
    for node in 0..3 {
        let counter = match node {
            0 => Counter::on_host(),
            _ => Counter::default(),
        };
        let process = ProcessId(0);
        world.nodes[node].register(process, COUNTER, Box::new(counter)).unwrap();
    }
    world
}

fn serve_host(world: &mut World) {
    let process = ProcessId(0);
    while world.nodes[0].serve_on_host(0, process) {}
    assert!(!world.nodes[0].has_host_work(process));
    world.settle();
}

#[test]
fn messages_that_run_on_the_host_wait_for_it_and_so_do_those_behind_them() {
    let mut world = host_counters();
    let (host, peer) = (at(0, 0), at(1, 0));
    call(&mut world, host, |counter| counter.add(peer, 7));
    world.settle();
    let answers = |world: &mut World, of| call(world, of, |counter| counter.answers().to_vec());
    assert_eq!(answers(&mut world, host), [0], "an answer does not wait");
    call(&mut world, peer, |counter| counter.add(host, 1));
    world.settle();
    call(&mut world, host, |counter| counter.add(peer, 7));
    world.settle();
    assert!(world.nodes[0].has_host_work(ProcessId(0)));
    assert_eq!(call(&mut world, host, |counter| counter.value()), 0);
    assert_eq!(answers(&mut world, host), [0], "this one is behind a request");
    serve_host(&mut world);
    assert_eq!(call(&mut world, host, |counter| counter.value()), 1);
    assert_eq!(answers(&mut world, host), [0, 7]);
    assert_eq!(answers(&mut world, peer), [0]);
}

#[test]
fn a_peer_that_broke_the_rules_in_a_message_for_the_host_counts_as_gone_and_others_do_not() {
    let mut world = host_counters();
    let host = at(0, 0);
    call(&mut world, at(1, 0), |counter| counter.add(host, 1));
    world.settle();
    world.send(at(1, 0), host, COUNTER, &[0; 8]);
    call(&mut world, at(1, 0), |counter| counter.add(host, 1));
    call(&mut world, at(2, 0), |counter| counter.add(host, 10));
    world.settle();
    assert!(!world.nodes[0].is_gone(NodeId(1)));
    serve_host(&mut world);
    assert!(world.nodes[0].is_gone(NodeId(1)) && !world.nodes[0].is_gone(NodeId(2)));
    let value = call(&mut world, host, |counter| counter.value());
    assert_eq!(value, 11, "nothing behind the broken message counts");
}

#[test]
fn what_waits_for_the_host_is_bounded_by_whoever_takes_packets() {
    let mut world = host_counters();
    let mut sent = 0;
    while !world.nodes[0].has_too_much_host_work(ProcessId(0)) {
        call(&mut world, at(1, 0), |counter| counter.add(at(0, 0), 1));
        world.settle();
        sent += 1;
        assert!(sent < 100_000);
    }
    serve_host(&mut world);
    assert_eq!(call(&mut world, at(0, 0), |counter| counter.value()), sent);
}

#[test]
fn what_comes_for_a_service_or_a_process_that_is_not_there_is_dropped() {
    let mut world = counters();
    let taken = world.nodes[1].deregister(ProcessId(0), COUNTER);
    assert!(taken.is_some());
    call(&mut world, at(0, 0), |counter| {
        counter.add(at(1, 0), 1);
        counter.add(at(1, 7), 1);
        counter.add(at(1, 1), 1);
    });
    world.settle();
    assert_eq!(call(&mut world, at(0, 0), |counter| counter.answers().to_vec()), [0]);
    assert!(!world.nodes[0].is_gone(NodeId(1)) && !world.nodes[1].is_gone(NodeId(0)));
}

#[test]
fn a_handler_id_is_given_once_a_process_and_those_of_the_node_never() {
    let mut world = counters();
    let mut register = |process, handler| {
        let counter = Box::new(Counter::default());
        world.nodes[0].register(ProcessId(process), handler, counter)
    };
    assert!(matches!(register(0, COUNTER), Err(RegisterError::Taken(COUNTER))));
    let reserved = [HandlerId::CONTROL, mapwire_node::NOTICE_HANDLER];
    for handler in reserved {
        let refused = register(0, handler);
        assert!(matches!(refused, Err(RegisterError::Reserved(_))));
    }
    let refused = register(5, HandlerId(41));
    assert!(matches!(refused, Err(RegisterError::NoProcess(_))));
    let refused = register(0, HandlerId(1 << 20));
    assert!(matches!(refused, Err(RegisterError::Nic(_))), "no such row");
    assert!(register(0, HandlerId(41)).is_ok());
}

/// Counts how often its time has come.
#[derive(Debug)]
struct Alarm {
    at_ns: Option<u64>,
    rung: u32,
}

impl Service for Alarm {
    fn handle_message(&mut self, _: u64, _: Endpoint, _: &[u8]) -> Result<(), Broken> {
        Err(Broken)
    }

    fn handle_peer_gone(&mut self, _: u64, _: NodeId) {}

    fn handle_lost(&mut self, _: Endpoint) {}

    fn handle_time(&mut self, now_ns: u64) {
        if self.at_ns.is_some_and(|at| at <= now_ns) {
            self.at_ns = None;
            self.rung += 1;
        }
    }

    fn poll_action(&mut self) -> Option<Action<'_>> {
        None
    }

    fn poll_at(&self) -> Option<u64> {
        self.at_ns
    }
}

#[test]
fn a_service_is_called_when_its_time_has_come() {
    let mut world = World::new(1, 1);
    let (process, handler) = (ProcessId(0), HandlerId(50));
    let alarm = Alarm { at_ns: None, rung: 0 };
    let node = &mut world.nodes[0];
    node.register(process, handler, Box::new(alarm)).unwrap();
    world.settle();
    assert_eq!(world.nodes[0].poll_at(), None);
    let set = |alarm: &mut Alarm| alarm.at_ns = Some(50);
    world.nodes[0].call(process, handler, set).unwrap();
    world.settle();
    assert_eq!(world.nodes[0].poll_at(), Some(50));
    for (now_ns, rung) in [(49, 0), (50, 1), (60, 1)] {
        world.nodes[0].handle_time(now_ns);
        world.settle();
        let alarm: &Alarm = world.nodes[0].service(process, handler).unwrap();
        assert_eq!(alarm.rung, rung);
    }
    assert_eq!(world.nodes[0].poll_at(), None);
}
