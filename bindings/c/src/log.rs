//! What the library says by itself: on standard error, and only what the program cannot learn from codes, such as a store
//! that a peer refused after the call for it had returned.

use mapwire::{environment, log};

/// Starts the log, once: `MAPWIRE_LOG` says what it holds (`off`, `error`, `warn`, `info`, `debug`, `trace`, or
/// `warn,mapwire_transport=debug`), `warn` unless it does.
pub(crate) fn start() {
    let chosen = std::env::var("MAPWIRE_LOG").unwrap_or_default();
    // In a job the launcher has warned, once for all ranks.
    let mistake = environment::log_mistake(&chosen);
    if let Some(text) = mistake.filter(|_| std::env::var_os("MAPWIRE_JOB").is_none()) {
        environment::warn(&text);
    }
    log::start(log::Look::default());
}
