//! What this library says on standard error: C programs that use it have no log of Rust.

use std::io::Write;
use std::sync::Once;

/// Starts the log of what happens on threads of mapwire, once: `MAPWIRE_LOG` says what it holds, `warn` unless it does. A mistake there
/// counts as unset: a log is no reason for a program to fail.
pub(crate) fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let chosen = std::env::var("MAPWIRE_LOG").unwrap_or_default();
        if let Some(text) = mapwire::environment::log_mistake(&chosen) {
            warn(&text);
        }
        mapwire::log::start(mapwire::log::Look::default());
    });
}

/// Says what went wrong and was not the caller's to decide.
pub(crate) fn warn(text: &str) {
    // Where that cannot be done there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "mapwire_rpc: warning: {text}");
}
