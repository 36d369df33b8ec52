//! What a run of a paper's machine gives. All numbers are whole thousandths, so that they are the same on every platform.

use crate::hardware::{Profile, Span};

/// What part a published figure has in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The machine's constants were taken from it, or it follows from such figures by adding them up: that ours agrees says nothing.
    Input,
    /// Ours follows from other figures.
    Predicted,
    /// Ours restates another cell or an input in another form, and is counted there if at all.
    Repeated,
    /// The paper has no such figure.
    New,
}

impl Role {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Predicted => "predicted",
            Self::Repeated => "repeated",
            Self::New => "new",
        }
    }
}

/// A figure that a paper prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// In thousandths.
    pub milli: i64,
    /// Thousandths of the last digit that is printed; 0 of a count, which is exact.
    pub digit_milli: i64,
}

/// One figure of ours, with the published one if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Ours in thousandths; `None` if there is none.
    pub milli: Option<i64>,
    pub published: Option<Published>,
    pub role: Role,
}

impl Cell {
    /// A figure that the paper does not have.
    pub const fn new(milli: i64) -> Self {
        Self { milli: Some(milli), published: None, role: Role::New }
    }

    pub const NONE: Self = Self { milli: None, published: None, role: Role::New };

    /// A figure beside the published one.
    pub const fn beside(milli: i64, published: Published, role: Role) -> Self {
        Self { milli: Some(milli), published: Some(published), role }
    }

    /// By how many tenths of a percent ours is more than the published figure.
    pub fn difference(&self) -> Option<i64> {
        let (ours, theirs) = (self.milli?, self.published?.milli);
        (theirs != 0).then(|| {
            let twice = (ours - theirs) * 2000 / theirs;
            (twice + twice.signum()) / 2
        })
    }

    /// Whether it is a prediction, and if so whether it is within a tenth of the published figure, beside what the paper rounded: a
    /// published 4 % may have been anything from 3.5 to 4.5. Nothing is within a tenth of a published 0: that is not counted.
    pub fn is_within(&self) -> Option<bool> {
        let (ours, theirs) = (self.milli?, self.published?);
        let is_counted = self.role == Role::Predicted && theirs.milli != 0;
        let (twice_ours, twice_theirs) = (2 * ours, 2 * theirs.milli);
        let most = theirs.digit_milli;
        let twice_nearest = twice_ours.clamp(twice_theirs - most, twice_theirs + most);
        is_counted.then(|| 10 * (twice_ours - twice_nearest).abs() <= twice_nearest.abs())
    }

    /// Whether ours, in as many digits as the paper prints, is the same.
    pub fn is_same(&self) -> bool {
        let (Some(ours), Some(theirs)) = (self.milli, self.published) else { return false };
        2 * (ours - theirs.milli).abs() <= theirs.digit_milli
    }
}

impl From<i64> for Cell {
    fn from(milli: i64) -> Self {
        Self::new(milli)
    }
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub keys: Vec<String>,
    /// A cell for each column.
    pub cells: Vec<Cell>,
}

/// Units that names of columns end with.
const UNITS: [&str; 6] = ["us", "s", "MB/s", "%", "count", "ratio"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// `Table 1`, or what a new one is about.
    pub name: &'static str,
    pub caption: String,
    /// Unit of the cells of columns that name none.
    pub unit: &'static str,
    pub keys: Vec<&'static str>,
    /// Names of the columns; with another unit than the table's, behind a comma.
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
    pub notes: Vec<String>,
}

impl Table {
    pub fn new(
        name: &'static str,
        caption: &str,
        unit: &'static str,
        keys: &[&'static str],
        columns: &[impl AsRef<str>],
    ) -> Self {
        Self {
            name,
            caption: caption.to_owned(),
            unit,
            keys: keys.to_vec(),
            columns: columns.iter().map(|column| column.as_ref().to_owned()).collect(),
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The unit of a row's cell in this column: as the key named `unit` says, or another key that is one, or the column's name, or the table.
    pub fn unit_of<'a>(&'a self, row: &'a Row, column: &'a str) -> &'a str {
        let key = self.keys.iter().position(|key| *key == "unit");
        if let Some(key) = key.and_then(|at| row.keys.get(at)) {
            return key;
        }
        if let Some(key) = row.keys.iter().find(|key| UNITS.contains(&key.as_str())) {
            return key;
        }
        column.rsplit_once(", ").map(|(_, unit)| unit).filter(|it| UNITS.contains(it)).unwrap_or(self.unit)
    }

    pub fn row(&mut self, keys: &[&str], cells: impl IntoIterator<Item = impl Into<Cell>>) {
        let cells: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        debug_assert_eq!((keys.len(), cells.len()), (self.keys.len(), self.columns.len()));
        let keys = keys.iter().map(|&key| key.to_owned()).collect();
        self.rows.push(Row { keys, cells });
    }

    /// Appends a row about something that a paper says, and whether it holds here.
    pub(super) fn said(&mut self, said: &str, holds: bool, measure: &str, milli: i64) {
        self.row(&[said, if holds { "holds" } else { "does not hold" }, measure], [milli]);
    }

    pub fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }

    /// The cell of the row with these keys.
    pub fn cell(&self, keys: &[&str], column: &str) -> Option<Cell> {
        let row = self.rows.iter().find(|row| row.keys == keys)?;
        let at = self.columns.iter().position(|name| name == column)?;
        row.cells.get(at).copied()
    }
}

/// A line of a plot: points of whole numbers and thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub name: String,
    pub points: Vec<(i64, i64)>,
}

impl Line {
    /// The smallest and largest x of all lines, if a linear axis would squeeze most points into its beginning.
    pub fn logarithmic(lines: &[Self]) -> Option<(i64, i64)> {
        let points = || lines.iter().flat_map(|line| &line.points);
        let least = points().map(|point| point.0).min()?;
        let most = points().map(|point| point.0).max()?;
        (least > 0 && most / least >= 256).then_some((least, most))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    /// What its parts did, from time 0 on.
    pub spans: Vec<Span>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plot {
    Lines(Vec<Line>),
    Spans(Vec<Group>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// `Figure 5`.
    pub name: &'static str,
    pub caption: String,
    /// What the horizontal axis counts.
    pub x: &'static str,
    /// What the vertical axis counts; nothing for spans.
    pub y: &'static str,
    pub plot: Plot,
}

impl Figure {
    /// Lines over an axis of `x`, their values in `y`.
    pub(super) fn lines(
        name: &'static str,
        caption: &str,
        (x, y): (&'static str, &'static str),
        lines: impl IntoIterator<Item = Line>,
    ) -> Self {
        Self { name, caption: caption.to_owned(), x, y, plot: Plot::Lines(lines.into_iter().collect()) }
    }
}

/// A table with a row for each of several numbers, and the figure of its columns over them.
pub(super) fn swept<E, const N: usize>(
    name: &'static str,
    caption: &str,
    (x, y): (&'static str, &'static str),
    columns: [&str; N],
    over: &[u64],
    mut cells: impl FnMut(u64) -> Result<[Cell; N], E>,
) -> Result<(Figure, Table), E> {
    let mut table = Table::new(name, caption, y, &[x], &columns);
    let mut lines = columns.map(|name| Line { name: name.to_owned(), points: Vec::new() });
    for &at in over {
        let cells = cells(at)?;
        for (line, cell) in lines.iter_mut().zip(cells) {
            line.points.extend(cell.milli.map(|milli| (at as i64, milli)));
        }
        table.row(&[&at.to_string()], cells);
    }
    Ok((Figure::lines(name, caption, (x, y), lines), table))
}

/// All that a run gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The machines, with the origin of each constant.
    pub profiles: Vec<Profile>,
    pub tables: Vec<Table>,
    pub figures: Vec<Figure>,
}

/// How well predictions agree with what was published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Published figures that are predicted.
    pub predicted: usize,
    /// Of those, how many are within a tenth.
    pub within: usize,
}

impl core::fmt::Display for Summary {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { predicted, within } = self;
        match predicted {
            0 => f.write_str("No published figure is predicted: all of them went into the machine."),
            _ => write!(
                f,
                "{within} of {predicted} predicted figures are within 10 % of the published ones, rounding apart."
            ),
        }
    }
}

impl Report {
    /// How well its predictions agree.
    pub fn summary(&self) -> Summary {
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        let verdicts = rows.flat_map(|row| &row.cells).filter_map(Cell::is_within);
        verdicts.fold(Summary::default(), |sum, is_within| Summary {
            predicted: sum.predicted + 1,
            within: sum.within + usize::from(is_within),
        })
    }

    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_the_unit_of_its_row_its_column_or_its_table() {
        let unit = |keys: &[&'static str], column| {
            let mut table = Table::new("Table 9", "", "s", keys, &[column]);
            table.row(keys, vec![Cell::NONE]);
            table.unit_of(&table.rows[0], column).to_owned()
        };
        assert_eq!(unit(&["what"], "polling"), "s");
        assert_eq!(unit(&["what"], "gain, %"), "%");
        assert_eq!(unit(&["what"], "polling, idle"), "s");
        assert_eq!(unit(&["what", "unit"], "gain, %"), "unit");
        assert_eq!(unit(&["MB/s"], "gain"), "MB/s");
    }

    #[test]
    fn differences_are_rounded_to_tenths_of_a_percent() {
        let cell = |ours, theirs| {
            let published = Published { milli: theirs, digit_milli: 100 };
            Cell::beside(ours, published, Role::Predicted)
        };
        assert_eq!(cell(13_300, 13_500).difference(), Some(-15));
        assert_eq!(cell(110, 100).difference(), Some(100));
        assert_eq!(cell(5, 0).difference(), None);
        assert_eq!(cell(0, 0).is_within(), None);
        // 1.0 may have been 0.95.
        assert_eq!(cell(855, 1_000).is_within(), Some(true));
        assert_eq!(cell(854, 1_000).is_within(), Some(false));
        assert!(cell(13_540, 13_500).is_same() && !cell(13_560, 13_500).is_same());
    }
}
