//! Packets whose source the peer reads after they are out: their commands are over when it has, not before.

use crate::world::{PAGE, World, long_send, pattern};
use mapwire_nic::{CommandError, Completion};
use mapwire_wire::{ImportId, NodeId, ProcessId};

const HERE: u64 = 0x10_0000;
const THERE: u64 = 0x40_0000;
const LENGTH: u64 = 3 * PAGE;

fn world() -> (World, [ImportId; 2]) {
    let mut world = World::new(2, 1);
    world.open(1, 0);
    world.pin(1, 0, THERE, LENGTH);
    let export = world.export(1, 0, THERE, LENGTH);
    let imports = [0, 1].map(|process| {
        world.open(0, process);
        world.pin(0, process, HERE, LENGTH);
        world.poke(0, process, HERE, &pattern(u64::from(process) + 10, LENGTH));
        world.import(0, process, 1, export, LENGTH)
    });
    (world, imports)
}

/// Submits a send of two pages and lets its packets depart; only the second is the end of a command.
fn depart(world: &mut World, process: u16, import: ImportId, word: u32) {
    world.submit(0, process, &long_send(import, 0, HERE, 2 * PAGE, word), &[]);
    world.serve(0, process);
    assert!(!world.depart(0), "the first of two packets");
    assert!(world.depart(0), "the last");
}

fn done(process: u16, completion: u32) -> Completion {
    Completion::Done {
        process: ProcessId(process),
        completion,
    }
}

#[test]
fn a_command_is_over_when_the_peer_has_read_its_memory() {
    let (mut world, imports) = world();
    depart(&mut world, 0, imports[0], 1);
    depart(&mut world, 1, imports[1], 2);
    world.settle();
    assert_eq!(world.take_told(0), []);
    world.nic(0).handle_source_read(NodeId(1));
    assert_eq!(world.nic(0).poll_completion(), Some(done(0, 1)));
    assert_eq!(world.nic(0).poll_completion(), None);
    world.nic(0).handle_source_read(NodeId(1));
    assert_eq!(world.nic(0).poll_completion(), Some(done(1, 2)));
    // Nobody waits any more, and there is no such node.
    world.nic(0).handle_source_read(NodeId(1));
    world.nic(0).handle_source_read(NodeId(7));
    assert_eq!(world.nic(0).poll_completion(), None);
}

#[test]
fn a_peer_that_goes_before_it_has_read_fails_the_command_once() {
    let (mut world, imports) = world();
    depart(&mut world, 0, imports[0], 1);
    world.nic(0).handle_peer_gone(NodeId(1));
    let error = CommandError::PeerGone(NodeId(1));
    assert_eq!(
        world.nic(0).poll_completion(),
        Some(Completion::Failed {
            process: ProcessId(0),
            completion: Some(1),
            error
        })
    );
    world.nic(0).handle_source_read(NodeId(1));
    assert_eq!(world.nic(0).poll_completion(), None);
}

#[test]
fn a_closed_process_is_told_nothing_and_the_others_keep_their_order() {
    let (mut world, imports) = world();
    depart(&mut world, 0, imports[0], 1);
    depart(&mut world, 1, imports[1], 2);
    world.nic(0).close_process(ProcessId(0));
    world.nic(0).handle_source_read(NodeId(1));
    assert_eq!(world.nic(0).poll_completion(), None);
    world.nic(0).handle_source_read(NodeId(1));
    assert_eq!(world.nic(0).poll_completion(), Some(done(1, 2)));
}
