//! Rows and words of an answer.

use mapwire_translation::PinLimit;
use serde_json::{Map, Value, json};

use super::MemoryLimit;
use crate::config::Configuration;
use crate::cost::{CostProfile, CostRange};
use crate::counts::Counts;
use crate::rows::Kind;

/// The name under which rows stand that are sums over all traces.
pub const ALL_TRACES: &str = "all traces";

/// One line of an answer. What does not apply to the question is empty.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The trace, or [`ALL_TRACES`].
    pub trace: String,
    /// Design and rules of pinning.
    pub configuration: Configuration,
    /// Whether the traces that are summed up have configurations that differ in size, of which this is the first's.
    pub varies: bool,
    /// The limit as it was asked for.
    pub limit: Option<MemoryLimit>,
    /// Who chooses what is unpinned, if that is none of the five policies.
    pub chooser: Option<&'static str>,
    /// What the row stands for among those of its limit, where that is not plain.
    pub role: &'static str,
    /// Entries in NIC memory that designs are compared at.
    pub nic_entries: Option<u64>,
    /// Bytes of NIC memory, of the node that needs most.
    pub nic_bytes: Option<u64>,
    /// Installed pages at the end of the trace whose entry does not follow that of the page before them (UTLB §3.3).
    pub fragmented_pages: Option<u64>,
    /// What was counted; why nothing was, if the configuration cannot do what the trace does.
    pub counts: Result<Counts, String>,
    /// What it is compared with, counted likewise.
    pub against: Option<Counts>,
    /// Mean cost of a lookup in µs, if the profile has all costs that it needs; the middle of a range.
    pub cost_us: Option<f64>,
    /// Its least and its most in µs, where they differ.
    pub cost_between_us: Option<(f64, f64)>,
    /// The same of what it is compared with.
    pub against_us: Option<f64>,
    /// Whether none of the rows that it is compared with costs less.
    pub best: bool,
}

impl Row {
    /// A configuration on a trace.
    pub fn new(
        trace: &str,
        configuration: Configuration,
        counts: Result<Counts, String>,
        profile: &CostProfile,
    ) -> Self {
        let mut row = Row {
            trace: trace.to_owned(),
            configuration,
            varies: false,
            limit: None,
            chooser: None,
            role: "",
            nic_entries: None,
            nic_bytes: None,
            fragmented_pages: None,
            counts,
            against: None,
            cost_us: None,
            cost_between_us: None,
            against_us: None,
            best: false,
        };
        row.price(profile);
        row
    }

    /// The name of the policy.
    pub fn policy(&self) -> String {
        match self.chooser {
            Some(name) => name.to_owned(),
            None => self.configuration.rules.policy.to_string(),
        }
    }

    /// Its cost divided by that of what it is compared with.
    pub fn cost_ratio(&self) -> Option<f64> {
        Some(self.cost_us? / self.against_us.filter(|us| *us > 0.0)?)
    }

    /// Its pins divided by those of what it is compared with.
    pub fn pins_ratio(&self) -> Option<f64> {
        let pins = self.against.filter(|counts| counts.pins > 0)?.pins;
        Some(self.counts.as_ref().ok()?.pins as f64 / pins as f64)
    }

    /// The limit in force, in pages.
    pub fn limit_pages(&self) -> Option<u64> {
        match self.configuration.rules.limit {
            PinLimit::Unlimited => None,
            PinLimit::Pages(pages) => Some(pages),
        }
    }

    /// Compares it with what counted `counts` under the same equation.
    pub(super) fn compare(&mut self, counts: Option<Counts>, profile: &CostProfile) {
        self.against = counts;
        self.against_us = counts
            .and_then(|counts| self.cost_of(&counts, profile))
            .map(|cost| cost.middle_us());
    }

    fn price(&mut self, profile: &CostProfile) {
        let counts = self.counts.as_ref().ok().copied();
        let cost = counts.and_then(|counts| self.cost_of(&counts, profile));
        self.cost_us = cost.map(|cost| cost.middle_us());
        self.cost_between_us = cost
            .filter(|cost| !cost.is_exact())
            .map(|cost| (cost.low.us(), cost.high.us()));
    }

    fn cost_of(&self, counts: &Counts, profile: &CostProfile) -> Option<CostRange> {
        self.configuration.equation().cost(profile, counts)
    }
}

/// The rows of all traces together, from blocks of rows, a block for each trace, all in the same order: counts are summed up, NIC
/// memory is the most that a trace needs. `None` for one trace alone.
pub(super) fn totals(blocks: &[Vec<Row>], profile: &CostProfile) -> Option<Vec<Row>> {
    let (first, others) = blocks.split_first()?;
    if others.is_empty() {
        return None;
    }
    let total = |at: usize, row: &Row| {
        let mut sum = row.clone();
        sum.trace = ALL_TRACES.to_owned();
        if sum.counts.is_err() {
            sum.counts = Err("not on every trace".to_owned());
        }
        for other in others.iter().filter_map(|block| block.get(at)) {
            sum.varies |= other.configuration != row.configuration;
            sum.counts = match (sum.counts, &other.counts) {
                (Ok(mut counts), Ok(more)) => {
                    counts += *more;
                    Ok(counts)
                }
                _ => Err("not on every trace".to_owned()),
            };
            sum.nic_bytes = sum.nic_bytes.max(other.nic_bytes);
            sum.fragmented_pages = sum
                .fragmented_pages
                .zip(other.fragmented_pages)
                .map(|(a, b)| a + b);
        }
        sum.price(profile);
        sum
    };
    Some(
        first
            .iter()
            .enumerate()
            .map(|(at, row)| total(at, row))
            .collect(),
    )
}

/// The rows that cost least of the block are marked, if there are others to compare them with.
pub(super) fn mark_best(rows: &mut [&mut Row]) {
    let least = rows.iter().filter_map(|row| row.cost_us).reduce(f64::min);
    let known = rows.iter().filter(|row| row.cost_us.is_some()).count();
    for row in rows {
        row.best = known > 1 && row.cost_us.is_some() && row.cost_us == least;
    }
}

/// A column of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name in JSON and CSV.
    pub name: &'static str,
    /// Its heading in a table.
    pub heading: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// The value of a row; null if it has none.
    pub value: fn(&Row) -> Value,
}

macro_rules! columns {
    ($($id:ident: $name:literal, $heading:literal, $kind:ident, $value:expr;)*) => {
        $(pub(super) const $id: Column = Column { name: $name, heading: $heading, kind: Kind::$kind, value: $value };)*
    };
}

fn configuration_text(row: &Row) -> String {
    match row.varies {
        true => row.configuration.design.name().to_owned(),
        false => row.configuration.design.to_string(),
    }
}

fn count(row: &Row, of: fn(&Counts) -> u64) -> Value {
    json!(row.counts.as_ref().ok().map(of))
}

columns! {
    TRACE: "trace", "trace", Text, |row| json!(row.trace);
    DESIGN: "design", "design", Text, |row| json!(row.configuration.design.name());
    CONFIGURATION: "configuration", "configuration", Text, |row| json!(configuration_text(row));
    NIC_ENTRIES: "nic_entries", "NIC entries", Count, |row| json!(row.nic_entries);
    NIC_BYTES: "nic_bytes", "NIC bytes", Count, |row| json!(row.nic_bytes);
    ENTRIES: "entries", "entries", Count, |row| json!(row.configuration.entries().filter(|_| !row.varies));
    WAYS: "ways", "ways", Count, |row| json!(row.configuration.cache().map(|cache| cache.ways));
    FOUND_ENTRIES: "entries", "entries", Count, |row| json!(row.counts.as_ref().ok().and_then(|_| row.configuration.entries()));
    LIMIT: "limit", "limit", Text, |row| json!(row.limit.map(|limit| limit.to_string()));
    LIMIT_PAGES: "limit_pages", "pages", Count, |row| json!(row.limit_pages());
    POLICY: "policy", "policy", Text, |row| json!(row.policy());
    ROLE: "role", "as", Text, |row| json!(row.role);
    LOOKUPS: "lookups", "lookups", Count, |row| count(row, |it| it.lookups);
    CHECK_MISSES: "check_misses", "check misses", Count, |row| count(row, |it| it.check_misses);
    NIC_MISSES: "nic_misses", "NIC misses", Count, |row| count(row, |it| it.nic_misses);
    PINS: "pins", "pins", Count, |row| count(row, |it| it.pins);
    UNPINS: "unpins", "unpins", Count, |row| count(row, |it| it.unpins);
    INTERRUPTS: "interrupts", "interrupts", Count, |row| count(row, |it| it.interrupts);
    FRAGMENTED: "fragmented_pages", "fragmented", Count, |row| json!(row.fragmented_pages);
    COST: "cost_us", "us/lookup", Rate, |row| json!(row.cost_us);
    COST_LOW: "cost_low_us", "from", Rate, |row| json!(row.cost_between_us.map(|it| it.0));
    COST_HIGH: "cost_high_us", "to", Rate, |row| json!(row.cost_between_us.map(|it| it.1));
    OPTIMUM_PINS: "optimum_pins", "optimum pins", Count, |row| json!(row.against.map(|it| it.pins));
    PINS_RATIO: "pins_ratio", "pins/optimum", Rate, |row| json!(row.pins_ratio());
    COST_RATIO: "cost_ratio", "cost/optimum", Rate, |row| json!(row.cost_ratio());
    UNLIMITED_COST: "unlimited_cost_us", "unlimited", Rate, |row| json!(row.against_us);
    UNLIMITED_RATIO: "cost_ratio", "ratio", Rate, |row| json!(row.cost_ratio());
    BEST: "best", "least cost", Switch, |row| json!(row.best);
    FAILURE: "failure", "failure", Text, |row| json!(row.counts.as_ref().err());
}

/// An answer: rows, and what follows from them in words.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The question's name.
    pub question: &'static str,
    /// The columns of its rows.
    pub columns: &'static [Column],
    /// The rows, trace by trace, then of all traces together if there are several.
    pub rows: Vec<Row>,
    /// What follows from them, a sentence each.
    pub words: Vec<String>,
    /// Name of the profile of costs.
    pub profile: String,
    /// Traces of which only a part was good, and why.
    pub damaged: Vec<String>,
}

impl Answer {
    /// Names of the values of a row: the question, the columns, the profile of costs.
    pub fn names(&self) -> Vec<&'static str> {
        let columns = self.columns.iter().map(|column| column.name);
        ["question"]
            .into_iter()
            .chain(columns)
            .chain(["cost_profile"])
            .collect()
    }

    /// The values of a row, by [`names`](Self::names): null where there is none, rates with six decimals.
    pub fn values(&self, row: &Row) -> Vec<Value> {
        let value = |column: &Column| {
            let value = (column.value)(row);
            match (column.kind, value.as_f64()) {
                (Kind::Rate, Some(number)) => json!((number * 1e6).round() / 1e6),
                _ => value,
            }
        };
        let columns = self.columns.iter().map(value);
        let (question, profile) = (json!(self.question), json!(self.profile));
        [question]
            .into_iter()
            .chain(columns)
            .chain([profile])
            .collect()
    }

    /// Each row as a JSON object.
    pub fn to_json(&self) -> impl Iterator<Item = Value> {
        let names: Vec<_> = self.names().into_iter().map(str::to_owned).collect();
        self.rows.iter().map(move |row| {
            let values = names.iter().cloned().zip(self.values(row));
            Value::Object(values.collect::<Map<_, _>>())
        })
    }
}

/// The words on rows of all traces, or of the only one.
pub(super) fn summed(rows: &[Row]) -> &[Row] {
    let last = rows.last().map(|row| row.trace.as_str());
    let from = rows.iter().position(|row| Some(row.trace.as_str()) == last);
    &rows[from.unwrap_or(0)..]
}

/// Microseconds in words.
pub(super) fn us(cost: Option<f64>) -> String {
    cost.map_or_else(|| "an unknown cost".to_owned(), |us| format!("{us:.2} µs"))
}

/// A number of entries in words: 1024 is 1K.
pub(super) fn entries_text(entries: u64) -> String {
    match entries {
        0 => "0".to_owned(),
        entries if entries.is_multiple_of(1 << 20) => format!("{}M", entries >> 20),
        entries if entries.is_multiple_of(1 << 10) => format!("{}K", entries >> 10),
        entries => entries.to_string(),
    }
}

/// Bytes in words: 16384 is 16 KiB.
pub(super) fn bytes_text(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(lookups: u64, misses: u64) -> Row {
        let counts = Counts {
            lookups,
            nic_misses: misses,
            ..Counts::default()
        };
        Row::new(
            "a",
            Configuration::new("hierarchical".parse().unwrap()),
            Ok(counts),
            &CostProfile::papers(),
        )
    }

    #[test]
    fn all_traces_together_cost_what_their_lookups_cost_on_average() {
        let profile = CostProfile::papers();
        let blocks = [vec![row(30, 0)], vec![row(10, 40)]];
        let total = &totals(&blocks, &profile).unwrap()[0];
        assert_eq!(
            (total.trace.as_str(), total.counts.as_ref().unwrap().lookups),
            (ALL_TRACES, 40)
        );
        // 0.5 + 0.8 + 1.8 × 40 ÷ 40
        assert!((total.cost_us.unwrap() - 3.1).abs() < 1e-9);
        assert!(totals(&blocks[..1], &profile).is_none());
    }

    #[test]
    fn what_fails_on_one_trace_has_no_total() {
        let mut failed = row(1, 1);
        failed.counts = Err("too small".to_owned());
        let total = totals(
            &[vec![row(1, 1)], vec![failed], vec![row(1, 1)]],
            &CostProfile::papers(),
        )
        .unwrap();
        assert_eq!(total[0].counts, Err("not on every trace".to_owned()));
        assert_eq!(total[0].cost_us, None);
    }

    #[test]
    fn the_cheapest_rows_are_marked_unless_one_stands_alone() {
        let (mut cheap, mut dear, mut same) = (row(10, 0), row(10, 5), row(10, 0));
        mark_best(&mut [&mut cheap, &mut dear, &mut same]);
        assert_eq!([cheap.best, dear.best, same.best], [true, false, true]);
        mark_best(&mut [&mut cheap]);
        assert!(!cheap.best);
    }
}
