//! Flushes: fetches of no bytes, answered when all that was sent before has been handled.

use crate::world::{PAGE, World, fetch, long_send, pattern, short_send, words};
use mapwire_nic::{RefusedStore, RefusedStores};
use mapwire_wire::{ExportId, ImportId, NodeId, Refusal, Rights};

const HERE: u64 = 0x10_0000;
const THERE: u64 = 0x40_0000;
const LENGTH: u64 = 4 * PAGE;

/// Node 0 with an import of each of `exports` exports of node 1.
fn world(seed: u64, exports: u64) -> (World, Vec<(ImportId, ExportId)>) {
    let mut world = World::new(2, seed);
    world.open(0, 0);
    world.pin(0, 0, HERE, LENGTH);
    world.poke(0, 0, HERE, &pattern(7, LENGTH));
    world.open(1, 0);
    world.pin(1, 0, THERE, exports * LENGTH);
    let pairs = (0..exports)
        .map(|number| {
            let export = world.export(1, 0, THERE + number * LENGTH, LENGTH);
            (world.import(0, 0, 1, export, LENGTH), export.0)
        })
        .collect();
    (world, pairs)
}

fn flush(world: &mut World, import: ImportId, word: u32) {
    world.submit(0, 0, &fetch(import, 0, 0, 0, word), &[]);
}

#[test]
fn a_flush_is_done_when_all_that_was_sent_before_is_in_place() {
    for seed in 0..20 {
        let (mut world, pairs) = world(seed, 1);
        let import = pairs[0].0;
        world.submit(0, 0, &long_send(import, 0, HERE, LENGTH, 1), &[]);
        flush(&mut world, import, 2);
        let mut told = Vec::new();
        while !words(&told).0.contains(&2) {
            assert!(world.step() || world.serve(0, 0), "the flush never ends");
            told.extend(world.take_told(0));
        }
        assert!(world.peek(1, 0, THERE, LENGTH) == pattern(7, LENGTH));
        assert_eq!(world.nic(0).take_refused(import), RefusedStores::default());
    }
}

#[test]
fn a_flush_needs_no_right_to_fetch_and_reads_nothing() {
    let (mut world, _) = world(1, 1);
    let key = crate::world::key(3);
    let entry = mapwire_nic::Export {
        process: mapwire_wire::ProcessId(0),
        key,
        address: THERE,
        length: LENGTH,
        rights: Rights::STORE,
        landing: None,
    };
    let export = world.nic(1).export(entry).unwrap();
    let import = world.import(0, 0, 1, (export, key), LENGTH);
    flush(&mut world, import, 5);
    world.settle();
    assert_eq!(words(&world.take_told(0)), (vec![5], vec![]));
    assert_eq!(world.nic(1).counters().rejected.total(), 0);
    assert_eq!(world.nic(1).counters().fetches_served, 0);
    assert_eq!(world.nic(0).counters().fetches, 0);
}

#[test]
fn a_flush_after_a_revocation_knows_every_store_that_was_refused() {
    let (mut world, pairs) = world(2, 1);
    let (import, export) = pairs[0];
    world.nic(1).revoke(export).unwrap();
    for number in 0..50 {
        world.submit(0, 0, &short_send(import, 8 * number, &[1; 8], false, None), &[1; 8]);
    }
    flush(&mut world, import, 1);
    world.settle();
    assert_eq!(words(&world.take_told(0)), (vec![1], vec![]));
    let refused = world.nic(0).take_refused(import);
    let first = RefusedStore { offset: 0, length: 8, reason: Refusal::Revoked };
    assert_eq!((refused.count, refused.first), (50, Some(first)));
    assert!(!refused.unnamed);
    assert_eq!(world.nic(0).take_refused(import), RefusedStores::default());
}

#[test]
fn sends_that_a_revocation_overtakes_in_the_queue_are_counted_too() {
    let (mut world, pairs) = world(3, 1);
    let (import, export) = pairs[0];
    world.submit(0, 0, &short_send(import, 16, &[1; 8], false, None), &[1; 8]);
    world.nic(0).handle_revoked(NodeId(1), export);
    flush(&mut world, import, 1);
    world.settle();
    assert_eq!(words(&world.take_told(0)).0, [1]);
    let refused = world.nic(0).take_refused(import);
    assert_eq!(refused.count, 1);
    assert_eq!(refused.first, None, "it never left");
    assert_eq!(refused.first_unsent.map(|first| first.offset), Some(16));
}

#[test]
fn a_send_that_failed_of_itself_is_not_counted_for_its_end_that_is_refused() {
    let (mut world, pairs) = world(8, 1);
    let (import, export) = pairs[0];
    world.submit(0, 0, &long_send(import, 0, HERE, LENGTH, 1), &[]);
    world.serve(0, 0);
    assert!(world.transmit(0) && world.receive(0, 1), "one page arrives");
    world.nic(1).revoke(export).unwrap();
    world.nic(0).handle_revoked(NodeId(1), export);
    flush(&mut world, import, 2);
    world.settle();
    assert_eq!(words(&world.take_told(0)), (vec![2], vec![1]));
    assert_eq!(world.nic(0).take_refused(import), RefusedStores::default());
}

#[test]
fn when_more_exports_refuse_than_can_be_named_every_flush_says_so() {
    const EXPORTS: u64 = 60;
    let (mut world, pairs) = world(4, EXPORTS);
    for (import, export) in &pairs {
        world.nic(1).revoke(*export).unwrap();
        world.submit(0, 0, &short_send(*import, 0, &[1; 8], false, None), &[1; 8]);
    }
    // All of them come before node 1 can answer any.
    world.nic(1).handle_transmit_blocked(NodeId(0));
    while world.serve(0, 0) || world.transmit(0) {}
    while world.receive(0, 1) {}
    world.nic(1).handle_transmit_ready(NodeId(0));
    world.settle();
    let named: u64 = pairs.iter().map(|(import, _)| world.nic(0).take_refused(*import).count).sum();
    assert!(named < EXPORTS, "{named}");
    flush(&mut world, pairs[0].0, 1);
    world.settle();
    assert_eq!(words(&world.take_told(0)).0, [1]);
    for (import, _) in pairs {
        assert!(world.nic(0).take_refused(import).unnamed);
    }
}

#[test]
fn a_flush_to_a_node_that_goes_fails_once() {
    for transmitted in [false, true] {
        let (mut world, pairs) = world(5, 1);
        flush(&mut world, pairs[0].0, 1);
        world.serve(0, 0);
        if transmitted {
            while world.transmit(0) {}
        }
        world.nic(0).handle_peer_gone(NodeId(1));
        world.collect(0);
        assert_eq!(words(&world.take_told(0)), (vec![], vec![1]));
    }
}

#[test]
fn the_answer_to_a_flush_whose_process_has_closed_is_passed_over() {
    let (mut world, pairs) = world(6, 1);
    flush(&mut world, pairs[0].0, 1);
    world.serve(0, 0);
    while world.transmit(0) {}
    let frames = world.frames(0, 0, HERE, LENGTH);
    world.nic(0).close_process(mapwire_wire::ProcessId(0));
    world.drop_frames(0, &frames);
    world.nodes[0].queues.remove(&0);
    world.settle();
    assert_eq!(world.nic(0).counters().rejected.total(), 0);
    assert_eq!(world.take_told(0), []);
}
