//! `mapwire sim paper`: the machines that papers measured.

mod plot;
pub(crate) mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use mapwire_gms::RowSize;
use mapwire_sim::hardware::{Profile, Unit};
use mapwire_sim::paper::{Cell, Figure, Options, PAPERS, Plot, Report, Table};
use serde_json::{Map, Value, json};

use super::{SimError, seed};
use crate::lab::output::{Output, known_columns, print};
pub(crate) use plot::draw as drawing;

#[derive(Debug, Args)]
pub(crate) struct PaperArgs {
    /// Which paper's machine
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(PAPERS.iter().map(|paper| paper.name)))]
    name: String,
    /// Entries in a row of the page directory (gms-np only): 8, 32 or 64 (default: 32, as the paper's prototype)
    #[arg(long, value_name = "ENTRIES", value_parser = row_size)]
    row_size: Option<RowSize>,
    /// Seed of what is drawn: intervals between getpages, where the paper does not state them
    #[arg(long, value_name = "S", default_value = "1", value_parser = seed, allow_negative_numbers = true)]
    seed: u64,
    /// Draw the paper's figures, ours, into this file (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// One JSON object a line: each constant, each cell of each table, each note, each line and span of the figures, and how many
    /// predictions are within 10 %
    #[arg(long)]
    json: bool,
}

fn row_size(text: &str) -> Result<RowSize, String> {
    match text {
        "8" => Ok(RowSize::Eight),
        "32" => Ok(RowSize::ThirtyTwo),
        "64" => Ok(RowSize::SixtyFour),
        _ => Err("rows have 8, 32 or 64 entries".to_owned()),
    }
}

pub(super) fn command(args: &PaperArgs) -> Result<ExitCode, SimError> {
    let paper = PAPERS.iter().find(|paper| paper.name == args.name);
    let paper = paper.ok_or_else(|| format!("no machine of paper `{}` is known", args.name))?;
    let plot = match &args.plot {
        Some(path) => Some(Output::begin(Some(path), &[])?),
        None => None,
    };
    let options = Options { row_size: args.row_size, seed: args.seed };
    let report = (paper.run)(&options)?;
    match args.json {
        true => {
            print(&in_json(paper.name, &report))?;
            for table in &report.tables {
                for note in &table.notes {
                    eprintln!("mapwire: note: {}: {note}", table.name);
                }
            }
        }
        false => print(&text::report(paper, &report, known_columns()))?,
    }
    if let Some(plot) = plot {
        plot.write(drawing(&report.figures).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn in_json(paper: &str, report: &Report) -> String {
    let constants = report.profiles.iter().flat_map(constants);
    let cells = report.tables.iter().flat_map(cells);
    let drawn = report.figures.iter().flat_map(drawn);
    let summary = report.summary();
    let summary = object(json!({
        "kind": "summary",
        "predicted": summary.predicted,
        "within_10_percent": summary.within,
    }));
    let mut text = String::new();
    for mut object in constants.chain(cells).chain(drawn).chain([summary]) {
        object.insert("paper".to_owned(), json!(paper));
        text.push_str(&format!("{}\n", Value::Object(object)));
    }
    text
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => Map::from_iter([("value".to_owned(), other)]),
    }
}

fn constants(profile: &Profile) -> Vec<Map<String, Value>> {
    let rows = profile.constants().iter();
    let rows = rows.map(|row| {
        let (value, unit) = match row.cost.unit() {
            Unit::Time => (row.value as f64 / 1e6, "us"),
            Unit::Bytes => (row.value as f64, "bytes"),
            Unit::Words => (row.value as f64, "words"),
            Unit::Percent => (row.value as f64, "percent"),
        };
        object(json!({
            "kind": "constant",
            "machine": profile.name,
            "constant": format!("{:?}", row.cost),
            "value": value,
            "unit": unit,
            "origin": row.origin.word(),
            "source": row.source,
        }))
    });
    rows.collect()
}

fn cells(table: &Table) -> Vec<Map<String, Value>> {
    let thousandths = |milli: i64| milli as f64 / 1000.0;
    let mut objects = Vec::new();
    for row in &table.rows {
        let keys = table.keys.iter().zip(&row.keys);
        let keys: Map<String, Value> = keys.map(|(&key, value)| (key.to_owned(), json!(value))).collect();
        for (column, cell) in table.columns.iter().zip(&row.cells) {
            let Cell { milli, published, .. } = cell;
            objects.push(object(json!({
                "kind": "cell",
                "table": table.name,
                "keys": keys,
                "column": column,
                "unit": table.unit_of(row, column),
                "value": milli.map(thousandths),
                "published": published.map(|published| thousandths(published.milli)),
                "difference_percent": cell.difference().map(|tenths| tenths as f64 / 10.0),
                "role": cell.role.word(),
            })));
        }
    }
    objects
}

fn drawn(figure: &Figure) -> Vec<Map<String, Value>> {
    let name = figure.name;
    match &figure.plot {
        Plot::Lines(lines) => {
            let of_line = |line: &mapwire_sim::paper::Line| {
                let points = line.points.iter().map(|&(x, milli)| (x, milli as f64 / 1000.0));
                let points: Vec<(i64, f64)> = points.collect();
                object(json!({ "kind": "line", "figure": name, "line": line.name, "unit": figure.y, "points": points }))
            };
            lines.iter().map(of_line).collect()
        }
        Plot::Spans(groups) => {
            let spans = groups.iter().flat_map(|group| group.spans.iter().map(|span| (&group.name, span)));
            let of_span = |(system, span): (&String, &mapwire_sim::hardware::Span)| {
                object(json!({
                    "kind": "span",
                    "figure": name,
                    "system": system,
                    "lane": span.lane.name(),
                    "what": span.label,
                    "from_us": span.from_ps as f64 / 1e6,
                    "to_us": span.to_ps as f64 / 1e6,
                }))
            };
            spans.map(of_span).collect()
        }
    }
}
