//! Output of this library on standard error: C programs that use it have no Rust log.

use std::io::Write;
use std::sync::Once;

/// Starts the log of events on threads of mapwire, once: `MAPWIRE_LOG` selects its contents, by default `warn`. An invalid value counts as
/// unset: a log is no reason for a program to fail.
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

/// Reports a problem that the caller could not decide about.
pub(crate) fn warn(text: &str) {
    // If that fails there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "mapwire_rpc: warning: {text}");
}
