//! Rows of figures: one JSON object a line, or a table.

use serde_json::{Value, json};

use super::BenchError;
use super::measure::{Figure, Restless};
use mapwire_console::stdio;

/// The case's own fields (`path`, `bytes`, `wait`, …) in the order in which they are printed.
pub(crate) type Case<'a> = &'a [(&'static str, Value)];

/// One figure beside its raw limit: `unit` is of both, `baseline` names the limit.
struct Row<'a> {
    case: Case<'a>,
    unit: &'a str,
    baseline: &'a str,
    figure: &'a Figure,
}

impl Row<'_> {
    fn to_json(&self, bench: &str) -> Value {
        let (figure, (placement, flag_ns)) = (self.figure, self.figure.placement);
        let mut fields = vec![("kind", json!("figure")), ("bench", json!(bench))];
        fields.extend_from_slice(self.case);
        fields.push(("placement", json!(placement.name())));
        fields.extend(flag_ns.map(|flag_ns| ("flag_ns", json!(rounded(flag_ns)))));
        fields.extend([
            ("value", json!(rounded(figure.value))),
            ("unit", json!(self.unit)),
            ("baseline", json!(self.baseline)),
            ("baseline_value", json!(rounded(figure.baseline))),
            ("ratio", json!(rounded(figure.ratio))),
            ("min", json!(rounded(figure.min))),
            ("max", json!(rounded(figure.max))),
            ("runs", json!(figure.runs)),
            ("dropped", json!(figure.dropped)),
        ]);
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
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
    rows: usize,
    columns: usize,
}

impl Report {
    pub(crate) fn new(bench: &'static str, json: bool) -> Self {
        Self { bench, json, rows: 0, columns: stdio::columns() }
    }

    /// Whether rows are JSON lines.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// The outcome of a measurement; `None`, and a remark about `point`, if the machine never settled.
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
    pub(crate) fn rows(&mut self, case: Case<'_>, unit: &str, baseline: &str, figures: &[Figure]) {
        for figure in figures {
            self.rows += 1;
            let row = Row { case, unit, baseline, figure };
            if self.json {
                println!("{}", row.to_json(self.bench));
                continue;
            }
            if self.rows == 1 {
                println!("{}", heading(self.columns));
            }
            println!("{}", table_line(&row, self.columns));
        }
    }

    /// Prints the row of a measurement, if the machine settled.
    ///
    /// # Errors
    /// Any other error of the measurement.
    pub(crate) fn settled_row(
        &mut self,
        point: &str,
        case: Case<'_>,
        (unit, baseline): (&str, &str),
        outcome: Result<Figure, BenchError>,
    ) -> Result<(), BenchError> {
        let figure = self.settled(point, outcome)?;
        self.rows(case, unit, baseline, figure.as_slice());
        Ok(())
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

fn table_line(row: &Row<'_>, columns: usize) -> String {
    let it = row.figure;
    let line = format!(
        "{:<36} {:<9} {:>10} {:<8} {:>7.3}",
        row.case_text(),
        it.placement.0.name(),
        figure(it.value),
        row.unit,
        it.ratio,
    );
    match columns {
        WIDE.. => format!(
            "{line}  {:<24} {:>10} {:>12} {:>12} {:>5}",
            row.baseline,
            figure(it.baseline),
            figure(it.min),
            figure(it.max),
            it.runs
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
    use crate::placement::Placement;

    fn with_example(look: impl FnOnce(Row<'_>)) {
        let figure = Figure {
            value: 0.266_666_666,
            baseline: 0.26,
            ratio: 1.025_641_025_6,
            min: 0.25,
            max: 12345.6,
            runs: 31,
            dropped: 2,
            placement: (Placement::TwoCores, Some(552.34)),
        };
        let case = [("path", json!("direct")), ("bytes", json!(64))];
        look(Row { case: &case, unit: "us", baseline: "plain put", figure: &figure });
    }

    #[test]
    fn a_json_row_has_the_contracts_fields() {
        let mut text = String::new();
        with_example(|row| text = row.to_json("send-latency").to_string());
        let back: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
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
        let line_of = |columns| {
            let mut line = String::new();
            with_example(|row| line = table_line(&row, columns));
            line
        };
        let (head, line) = (heading(WIDE), line_of(WIDE));
        assert_eq!(head.chars().count(), line.chars().count(), "{head}\n{line}");
        assert!(line.starts_with("direct bytes=64 "));
        assert!(line.contains("12346"), "{line}");
        assert_eq!(head.find("placement"), line.find("two cores"));
        let (head, line) = (heading(100), line_of(100));
        assert_eq!(head.find("baseline"), line.find("plain put"));
        assert!(line.chars().count() <= 100 && !line.contains("12346"), "{line}");
    }
}
