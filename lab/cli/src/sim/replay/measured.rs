//! What `mapwire bench` printed of this computer.

use std::path::Path;

use mapwire_sim::hosts::Measured;
use serde_json::Value;

use crate::sim::SimError;

/// Reads the rows of `mapwire bench fault --json` and `mapwire bench lock --json`, one JSON object a line; rows of other benches, transports and numbers of ranks are
/// passed over. Of several rows of one case the fastest counts: a computer that does something else meanwhile makes the others longer.
///
/// # Errors
/// A line that is no row, and a figure that no row tells.
pub(super) fn read(path: &Path) -> Result<Measured, SimError> {
    let file = path.display();
    let bytes = std::fs::read(path).map_err(|error| format!("cannot read {file}: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| {
        format!("{file} is not text: give the output of `mapwire bench fault --json` and `mapwire bench lock --json`")
    })?;
    let mut rows = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let row: Value = serde_json::from_str(line)
            .map_err(|error| format!("line {number} of {file} is not a row of `mapwire bench --json`: {error}"))?;
        rows.push(row);
    }
    let is = |row: &Value, field: &str, value: &Value| row.get(field) == Some(value);
    // The least of a figure in the rows of a case, as picoseconds.
    let least = |what: &str, figure: &str, unit_ps: f64, case: &[(&str, Value)]| {
        let ours = rows.iter().filter(|row| {
            let fits = case.iter().all(|(field, value)| is(row, field, value));
            fits && is(row, "transport", &"shm".into()) && is(row, "ranks", &2.into())
        });
        let figures = ours.filter_map(|row| row.get(figure)?.as_f64());
        let found = figures.filter(|it| (0.0..1e6).contains(it)).reduce(f64::min);
        found.map(|it| (it * unit_ps) as u64).ok_or_else(|| {
            format!("{file} has no row that tells {what}: give the output of `mapwire bench fault --json` and `mapwire bench lock --json`")
        })
    };
    let fault = |owner: &str, bytes: u64| {
        vec![
            ("bench", Value::from("fault")),
            ("access", "read".into()),
            ("owner", owner.into()),
            ("bytes", bytes.into()),
        ]
    };
    let us = 1e6;
    let lock = [("bench", "lock".into()), ("case", "lock + unlock, uncontended".into())];
    Ok(Measured {
        read_ps: least("a read fault", "value", us, &fault("polling", 128))?,
        parts_ps: least("the raw parts of a read fault", "baseline_value", us, &fault("polling", 128))?,
        round_trip_ps: least("a flag's round trip", "flag_ns", 1e3, &fault("polling", 128))?,
        read_page_ps: least("a read fault of a page", "value", us, &fault("polling", 4096))?,
        read_from_busy_ps: least("a read fault at a rank that computes", "value", us, &fault("computing", 128))?,
        lock_unlock_ps: least("a lock", "value", us, &lock)?,
    })
}
