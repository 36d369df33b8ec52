//! A command is refused, or is written again as the very same bytes; what follows it is not looked at.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mapwire_wire::{CommandHeader, CommandRepr, INLINE_BYTES};
use zerocopy::FromBytes;

fuzz_target!(|bytes: &[u8]| {
    let Ok((header, inline)) = CommandHeader::read_from_prefix(bytes) else {
        return;
    };
    let command = match CommandRepr::parse(&header, inline) {
        Ok(command) => command,
        Err(error) => return drop(error.to_string()),
    };
    let used = command.inline_bytes();
    let mut again = [0; INLINE_BYTES];
    let (header_again, used_again) =
        command.emit(command.data(inline), &mut again).expect("what was read can be written");
    assert_eq!((header_again, used_again), (header, used), "{command}");
    assert_eq!(again[..used], inline[..used], "{command}");
    assert_eq!(CommandRepr::parse(&header, &inline[..used]), Ok(command));
});
