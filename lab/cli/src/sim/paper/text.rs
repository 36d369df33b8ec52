//! A report as text.

use mapwire_sim::hardware::{Constant, Profile, Unit};
use mapwire_sim::paper::{Cell, Paper, Report, Table};

use crate::lab::output::fitted;
use mapwire_console::stdio::wrapped;

pub(crate) const ABOUT: &str = "Published figures that went into the machine are `input`: that ours agree says nothing. Those that are `predicted` follow from others. Those that are `repeated` restate another cell. A star marks what is off by more than 10 %; the notes say why.";

/// All of it, no line longer than `columns` where that can be.
pub(super) fn report(paper: &Paper, report: &Report, columns: usize) -> String {
    let mut text = format!("{}\n\n{}\n", wrapped(paper.title, 0, columns), wrapped(ABOUT, 0, columns));
    for profile in &report.profiles {
        text.push('\n');
        text.push_str(&machine(profile, columns));
    }
    for table in &report.tables {
        text.push('\n');
        text.push_str(&one(table, columns));
    }
    text.push_str(&format!("\n{}\n", report.summary()));
    text
}

fn machine(profile: &Profile, columns: usize) -> String {
    let rows = profile.constants().iter().map(|row| {
        let origin = row.origin.word().to_owned();
        vec![format!("{:?}", row.cost), value(row), origin]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let headings = ["constant", "value", "origin"];
    let table = fitted(&headings, &rows, headings.len(), usize::MAX);
    let width = table.lines().map(|line| line.chars().count()).max().unwrap_or(0) + 2;
    let kilobytes = profile.nic_table_bytes >> 10;
    let name = profile.name;
    let mut text = match kilobytes {
        0 => format!("Machine: {name}\n"),
        _ => format!("Machine: {name}, {kilobytes} KB of NIC memory for the directory\n"),
    };
    let sources = profile.constants().iter().map(|row| row.source);
    for (line, source) in table.lines().zip(["source"].into_iter().chain(sources)) {
        let source = wrapped(source, width, columns);
        text.push_str(&format!("{line:<width$}{source}\n"));
    }
    text
}

pub(crate) fn value(row: &Constant) -> String {
    match row.cost.unit() {
        Unit::Time => format!("{} us", decimal(row.value, 1_000_000)),
        Unit::Bytes => format!("{} bytes", row.value),
        Unit::Words => format!("{} words", row.value),
        Unit::Percent => format!("{} %", row.value),
    }
}

/// A number of parts, of which so many are one, without zeros at the end.
fn decimal(parts: u64, of: u64) -> String {
    let digits = of.ilog10() as usize;
    let text = format!("{}.{:0digits$}", parts / of, parts % of);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Thousandths, to two decimals, or none if it is whole.
pub(crate) fn thousandths(milli: i64) -> String {
    match milli % 1000 {
        0 => (milli / 1000).to_string(),
        _ => {
            let hundredths = (milli.abs() + 5) / 10;
            let sign = if milli < 0 { "-" } else { "" };
            format!("{sign}{}.{:02}", hundredths / 100, hundredths % 100)
        }
    }
}

pub(crate) fn ours(cell: &Cell) -> String {
    cell.milli.map_or_else(|| "-".to_owned(), thousandths)
}

/// The difference, with a star where a prediction is off by more than 10 %.
pub(crate) fn difference(cell: &Cell) -> String {
    let Some(tenths) = cell.difference() else { return String::new() };
    let sign = if tenths < 0 { '-' } else { '+' };
    let size = tenths.abs();
    let star = match cell.is_within() {
        Some(false) => "*",
        _ => "",
    };
    format!("{star}{sign}{}.{} %", size / 10, size % 10)
}

fn one(table: &Table, columns: usize) -> String {
    let unit = match table.unit {
        "" => String::new(),
        unit => format!(" ({unit})"),
    };
    let mut text = wrapped(&format!("{}: {}{unit}", table.name, table.caption), 2, columns);
    text.push('\n');
    let is_compared = |cell: &Cell| cell.published.is_some();
    let compares = table.rows.iter().any(|row| row.cells.iter().any(is_compared));
    text.push_str(&if compares { beside(table, columns) } else { grid(table, columns) });
    for note in &table.notes {
        text.push_str(&format!("  * {}\n", wrapped(note, 4, columns)));
    }
    text
}

/// A line for each figure, with a dash where the paper has none.
fn beside(table: &Table, columns: usize) -> String {
    let names_column = table.columns.len() > 1;
    let mut headings = table.keys.clone();
    if names_column {
        headings.push("what");
    }
    let keys = headings.len();
    headings.extend(["ours", "paper", "difference", "role"]);
    let mut rows = Vec::new();
    for row in &table.rows {
        for (column, cell) in table.columns.iter().zip(&row.cells) {
            if cell.milli.is_none() && cell.published.is_none() {
                continue;
            }
            let mut line = row.keys.clone();
            if names_column {
                line.push(column.clone());
            }
            let role = cell.role.word().to_owned();
            let theirs = cell.published.map(|it| thousandths(it.milli)).unwrap_or_else(|| "-".to_owned());
            line.extend([ours(cell), theirs, difference(cell), role]);
            rows.push(line);
        }
    }
    fitted(&headings, &rows, keys, columns)
}

fn grid(table: &Table, columns: usize) -> String {
    let names = table.columns.iter().map(String::as_str);
    let headings: Vec<&str> = table.keys.iter().copied().chain(names).collect();
    let cells = |row: &mapwire_sim::paper::Row| row.keys.iter().cloned().chain(row.cells.iter().map(ours)).collect();
    let rows: Vec<Vec<String>> = table.rows.iter().map(cells).collect();
    fitted(&headings, &rows, table.keys.len(), columns)
}

#[cfg(test)]
mod tests {
    use mapwire_sim::paper::{Published, Role};

    use super::*;

    fn cell(milli: i64, role: Role) -> Cell {
        let published = Published { milli: 10_000, digit_milli: 1000 };
        Cell::beside(milli, published, role)
    }

    #[test]
    fn a_prediction_that_is_off_by_more_than_a_tenth_has_a_star() {
        assert_eq!(difference(&cell(11_600, Role::Predicted)), "*+16.0 %");
        // The published 10 may have been 10.5.
        assert_eq!(difference(&cell(11_200, Role::Predicted)), "+12.0 %");
        assert_eq!(difference(&cell(8_000, Role::Input)), "-20.0 %");
        assert_eq!(difference(&cell(10_900, Role::Predicted)), "+9.0 %");
        assert_eq!(difference(&Cell::new(1)), "");
    }

    #[test]
    fn ours_stand_beside_the_published_figures() {
        let mut table = Table::new("Table 9", "what there is", "us", &["state"], &["GMS"]);
        table.row(&["I"], vec![cell(9_500, Role::Predicted)]);
        table.row(&["C"], vec![Cell::new(12_000)]);
        table.row(&["A"], vec![Cell::NONE]);
        table.note("of which more");
        let wanted = "Table 9: what there is (us)\n\
                      state  ours  paper  difference       role\n\
                      I      9.50     10      -5.0 %  predicted\n\
                      C        12      -                    new\n  \
                      * of which more\n";
        assert_eq!(one(&table, usize::MAX), wanted);
    }

    #[test]
    fn the_source_of_a_constant_is_broken_where_the_terminal_ends() {
        use mapwire_sim::hardware::{Constant, Cost, Origin};
        let constant = Constant {
            cost: Cost::NicScan,
            value: 1_200_000,
            origin: Origin::Input,
            source: "section 4.4: an entry of four words",
        };
        let profile = Profile::new("LANai", 512 << 10, &[constant]);
        let wanted = "Machine: LANai, 512 KB of NIC memory for the directory\n\
                      constant  value   origin  source\n\
                      NicScan   1.2 us  input   section 4.4: an\n                          entry of four words\n";
        assert_eq!(machine(&profile, 46), wanted);
    }

    #[test]
    fn constants_have_as_many_digits_as_they_need() {
        assert_eq!(decimal(6_250, 1_000_000), "0.00625");
        assert_eq!(decimal(4_000_000, 1_000_000), "4");
        assert_eq!(thousandths(-1_250), "-1.25");
    }
}
