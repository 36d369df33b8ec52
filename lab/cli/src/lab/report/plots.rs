//! The plots of a table or figure. The page's script gives them the colours of the page and their height.

use mapwire_study::tables::{Comparison, Side};
use plotly::common::{DashType, Line, Marker, MarkerSymbol, Mode, Title, Visible};
use plotly::layout::{Axis, AxisType, BarMode, Margin};
use plotly::{Bar, Configuration, Layout, Plot, Scatter};

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

/// Hue, saturation and lightness of the colours, after Okabe and Ito's palette, which colour-blind readers tell apart. Its black and
/// yellow are left out: they vanish on a dark and on a light page.
const PALETTE: [[u32; 3]; 7] =
    [[202, 100, 38], [41, 100, 45], [164, 100, 31], [27, 100, 42], [202, 77, 63], [327, 45, 64], [0, 0, 50]];

/// Changes of lightness by which colours come again.
const SHADES: [i32; 5] = [0, 18, -13, 26, -20];

/// Shapes of the points of lines, one for each seven lines.
const SYMBOLS: [MarkerSymbol; 5] =
    [MarkerSymbol::Circle, MarkerSymbol::Square, MarkerSymbol::Diamond, MarkerSymbol::X, MarkerSymbol::TriangleUp];

/// The colour of line or bar number `at` of a plot; the first 35 differ.
fn colour(at: usize) -> String {
    let [hue, saturation, light] = PALETTE[at % PALETTE.len()];
    let light = light as i32 + SHADES[at / PALETTE.len() % SHADES.len()];
    format!("hsl({hue}, {saturation}%, {light}%)")
}

/// Ours is shown, the paper's when it is asked for.
fn shown(ours: bool) -> Visible {
    if ours { Visible::True } else { Visible::False }
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

/// The first key of the rows of a group.
fn in_group(group: &str) -> impl Fn(&[String]) -> Option<String> {
    move |keys| (keys[1..].join(" ") == group).then(|| keys[0].clone())
}

/// A column of one of the sides.
#[derive(Clone, Copy)]
struct Column<'a> {
    table: &'a Comparison,
    side: &'a Side,
    at: usize,
    ours: bool,
}

/// Our columns, then the paper's.
fn columns(table: &Comparison) -> impl Iterator<Item = Column<'_>> {
    let sides = [(&table.ours, true), (&table.published, false)];
    sides.into_iter().flat_map(move |(side, ours)| {
        let column = move |at| Column { table, side, at, ours };
        (0..side.columns.len()).map(column)
    })
}

impl Column<'_> {
    /// What it is called in a plot, with what tells it from others of the same name.
    fn name(self, more: &str) -> String {
        let whose = if self.ours { "" } else { "paper: " };
        let name = &self.side.columns[self.at];
        format!("{whose}{name} {more}").trim_end().to_owned()
    }

    /// The values of the rows that `key` gives a name.
    fn points(self, key: impl Fn(&[String]) -> Option<String>) -> (Vec<String>, Vec<f64>) {
        let rows = self.table.row_keys.iter().zip(&self.side.rows);
        rows.filter_map(|(keys, cells)| Some((key(keys)?, cells[self.at].value?))).unzip()
    }

    fn add_line(self, plot: &mut Plot, more: &str, (x, y): (Vec<String>, Vec<f64>)) {
        if !y.is_empty() {
            let line = Scatter::new(x, y)
                .name(self.name(more))
                .mode(Mode::LinesMarkers)
                .line(line_of(plot.data().len(), self.ours))
                .marker(point_of(plot.data().len()))
                .visible(shown(self.ours));
            plot.add_trace(line);
        }
    }
}

/// A line for each column and group: ours drawn, the paper's to be chosen.
fn lines(table: &Comparison) -> Vec<Plot> {
    let mut plot = Plot::new();
    for group in groups(table) {
        for column in columns(table) {
            column.add_line(&mut plot, &group, column.points(in_group(&group)));
        }
    }
    plot.set_layout(layout("", table.keys[0], table.unit));
    vec![plot]
}

/// The lines of a machine's figure, over numbers.
pub(super) fn machine_lines(lines: &[mapwire_sim::paper::Line], x: &str, y: &str) -> Plot {
    let mut plot = Plot::new();
    for (number, line) in lines.iter().enumerate() {
        let points = line.points.iter().map(|&(x, milli)| (x as f64, milli as f64 / 1000.0));
        let (xs, ys): (Vec<f64>, Vec<f64>) = points.unzip();
        let drawn = Scatter::new(xs, ys)
            .name(&line.name)
            .mode(Mode::LinesMarkers)
            .line(line_of(number, true))
            .marker(point_of(number));
        plot.add_trace(drawn);
    }
    let layout = layout("", x, y);
    let kind = match mapwire_sim::paper::Line::logarithmic(lines) {
        Some(_) => AxisType::Log,
        None => AxisType::Linear,
    };
    plot.set_layout(layout.x_axis(axis(x).type_(kind).auto_margin(true)));
    plot.set_configuration(Configuration::new().responsive(true).display_logo(false));
    plot
}

fn line_of(number: usize, ours: bool) -> Line {
    let dash = if ours { DashType::Solid } else { DashType::Dot };
    Line::new().color(colour(number)).dash(dash)
}

fn point_of(number: usize) -> Marker {
    let symbol = &SYMBOLS[number / PALETTE.len() % SYMBOLS.len()];
    Marker::new().color(colour(number)).symbol(symbol.clone())
}

fn bar_of(number: usize) -> Marker {
    Marker::new().color(colour(number))
}

/// The ratio of the longest bar to the shortest from which on a linear axis hides the shortest.
const VANISHES: f64 = 50.0;

/// The axis on which no bar vanishes.
fn axis_of_bars(values: &[f64]) -> AxisType {
    let some = values.iter().copied().filter(|it| *it > 0.0);
    let longest = some.clone().fold(0.0, f64::max);
    if some.fold(f64::INFINITY, f64::min) * VANISHES < longest { AxisType::Log } else { AxisType::Linear }
}

fn bars(table: &Comparison) -> Vec<Plot> {
    let mut plot = Plot::new();
    let mut values = Vec::new();
    for column in columns(table) {
        let (x, y) = column.points(|keys| Some(keys.join(" ")));
        if !y.is_empty() {
            values.extend_from_slice(&y);
            let bar =
                Bar::new(x, y).name(column.name("")).marker(bar_of(plot.data().len())).visible(shown(column.ours));
            plot.add_trace(bar);
        }
    }
    let kind = axis_of_bars(&values);
    let layout = layout("", table.keys[0], table.unit).y_axis(axis(table.unit).type_(kind).auto_margin(true));
    plot.set_layout(layout.bar_mode(BarMode::Group));
    vec![plot]
}

/// Bars on top of one another, each with its name and points.
fn stacked<'a>(
    table: &Comparison,
    title: &str,
    parts: impl Iterator<Item = (&'a str, (Vec<String>, Vec<f64>))>,
) -> Plot {
    let mut plot = Plot::new();
    for (number, (name, (x, y))) in parts.enumerate() {
        plot.add_trace(Bar::new(x, y).name(name).marker(bar_of(number)));
    }
    let layout = layout(title, table.keys[0], table.unit);
    plot.set_layout(layout.bar_mode(BarMode::Stack));
    plot
}

/// One plot for each trace: the causes on top of one another.
fn stacked_causes(table: &Comparison) -> Vec<Plot> {
    let causes = ["compulsory", "capacity", "conflict"];
    let plot = |column: Column<'_>| {
        let parts = causes.map(|cause| (cause, column.points(in_group(cause))));
        stacked(table, &column.name(""), parts.into_iter())
    };
    columns(table).filter(|it| it.ours).map(plot).collect()
}

/// One plot for each trace: four kinds of misses on top of one another, for each configuration.
fn stacked_paths(table: &Comparison) -> Vec<Plot> {
    let names = mapwire_study::published::FIGURE_5_LEGEND;
    let ours: Vec<_> = columns(table).filter(|it| it.ours).collect();
    let plot = |columns: &[Column<'_>]| {
        let trace = columns[0].name("");
        let trace = trace.trim_end_matches(names[0]).trim();
        let points = |column: &Column<'_>| column.points(|keys| Some(keys[0].clone()));
        stacked(table, trace, names.into_iter().zip(columns.iter().map(points)))
    };
    ours.chunks_exact(names.len()).map(plot).collect()
}

/// Figure 8: (a) misses, (b) costs, against prefetch, a line for each trace and size.
fn prefetch(table: &Comparison) -> Vec<Plot> {
    let mut sizes: Vec<&str> = table.row_keys.iter().map(|keys| keys[0].as_str()).collect();
    sizes.dedup();
    let plot = |(part, what, unit): (usize, &str, &str)| {
        let mut plot = Plot::new();
        for column in columns(table).filter(|it| it.at % 2 == part) {
            for size in &sizes {
                let of_size = |keys: &[String]| (keys[0] == *size).then(|| keys[1].clone());
                column.add_line(&mut plot, size, column.points(of_size));
            }
        }
        plot.set_layout(layout(what, "entries fetched by a miss", unit));
        plot
    };
    let parts = [(0, "misses", "misses per lookup"), (1, "cost", "us per lookup")];
    parts.map(plot).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_35_lines_of_a_plot_differ_in_colour_and_neighbours_in_more_than_lightness() {
        let colours: std::collections::HashSet<_> = (0..35).map(colour).collect();
        assert_eq!(colours.len(), 35);
        for at in 0..70 {
            let [one, next] = [at, at + 1].map(|it| PALETTE[it % PALETTE.len()]);
            assert!(one[0] != next[0] || one[1] != next[1]);
        }
    }

    #[test]
    fn an_axis_is_logarithmic_where_a_bar_would_vanish() {
        assert!(matches!(axis_of_bars(&[1.0, 40.0, 0.0]), AxisType::Linear));
        assert!(matches!(axis_of_bars(&[1.0, 60.0]), AxisType::Log));
        assert!(matches!(axis_of_bars(&[]), AxisType::Linear));
    }
}
