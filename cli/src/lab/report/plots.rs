//! The plots of a table or figure.

use mapwire_study::tables::{Comparison, Side};
use plotly::common::{DashType, Line, Mode, Title, Visible};
use plotly::layout::{Axis, AxisType, BarMode};
use plotly::{Bar, Layout, Plot, Scatter};

/// What of a table is worth a plot.
pub(super) fn plots(table: &Comparison) -> Vec<Plot> {
    match table.name {
        "Figure 7" => stacked_causes(table),
        "Figure 5" => stacked_paths(table),
        "Figure 8" => prefetch(table),
        "Table 3" | "Table 7" | "Figure 3" => bars(table),
        _ => lines(table),
    }
}

fn axis(title: &str) -> Axis {
    Axis::new().title(Title::with_text(title))
}

fn layout(title: &str, x: &str, y: &str) -> Layout {
    Layout::new()
        .title(Title::with_text(title))
        .x_axis(axis(x).type_(AxisType::Category))
        .y_axis(axis(y))
}

/// The second key and what follows, which tells the lines of one table apart; and all values of it.
fn groups(table: &Comparison) -> Vec<String> {
    let mut groups: Vec<String> = Vec::new();
    for keys in &table.row_keys {
        let group = keys[1..].join(" ");
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

/// (first key, value) of a column in the rows of a group.
fn points(table: &Comparison, side: &Side, column: usize, group: &str) -> (Vec<String>, Vec<f64>) {
    let rows = table.row_keys.iter().zip(&side.rows);
    let of_group = rows.filter(|(keys, _)| keys[1..].join(" ") == group);
    of_group
        .filter_map(|(keys, cells)| Some((keys[0].clone(), cells[column].value?)))
        .unzip()
}

/// A line for each column and group: ours drawn, the paper's to be chosen.
fn lines(table: &Comparison) -> Vec<Plot> {
    let mut plot = Plot::new();
    for group in groups(table) {
        for (side, ours) in [(&table.ours, true), (&table.published, false)] {
            for (column, name) in side.columns.iter().enumerate() {
                let (x, y) = points(table, side, column, &group);
                if y.is_empty() {
                    continue;
                }
                let whose = if ours { "" } else { "paper: " };
                let line = Scatter::new(x, y)
                    .name(format!("{whose}{name} {group}").trim())
                    .mode(Mode::LinesMarkers)
                    .line(Line::new().dash(if ours { DashType::Solid } else { DashType::Dot }))
                    .visible(if ours {
                        Visible::True
                    } else {
                        Visible::LegendOnly
                    });
                plot.add_trace(line);
            }
        }
    }
    plot.set_layout(layout(&title(table), table.keys[0], table.unit));
    vec![plot]
}

fn title(table: &Comparison) -> String {
    format!("{} {}", table.paper, table.name)
}

/// Bars for the rows of each column.
fn bars(table: &Comparison) -> Vec<Plot> {
    let mut plot = Plot::new();
    for (side, ours) in [(&table.ours, true), (&table.published, false)] {
        for (column, name) in side.columns.iter().enumerate() {
            let rows = table.row_keys.iter().zip(&side.rows);
            let of_column =
                rows.filter_map(|(keys, cells)| Some((keys.join(" "), cells[column].value?)));
            let (x, y): (Vec<_>, Vec<_>) = of_column.unzip();
            if y.is_empty() {
                continue;
            }
            let whose = if ours { "" } else { "paper: " };
            let shown = ours || matches!(table.name, "Table 3" | "Figure 3");
            plot.add_trace(
                Bar::new(x, y)
                    .name(format!("{whose}{name}"))
                    .visible(if shown {
                        Visible::True
                    } else {
                        Visible::LegendOnly
                    }),
            );
        }
    }
    plot.set_layout(layout(&title(table), table.keys[0], table.unit).bar_mode(BarMode::Group));
    vec![plot]
}

/// One plot for each trace: the causes on top of one another.
fn stacked_causes(table: &Comparison) -> Vec<Plot> {
    let traces = table.ours.columns.iter().enumerate();
    let plot = |(column, name): (usize, &String)| {
        let mut plot = Plot::new();
        for cause in ["compulsory", "capacity", "conflict"] {
            let (x, y) = points(table, &table.ours, column, cause);
            plot.add_trace(Bar::new(x, y).name(cause));
        }
        let layout = layout(
            &format!("{}: {name}", title(table)),
            table.keys[0],
            table.unit,
        );
        plot.set_layout(layout.bar_mode(BarMode::Relative));
        plot
    };
    traces.map(plot).collect()
}

/// One plot for each trace: four kinds of misses on top of one another, for each configuration.
fn stacked_paths(table: &Comparison) -> Vec<Plot> {
    let parts = mapwire_study::published::FIGURE_5_LEGEND;
    let first = |at: usize| at * parts.len();
    let plot = |at: usize| {
        let mut plot = Plot::new();
        let mut trace = String::new();
        for (part, name) in parts.iter().enumerate() {
            let column = first(at) + part;
            trace = table.ours.columns[column]
                .trim_end_matches(name)
                .trim()
                .to_owned();
            let rows = table.row_keys.iter().zip(&table.ours.rows);
            let values =
                rows.filter_map(|(keys, cells)| Some((keys[0].clone(), cells[column].value?)));
            let (x, y): (Vec<_>, Vec<_>) = values.unzip();
            plot.add_trace(Bar::new(x, y).name(*name));
        }
        let layout = layout(
            &format!("{}: {trace}", title(table)),
            table.keys[0],
            table.unit,
        );
        plot.set_layout(layout.bar_mode(BarMode::Stack));
        plot
    };
    (0..table.ours.columns.len() / parts.len())
        .map(plot)
        .collect()
}

/// Figure 8: (a) misses, (b) costs, against prefetch, a line for each trace and size.
fn prefetch(table: &Comparison) -> Vec<Plot> {
    let mut sizes: Vec<&str> = table.row_keys.iter().map(|keys| keys[0].as_str()).collect();
    sizes.dedup();
    let plot = |part: usize| {
        let (what, unit) = [
            ("(a) miss rate", "misses per lookup"),
            ("(b) cost", "us per lookup"),
        ][part];
        let mut plot = Plot::new();
        for (side, ours) in [(&table.ours, true), (&table.published, false)] {
            for (column, name) in side.columns.iter().enumerate().skip(part).step_by(2) {
                for size in &sizes {
                    let rows = table
                        .row_keys
                        .iter()
                        .zip(&side.rows)
                        .filter(|(keys, _)| keys[0] == *size);
                    let values = rows
                        .filter_map(|(keys, cells)| Some((keys[1].clone(), cells[column].value?)));
                    let (x, y): (Vec<_>, Vec<_>) = values.unzip();
                    if y.is_empty() {
                        continue;
                    }
                    let whose = if ours { "" } else { "paper: " };
                    let line = Scatter::new(x, y)
                        .name(format!("{whose}{name} {size}"))
                        .mode(Mode::LinesMarkers)
                        .visible(if ours {
                            Visible::True
                        } else {
                            Visible::LegendOnly
                        });
                    plot.add_trace(line);
                }
            }
        }
        plot.set_layout(layout(
            &format!("{} {what}", title(table)),
            "entries fetched by a miss",
            unit,
        ));
        plot
    };
    vec![plot(0), plot(1)]
}
