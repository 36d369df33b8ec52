//! Rows of figures: one JSON object a line, or a table.

use serde_json::{Map, Value, json};

use super::BenchError;
use super::measure::{Figure, Restless};
use super::placement::Placement;
use mapwire_console::stdio;

/// One figure beside its raw limit.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The case's own fields (`path`, `bytes`, `wait`, …) in the order in which they are printed.
    pub(crate) case: Vec<(&'static str, Value)>,
    /// In `unit`; the median of `runs`, or the mean where the bench says so.
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// What the value is compared with.
    pub(crate) baseline: &'static str,
    /// The baseline in the same run, in `unit`.
    pub(crate) baseline_value: f64,
    /// The median of value ÷ baseline of each run, which on a machine whose speed changes is not
    /// the quotient of the medians; the quotient where `value` is a mean.
    pub(crate) ratio: f64,
    /// Lowest and highest value.
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Runs that count.
    pub(crate) runs: usize,
    /// Runs of this point that count in none of its rows: the machine changed.
    pub(crate) dropped: usize,
    /// Where all runs took place, and the round trip of a flag beside them, in nanoseconds, if two processes measured.
    pub(crate) placement: (Placement, Option<f64>),
}

impl Row {
    /// A row of a paired measurement.
    pub(crate) fn of(
        case: Vec<(&'static str, Value)>,
        unit: &'static str,
        baseline: &'static str,
        figure: &Figure,
    ) -> Self {
        Self {
            case,
            value: figure.value,
            unit,
            baseline,
            baseline_value: figure.baseline,
            ratio: figure.ratio,
            min: figure.min,
            max: figure.max,
            runs: figure.runs,
            dropped: figure.dropped,
            placement: figure.placement,
        }
    }

    fn to_json(&self, bench: &str) -> Value {
        let mut object = Map::new();
        object.insert("kind".into(), json!("figure"));
        object.insert("bench".into(), json!(bench));
        for (name, value) in &self.case {
            object.insert((*name).into(), value.clone());
        }
        let (placement, flag_ns) = self.placement;
        object.insert("placement".into(), json!(placement.name()));
        if let Some(flag_ns) = flag_ns {
            object.insert("flag_ns".into(), json!(rounded(flag_ns)));
        }
        for (name, value) in [
            ("value", json!(rounded(self.value))),
            ("unit", json!(self.unit)),
            ("baseline", json!(self.baseline)),
            ("baseline_value", json!(rounded(self.baseline_value))),
            ("ratio", json!(rounded(self.ratio))),
            ("min", json!(rounded(self.min))),
            ("max", json!(rounded(self.max))),
            ("runs", json!(self.runs)),
            ("dropped", json!(self.dropped)),
        ] {
            object.insert(name.into(), value);
        }
        Value::Object(object)
    }

    /// The case for a table: texts stand for themselves. What nearly all rows share is for programs.
    fn case_text(&self) -> String {
        let is_told = |name, value: &Value| name != "transport" && (name != "ranks" || *value != 2);
        let case = self.case.iter();
        let told = case.filter(|&&(name, ref value)| is_told(name, value));
        let parts = told.map(|(name, value)| match value {
            Value::String(text) => text.clone(),
            other => format!("{name}={other}"),
        });
        parts.collect::<Vec<_>>().join(" ")
    }
}

/// Six significant digits: more is noise, fewer hides differences.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Takes rows as they come. JSON lines are printed at once, the table line by line.
pub(crate) struct Report {
    bench: &'static str,
    json: bool,
    headed: bool,
    rows: usize,
    columns: usize,
}

impl Report {
    pub(crate) fn new(bench: &'static str, json: bool) -> Self {
        Self { bench, json, headed: false, rows: 0, columns: stdio::columns() }
    }

    /// Whether rows are JSON lines.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a row.
    pub(crate) fn row(&mut self, row: &Row) {
        self.rows += 1;
        if self.json {
            println!("{}", row.to_json(self.bench));
            return;
        }
        if !std::mem::replace(&mut self.headed, true) {
            println!("{}", heading(self.columns));
        }
        println!("{}", table_line(row, self.columns));
    }

    /// What a measurement gave; nothing, and a remark about `point`, if the machine never settled.
    ///
    /// # Errors
    /// Any other error of it.
    pub(crate) fn settled<T>(&mut self, point: &str, outcome: Result<T, BenchError>) -> Result<Option<T>, BenchError> {
        match outcome {
            Err(error) if error.is::<Restless>() => {
                self.remark(&format!("{point}: {error}"));
                Ok(None)
            }
            outcome => outcome.map(Some),
        }
    }

    /// Prints a row of each figure.
    pub(crate) fn rows(
        &mut self,
        case: &[(&'static str, Value)],
        unit: &'static str,
        baseline: &'static str,
        figures: &[Figure],
    ) {
        for figure in figures {
            self.row(&Row::of(case.to_vec(), unit, baseline, figure));
        }
    }

    /// A remark for the reader of the table. Readers of JSON get figures only, and remarks on standard error.
    pub(crate) fn remark(&mut self, text: &str) {
        if self.json {
            eprintln!("mapwire: {text}");
        } else {
            println!("{text}");
        }
    }

    /// Ends the report.
    pub(crate) fn finish(&self) {
        if !self.json && self.rows > 1 {
            println!("ratio = value ÷ baseline, both of the same run");
        }
    }
}

/// Columns that a table with all figures takes.
const WIDE: usize = 154;

/// The range of a figure, its runs and the baseline's value are left out of lines of less than [`WIDE`] columns; rows of JSON have them.
fn heading(columns: usize) -> String {
    let line = format!("{:<36} {:<9} {:>10} {:<8} {:>7}", "case", "placement", "value", "unit", "ratio");
    match columns {
        WIDE.. => format!("{line}  {:<24} {:>10} {:>12} {:>12} {:>5}", "baseline", "which is", "min", "max", "runs"),
        _ => format!("{line}  baseline"),
    }
}

fn table_line(row: &Row, columns: usize) -> String {
    let line = format!(
        "{:<36} {:<9} {:>10} {:<8} {:>7.3}",
        row.case_text(),
        row.placement.0.name(),
        figure(row.value),
        row.unit,
        row.ratio,
    );
    match columns {
        WIDE.. => format!(
            "{line}  {:<24} {:>10} {:>12} {:>12} {:>5}",
            row.baseline,
            figure(row.baseline_value),
            figure(row.min),
            figure(row.max),
            row.runs
        ),
        _ => format!("{line}  {}", row.baseline),
    }
}

/// Four significant digits without an exponent.
fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        v if v >= 1.0 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Row {
        Row {
            case: vec![("path", json!("direct")), ("bytes", json!(64))],
            value: 0.266_666_666,
            unit: "us",
            baseline: "plain put",
            baseline_value: 0.26,
            ratio: 1.025_641_025_6,
            min: 0.25,
            max: 12345.6,
            runs: 31,
            dropped: 2,
            placement: (Placement::TwoCores, Some(552.34)),
        }
    }

    #[test]
    fn a_json_row_has_the_contracts_fields() {
        let text = example().to_json("send-latency").to_string();
        let back: Map<String, Value> = serde_json::from_str(&text).unwrap();
        let mut keys: Vec<_> = back.keys().map(String::as_str).collect();
        keys.sort_unstable();
        let mut wanted = vec![
            "bench",
            "path",
            "bytes",
            "value",
            "unit",
            "baseline",
            "baseline_value",
            "ratio",
            "min",
            "max",
            "runs",
            "dropped",
            "kind",
            "placement",
            "flag_ns",
        ];
        wanted.sort_unstable();
        assert_eq!(keys, wanted);
        assert_eq!(back["value"], json!(0.266_667));
        assert_eq!(back["bytes"], json!(64));
        assert_eq!(back["placement"], json!("two cores"));
        assert_eq!(back["flag_ns"], json!(552.34));
    }

    #[test]
    fn table_lines_stand_under_their_heading_and_fit() {
        let (head, line) = (heading(WIDE), table_line(&example(), WIDE));
        assert_eq!(head.chars().count(), line.chars().count(), "{head}\n{line}");
        assert!(line.starts_with("direct bytes=64 "));
        assert!(line.contains("12346"), "{line}");
        assert_eq!(head.find("placement"), line.find("two cores"));
        let (head, line) = (heading(100), table_line(&example(), 100));
        assert_eq!(head.find("baseline"), line.find("plain put"));
        assert!(line.chars().count() <= 100 && !line.contains("12346"), "{line}");
    }
}
