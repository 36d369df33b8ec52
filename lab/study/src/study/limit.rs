//! Why a configuration cannot do what a trace does, for whoever studies it.

use mapwire_translation::{DesignConfig, PinError, PinLimit};

use crate::config::Configuration;
use crate::decode::Totals;
use crate::replay::ReplayError;

/// What ended the replay of the configuration on a node with these totals. Exports and receives count under limits, too, and for long.
pub(super) fn reason(configuration: &Configuration, error: &ReplayError, totals: &Totals) -> String {
    let ReplayError::Limit(PinError::LimitTooSmall { needed_pages, limit_pages, held_pages }) = error else {
        return error.to_string();
    };
    // A table may be smaller than the limit on pinned pages.
    let is_table = matches!(configuration.design, DesignConfig::PerProcess(_))
        && configuration.rules.limit != PinLimit::Pages(*limit_pages);
    let (most, option) = match is_table {
        true => (format!("a process's table has {limit_pages} entries"), "entries"),
        false => (format!("a process may have only {limit_pages} pinned"), "limit"),
    };
    let held = match held_pages {
        0 => String::new(),
        _ => format!(", {held_pages} of them for what goes on besides"),
    };
    let others = match totals.exports + totals.receive_lookups {
        0 => "",
        _ => ", or leave exports and receives out with --ops send,fetch",
    };
    format!("{needed_pages} pages are needed at once, but {most}{held}; choose a larger --{option}{others}")
}
