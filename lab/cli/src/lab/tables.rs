//! `mapwire lab tables`: the papers' tables and figures, ours beside what the papers print.

use clap::Args;
use mapwire_study::study::Request;
use mapwire_study::tables::{Comparison, Gathered, Side, comparisons, gather};

use super::output::{fitted, known_columns, print};
use super::study::TraceOptions;
use super::{DamagedError, LabError};
use mapwire_console::stdio::wrapped;

#[derive(Debug, Args)]
pub(crate) struct TablesArgs {
    #[command(flatten)]
    traces: TraceOptions,
    /// One JSON object a line for each cell, ours and the papers'
    #[arg(long)]
    json: bool,
}

/// The studies that the tables need, of the traces that were named.
pub(super) fn gathered(traces: &TraceOptions) -> Result<Gathered, LabError> {
    let mut source = |request: Request| traces.run(&request);
    let gathered = gather(&mut source, traces.sends(), traces.all(), traces.threads())?;
    Ok(gathered)
}

pub(crate) fn command(args: &TablesArgs) -> Result<(), LabError> {
    let profile = args.traces.profile()?;
    let gathered = gathered(&args.traces)?;
    let tables = comparisons(&gathered, &profile);
    let (mut text, columns) = (String::new(), known_columns());
    for note in &gathered.notes {
        eprintln!("mapwire: note: {note}");
    }
    for table in &tables {
        if args.json {
            for cell in table.to_json() {
                text.push_str(&format!("{cell}\n"));
            }
        } else {
            text.push_str(&in_columns(table, columns));
            text.push('\n');
        }
    }
    print(&text)?;
    DamagedError::tell(&gathered.damaged)
}

/// A comparison as text: keys, our columns, a bar, the paper's columns, then the remarks. What is wider than `columns` comes as a
/// table of ours and one of the paper's.
fn in_columns(table: &Comparison, columns: usize) -> String {
    let caption = format!("{} {}: {} ({})", table.paper, table.name, table.caption, table.unit);
    let mut text = wrapped(&caption, 2, columns);
    text.push('\n');
    let whole = beside(table, &[&table.ours, &table.published], usize::MAX);
    if whole.lines().all(|line| line.chars().count() <= columns) {
        text.push_str(&whole);
    } else {
        for (whose, side) in [("ours", &table.ours), ("the paper's", &table.published)] {
            if !side.columns.is_empty() {
                text.push_str(&format!("\n{whose}:\n{}", beside(table, &[side], columns)));
            }
        }
    }
    for remark in &table.remarks {
        text.push_str(&format!("  * {}\n", wrapped(remark, 4, columns)));
    }
    text
}

/// The keys of a comparison's rows, and the sides that have columns, each behind a bar.
fn beside(table: &Comparison, sides: &[&Side], columns: usize) -> String {
    let sides = sides.iter().filter(|side| !side.columns.is_empty());
    let mut headings = table.keys.clone();
    let mut rows = table.row_keys.clone();
    for side in sides {
        headings.push("|");
        headings.extend(side.columns.iter().map(String::as_str));
        for (row, cells) in rows.iter_mut().zip(&side.rows) {
            row.push("|".to_owned());
            row.extend(cells.iter().map(|cell| cell.text.clone()));
        }
    }
    fitted(&headings, &rows, table.keys.len() + 1, columns)
}

#[cfg(test)]
mod tests {
    use mapwire_study::published::Paper;
    use mapwire_study::tables::Cell;

    use super::*;

    fn comparison() -> Comparison {
        let side = |names: [&str; 2], values: [f64; 2]| Side {
            columns: names.map(str::to_owned).to_vec(),
            rows: vec![values.map(|value| Cell::number(value, 1)).to_vec()],
        };
        Comparison {
            paper: Paper::Utlb,
            name: "Table 9",
            caption: "what there is to see".to_owned(),
            unit: "us",
            keys: vec!["size", "what"],
            row_keys: vec![vec!["1K".to_owned(), "misses".to_owned()]],
            ours: side(["a", "b"], [1.0, 2.0]),
            published: side(["FFT", "LU"], [3.0, 4.0]),
            remarks: vec!["of which more is to be said".to_owned()],
        }
    }

    #[test]
    fn ours_stand_beside_the_papers_where_there_is_room() {
        let text = in_columns(&comparison(), usize::MAX);
        let wanted = "UTLB Table 9: what there is to see (us)\n\
                      size  what    |    a    b  |  FFT   LU\n\
                      1K    misses  |  1.0  2.0  |  3.0  4.0\n  \
                      * of which more is to be said\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn in_a_narrow_terminal_each_side_has_a_table_of_its_own() {
        let text = in_columns(&comparison(), 25);
        let wanted = "UTLB Table 9: what\n  there is to see (us)\n\
                      \nours:\nsize  what    |    a    b\n1K    misses  |  1.0  2.0\n\
                      \nthe paper's:\nsize  what    |  FFT   LU\n1K    misses  |  3.0  4.0\n  \
                      * of which more is to\n    be said\n";
        assert_eq!(text, wanted);
        for columns in [20, 40, 60] {
            let text = in_columns(&comparison(), columns);
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
        }
    }

    #[test]
    fn a_side_without_columns_has_no_bar() {
        let mut table = comparison();
        table.published = Side { columns: Vec::new(), rows: vec![Vec::new()] };
        assert!(in_columns(&table, 99).contains("\nsize  what    |    a    b\n"));
        assert!(!in_columns(&table, 20).contains("the paper's"));
    }
}
