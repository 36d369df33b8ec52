//! A service in one file: a counter that any process adds to, and that tells each what it was.

use mapwire_node::RegisterError;
use mapwire_service::{Action, Broken, Service};
use mapwire_wire::{Endpoint, HandlerId, NodeId, ProcessId};

use crate::world::{World, at};

pub(crate) const COUNTER: HandlerId = HandlerId(40);

/// The counter of a process, and its requests to those of others.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    value: u64,
    /// Messages that wait: an addition (0) or an answer (1), and its number.
    out: std::collections::VecDeque<(Endpoint, [u8; 9])>,
    sending: [u8; 9],
    pub(crate) answers: Vec<u64>,
    pub(crate) gone: Vec<NodeId>,
    pub(crate) lost: u32,
    /// When it adds to itself.
    alarm_ns: Option<u64>,
}

impl Counter {
    /// Asks a process to add to its counter.
    pub(crate) fn add(&mut self, to: Endpoint, amount: u64) {
        self.post(to, 0, amount);
    }

    fn post(&mut self, to: Endpoint, kind: u8, number: u64) {
        let mut message = [kind; 9];
        message[1..].copy_from_slice(&number.to_le_bytes());
        self.out.push_back((to, message));
    }
}

impl Service for Counter {
    fn handle_message(&mut self, _: u64, from: Endpoint, message: &[u8]) -> Result<(), Broken> {
        let message: &[u8; 9] = message.try_into().map_err(|_| Broken)?;
        let (kind, number) = message.split_first().ok_or(Broken)?;
        let number = u64::from_le_bytes(number.try_into().map_err(|_| Broken)?);
        match kind {
            0 => {
                self.post(from, 1, self.value);
                self.value = self.value.wrapping_add(number);
            }
            1 => self.answers.push(number),
            _ => return Err(Broken),
        }
        Ok(())
    }

    fn handle_peer_gone(&mut self, _: u64, node: NodeId) {
        self.gone.push(node);
    }

    fn handle_lost(&mut self, _: Endpoint) {
        self.lost += 1;
    }

    fn handle_time(&mut self, now_ns: u64) {
        if self.alarm_ns.is_some_and(|at| at <= now_ns) {
            self.alarm_ns = None;
            self.value += 1;
        }
    }

    fn poll_action(&mut self) -> Option<Action<'_>> {
        let (to, message) = self.out.pop_front()?;
        self.sending = message;
        Some(Action::Send {
            to,
            message: &self.sending,
        })
    }

    fn poll_at(&self) -> Option<u64> {
        self.alarm_ns
    }
}

/// Two nodes of two processes, each with a counter.
fn counters() -> World {
    let mut world = World::new(2, 2);
    for node in 0..2 {
        for process in 0..2 {
            let counter = Box::new(Counter::default());
            world.nodes[node]
                .register(ProcessId(process), COUNTER, counter)
                .unwrap();
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
    call(&mut world, asker, |counter| {
        counter.answers.sort_unstable();
        assert_eq!(counter.answers, [0, 0, 1, 3, 6, 10]);
    });
    assert_eq!(call(&mut world, asked, |counter| counter.value), 15);
    assert_eq!(call(&mut world, other, |counter| counter.value), 0);
    assert_eq!(call(&mut world, at(0, 0), |counter| counter.value), 9);
}

#[test]
fn a_message_that_no_peer_sends_makes_its_node_count_as_gone() {
    let mut world = counters();
    world.send(at(1, 0), at(0, 0), COUNTER, &[2; 9]);
    world.settle();
    assert!(world.nodes[0].is_gone(NodeId(1)));
    let counter = call(&mut world, at(0, 1), |counter| counter.gone.clone());
    assert_eq!(counter, [NodeId(1)], "each service is told, once");
    let told = world.told[0].iter().any(
        |told| matches!(told, mapwire_node::Told::PeerBroken { node, .. } if *node == NodeId(1)),
    );
    assert!(told, "{:?}", world.told[0]);
    call(&mut world, at(0, 1), |counter| counter.add(at(1, 0), 1));
    world.settle();
    assert_eq!(call(&mut world, at(0, 1), |counter| counter.lost), 1);
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
    assert_eq!(
        call(&mut world, at(0, 0), |counter| counter.answers.clone()),
        [0]
    );
    assert!(!world.nodes[0].is_gone(NodeId(1)) && !world.nodes[1].is_gone(NodeId(0)));
}

#[test]
fn a_handler_id_is_given_once_a_process_and_those_of_the_node_never() {
    let mut world = counters();
    let mut register = |process, handler| {
        let counter = Box::new(Counter::default());
        world.nodes[0].register(ProcessId(process), handler, counter)
    };
    assert!(matches!(
        register(0, COUNTER),
        Err(RegisterError::Taken(COUNTER))
    ));
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

#[test]
fn a_service_is_called_when_its_time_has_come() {
    let mut world = counters();
    assert_eq!(world.nodes[0].poll_at(), None);
    call(&mut world, at(0, 0), |counter| counter.alarm_ns = Some(50));
    world.settle();
    assert_eq!(world.nodes[0].poll_at(), Some(50));
    for (now_ns, value) in [(49, 0), (50, 1), (60, 1)] {
        world.nodes[0].handle_time(now_ns);
        world.settle();
        assert_eq!(call(&mut world, at(0, 0), |counter| counter.value), value);
    }
    assert_eq!(world.nodes[0].poll_at(), None);
}
