//! A profile for people and for programs.

use serde_json::{Value, json};

use super::advice::named;
use super::{MOST, Profile, Row};
use crate::see::table::bytes;

impl Profile {
    /// Lines for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.is_of_one_host {
            lines.push(
                "shared memory of one host: the processor keeps it coherent, so nothing faults; see what hosts would do by --coherence minipages"
                    .to_owned(),
            );
        }
        let rows: Vec<&Row> = self.told().collect();
        if rows.is_empty() {
            if self.is_of_protocol {
                lines.push("shared memory: no faults".to_owned());
            }
            return lines;
        }
        let faults: u64 = self.rows.iter().map(Row::faults).fold(0, u64::saturating_add);
        lines.push(format!("shared memory: {faults} faults; the places that allocate what has most:"));
        let titles = ["reads", "writes", "moved", "ping-pong", "false sharing"];
        let cells = |row: &Row| {
            let [reads, writes, returned, falsely] =
                [row.read_faults, row.write_faults, row.returned, row.falsely].map(|count| count.to_string());
            [reads, writes, bytes(row.moved as f64), returned, falsely]
        };
        let all: Vec<[String; 5]> = rows.iter().map(|row| cells(row)).collect();
        let width =
            |column: usize| all.iter().map(|row| row[column].len()).max().unwrap_or(0).max(titles[column].len());
        let line = |cells: [&str; 5], place: &str| {
            let cells = cells.iter().enumerate().map(|(column, cell)| format!("{cell:>0$}  ", width(column)));
            cells.collect::<String>() + place
        };
        lines.push(line(titles, "place"));
        for (row, cells) in rows.iter().zip(&all) {
            let count = match row.allocations {
                1 => String::new(),
                count => format!(" in {count} allocations"),
            };
            let by = if row.by.is_empty() { String::new() } else { format!(" by {}", named(&row.by)) };
            let place = format!("{}: {}{count}{by}", row.place(), bytes(row.bytes as f64));
            lines.push(line(cells.each_ref().map(String::as_str), &place));
            if let Some(advice) = row.advice() {
                lines.push(format!("    {advice}"));
            }
        }
        if self.left_out > 0 {
            lines.push(format!("{} allocations found no room in the profile, and have no place in it", self.left_out));
        }
        lines
    }

    /// A JSON object for each place, for programs.
    pub(crate) fn json(&self) -> Vec<Value> {
        let row = |row: &Row| {
            json!({
                "kind": "allocation",
                "place": row.place(),
                "file": (row.line > 0).then_some(&row.text),
                "line": (row.line > 0).then_some(row.line),
                "name": (row.line == 0).then_some(&row.text),
                "allocations": row.allocations,
                "bytes": row.bytes,
                "ranks": row.by,
                "read_faults": row.read_faults,
                "write_faults": row.write_faults,
                "moved_bytes": row.moved,
                "ping_pong": row.returned,
                "false_sharing": row.falsely,
                "diffs": row.diffs,
                "readers": row.readers.keys().collect::<Vec<_>>(),
                "writers": row.writers.keys().collect::<Vec<_>>(),
                "advice": row.advice(),
            })
        };
        self.told().map(row).collect()
    }

    pub(super) fn told(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.faults() > 0).take(MOST)
    }
}
