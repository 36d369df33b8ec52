//! What this library says on standard error: C programs that use it have no log of Rust.

use std::io::Write;
use std::sync::Once;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

/// Starts the log of what happens on threads of mapwire, once: `MAPWIRE_LOG` says what it holds, `warn` unless it does. A mistake there
/// counts as unset: a log is no reason for a program to fail.
pub(crate) fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let chosen = std::env::var("MAPWIRE_LOG").unwrap_or_default();
        let mistake = mapwire::environment::log_mistake(&chosen);
        if let Some(text) = &mistake {
            warn(text);
        }
        let warnings = Targets::new().with_default(LevelFilter::WARN);
        let filter = match chosen.trim() {
            "" => warnings,
            chosen if mistake.is_none() => chosen.parse().unwrap_or(warnings),
            _ => warnings,
        };
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .without_time()
            .with_target(false);
        let log = tracing_subscriber::registry().with(filter).with(lines);
        // An error says that the program has a log of Rust.
        let _ = tracing::subscriber::set_global_default(log);
    });
}

/// Says what went wrong and was not the caller's to decide.
pub(crate) fn warn(text: &str) {
    // Where that cannot be done there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "mapwire_rpc: warning: {text}");
}
