//! What misses cost the host and its programs.

use mapwire_translation::{DynamicHandleConfig, HierarchicalConfig};

use super::*;

#[test]
fn a_miss_interrupts_the_host_which_pins_what_one_interrupt_fills() {
    let shape = Shape::default();
    let computers = one_way(shape.clone(), 30 * PAGE);
    let counters = computers.counters(at(0));
    let load = computers.load(NodeId(0));
    assert_eq!((load.interrupts, counters.pins, counters.lookups), (1, 32 + 30, 31), "the export has 30 pages");
    // Interrupt and 32 pages.
    assert_eq!(load.handlers_ps, (10 + 32) * US);
    // The second time they are there.
    let (mut computers, imports) = pair(shape, PAGE);
    computers.start(at(0), sends(imports[0], 1000, 2));
    computers.run().unwrap();
    let at_ps = |number| {
        let mut marks = computers.marks().iter();
        marks.find(|mark| mark.number == number).unwrap().at_ps
    };
    let (first, second) = (at_ps(1) - at_ps(2), at_ps(0) - at_ps(1));
    // What waited goes on from the main loop.
    assert_eq!(first - second, (10 + 32 + 3) * US);
}

#[test]
fn a_design_that_checks_first_pins_in_the_program_and_reads_its_table_by_dma() {
    let shape = Shape { design: DesignConfig::Hierarchical(HierarchicalConfig::default()), ..Shape::default() };
    let mut computers = one_way(shape, 2000);
    assert_eq!(computers.load(NodeId(0)).interrupts, 0);
    let counters = computers.counters(at(0));
    // The export was checked, too.
    assert_eq!((counters.check_misses, counters.nic_misses), (2, 1));
    let spans = computers.timeline.take();
    assert_eq!(count(&spans, 0, "table from host"), 1);
    let posts = spans.iter().find(|span| span.label == "posts").unwrap();
    assert_eq!(posts.to_ps - posts.from_ps, 8 * US, "a call that pins, and the post");
}

#[test]
fn a_packet_that_is_dropped_on_a_miss_comes_again() {
    let shape = Shape {
        design: DesignConfig::DynamicHandle(DynamicHandleConfig::default()),
        links: Some(LinkConfig::new(1, 0)),
        ..Shape::default()
    };
    let computers = one_way(shape, 3 * PAGE);
    let (from, to) = (computers.node(NodeId(0)), computers.node(NodeId(1)));
    assert!(to.nic().counters().dropped > 0);
    assert!(from.nic().counters().packets_resent > 0);
    assert!(computers.load(NodeId(1)).interrupts > 0);
}

#[test]
fn a_handler_takes_its_time_from_the_program_that_runs() {
    let (mut computers, imports) = pair(Shape::default(), PAGE);
    let import = imports[0];
    let send = Do::Send(Send { import, offset: 0, address: SOURCE, bytes: 1000 });
    computers.start(at(0), [send, Do::Compute(1000 * US, "computes"), Do::Mark(0)].into_iter());
    computers.run().unwrap();
    let load = computers.load(NodeId(0));
    let end_ps = computers.marks()[0].at_ps;
    assert_eq!(end_ps, US + 1000 * US + load.handlers_ps);
    assert!(load.handlers_ps > 0);
}
