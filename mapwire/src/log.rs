//! The log of programs that have none of Rust's: lines on standard error, of what `MAPWIRE_LOG` asks for.
//!
//! A program that has a subscriber of [`tracing`](https://docs.rs/tracing) of its own gets the same by it.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::environment::log_mistake;

/// How lines look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// They begin with the time of day, UTC.
    pub time: bool,
    /// The level has a colour.
    pub colour: bool,
}

/// Starts the log of this process, unless it has one. It holds warnings and errors if `MAPWIRE_LOG` is not set, or
/// [wrong](log_mistake): a log is no reason for a program to fail.
pub fn start(look: Look) {
    let chosen = std::env::var("MAPWIRE_LOG").unwrap_or_default();
    let filter = Filter::of(&chosen);
    // An error says that the program has a log.
    let _ = tracing::subscriber::set_global_default(Lines { filter, look });
}

/// What a log holds: a level, and others for parts of the program.
#[derive(Debug)]
struct Filter {
    level: LevelFilter,
    parts: Vec<(String, LevelFilter)>,
}

impl Filter {
    /// What `text` asks for: `debug`, `mapwire_transport=trace`, or `mapwire_transport` for all of that part; several with commas.
    fn of(text: &str) -> Self {
        let mut filter = Self { level: LevelFilter::WARN, parts: Vec::new() };
        if text.trim().is_empty() || log_mistake(text).is_some() {
            return filter;
        }
        filter.level = LevelFilter::OFF;
        for part in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            match (part.split_once('='), part.parse()) {
                (None, Ok(level)) => filter.level = level,
                (None, Err(_)) => filter.parts.push((part.to_owned(), LevelFilter::TRACE)),
                (Some((part, level)), _) => {
                    let level = level.trim().parse().unwrap_or(LevelFilter::WARN);
                    filter.parts.push((part.trim().to_owned(), level));
                }
            }
        }
        // The longest name that fits is the first.
        filter.parts.sort_by_key(|(part, _)| std::cmp::Reverse(part.len()));
        filter
    }

    fn holds(&self, target: &str, level: Level) -> bool {
        let part = self.parts.iter().find(|(part, _)| target.starts_with(part));
        level <= part.map_or(self.level, |&(_, level)| level)
    }

    fn most(&self) -> LevelFilter {
        self.parts.iter().map(|&(_, level)| level).fold(self.level, LevelFilter::max)
    }
}

/// Writes each event as a line; spans are left out, as mapwire has none.
struct Lines {
    filter: Filter,
    look: Look,
}

impl Subscriber for Lines {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.most())
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && self.filter.holds(metadata.target(), *metadata.level())
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = String::new();
        if self.look.time {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let (day_s, us) = (now.as_secs() % 86_400, now.subsec_micros());
            let (hour, minute, second) = (day_s / 3600, day_s / 60 % 60, day_s % 60);
            let _ = write!(line, "{hour:02}:{minute:02}:{second:02}.{us:06} ");
        }
        let level = *event.metadata().level();
        let _ = match self.look.colour {
            true => write!(line, "\x1b[{}m{level:>5}\x1b[0m", colour(level)),
            false => write!(line, "{level:>5}"),
        };
        event.record(&mut Fields(&mut line));
        line.push('\n');
        // Where that cannot be done there is nobody to tell. One write: lines of several processes stay whole.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The number of a colour of terminals.
fn colour(level: Level) -> u8 {
    match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG => 34,
        Level::TRACE => 35,
    }
}

/// The text of an event, then its values.
struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_holds_warnings_unless_told_otherwise() {
        let holds = |text: &str, level: Level| Filter::of(text).holds("mapwire", level);
        assert!(holds("", Level::WARN) && !holds("", Level::INFO));
        assert!(holds("warn=warn=warn", Level::WARN));
        assert!(!holds("off", Level::ERROR));
        assert!(holds("warn,mapwire=debug", Level::DEBUG));
        assert!(!holds("error", Level::WARN));
    }

    #[test]
    fn the_longest_name_of_a_part_that_fits_decides() {
        let filter = Filter::of("mapwire_transport::udp=trace, mapwire_transport=error, info");
        assert!(filter.holds("mapwire_transport::udp", Level::TRACE));
        assert!(!filter.holds("mapwire_transport::shm", Level::WARN));
        assert!(filter.holds("mapwire_driver", Level::INFO));
        assert!(!filter.holds("mapwire_driver", Level::DEBUG));
        assert_eq!(filter.most(), LevelFilter::TRACE);
        let all_of_one = Filter::of("mapwire_names");
        assert!(all_of_one.holds("mapwire_names", Level::TRACE));
        assert!(!all_of_one.holds("mapwire_driver", Level::ERROR));
    }
}
