//! Output of the library on standard error.

use core::fmt;
use std::io::Write;

/// Writes a line to standard error. Drops it on failure, for example if its reader has gone: `eprintln!` would panic.
pub fn say(line: fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_fmt(format_args!("mapwire: {line}\n"));
}

/// As [`say`], without allocation and without a lock: in a handler of a signal. A line of more than 480 bytes is cut.
pub fn say_in_handler(line: fmt::Arguments<'_>) {
    const MOST_BYTES: usize = 480;
    let mut text = [0; MOST_BYTES];
    let mut left = &mut text[..MOST_BYTES - 1];
    let _ = write!(left, "mapwire: {line}");
    let used = MOST_BYTES - 1 - left.len();
    text[used] = b'\n';
    let _ = rustix::io::write(rustix::stdio::stderr(), &text[..=used]);
}
