//! Links that drop what misses, by hand-calculated times.

use mapwire_translation::{DesignConfig, DynamicHandleConfig};
use mapwire_wire::{Endpoint, ProcessId};

use super::*;
use crate::computers::{Do, FIRST_ADDRESS, Send, Shape};
use crate::hardware::{Constant, Origin, Profile, US};

const TARGET: u64 = FIRST_ADDRESS + (1 << 20);

fn at(node: u16) -> Endpoint {
    Endpoint { node: NodeId(node), process: ProcessId(0) }
}

/// Each step of a NIC takes a microsecond, a wire 5 us for whatever; the host lets a miss wait for 10 us and works for 20.
fn computers(on_miss: OnMiss) -> Computers {
    let is = |cost, us| Constant { cost, value: us * US, origin: Origin::Assumed, source: "test" };
    let constants = [
        is(Cost::NicHeader, 1),
        is(Cost::NicStartNetwork, 1),
        is(Cost::NicTakePacket, 1),
        is(Cost::WireLatency, 5),
        is(Cost::MissDelayLeast, 10),
        is(Cost::MissDelayMost, 10),
        is(Cost::MissProcessingLeast, 20),
        is(Cost::MissProcessingMost, 20),
    ];
    let shape = Shape {
        design: DesignConfig::DynamicHandle(DynamicHandleConfig::default()),
        on_miss,
        miss_seed: Some(1),
        ..Shape::default()
    };
    Computers::new(Profile::new("test", 0, &constants), shape).unwrap()
}

/// A short message, whose page its receiver misses. When its misses were filled, and when the packet was taken, from the first miss on.
fn one_message(on_miss: OnMiss) -> Vec<(Ps, Ps)> {
    let mut computers = computers(on_miss);
    computers.export(at(1), "target", TARGET, 4096).unwrap();
    let import = computers.import(at(0), at(1), "target").unwrap();
    let send = Do::Send(Send { import, offset: 0, address: FIRST_ADDRESS, bytes: 8 });
    computers.start(at(0), [Do::Write(FIRST_ADDRESS, 7), send].into_iter());
    computers.start(at(1), [Do::Watch { address: TARGET, least: 7 }].into_iter());
    computers.run().unwrap();
    let after = |it: &Missed| {
        let (filled, taken) = (it.filled_ps.unwrap(), it.taken_ps.unwrap());
        ((filled - it.at_ps) / US, (taken - it.at_ps) / US)
    };
    computers.missed().iter().map(after).collect()
}

#[test]
fn a_packet_that_is_asked_for_is_back_a_round_trip_after_the_host_has_acted() {
    for on_miss in [OnMiss::AsksForAll, OnMiss::AsksForOne] {
        let [(filled, taken)] = one_message(on_miss)[..] else {
            panic!("one packet was sent");
        };
        // The request's header, start and way, taken; the packet's start and way, taken: 15 us for each of what was missed.
        assert_eq!((filled, taken), (30, 3 * (30 + 15)));
    }
}

#[test]
fn a_packet_that_is_not_acked_is_sent_again_and_again_until_the_host_has_acted() {
    let [(filled, long)] = one_message(OnMiss::TimesOut(100 * US))[..] else {
        panic!("one packet was sent");
    };
    // Process, buffer and page are missed one after the other: three times, and the start of the last packet.
    assert_eq!((filled, long), (30, 301));
    let [(_, short)] = one_message(OnMiss::TimesOut(20 * US))[..] else {
        panic!("one packet was sent");
    };
    assert!((3 * 30..long).contains(&short), "{short}");
}
