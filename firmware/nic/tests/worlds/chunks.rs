//! How long transfers are cut: at page boundaries, but not between neighbouring frames.

use crate::traffic::{FETCHED, SOURCE};
use crate::world::random::{Random, for_seeds};
use crate::world::{PAGE, World, fetch, long_send, pattern, words};
use mapwire_translation::{NicSide, Page, Process};
use mapwire_wire::{ImportId, TraceOp};

const THERE: u64 = 0x70_0000;
const BYTES: u64 = 40 * PAGE;

/// Two nodes with a process each; all pages of both are pinned, `neighbours_percent` of them in consecutive frames.
fn pair(carried: usize, neighbours_percent: u64, random: Random) -> (World, ImportId) {
    let mut world = World::carrying(carried, 2, random, 0, false);
    world.neighbours_percent = neighbours_percent;
    world.open(0, 0);
    world.open(1, 0);
    world.pin(1, 0, THERE, BYTES);
    world.pin(0, 0, SOURCE, BYTES);
    world.pin(0, 0, FETCHED, BYTES);
    let export = world.export(1, 0, THERE, BYTES);
    let import = world.import(0, 0, 1, export, BYTES);
    (world, import)
}

/// Payload bytes of the packets from one node to another.
fn lengths(world: &mut World, from: u16) -> Vec<u64> {
    let log = world.log.replace(Vec::new()).unwrap();
    let of_node = log.iter().filter(|(sender, _, _)| *sender == from);
    of_node.map(|(_, _, sent)| sent.payload.len() as u64).collect()
}

#[test]
fn pages_in_consecutive_frames_are_one_packet_as_long_as_the_transport_carries_it() {
    let (mut world, import) = pair(32 * 1024 + 16, 100, Random::new(1));
    world.log = Some(Vec::new());
    // The first packet ends where a page does.
    let command = long_send(import, 5, SOURCE + 100, 20 * PAGE, 0);
    world.submit(0, 0, &command, &[]);
    world.settle();
    let expected = [8 * PAGE - 100, 8 * PAGE, 4 * PAGE + 100];
    assert_eq!(lengths(&mut world, 0), expected);
    let command = fetch(import, 100, FETCHED + 5, 20 * PAGE, 0);
    world.submit(0, 0, &command, &[]);
    world.settle();
    assert_eq!(lengths(&mut world, 1), expected);
}

#[test]
fn a_page_whose_frame_is_not_the_next_begins_a_packet() {
    let (mut world, import) = pair(32 * 1024 + 16, 100, Random::new(2));
    // Page 3 leaves the run.
    world.unpin(0, 0, SOURCE + 3 * PAGE, PAGE);
    world.pin(0, 0, SOURCE + 3 * PAGE, PAGE);
    world.log = Some(Vec::new());
    world.submit(0, 0, &long_send(import, 0, SOURCE, 6 * PAGE, 0), &[]);
    world.settle();
    assert_eq!(lengths(&mut world, 0), [3 * PAGE, PAGE, 2 * PAGE]);
}

#[test]
fn a_transport_of_short_packets_gets_short_packets() {
    let (mut world, import) = pair(1400, 100, Random::new(3));
    world.log = Some(Vec::new());
    world.submit(0, 0, &long_send(import, 0, SOURCE, PAGE + 10, 0), &[]);
    world.settle();
    // The last lies on both sides of a page boundary: its pages are in consecutive frames.
    assert_eq!(lengths(&mut world, 0), [1384, 1384, 1338]);
}

#[test]
fn each_page_of_a_source_is_looked_up_once_and_all_bytes_arrive_however_frames_follow_one_another() {
    for_seeds(60, |seed| {
        let mut random = Random::new(seed);
        let percent = [0, 50, 90, 100][random.below(4) as usize];
        let carried = [4112, 9000, 32 * 1024 + 16, 65_552][random.below(4) as usize];
        let (mut world, import) = pair(carried, percent, random.clone());
        let length = random.within(129, 30 * PAGE);
        let from = random.below(2 * PAGE);
        let to = random.below(2 * PAGE);
        let pages: Vec<u64> = (from / PAGE..(from + length).div_ceil(PAGE)).collect();

        let data = pattern(seed, length);
        world.poke(0, 0, SOURCE + from, &data);
        world.nic(0).set_tracing(true);
        let command = long_send(import, to, SOURCE + from, length, 1);
        world.submit(0, 0, &command, &[]);
        world.settle();
        assert!(world.peek(1, 0, THERE + to, length) == data);
        assert_eq!(pages_looked_up(&mut world, 0, TraceOp::Send, SOURCE), pages);

        let data = pattern(!seed, length);
        world.poke(1, 0, THERE + from, &data);
        world.nic(1).set_tracing(true);
        let command = fetch(import, from, FETCHED + to, length, 2);
        world.submit(0, 0, &command, &[]);
        world.settle();
        assert!(world.peek(0, 0, FETCHED + to, length) == data);
        assert_eq!(pages_looked_up(&mut world, 1, TraceOp::Receive, THERE), pages);
        assert_eq!(words(&world.take_told(0)), (vec![1, 2], vec![]));
    });
}

#[test]
fn a_fetch_that_goes_on_reads_no_page_that_its_host_may_unpin() {
    const PAGES: u64 = 6;
    let (mut world, import) = pair(9000, 0, Random::new(4));
    let data = pattern(4, PAGES * PAGE);
    world.poke(1, 0, THERE, &data);
    let command = fetch(import, 0, FETCHED, PAGES * PAGE, 1);
    world.submit(0, 0, &command, &[]);
    world.serve(0, 0);
    while world.transmit(0) {}
    while world.receive(0, 1) {}
    let mut packets = 0;
    while world.transmit(1) {
        packets += 1;
        let mut reading = Vec::new();
        world.nic(1).reading(Process(0), &mut reading);
        for (address, bytes) in (THERE..).step_by(PAGE as usize).zip(data.chunks(PAGE as usize)) {
            let page = Page::containing(address);
            if !reading.iter().any(|range| range.contains(page)) {
                world.unpin(1, 0, address, PAGE);
                world.pin(1, 0, address, PAGE);
                world.poke(1, 0, address, bytes);
            }
        }
    }
    assert_eq!(packets, PAGES);
    world.settle();
    assert!(world.peek(0, 0, FETCHED, PAGES * PAGE) == data);
    assert_eq!(words(&world.take_told(0)), (vec![1], vec![]));
}

/// The pages that the NIC of a node has looked up, from `start` on, in order.
fn pages_looked_up(world: &mut World, node: u16, op: TraceOp, start: u64) -> Vec<u64> {
    let nic = world.nic(node);
    core::iter::from_fn(|| nic.poll_traced())
        .filter(|traced| traced.op == op)
        .map(|traced| (traced.address - start) / PAGE)
        .collect()
}
