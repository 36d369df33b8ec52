//! Sends and fetches, at random and at the edges of pages.

use crate::traffic::{FETCHED, SOURCE, Traffic};
use crate::world::random::{Random, for_seeds};
use crate::world::{PAGE, World, fetch, long_send, notifying_send, pattern, short_send, words};
use mapwire_nic::{Completion, MIN_PAYLOAD_BYTES};
use mapwire_wire::{CommandRepr, ExportId, ImportId, MAX_PAYLOAD_BYTES, NodeId, ProcessId, Signal};

#[test]
fn any_sequence_of_sends_and_fetches_leaves_memory_as_byte_arrays_would() {
    any_sequence(100, 0, false);
}

#[test]
fn so_it_does_when_translations_are_missing_and_transfers_wait_for_the_host() {
    any_sequence(100, 20, false);
}

#[test]
fn so_it_does_when_packets_are_dropped_and_sent_again() {
    any_sequence(200, 20, true);
    any_sequence(50, 60, true);
}

#[test]
fn so_it_does_over_wires_that_lose_repeat_and_reorder() {
    any_sequence_over(200, 0, true, 15);
    any_sequence_over(100, 20, true, 30);
}

fn any_sequence(seeds: u64, percent: u64, drops: bool) {
    any_sequence_over(seeds, percent, drops, 0);
}

fn any_sequence_over(seeds: u64, percent: u64, drops: bool, harm_percent: u64) {
    for_seeds(seeds, |seed| {
        let mut random = Random::new(seed);
        let carried = [MIN_PAYLOAD_BYTES, 1400, 4112, 9000, MAX_PAYLOAD_BYTES];
        let carried = carried[random.below(5) as usize];
        let mut world = World::carrying(carried, 3, random, percent, drops);
        world.harm_percent = harm_percent;
        let mut traffic = Traffic::new(world);
        for _ in 0..80 {
            traffic.act();
        }
        traffic.settle();
    });
}

/// Two nodes with a process each, and an import of `length` bytes at `address` of node 1's, its pages pinned.
fn pair(seed: u64, address: u64, length: u64) -> (World, ImportId, ExportId) {
    let mut world = World::new(2, seed);
    world.open(0, 0);
    world.open(1, 0);
    world.pin(1, 0, address, length);
    let export = world.export(1, 0, address, length);
    let import = world.import(0, 0, 1, export, length);
    (world, import, export.0)
}

#[test]
fn each_offset_and_length_around_a_page_boundary_is_scattered_to_two_frames() {
    let (mut world, import, _) = pair(1, 0x7000, 3 * PAGE);
    world.pin(0, 0, SOURCE, 2 * PAGE);
    let source = pattern(5, 2 * PAGE);
    world.poke(0, 0, SOURCE, &source);
    for from in [0, 1, PAGE - 1, PAGE / 2] {
        for offset in [0, 1, PAGE - 130, PAGE - 8, PAGE - 1, PAGE, PAGE + 1] {
            for length in [1, 2, 8, 9, 128, 129, PAGE - 1, PAGE] {
                world.poke(1, 0, 0x7000, &vec![0; 3 * PAGE as usize]);
                let command = long_send(import, offset, SOURCE + from, length, 0);
                world.submit(0, 0, &command, &[]);
                world.settle();
                let mut expected = vec![0; 3 * PAGE as usize];
                let (to, from) = (offset as usize, from as usize);
                expected[to..to + length as usize].copy_from_slice(&source[from..from + length as usize]);
                assert!(world.peek(1, 0, 0x7000, 3 * PAGE) == expected, "{from} to {offset}, {length}");
            }
        }
    }
}

#[test]
fn chunks_end_at_the_page_boundaries_of_the_source() {
    let (mut world, import, _) = pair(2, 0x7000, 4 * PAGE);
    world.pin(0, 0, SOURCE, 4 * PAGE);
    world.log = Some(Vec::new());
    world.submit(0, 0, &long_send(import, 50, SOURCE + 4000, 2 * PAGE + 200, 0), &[]);
    world.settle();
    let lengths: Vec<_> = world.log.take().unwrap().iter().map(|(_, _, sent)| sent.payload.len()).collect();
    assert_eq!(lengths, [96, 4096, 4096, 104]);
}

#[test]
fn what_arrives_for_an_unpinned_page_is_lost_in_the_garbage_frame_and_nowhere_else() {
    let mut world = World::new(2, 3);
    world.open(0, 0);
    world.open(1, 0);
    let export = world.export(1, 0, 0x7000, 3 * PAGE);
    let import = world.import(0, 0, 1, export, 3 * PAGE);
    world.pin(1, 0, 0x7000, PAGE);
    world.pin(1, 0, 0x9000, PAGE);
    world.pin(0, 0, SOURCE, 3 * PAGE);
    world.poke(0, 0, SOURCE, &pattern(1, 3 * PAGE));
    world.submit(0, 0, &notifying_send(import, 0, SOURCE, 3 * PAGE, 9), &[]);
    world.settle();
    assert_eq!(world.peek(1, 0, 0x7000, PAGE), pattern(1, 3 * PAGE)[..PAGE as usize]);
    assert_eq!(world.peek(1, 0, 0x9000, PAGE), pattern(1, 3 * PAGE)[2 * PAGE as usize..]);
    assert_eq!(world.nodes[1].memory.garbage_writes, 1);
    assert_eq!(world.nic(1).counters().garbage_pieces, 1);
    assert_eq!(words(&world.take_told(0)), (vec![9], vec![]));
}

#[test]
fn a_source_that_is_not_pinned_reads_the_garbage_frame() {
    let (mut world, import, _) = pair(4, 0x7000, PAGE);
    world.submit(0, 0, &long_send(import, 0, 0xdead_0000, PAGE, 1), &[]);
    world.settle();
    assert_eq!(world.nodes[0].memory.garbage_reads, 1);
    assert_eq!(words(&world.take_told(0)), (vec![1], vec![]));
}

#[test]
fn whoever_sees_the_signal_sees_the_data_before_it() {
    for_seeds(30, |seed| {
        let (mut world, import, _) = pair(seed, 0x7000, 9 * PAGE);
        world.blocked_percent = 50;
        world.slow_moves = seed % 2 == 0;
        world.pin(0, 0, SOURCE, 9 * PAGE);
        for round in 1..=5u64 {
            let length = Random::new(seed + round).within(1, 8 * PAGE);
            let data = pattern(round, length);
            world.poke(0, 0, SOURCE, &data);
            let signal = Some(Signal::set(8 * PAGE, round));
            let command = CommandRepr::LongSend {
                import,
                offset: 3,
                address: SOURCE,
                length,
                notify: false,
                signal,
                completion: 0,
            };
            world.submit(0, 0, &command, &[]);
            while world.step() {
                if world.peek(1, 0, 0x7000 + 8 * PAGE, 8) == round.to_le_bytes() {
                    assert!(world.peek(1, 0, 0x7003, length) == data);
                }
            }
            assert_eq!(world.peek(1, 0, 0x7000 + 8 * PAGE, 8), round.to_le_bytes());
        }
    });
}

#[test]
fn a_store_of_nothing_still_notifies_and_signals() {
    let (mut world, import, export) = pair(6, 0x7000, PAGE);
    let signal = Some(Signal::set(16, 77));
    world.submit(0, 0, &short_send(import, PAGE, &[], true, signal), &[]);
    world.settle();
    assert_eq!(world.peek(1, 0, 0x7010, 8), 77u64.to_le_bytes());
    let expected = Completion::Notification { process: ProcessId(0), export, from: NodeId(0), offset: PAGE, length: 0 };
    assert_eq!(world.take_told(1), [expected]);
}

#[test]
fn messages_of_two_processes_to_one_node_are_told_apart_although_their_packets_mix() {
    let mut world = World::new(2, 7);
    world.open(1, 0);
    world.log = Some(Vec::new());
    let mut exports = Vec::new();
    for process in 0..2 {
        world.open(0, process);
        world.pin(0, process, SOURCE, 6 * PAGE);
        let address = 0x10_0000 * (u64::from(process) + 1);
        world.pin(1, 0, address, 6 * PAGE);
        let export = world.export(1, 0, address, 6 * PAGE);
        let import = world.import(0, process, 1, export, 6 * PAGE);
        exports.push(export.0);
        world.submit(0, process, &notifying_send(import, 64, SOURCE, 5 * PAGE, 5), &[]);
        world.serve(0, process);
    }
    world.settle();
    let owners: Vec<_> = world.log.take().unwrap().iter().map(|(_, _, sent)| sent.of.unwrap().0).collect();
    assert_eq!(owners, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
    let told = world.take_told(1);
    assert_eq!(told.len(), 2);
    for (completion, expected) in told.iter().zip(exports) {
        let Completion::Notification { export, offset, length, .. } = completion else {
            panic!("{completion:?}");
        };
        assert_eq!((*export, *offset, *length), (expected, 64, 5 * PAGE));
    }
}

#[test]
fn more_fetches_than_may_be_under_way_wait_and_are_all_served() {
    let (mut world, import, _) = pair(8, 0x7000, PAGE);
    world.poke(1, 0, 0x7000, &pattern(3, PAGE));
    world.pin(0, 0, FETCHED, PAGE);
    for at in 0..200u32 {
        let place = u64::from(at) * 20;
        world.submit(0, 0, &fetch(import, place, FETCHED + place, 20, at), &[]);
    }
    // All that can be asked is asked before anything is answered.
    while world.serve(0, 0) || world.transmit(0) {}
    assert_eq!(world.on_wire(0, 1), 32);
    world.settle();
    assert_eq!(world.peek(0, 0, FETCHED, 4000), pattern(3, PAGE)[..4000]);
    let (done, failed) = words(&world.take_told(0));
    assert_eq!((done, failed), ((0..200).collect(), vec![]));
}
