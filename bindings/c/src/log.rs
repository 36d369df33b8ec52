//! Output of the library on standard error: only what the program cannot learn from codes, such as a store that a peer refused after its
//! call had returned.

use mapwire::{environment, log};

/// Starts the log, once: `MAPWIRE_LOG` selects its contents (`off`, `error`, `warn`, `info`, `debug`, `trace`, or
/// `warn,mapwire_transport=debug`); default `warn`.
pub(crate) fn start() {
    let chosen = std::env::var("MAPWIRE_LOG").unwrap_or_default();
    // In a job the launcher has warned, once for all ranks.
    let mistake = environment::log_mistake(&chosen);
    if let Some(text) = mistake.filter(|_| std::env::var_os("MAPWIRE_JOB").is_none()) {
        environment::warn(&text);
    }
    log::start(log::Look::default());
}
