//! A confined node allocates and frees nothing, whatever comes; what it leaves is made up for.

use mapwire_dsm::{Config, Dsm, Message};
use mapwire_nic::BufferId;
use mapwire_node::{NoPayload, Node, SharedMemory};
use mapwire_translation::{Hierarchical, PageRange};
use mapwire_vmmc::service::Service;
use mapwire_wire::{CommandRepr, ControlMessage, Endpoint, HandlerId, Header, Key, NodeId, ProcessId, Repr, Rights};

use crate::allocations::calls;
use crate::counter::{COUNTER, Counter};
use crate::world::{World, at};

const SHARED: HandlerId = HandlerId(1);
const PEER: NodeId = NodeId(1);

/// Gives the first node, which is confined, a packet of the second. False if it leaves it where it is.
fn give(node: &mut Node<Hierarchical>, header: &Header, payload: &[u8]) -> bool {
    if !node.may_take(header) {
        node.leave_for_later();
        return false;
    }
    let _ = node.handle_packet(PEER, header, &payload, BufferId(0));
    while let Some(dma) = node.poll_move() {
        node.handle_moved(&dma, 0);
    }
    while node.poll_told(&payload, || 0).is_some() {}
    node.end_packet(PEER);
    while node.poll_told(&NoPayload, || 0).is_some() {}
    while node.poll_ask().is_some() {}
    while let Some(packet) = node.poll_transmit() {
        let to = packet.to;
        node.handle_transmitted(to);
    }
    true
}

fn message(handler: HandlerId, length: usize) -> Repr {
    Repr::Handler { handler, from: ProcessId(0), to: ProcessId(0), length: length as u32 }
}

/// A node with a service that allocates, a shared memory, and what a peer may send it.
fn node() -> (World, Vec<(Repr, Vec<u8>)>) {
    let mut world = World::new(2, 1);
    let process = ProcessId(0);
    let node = &mut world.nodes[0];
    node.register(process, COUNTER, Box::new(Counter::default())).unwrap();
    let dsm = Dsm::new(Config::new(0, 2, 4, 64, 4)).unwrap();
    let mut memory = SharedMemory::new(dsm, 1);
    memory.hear(Endpoint::first_of(PEER));
    node.register(process, SHARED, Box::new(memory)).unwrap();
    world.settle();
    let mut bytes = [0; mapwire_dsm::MAX_MESSAGE_BYTES];
    let length = Message::LockRequest { lock: 0 }.encode(&mut bytes);
    let control = ControlMessage::ImportRequest { request: 7, name: "inbox", rights: Rights::ALL, token: None };
    let payloads = [
        (SHARED, bytes[..length].to_vec()),
        (SHARED, vec![99; 5]),
        (HandlerId::CONTROL, control.to_vec().unwrap()),
        (HandlerId::CONTROL, vec![1; 3]),
        (COUNTER, vec![0; 9]),
        (mapwire_node::NOTICE_HANDLER, vec![3; 36]),
        (HandlerId(200), vec![3; 36]),
    ];
    let mut packets: Vec<(Repr, Vec<u8>)> =
        payloads.into_iter().map(|(handler, payload)| (message(handler, payload.len()), payload)).collect();
    let store = Repr::Store {
        key: Key([9; 16]),
        export: mapwire_wire::ExportId(3),
        message: mapwire_wire::MessageId(1),
        offset: 0,
        length: 4,
        last: true,
        notify: true,
        signal: false,
    };
    packets.push((store, vec![1; 4]));
    packets.push((Repr::Nothing, Vec::new()));
    (world, packets)
}

#[test]
fn a_confined_node_allocates_nothing_on_any_packet() {
    let (mut world, packets) = node();
    let node = &mut world.nodes[0];
    node.set_confined(true);
    let mut sequence = 0;
    for (repr, payload) in packets {
        let (header, _) = repr.emit(sequence);
        let before = calls();
        let taken = give(node, &header, &payload);
        assert_eq!(calls() - before, 0, "{repr}");
        if taken {
            sequence += 1;
        } else {
            let is_counter = matches!(repr, Repr::Handler { handler: COUNTER, .. });
            assert!(is_counter, "{repr} is left");
        }
    }
    assert!(node.has_left());
    let before = calls();
    node.handle_peer_gone(0, PEER);
    while node.poll_ask().is_some() {}
    assert_eq!(calls() - before, 0, "a peer that goes");
}

#[test]
fn control_messages_are_kept_up_to_a_number_and_taken_once_the_node_is_free() {
    let (mut world, _) = node();
    let node = &mut world.nodes[0];
    node.set_confined(true);
    let request = |request| {
        let control = ControlMessage::ImportRequest { request, name: "nothing", rights: Rights::ALL, token: None };
        control.to_vec().unwrap()
    };
    let mut taken = 0;
    loop {
        let payload = request(taken);
        let (header, _) = message(HandlerId::CONTROL, payload.len()).emit(taken);
        if !give(node, &header, &payload) {
            break;
        }
        taken += 1;
        assert!(taken <= 32, "not without bound");
    }
    assert_eq!(taken, 32);
    node.set_confined(false);
    assert!(node.has_left());
    node.make_up(0);
    assert!(!node.has_left() && !node.is_gone(PEER));
    // A malformed message ends the peer once the node looks at it, not before.
    node.set_confined(true);
    let (header, _) = message(HandlerId::CONTROL, 3).emit(taken);
    assert!(give(node, &header, &[1; 3]));
    assert!(!node.is_gone(PEER));
    node.set_confined(false);
    node.make_up(0);
    assert!(node.is_gone(PEER));
}

#[test]
fn services_that_allocate_hear_of_a_peers_end_when_the_node_is_free() {
    let (mut world, _) = node();
    let node = &mut world.nodes[0];
    node.set_confined(true);
    node.handle_peer_gone(0, PEER);
    let counter = |node: &mut Node<Hierarchical>| {
        let gone = |counter: &mut Counter| counter.gone().len();
        node.call(ProcessId(0), COUNTER, gone).unwrap()
    };
    assert_eq!(counter(node), 0);
    let memory = node.service::<SharedMemory>(ProcessId(0), SHARED).unwrap();
    assert!(memory.end().is_some() && memory.allocates_nothing());
    node.set_confined(false);
    node.make_up(0);
    assert_eq!(counter(node), 1);
    node.handle_peer_gone(0, PEER);
    assert_eq!(counter(node), 1);
    assert!(node.is_gone(at(1, 0).node));
}

#[test]
fn a_confined_node_that_is_traced_cuts_nothing_and_leaves_that_to_others() {
    const BYTES: u64 = 10_000;
    let mut world = World::new(2, 1);
    let (own, peer) = (at(0, 0), at(1, 0));
    crate::processes::export(&mut world, peer, "inbox");
    let (import, _) = crate::processes::import(&mut world, own, peer, "inbox").unwrap();
    let World { nodes, memories, .. } = &mut world;
    let (node, memory) = (&mut nodes[0], &mut memories[0]);
    node.set_tracing(true);
    let range = PageRange::covering(0, BYTES).unwrap();
    node.hold(own.process, memory, 1, range).unwrap();
    let command = CommandRepr::LongSend {
        import,
        offset: 0,
        address: 0,
        length: BYTES,
        notify: false,
        signal: None,
        completion: 1,
    };
    node.handle_own_command(own.process, &command, &[]);
    // The peer has no room, so that most of it waits uncut.
    while let Some(packet) = node.poll_transmit() {
        let to = packet.to;
        node.handle_transmit_blocked(to);
    }
    while node.poll_event().is_some() {}
    node.set_confined(true);
    node.retry_blocked();
    let before = calls();
    let mut sent = 0;
    while let Some(packet) = node.poll_transmit() {
        let to = packet.to;
        node.handle_transmitted(to);
        sent += 1;
    }
    assert_eq!(calls(), before, "after {sent} packets");
    assert!(node.has_left());
    node.set_confined(false);
    node.make_up(0);
    while let Some(packet) = node.poll_transmit() {
        let to = packet.to;
        node.handle_transmitted(to);
        sent += 1;
    }
    assert!((3..=6).contains(&sent), "{sent} packets");
}
