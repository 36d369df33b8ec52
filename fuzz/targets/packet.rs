//! A packet is refused, or is written again as the very same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mapwire_wire::{Packet, Repr};
use zerocopy::IntoBytes;

fuzz_target!(|bytes: &[u8]| {
    let packet = match Packet::new_checked(bytes) {
        Ok(packet) => packet,
        Err(error) => return drop(error.to_string()),
    };
    let header = packet.header();
    let (again, made) = packet.repr().emit(header.sequence.get());
    let carried = match packet.repr() {
        Repr::FetchRequest { .. } | Repr::StoreRefused { .. } | Repr::Atomic { .. } => &[],
        _ => packet.payload(),
    };
    let written = [again.as_bytes(), &made, carried].concat();
    assert_eq!(written, bytes, "{packet}");
    assert_eq!(Repr::parse(&again, &made), Ok(packet.repr()), "the payload may be elsewhere");
    assert!(packet.data().len() <= packet.payload().len());
    let has_signal = matches!(packet.repr(), Repr::Store { signal: true, .. });
    assert_eq!(packet.signal().is_some(), has_signal);
});
