//! The computers: what overlaps, what is charged, and that data arrive.

use mapwire_nic::link::LinkConfig;
use mapwire_translation::DesignConfig;
use mapwire_wire::{Endpoint, ImportId, NodeId, ProcessId};

mod misses;

use super::*;
use crate::hardware::Span;
use crate::hardware::{Constant, Cost, Lane, Origin, US};

const SOURCE: u64 = FIRST_ADDRESS + 40;
const TARGET: u64 = FIRST_ADDRESS + (1 << 20);
const PAGE: u64 = 4096;

fn at(node: u16) -> Endpoint {
    Endpoint { node: NodeId(node), process: ProcessId(0) }
}

/// Everything takes a microsecond, but the loop, and a page, which takes the engine 40 us and the wire 20.
fn profile() -> Profile {
    let is = |cost, value| Constant { cost, value, origin: Origin::Assumed, source: "test" };
    let constants = [
        is(Cost::HostPost, US),
        is(Cost::NicLoop, 3 * US),
        is(Cost::NicPickUp, US),
        is(Cost::NicHeader, US),
        is(Cost::NicStartNetwork, US),
        is(Cost::NicTakePacket, US),
        is(Cost::DmaSetup, US),
        is(Cost::HostDma4, 2 * US),
        is(Cost::HostDma4K, 41 * US),
        is(Cost::WireByte, 5_000),
        is(Cost::HostInterrupt, 10 * US),
        is(Cost::HostPinServing, US),
        is(Cost::HostPin1, 7 * US),
    ];
    Profile::new("test", 0, &constants)
}

fn pair(shape: Shape, bytes: u64) -> (Computers, [ImportId; 2]) {
    let mut computers = Computers::new(profile(), shape).unwrap();
    for node in 0..2 {
        computers.export(at(node), "target", TARGET, bytes).unwrap();
    }
    let imports = [(0, 1), (1, 0)].map(|(to, from)| {
        let import = computers.import(at(to), at(from), "target");
        import.unwrap()
    });
    (computers, imports)
}

fn pattern(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8 | 1).collect()
}

/// Sends so many bytes, so many times, each after the last is complete.
fn sends(import: ImportId, bytes: u64, times: u64) -> impl Iterator<Item = Do> {
    let send = Send { import, offset: 0, address: SOURCE, bytes };
    let one = move |left| [Do::Mark(left), Do::Send(send), Do::Await(0)];
    (1..=times).rev().flat_map(one).chain([Do::Mark(0)])
}

/// Waits until the last eight bytes of a message are there.
fn receives(bytes: u64) -> impl Iterator<Item = Do> {
    let last = pattern(bytes)[bytes as usize - 8..].try_into().unwrap();
    [Do::Watch { address: TARGET + bytes - 8, least: u64::from_le_bytes(last) }, Do::Mark(1)].into_iter()
}

fn one_way(shape: Shape, bytes: u64) -> Computers {
    let (mut computers, imports) = pair(shape, bytes);
    computers.timeline.begin();
    computers.computers[0].memory.write(0, SOURCE, &pattern(bytes));
    computers.start(at(0), sends(imports[0], bytes, 1));
    computers.start(at(1), receives(bytes));
    computers.run().unwrap();
    let mut found = vec![0; bytes as usize];
    computers.computers[1].memory.read(0, TARGET, &mut found);
    assert!(found == pattern(bytes), "the data are not what was sent");
    computers
}

fn count(spans: &[Span], node: u16, label: &str) -> usize {
    let of_it = |span: &&Span| span.node == node && span.label == label;
    spans.iter().filter(of_it).count()
}

#[test]
fn data_arrive_by_every_design_over_every_transport() {
    let links = LinkConfig::new(1, 0);
    for design in DesignConfig::all() {
        for links in [None, Some(links)] {
            for bytes in [8, 100, 128, 200, 5_000, 30_000] {
                let shape = Shape { design, links, ..Shape::default() };
                let one = one_way(shape.clone(), bytes);
                let two = one_way(shape, bytes);
                assert_eq!(one.marks(), two.marks(), "a run repeats itself");
            }
        }
    }
}

#[test]
fn a_page_is_loaded_while_the_one_before_it_is_sent() {
    let spans = one_way(Shape::default(), 20 * PAGE).timeline.take();
    let of = |lane, label| {
        let spans = spans.iter();
        spans.filter(move |span: &&Span| (span.node, span.lane, span.label) == (0, lane, label))
    };
    let loads: Vec<_> = of(Lane::HostDma, "data from host").collect();
    let mut overlaps = 0;
    for sent in of(Lane::SendWire, "sends") {
        let meets = |load: &&&Span| load.from_ps < sent.to_ps && sent.from_ps < load.to_ps;
        overlaps += loads.iter().filter(meets).count();
    }
    // All but the last.
    assert_eq!((loads.len(), overlaps), (21, 20));
    // In the tight loop nothing lies between two loads but the start of the network and that of the DMA.
    let gaps: Vec<_> = loads.windows(2).map(|two| two[1].from_ps - two[0].to_ps).collect();
    assert!(gaps.iter().all(|&gap| gap == 2 * US), "{gaps:?}");
    let passes = count(&spans, 0, "main loop");
    assert_eq!(passes, 2, "for the command, and once the host has served the miss");
}

#[test]
fn a_packet_that_comes_ends_the_tight_loop() {
    let bytes = 20 * PAGE;
    let (mut computers, imports) = pair(Shape::default(), bytes);
    computers.timeline.begin();
    for node in 0..2 {
        computers.start(at(node), sends(imports[usize::from(node)], bytes, 1));
    }
    computers.run().unwrap();
    let spans = computers.timeline.take();
    let passes = count(&spans, 0, "main loop");
    assert!(passes > 30, "{passes}");
    let moved = |span: &&Span| (span.node, span.lane) == (0, Lane::HostDma);
    let moved: Vec<_> = spans.iter().filter(moved).collect();
    let gaps = moved.windows(2).map(|two| two[1].from_ps - two[0].to_ps);
    // Between two of them, one in and one out, the processor goes around twice, besides the work: that was 2 us alone.
    let mean_ps = gaps.sum::<Ps>() / moved.len() as Ps;
    assert!(mean_ps > 4 * US, "{mean_ps}");
}

#[test]
fn dma_slows_the_processor_and_two_kinds_stop_it() {
    let (mut computers, imports) = pair(Shape::default(), 20 * PAGE);
    let is = |cost, value| Constant { cost, value, origin: Origin::Assumed, source: "test" };
    let mut constants = computers.profile.constants().to_vec();
    constants.extend([is(Cost::NicSlowedByDma, 50), is(Cost::NicSlowedByTwo, 100)]);
    computers.profile = Profile::new("test", 0, &constants);
    computers.timeline.begin();
    computers.start(at(0), sends(imports[0], 20 * PAGE, 1));
    computers.run().unwrap();
    let spans = computers.timeline.take();
    let took: Vec<_> = spans
        .iter()
        .filter(|span| span.node == 0 && span.label == "programs DMA")
        .map(|span| span.to_ps - span.from_ps)
        .collect();
    // The first before anything is on the wire, the others beside it.
    assert_eq!((took[0], took[1]), (US, 2 * US), "{took:?}");
}

#[test]
fn a_wire_is_held_back_while_its_receiver_has_no_buffer() {
    let mut computers = Computers::new(profile(), Shape { nodes: 4, receive_buffers: 2, ..Shape::default() }).unwrap();
    let bytes = 10 * PAGE;
    for from in 1..4 {
        let name = format!("{from}");
        let target = TARGET + u64::from(from) * (1 << 20);
        computers.export(at(0), &name, target, bytes).unwrap();
        let import = computers.import(at(from), at(0), &name).unwrap();
        computers.start(at(from), sends(import, bytes, 1));
    }
    computers.run().unwrap();
    let blocked: u64 = (1..4).map(|node| computers.load(NodeId(node)).blocked).sum();
    assert!(blocked > 10, "{blocked}");
    // Three are of the set-up.
    let received = computers.node(NodeId(0)).nic().counters().packets_received;
    assert_eq!(received, 3 * 11 + 3);
}

#[test]
fn a_program_that_waits_in_vain_is_told_of() {
    let (mut computers, _) = pair(Shape::default(), PAGE);
    computers.start(at(1), [Do::Watch { address: TARGET, least: 1 }].into_iter());
    let error = computers.run().unwrap_err();
    assert!(matches!(error, ComputersError::Stuck { node: NodeId(1), .. }), "{error}");
}

#[test]
fn a_send_that_the_firmware_refuses_ends_the_run() {
    let (mut computers, imports) = pair(Shape::default(), PAGE);
    computers.start(at(0), sends(imports[0], PAGE + 64, 1));
    let error = computers.run().unwrap_err();
    assert!(matches!(error, ComputersError::Told { node: NodeId(0), .. }), "{error}");
}

#[test]
fn a_short_send_does_not_overtake_a_long_one() {
    let (mut computers, imports) = pair(Shape::default(), 30 * PAGE);
    let import = imports[0];
    let send = move |bytes| Do::Send(Send { import, offset: 0, address: SOURCE, bytes });
    computers.start(at(0), [9 * PAGE, 8, 9 * PAGE, 8, 9 * PAGE].into_iter().map(send));
    computers.run().unwrap();
    let received = computers.node(NodeId(1)).nic().counters();
    assert_eq!(received.rejected.total(), 0);
}

#[test]
fn a_shape_out_of_range_is_refused() {
    let shape = Shape { send_buffers: 1, ..Shape::default() };
    let error = Computers::new(profile(), shape).unwrap_err();
    assert_eq!(error.to_string(), "invalid number of send buffers `1`: expected 2 to 64");
}
