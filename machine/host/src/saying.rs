//! Output of the library on standard error.

use core::fmt;
use std::io::Write;

/// Writes a line to standard error. Drops it on failure, for example if its reader has gone: `eprintln!` would panic.
pub fn say(line: fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_fmt(format_args!("mapwire: {line}\n"));
}
