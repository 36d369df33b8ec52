//! A control message is refused, or is written again as the very same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mapwire_wire::{ControlMessage, MAX_CONTROL_BYTES};

fuzz_target!(|bytes: &[u8]| {
    let message = match ControlMessage::parse(bytes) {
        Ok(message) => message,
        Err(error) => return drop(error.to_string()),
    };
    let mut out = [0; MAX_CONTROL_BYTES];
    let length = message.emit(&mut out).expect("what was read can be written");
    assert_eq!(&out[..length], bytes, "{message}");
    assert_eq!(ControlMessage::parse(&out[..length]), Ok(message));
});
