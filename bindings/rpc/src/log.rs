//! What this library says on standard error: C programs that use it have no log of Rust.

use std::io::Write;

/// Says what went wrong and was not the caller's to decide.
pub(crate) fn warn(text: &str) {
    // Where that cannot be done there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "mapwire_rpc: warning: {text}");
}
