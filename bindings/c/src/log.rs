//! What the library says by itself: on standard error, and only what the program cannot learn from codes, such as a store
//! that a peer refused after the call for it had returned.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

/// Starts the log, once: `MAPWIRE_LOG` says what it holds (`off`, `error`, `warn`, `info`, `debug`, `trace`, or
/// `warn,mapwire_transport=debug`), `warn` unless it does.
pub(crate) fn start() {
    let chosen = std::env::var("MAPWIRE_LOG").unwrap_or_default();
    // In a job the launcher has warned, once for all ranks.
    let mistake = mapwire::environment::log_mistake(&chosen);
    if let Some(text) = mistake.filter(|_| std::env::var_os("MAPWIRE_JOB").is_none()) {
        mapwire::environment::warn(&text);
    }
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .with_target(false);
    let log = tracing_subscriber::registry()
        .with(filter(&chosen))
        .with(lines);
    // An error says that it has started before.
    let _ = tracing::subscriber::set_global_default(log);
}

/// A filter with a mistake counts as unset: a log is no reason for a program to fail.
fn filter(chosen: &str) -> Targets {
    let warnings = || Targets::new().with_default(LevelFilter::WARN);
    if chosen.trim().is_empty() || mapwire::environment::log_mistake(chosen).is_some() {
        return warnings();
    }
    chosen.parse().unwrap_or_else(|_| warnings())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_holds_warnings_unless_told_otherwise() {
        use tracing::Level;
        let holds = |chosen: &str, level: Level| filter(chosen).would_enable("mapwire", &level);
        assert!(holds("", Level::WARN) && !holds("", Level::INFO));
        assert!(holds("warn=warn=warn", Level::WARN));
        assert!(!holds("off", Level::ERROR));
        assert!(holds("warn,mapwire=debug", Level::DEBUG));
        assert!(!holds("error", Level::WARN));
    }
}
