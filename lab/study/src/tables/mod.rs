//! The papers' tables and figures, computed on traces, beside what the papers print.

mod claims;
mod gather;
mod handles;
mod utlb;
mod words;

use serde_json::{Value, json};

pub use words::conclusions;

pub use gather::{Gathered, Source, direct_note, gather, left_out_note};

use crate::cost::CostProfile;
use crate::published::{Paper, figures};

#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    /// As it is shown; `-` where there is none, `?` where the paper's is not legible, in parentheses where its column is not known.
    pub text: String,
    pub value: Option<f64>,
}

impl Cell {
    pub fn number(value: f64, decimals: usize) -> Self {
        Cell { text: format!("{value:.decimals$}"), value: Some(value) }
    }

    pub fn none() -> Self {
        Cell { text: "-".to_owned(), value: None }
    }

    pub fn published(cell: Option<crate::published::Cell>) -> Self {
        cell.map_or_else(Cell::none, |cell| Cell { text: cell.to_string(), value: cell.value() })
    }
}

/// Half of a comparison: what is ours, or what is the paper's.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Side {
    pub columns: Vec<String>,
    /// A row of cells for each row of the comparison.
    pub rows: Vec<Vec<Cell>>,
}

/// A table or figure of a paper, ours beside the paper's.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    pub paper: Paper,
    /// `Table 4`, `Figure 7`.
    pub name: &'static str,
    pub caption: String,
    pub unit: &'static str,
    pub keys: Vec<&'static str>,
    pub row_keys: Vec<Vec<String>>,
    pub ours: Side,
    pub published: Side,
    pub remarks: Vec<String>,
}

impl Comparison {
    fn new(
        (paper, name): (Paper, &'static str),
        caption: &str,
        unit: &'static str,
        keys: &[&'static str],
        ours: Vec<String>,
        published: Vec<String>,
    ) -> Self {
        Comparison {
            paper,
            name,
            caption: caption.to_owned(),
            unit,
            keys: keys.to_vec(),
            row_keys: Vec::new(),
            ours: Side { columns: ours, rows: Vec::new() },
            published: Side { columns: published, rows: Vec::new() },
            remarks: Vec::new(),
        }
    }

    /// A figure without rows, of which the paper's values are not legible.
    fn of_figure(
        (paper, name): (Paper, &'static str),
        unit: &'static str,
        keys: &[&'static str],
        ours: Vec<String>,
        published: Vec<String>,
    ) -> Self {
        let source = figures().into_iter().find(|figure| figure.paper == paper && figure.name == name);
        Self::new((paper, name), source.map_or("", |figure| figure.caption), unit, keys, ours, published)
    }

    /// Adds what the paper states about the figure, beside what ours says.
    fn with_claims(mut self) -> Self {
        let said = claims::remarks(self.paper, self.name, &self);
        self.remarks.extend(said);
        self
    }

    fn row(&mut self, keys: &[&str], ours: Vec<Cell>, published: Vec<Cell>) {
        debug_assert_eq!(
            (keys.len(), ours.len(), published.len()),
            (self.keys.len(), self.ours.columns.len(), self.published.columns.len()),
            "{} {keys:?}",
            self.name
        );
        self.row_keys.push(keys.iter().map(|key| (*key).to_owned()).collect());
        self.ours.rows.push(ours);
        self.published.rows.push(published);
    }

    pub fn ours_at(&self, keys: &[&str], column: &str) -> Option<&Cell> {
        let row = self.row_keys.iter().position(|row| row == keys)?;
        let at = self.ours.columns.iter().position(|name| name == column)?;
        self.ours.rows[row].get(at)
    }

    /// A JSON object for each cell: table, keys, whose, column, value (null if it is no number), text, unit.
    pub fn to_json(&self) -> Vec<Value> {
        let mut objects = Vec::new();
        for (at, keys) in self.row_keys.iter().enumerate() {
            for (whose, side) in [("ours", &self.ours), ("published", &self.published)] {
                for (column, cell) in side.columns.iter().zip(&side.rows[at]) {
                    let mut object = json!({
                        "kind": "cell",
                        "table": format!("{} {}", self.paper, self.name),
                        "source": whose,
                        "column": column,
                        "value": cell.value,
                        "text": cell.text,
                        "unit": self.unit,
                    });
                    for (name, key) in self.keys.iter().zip(keys) {
                        object[*name] = json!(key);
                    }
                    objects.push(object);
                }
            }
        }
        objects
    }
}

/// All of them, in the papers' order: UTLB Tables 3 to 8, Figures 7 and 8, dynamic handle lookup Figures 3 and 5.
pub fn comparisons(gathered: &Gathered, profile: &CostProfile) -> Vec<Comparison> {
    vec![
        utlb::table_3(gathered),
        utlb::table_4(gathered),
        utlb::table_5(gathered),
        utlb::table_6(gathered, profile),
        utlb::table_7(gathered, profile),
        utlb::table_8(gathered),
        utlb::figure_7(gathered),
        utlb::figure_8(gathered, profile),
        handles::figure_3(),
        handles::figure_5(gathered),
    ]
}

#[cfg(test)]
mod tests;
