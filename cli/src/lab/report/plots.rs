//! The plots of a table or figure. The page's script gives them the colours of the page and their height.

use mapwire_study::tables::{Comparison, Side};
use plotly::common::{DashType, Line, Marker, Mode, Title, Visible};
use plotly::layout::{Axis, AxisType, BarMode, Margin};
use plotly::{Bar, Configuration, Layout, Plot, Scatter};

/// A plot of the page.
pub(super) struct Drawn {
    pub(super) plot: Plot,
    /// Whether it has the paper's values, not shown at first.
    pub(super) has_papers: bool,
}

/// What of a table is worth a plot.
pub(super) fn plots(table: &Comparison) -> Vec<Drawn> {
    let drawn = |mut plot: Plot| {
        plot.set_configuration(Configuration::new().responsive(true).display_logo(false));
        let has_papers = plot.to_json().contains("\"name\":\"paper: ");
        Drawn { plot, has_papers }
    };
    plots_of(table).into_iter().map(drawn).collect()
}

/// The colour of line or bar number `at` of a plot: no two are the same, and those that follow one another are far apart.
fn colour(at: usize) -> String {
    let hue = (at as f64 * 137.508) % 360.0;
    let light = [50, 38, 64][at / 8 % 3];
    format!("hsl({hue:.1}, 65%, {light}%)")
}

/// Ours is shown, the paper's when it is asked for.
fn shown(ours: bool) -> Visible {
    match ours {
        true => Visible::True,
        false => Visible::False,
    }
}

fn plots_of(table: &Comparison) -> Vec<Plot> {
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
        .x_axis(axis(x).type_(AxisType::Category).auto_margin(true))
        .y_axis(axis(y).auto_margin(true))
        .margin(Margin::new().left(50).right(10).top(40))
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
    let mut number = 0;
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
                    .line(line_of(number, ours))
                    .visible(shown(ours));
                plot.add_trace(line);
                number += 1;
            }
        }
    }
    plot.set_layout(layout("", table.keys[0], table.unit));
    vec![plot]
}

fn line_of(number: usize, ours: bool) -> Line {
    let dash = if ours { DashType::Solid } else { DashType::Dot };
    Line::new().color(colour(number)).dash(dash)
}

fn bar_of(number: usize) -> Marker {
    Marker::new().color(colour(number))
}

/// Bars for the rows of each column.
fn bars(table: &Comparison) -> Vec<Plot> {
    let mut plot = Plot::new();
    let mut number = 0;
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
            plot.add_trace(
                Bar::new(x, y)
                    .name(format!("{whose}{name}"))
                    .marker(bar_of(number))
                    .visible(shown(ours)),
            );
            number += 1;
        }
    }
    plot.set_layout(layout("", table.keys[0], table.unit).bar_mode(BarMode::Group));
    vec![plot]
}

/// One plot for each trace: the causes on top of one another.
fn stacked_causes(table: &Comparison) -> Vec<Plot> {
    let traces = table.ours.columns.iter().enumerate();
    let plot = |(column, name): (usize, &String)| {
        let mut plot = Plot::new();
        for (number, cause) in ["compulsory", "capacity", "conflict"]
            .into_iter()
            .enumerate()
        {
            let (x, y) = points(table, &table.ours, column, cause);
            plot.add_trace(Bar::new(x, y).name(cause).marker(bar_of(number)));
        }
        let layout = layout(name, table.keys[0], table.unit);
        plot.set_layout(layout.bar_mode(BarMode::Stack));
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
            plot.add_trace(Bar::new(x, y).name(*name).marker(bar_of(part)));
        }
        let layout = layout(&trace, table.keys[0], table.unit);
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
        let (what, unit) = [("misses", "misses per lookup"), ("cost", "us per lookup")][part];
        let mut plot = Plot::new();
        let mut number = 0;
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
                        .line(line_of(number, ours))
                        .visible(shown(ours));
                    plot.add_trace(line);
                    number += 1;
                }
            }
        }
        plot.set_layout(layout(what, "entries fetched by a miss", unit));
        plot
    };
    vec![plot(0), plot(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_lines_of_a_plot_have_one_colour() {
        let colours: std::collections::HashSet<_> = (0..200).map(colour).collect();
        assert_eq!(colours.len(), 200);
    }
}
