//! A record of a remote procedure call that is any bytes: it is refused, or taken as a call whose every part lies in the record, and the node goes
//! on serving another.
#![no_main]

#[path = "../../services/rpc/tests/records.rs"]
mod records;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    records::run(bytes);
});
