//! The header of a datagram, and an ack, are refused or written again as the very same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mapwire_wire::link::{LinkAck, LinkHeader, LinkKind, MAX_ACK_BYTES, MAX_ACK_RANGES};

fuzz_target!(|bytes: &[u8]| {
    let (header, rest) = match LinkHeader::parse(bytes) {
        Ok(parsed) => parsed,
        Err(error) => return drop(error.to_string()),
    };
    assert_eq!(header.emit(), bytes[..bytes.len() - rest.len()], "{header}");
    if header.kind != LinkKind::Ack {
        return;
    }
    let ack = match LinkAck::parse(rest) {
        Ok(ack) => ack,
        Err(error) => return drop(error.to_string()),
    };
    let mut again = [0; MAX_ACK_BYTES];
    let length = ack.emit(&mut again);
    assert_eq!(&again[..length], rest);
    assert!(ack.ranges().len() <= MAX_ACK_RANGES);
    assert!(ack.ranges().iter().all(|(first, last)| first <= last));
    assert!(ack.ranges().is_sorted_by(|above, below| above.0 > below.1));
});
