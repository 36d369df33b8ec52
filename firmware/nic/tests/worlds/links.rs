//! Peers that restart or fall silent, over wires that may lose packets.

use crate::world::random::Random;
use crate::world::{PAGE, World, fetch, long_send, pattern, words};
use mapwire_nic::link::LinkEvent;
use mapwire_nic::{CommandError, Completion};
use mapwire_wire::{ExportId, ImportId, Key, NodeId, ProcessId};

const HERE: u64 = 0x10_0000;
const THERE: u64 = 0x40_0000;
const LENGTH: u64 = 4 * PAGE;

/// Memory of node 1, exported, and node 0's import of it.
fn share(world: &mut World) -> (ImportId, (ExportId, Key)) {
    let export = world.export(1, 0, THERE, LENGTH);
    (world.import(0, 0, 1, export, LENGTH), export)
}

fn pair() -> (World, ImportId) {
    let mut world = World::forgetful(2, Random::new(3), 0, true);
    for (node, address) in [(0, HERE), (1, THERE)] {
        world.open(node, 0);
        world.pin(node, 0, address, LENGTH);
    }
    world.poke(0, 0, HERE, &pattern(1, LENGTH));
    let (import, _) = share(&mut world);
    (world, import)
}

fn events(world: &mut World) -> Vec<LinkEvent> {
    let nic = world.nic(0);
    std::iter::from_fn(|| nic.poll_link_event()).map(|(_, event)| event).collect()
}

/// Node 1 restarts, with memory of its own.
fn restart(world: &mut World) {
    world.restart(1);
    world.open(1, 0);
    world.pin(1, 0, THERE, LENGTH);
}

#[test]
fn what_waits_for_a_peer_that_restarts_fails_and_its_new_incarnation_is_spoken_with() {
    for taken in [false, true] {
        let (mut world, import) = pair();
        world.submit(0, 0, &long_send(import, 0, HERE, LENGTH, 1), &[]);
        world.settle();
        assert_eq!(words(&world.take_told(0)), (vec![1], vec![]));
        assert_eq!(events(&mut world), [LinkEvent::Up]);
        // The former incarnation has taken the request and not answered, or has not even taken it.
        world.submit(0, 0, &fetch(import, 0, HERE, 8, 2), &[]);
        world.serve(0, 0);
        while world.transmit(0) {}
        while taken && world.receive(0, 1) {}
        world.wires.clear();
        restart(&mut world);
        world.settle();
        let told = world.take_told(0);
        let failed = Completion::Failed {
            process: ProcessId(0),
            completion: Some(2),
            error: CommandError::PeerGone(NodeId(1)),
            sent_bytes: 0,
        };
        assert_eq!(told, [failed], "taken: {taken}");
        assert_eq!(events(&mut world), [LinkEvent::Restarted]);
        let (anew, _) = share(&mut world);
        // An import of the former incarnation names nothing of the new one.
        world.submit(0, 0, &long_send(import, 0, HERE, 8, 3), &[]);
        world.submit(0, 0, &long_send(anew, 0, HERE, LENGTH, 4), &[]);
        world.settle();
        let told = world.take_told(0);
        assert_eq!(words(&told), (vec![4], vec![3]));
        assert_eq!(world.peek(1, 0, THERE, LENGTH), pattern(1, LENGTH));
    }
}

#[test]
fn a_peer_that_falls_silent_is_dead_once_it_owes_an_answer_and_its_commands_fail() {
    let (mut world, import) = pair();
    world.submit(0, 0, &long_send(import, 0, HERE, 8, 1), &[]);
    world.settle();
    world.take_told(0);
    world.cut(1);
    world.submit(0, 0, &long_send(import, 0, HERE, LENGTH, 2), &[]);
    world.submit(0, 0, &fetch(import, 0, HERE, 8, 3), &[]);
    let before_ns = world.now_ns;
    world.settle();
    let waited_ns = world.now_ns - before_ns;
    assert!((10_000_000_000..10_100_000_000).contains(&waited_ns), "{waited_ns}");
    world.collect(0);
    assert_eq!(words(&world.take_told(0)), (vec![], vec![2, 3]));
    assert!(events(&mut world).contains(&LinkEvent::Dead));
    assert!(world.nic(0).idle_towards(NodeId(1)));
    assert_eq!(world.nic(0).poll_at(), None);
}
