//! Lines on standard error from a library.

use core::fmt;
use std::io::Write;

/// Writes a line to standard error. It is dropped where that cannot be done, as where its reader has gone: `eprintln!` would panic.
pub fn say(line: fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_fmt(format_args!("mapwire: {line}\n"));
}
