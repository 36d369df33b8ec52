//! What all questions take of how the answer is written, and the writing.

use std::path::PathBuf;

use clap::Args;
use mapwire_study::questions::{Answer, Column, Row};
use mapwire_study::rows::Kind;
use serde_json::Value;

use super::super::output::{Output, grouped, table};
use super::super::study::TraceOptions;
use super::super::study::rows_out::csv_of;
use super::super::{DamagedError, LabError};

#[derive(Debug, Args)]
pub(super) struct OutputOptions {
    /// One JSON object a line for each row
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// The rows as CSV
    #[arg(long)]
    csv: bool,
    /// Write to this file, which appears when it is whole (default: stdout)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The answer's place, begun before the question is put.
pub(super) struct AnswerOutput<'a> {
    options: &'a OutputOptions,
    output: Output,
}

impl OutputOptions {
    /// Begins the file that is named, if one is.
    pub(super) fn begin(&self, traces: &TraceOptions) -> Result<AnswerOutput<'_>, LabError> {
        Ok(AnswerOutput {
            options: self,
            output: Output::begin(self.output.as_deref(), &traces.traces)?,
        })
    }
}

impl AnswerOutput<'_> {
    /// Writes the answer, and warns of traces of which only a part was good.
    pub(super) fn write(self, answer: &Answer) -> Result<(), LabError> {
        let text = if self.options.json {
            answer.to_json().map(|row| format!("{row}\n")).collect()
        } else if self.options.csv {
            csv_of(
                &answer.names(),
                answer.rows.iter().map(|row| answer.values(row)),
            )
        } else {
            text(answer)
        };
        self.output.write(text.as_bytes())?;
        DamagedError::tell(&answer.damaged)
    }
}

/// A table, why rows have no counts, and the answer in words. A column without a value in any row is left out.
fn text(answer: &Answer) -> String {
    let failed = |column: &Column| column.name == "failure";
    let shown = |column: &&Column| {
        let has = |row: &Row| !matches!((column.value)(row), Value::Null);
        !failed(column) && (answer.rows.is_empty() || answer.rows.iter().any(has))
    };
    let columns: Vec<&Column> = answer.columns.iter().filter(shown).collect();
    let headings: Vec<_> = columns.iter().map(|column| column.heading).collect();
    let cells = |row: &Row| {
        columns
            .iter()
            .map(|column| cell(column, &(column.value)(row)))
            .collect()
    };
    let mut text = table(
        &headings,
        &answer.rows.iter().map(cells).collect::<Vec<_>>(),
    );
    text.push_str(&format!("costs: {}\n", answer.profile));
    for row in &answer.rows {
        if let Err(why) = &row.counts {
            let what = row
                .chooser
                .map_or_else(String::new, |name| format!(" ({name})"));
            text.push_str(&format!(
                "{}, {}{what}: {why}\n",
                row.trace, row.configuration
            ));
        }
    }
    text.push('\n');
    for word in &answer.words {
        text.push_str(&format!("{}: {word}\n", answer.question));
    }
    text
}

fn cell(column: &Column, value: &Value) -> String {
    match (column.kind, value) {
        (_, Value::Null) => "-".to_owned(),
        (Kind::Switch, Value::Bool(value)) => if *value { "yes" } else { "" }.to_owned(),
        (Kind::Rate, value) => value
            .as_f64()
            .map_or_else(String::new, |rate| format!("{rate:.3}")),
        (Kind::Count, value) => value.as_u64().map_or_else(String::new, grouped),
        (_, Value::String(text)) => text.clone(),
        (_, other) => other.to_string(),
    }
}
