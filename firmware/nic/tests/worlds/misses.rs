//! Translations that only the host can supply: what waits, what is dropped and sent again, and what fails.

use crate::world::random::Random;
use crate::world::{PAGE, World, fetch, long_send, pattern, words};
use mapwire_nic::{CommandError, Completion};
use mapwire_translation::{NicSide, Page, Process, TranslationDesign};
use mapwire_wire::{ExportId, ImportId, Kind, NodeId, ProcessId, Refusal};

const HERE: u64 = 0x10_0000;
const THERE: u64 = 0x40_0000;
const LENGTH: u64 = 4 * PAGE;

/// Process 0 of node 0 imports memory of process 0 of node 1.
fn pair(drops: bool) -> (World, ImportId, ExportId) {
    let mut world = World::forgetful(2, Random::new(7), 0, drops);
    for (node, address) in [(0, HERE), (1, THERE)] {
        world.open(node, 0);
        world.pin(node, 0, address, LENGTH);
    }
    world.poke(0, 0, HERE, &pattern(1, LENGTH));
    let export = world.export(1, 0, THERE, LENGTH);
    let import = world.import(0, 0, 1, export, LENGTH);
    (world, import, export.0)
}

fn forget(world: &mut World, node: u16, address: u64) {
    let design = world.nic(node).design_mut();
    design.forget(0, Page::containing(address));
}

/// Runs everything that can happen without the hosts.
fn run(world: &mut World) {
    loop {
        let mut done = false;
        for (one, other) in [(0, 1), (1, 0)] {
            world.serve(one, 0);
            while world.transmit(one) {
                done = true;
            }
            while world.receive(one, other) {
                done = true;
            }
            world.collect(one);
        }
        if !done {
            return;
        }
    }
}

#[test]
fn a_send_whose_source_is_missing_waits_for_the_host_and_others_do_not() {
    let (mut world, import, export) = pair(false);
    world.open(0, 1);
    world.pin(0, 1, HERE, PAGE);
    let key = world.nic(1).exported(export).unwrap().key;
    let other = world.import(0, 1, 1, (export, key), LENGTH);
    forget(&mut world, 0, HERE);
    world.submit(0, 0, &long_send(import, 0, HERE, LENGTH, 1), &[]);
    world.submit(0, 1, &long_send(other, PAGE, HERE, PAGE, 2), &[]);
    world.serve(0, 1);
    run(&mut world);
    assert_eq!(words(&world.take_told(0)), (vec![2], vec![]));
    assert!(world.nic(0).has_misses());
    world.serve_misses(0);
    run(&mut world);
    assert_eq!(words(&world.take_told(0)), (vec![1], vec![]));
    assert_eq!(world.peek(1, 0, THERE, LENGTH), pattern(1, LENGTH));
}

#[test]
fn a_packet_whose_destination_is_missing_is_dropped_and_asked_for_once_it_can_be_taken() {
    let (mut world, import, _) = pair(true);
    forget(&mut world, 1, THERE + PAGE);
    world.submit(0, 0, &long_send(import, 0, HERE, LENGTH, 1), &[]);
    run(&mut world);
    assert_eq!(world.nic(1).counters().dropped, 1);
    assert_eq!(world.take_told(0), [], "its last packet is not acked");
    assert!(!world.nic(0).idle_towards(NodeId(1)));
    world.serve_misses(1);
    run(&mut world);
    world.tick(10_000);
    run(&mut world);
    assert_eq!(words(&world.take_told(0)), (vec![1], vec![]));
    assert_eq!(world.peek(1, 0, THERE, LENGTH), pattern(1, LENGTH));
    let resent = world.nic(0).counters().packets_resent;
    assert_eq!(resent, 1, "those behind it came early and were kept");
    assert!(world.nic(0).idle_towards(NodeId(1)));
}

#[test]
fn over_a_transport_that_loses_nothing_a_packet_that_misses_waits_whatever_the_design() {
    let (mut world, import, _) = pair(false);
    world.nic(1).design_mut().forget(0, Page::containing(THERE));
    world.submit(0, 0, &long_send(import, 0, HERE, LENGTH, 1), &[]);
    world.settle();
    assert_eq!(words(&world.take_told(0)), (vec![1], vec![]));
    assert_eq!(world.nic(1).counters().dropped, 0);
    assert_eq!(world.peek(1, 0, THERE, LENGTH), pattern(1, LENGTH));
}

#[test]
fn a_command_is_over_when_its_last_packet_is_acked_and_not_when_it_is_out() {
    let (mut world, import, _) = pair(true);
    world.submit(0, 0, &long_send(import, 0, HERE, 8, 1), &[]);
    run(&mut world);
    assert_eq!(world.take_told(0), [], "the ack may wait for another packet");
    world.poke(0, 0, HERE, &[0; 8]);
    assert_eq!(world.peek(1, 0, THERE, 8), pattern(1, LENGTH)[..8]);
    world.tick(10_000);
    run(&mut world);
    assert_eq!(words(&world.take_told(0)), (vec![1], vec![]));
}

#[test]
fn a_packet_that_comes_twice_is_applied_once() {
    let (mut world, import, _) = pair(true);
    world.log = Some(Vec::new());
    world.submit(0, 0, &long_send(import, 0, HERE, 8, 1), &[]);
    world.settle();
    let log = world.log.take().unwrap();
    let store = Kind::Store as u8;
    let again = log.iter().find(|(_, _, sent)| sent.header.kind == store);
    let again = again.unwrap().2.clone();
    world.poke(1, 0, THERE, &[0xee; 8]);
    world.inject(0, 1, &again);
    world.settle();
    assert_eq!(world.peek(1, 0, THERE, 8), [0xee; 8]);
    assert_eq!(words(&world.take_told(0)), (vec![1], vec![]));
    assert!(world.nic(0).idle_towards(NodeId(1)));
}

#[test]
fn packets_of_a_process_that_is_closed_are_sent_again_without_its_memory() {
    let (mut world, import, _) = pair(true);
    forget(&mut world, 1, THERE);
    world.submit(0, 0, &long_send(import, 0, HERE, LENGTH, 1), &[]);
    run(&mut world);
    let frames = world.frames(0, 0, HERE, LENGTH);
    world.nic(0).close_process(ProcessId(0));
    world.drop_frames(0, &frames);
    world.log = Some(Vec::new());
    world.serve_misses(1);
    run(&mut world);
    world.settle();
    let log = world.log.take().unwrap();
    let of_0 = log.iter().filter(|(from, _, sent)| *from == 0 && sent.header.kind != 0);
    let kinds: Vec<u8> = of_0.map(|(_, _, sent)| sent.header.kind).collect();
    assert!(kinds.contains(&(Kind::Nothing as u8)), "{kinds:?}");
    assert!(log.iter().all(|(_, _, sent)| sent.of.is_none()));
    assert_eq!(world.take_told(0), []);
    assert!(world.nic(0).idle_towards(NodeId(1)));
    assert_eq!(world.nodes[0].memory.garbage_reads, 0);
}

#[test]
fn a_send_from_memory_that_cannot_be_pinned_fails_and_names_the_page() {
    let (mut world, import, _) = pair(false);
    world.nic(0).design_mut().pin_on_miss();
    let beyond = HERE + LENGTH;
    world.submit(0, 0, &long_send(import, 0, beyond - 8, 16, 1), &[]);
    world.submit(0, 0, &long_send(import, 0, HERE, 8, 2), &[]);
    run(&mut world);
    let failed = Completion::Failed {
        process: ProcessId(0),
        completion: Some(1),
        error: CommandError::NotPinned { address: beyond },
        sent_bytes: 8,
    };
    let told = world.take_told(0);
    assert!(told.contains(&failed), "{told:?}");
    assert_eq!(words(&told).0, [2]);
}

#[test]
fn a_fetch_into_memory_that_cannot_be_pinned_fails_once_and_the_next_one_works() {
    for slow in [false, true] {
        let (mut world, import, _) = pair(false);
        world.slow_moves = slow;
        world.nic(0).design_mut().pin_on_miss();
        let start = HERE + LENGTH - PAGE;
        world.submit(0, 0, &fetch(import, 0, start, LENGTH, 1), &[]);
        world.submit(0, 0, &fetch(import, 0, HERE, PAGE, 2), &[]);
        world.settle();
        let error = CommandError::NotPinned { address: HERE + LENGTH };
        let failed = Completion::Failed { process: ProcessId(0), completion: Some(1), error, sent_bytes: 0 };
        let told = world.take_told(0);
        assert_eq!(told.iter().filter(|told| **told == failed).count(), 1);
        assert_eq!(words(&told).0, [2]);
        // As many as may be under way can be requested again.
        for word in 10..80 {
            world.submit(0, 0, &fetch(import, 0, HERE, 8, word), &[]);
        }
        world.settle();
        assert_eq!(words(&world.take_told(0)).0.len(), 70);
    }
}

#[test]
fn memory_of_an_export_that_cannot_be_pinned_is_refused_as_busy() {
    let (mut world, _, _) = pair(false);
    world.nic(1).design_mut().pin_on_miss();
    let beyond = THERE + LENGTH;
    let export = world.export(1, 0, beyond, PAGE);
    let import = world.import(0, 0, 1, export, PAGE);
    world.submit(0, 0, &long_send(import, 0, HERE, 8, 1), &[]);
    world.submit(0, 0, &fetch(import, 0, HERE, 8, 2), &[]);
    world.settle();
    let told = world.take_told(0);
    let busy = Refusal::Busy;
    let refused = Completion::StoreRefused { from: NodeId(1), export: export.0, reason: busy, count: 1 };
    assert!(told.contains(&refused), "{told:?}");
    let failed = Completion::Failed {
        process: ProcessId(0),
        completion: Some(2),
        error: CommandError::Refused(busy),
        sent_bytes: 0,
    };
    assert!(told.contains(&failed), "{told:?}");
    assert_eq!(world.nodes[1].memory.garbage_writes, 0);
}

#[test]
fn pages_of_one_packet_that_push_each_other_out_arrive_all_the_same() {
    let (mut world, import, _) = pair(true);
    // A hundred bytes in each of two pages.
    let (first, second) = (THERE, THERE + PAGE);
    forget(&mut world, 1, first);
    forget(&mut world, 1, second);
    world.submit(0, 0, &long_send(import, PAGE - 100, HERE, 200, 1), &[]);
    run(&mut world);
    let mut rounds = 0;
    while world.serve_misses(1) {
        rounds += 1;
        assert!(rounds < 10);
        // There is room for one of them.
        if rounds > 1 {
            forget(&mut world, 1, first);
        }
        run(&mut world);
    }
    assert_eq!(rounds, 2);
    world.settle();
    assert_eq!(words(&world.take_told(0)), (vec![1], vec![]));
    let arrived = world.peek(1, 0, THERE + PAGE - 100, 200);
    assert_eq!(arrived, pattern(1, LENGTH)[..200]);
}

#[test]
fn a_packet_whose_page_others_push_out_again_and_again_arrives_all_the_same() {
    for lossy in [false, true] {
        let (mut world, import, _) = pair(lossy);
        forget(&mut world, 1, THERE);
        world.submit(0, 0, &long_send(import, 0, HERE, 200, 1), &[]);
        let mut rounds = 0;
        loop {
            run(&mut world);
            if !world.nic(1).has_misses() {
                break;
            }
            rounds += 1;
            assert!(rounds < 1000);
            world.serve_misses(1);
            forget(&mut world, 1, THERE);
        }
        assert_eq!(world.nic(1).counters().rejected.refused, 0);
        assert_eq!(world.peek(1, 0, THERE, 200), pattern(1, LENGTH)[..200]);
    }
}

#[test]
fn a_packet_that_the_host_can_never_help_is_refused_in_the_end_and_what_follows_arrives() {
    let (mut world, import, _) = pair(true);
    let gone = world.frames(1, 0, THERE, 1);
    let page = Page::containing(THERE);
    world.nic(1).design_mut().remove(Process(0), page).unwrap();
    world.drop_frames(1, &gone);
    forget(&mut world, 1, THERE);
    world.submit(0, 0, &long_send(import, 0, HERE, 200, 1), &[]);
    world.serve(0, 0);
    world.submit(0, 0, &long_send(import, PAGE, HERE, 200, 2), &[]);
    run(&mut world);
    let mut rounds = 0;
    while world.serve_misses(1) {
        rounds += 1;
        assert!(rounds < 1000);
        forget(&mut world, 1, THERE);
        run(&mut world);
    }
    assert!(rounds > 100, "{rounds} rounds");
    assert_eq!(world.nic(1).counters().rejected.refused, 1,);
    assert_eq!(world.peek(1, 0, THERE + PAGE, 200), pattern(1, LENGTH)[..200]);
}
