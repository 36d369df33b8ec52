//! The papers' tables and figures as data: every cell as printed, with its source, and with what is wrong with it where
//! something is.
//!
//! Nothing here is ours. Numbers stand as the text that the papers print, so that `0.50` stays apart from `0.5`.

mod handles;
mod utlb;

use std::fmt;

pub use handles::{
    FIGURE_3_KB, FIGURE_5_LEGEND, FIGURE_5_PANELS, Figure5Configuration, Panel, figure_5_configurations,
};
pub use utlb::{APPLICATIONS, CACHE_SIZES, PrintedRates, printed_rates};

/// A paper whose figures are kept here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Paper {
    /// "UTLB: A Mechanism for Address Translation on Network Interfaces", ASPLOS 1998.
    #[default]
    Utlb,
    /// "Dynamic handle lookup": translation, buffer and process handles in host memory, cached on the NIC.
    DynamicHandleLookup,
}

impl fmt::Display for Paper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Paper::Utlb => "UTLB",
            Paper::DynamicHandleLookup => "dynamic handle lookup",
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cell {
    Printed(&'static str),
    /// The paper prints a dash: there is no such quantity.
    Undefined,
    /// Printed, but the column that it stands under is not its own: see the table's remarks.
    Unlabelled(&'static str),
    /// Drawn in the paper, and not readable in the copy that the project has.
    NotLegible,
}

impl Cell {
    /// The number, if there is one and its place is known.
    pub fn value(self) -> Option<f64> {
        match self {
            Cell::Printed(text) => text.replace(',', "").parse().ok(),
            Cell::Undefined | Cell::Unlabelled(_) | Cell::NotLegible => None,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Printed(text) => f.pad(text),
            Cell::Undefined => f.pad("-"),
            Cell::Unlabelled(text) => f.pad(&format!("({text})")),
            Cell::NotLegible => f.pad("?"),
        }
    }
}

/// One published row: what it is called by, and its cells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedRow {
    /// One name for each of the table's keys, such as the cache size and the characteristic.
    pub keys: Vec<&'static str>,
    /// One cell for each of the table's columns.
    pub cells: Vec<Cell>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PublishedTable {
    pub paper: Paper,
    /// Its number: `Table 4`.
    pub name: &'static str,
    /// What it says, in few words, with the conditions of the measurement.
    pub caption: &'static str,
    pub unit: &'static str,
    pub keys: Vec<&'static str>,
    pub columns: Vec<&'static str>,
    pub rows: Vec<PublishedRow>,
    /// What a reader must know: contradictions, unusable labels, what was read from where.
    pub remarks: &'static [&'static str],
}

impl PublishedTable {
    /// The cell of a row and a column.
    pub fn cell(&self, keys: &[&str], column: &str) -> Option<Cell> {
        let at = self.columns.iter().position(|name| *name == column)?;
        self.rows.iter().find(|row| row.keys == keys)?.cells.get(at).copied()
    }

    /// Reads rows from lines of the form `key | key | cell | cell`. A dash is an undefined cell, `(x)` an unlabelled one,
    /// `?` one that is not legible.
    fn read(mut self, text: &'static str) -> Self {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut fields = line.split('|').map(str::trim);
            let keys: Vec<_> = fields.by_ref().take(self.keys.len()).collect();
            let cells: Vec<_> = fields.map(read_cell).collect();
            debug_assert_eq!(cells.len(), self.columns.len(), "{}: {line}", self.name);
            self.rows.push(PublishedRow { keys, cells });
        }
        self
    }
}

fn read_cell(text: &'static str) -> Cell {
    match text {
        "-" => Cell::Undefined,
        "?" => Cell::NotLegible,
        _ => match text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) {
            Some(inner) => Cell::Unlabelled(inner),
            None => Cell::Printed(text),
        },
    }
}

/// What a paper states about a figure, in its own runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Statement {
    /// Where it stands: `§6.4`.
    pub section: &'static str,
    /// What it says, in few words; its own words are in quotation marks.
    pub text: &'static str,
    /// What can be held against other runs; `None` if that is nothing.
    pub claim: Option<Claim>,
}

impl Statement {
    const fn of(section: &'static str, text: &'static str) -> Self {
        Statement { section, text, claim: None }
    }

    const fn that(self, claim: Claim) -> Self {
        Statement { claim: Some(claim), ..self }
    }
}

/// A statement as what can be tested.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Claim {
    /// Capacity and conflict misses together fall as the cache grows.
    RestFallsWithSize,
    /// At least half of the misses are compulsory.
    MostAreCompulsory,
    /// Values fall as a miss fetches more entries.
    FallsWithPrefetch,
    /// Of all lookups, at most so many percent miss.
    AtMostPercent(f64),
    /// Lines of 128 entries miss less than lines of 8.
    LongLinesMissLess,
}

/// A figure of which the project has only what the paper says about it in words.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PublishedFigure {
    pub paper: Paper,
    /// Its number: `Figure 7`.
    pub name: &'static str,
    pub caption: &'static str,
    pub prose: &'static [Statement],
}

/// All tables, UTLB first, in the papers' order.
pub fn tables() -> Vec<PublishedTable> {
    let mut all = utlb::tables();
    all.extend(handles::tables());
    all
}

/// All figures that the laboratory draws, in the papers' order.
pub fn figures() -> Vec<PublishedFigure> {
    let mut all = utlb::FIGURES.to_vec();
    all.push(handles::FIGURE_3);
    all.push(handles::FIGURE_5);
    all
}

/// The table of that paper and number.
pub fn table(paper: Paper, name: &str) -> Option<PublishedTable> {
    tables().into_iter().find(|table| table.paper == paper && table.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_a_full_rectangle_of_known_cells() {
        let all = tables();
        assert_eq!(all.len(), 11);
        for table in &all {
            assert!(!table.rows.is_empty(), "{}", table.name);
            for row in &table.rows {
                assert_eq!(row.keys.len(), table.keys.len(), "{} {row:?}", table.name);
                assert_eq!(row.cells.len(), table.columns.len(), "{} {row:?}", table.name);
                assert!(row.keys.iter().all(|key| !key.is_empty()));
            }
        }
    }

    #[test]
    fn a_cell_is_found_by_its_names_and_read_as_a_number() {
        let table = table(Paper::Utlb, "Table 4").unwrap();
        assert_eq!(table.cell(&["16K", "unpins"], "FFT Intr"), Some(Cell::Printed("0.25")));
        assert_eq!(table.cell(&["16K", "check misses"], "FFT Intr"), Some(Cell::Undefined));
        assert_eq!(table.cell(&["16K", "unpins"], "Ocean Intr"), None);
        assert_eq!(Cell::Printed("43,132").value(), Some(43_132.0));
        assert_eq!(Cell::Unlabelled("0.10").value(), None);
    }

    #[test]
    fn cells_whose_place_is_unknown_are_shown_as_such() {
        assert_eq!(Cell::Unlabelled("0.10").to_string(), "(0.10)");
        assert_eq!(format!("{:>4}", Cell::NotLegible), "   ?");
    }
}
