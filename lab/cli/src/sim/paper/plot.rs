//! Figures as one SVG drawing.

use std::fmt::Write;

use mapwire_sim::hardware::Lane;
use mapwire_sim::paper::{Figure, Group, Line, Plot};

use crate::lab::output::escaped;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 20.0;
const HEIGHT: f64 = 360.0;
const LANE: f64 = 20.0;
const COLOURS: [&str; 6] = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"];

/// A drawing of all figures, one below the other.
pub(crate) fn draw(figures: &[Figure]) -> String {
    let mut body = String::new();
    let mut top = 10.0;
    for figure in figures {
        let title = format!("{}: {}", figure.name, figure.caption);
        text(&mut body, (LEFT, top + 14.0), "start", &title);
        top = match &figure.plot {
            Plot::Spans(groups) => spans(&mut body, top + 26.0, groups, figure.x),
            Plot::Lines(lines) => curves(&mut body, top + 26.0, lines, (figure.x, figure.y)),
        };
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

fn text(to: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    let words = escaped(words);
    let _ = writeln!(to, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

fn stroke(to: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(to, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#999\"/>");
}

/// The smallest of 1, 2, 5 times a power of ten that divides `most` into ten parts or fewer.
fn tick(most: f64) -> f64 {
    let mut step = 1.0;
    for factor in [2.0, 2.5, 2.0].into_iter().cycle() {
        if most / step <= 10.0 {
            break;
        }
        step *= factor;
    }
    step
}

/// A horizontal axis from 0 to `most` at height `y`.
fn axis(to: &mut String, y: f64, most: f64, words: &str) {
    stroke(to, (LEFT, y), (WIDTH - RIGHT, y));
    let step = tick(most);
    let mut at = 0.0;
    while at <= most {
        let x = LEFT + (WIDTH - LEFT - RIGHT) * at / most;
        stroke(to, (x, y), (x, y + 4.0));
        text(to, (x, y + 17.0), "middle", &format!("{at}"));
        at += step;
    }
    text(to, ((LEFT + WIDTH) / 2.0, y + 34.0), "middle", words);
}

/// Where a value stands on an axis that multiplies.
fn logarithmic_x(value: i64, (least, most): (i64, i64)) -> f64 {
    let doublings = |to: i64| (to as f64 / least as f64).log2();
    LEFT + (WIDTH - LEFT - RIGHT) * doublings(value) / doublings(most)
}

/// The same as [`axis`], each mark four times the one before.
fn logarithmic_axis(to: &mut String, y: f64, (least, most): (i64, i64), words: &str) {
    stroke(to, (LEFT, y), (WIDTH - RIGHT, y));
    for at in std::iter::successors(Some(least), |at| at.checked_mul(4)).take_while(|at| *at <= most) {
        let x = logarithmic_x(at, (least, most));
        stroke(to, (x, y), (x, y + 4.0));
        text(to, (x, y + 17.0), "middle", &at.to_string());
    }
    text(to, ((LEFT + WIDTH) / 2.0, y + 34.0), "middle", words);
}

/// What parts did, a row each. Gives the bottom.
fn spans(to: &mut String, top: f64, groups: &[Group], words: &str) -> f64 {
    let ends = groups.iter().flat_map(|group| &group.spans);
    let most = ends.map(|span| span.to_ps).max().unwrap_or(1) as f64 / 1e6;
    let x = |ps: u64| LEFT + (WIDTH - LEFT - RIGHT) * (ps as f64 / 1e6) / most;
    let mut y = top;
    for group in groups {
        text(to, (LEFT, y + 14.0), "start", &group.name);
        y += LANE;
        for (lane, colour) in Lane::ALL.into_iter().zip(COLOURS) {
            text(to, (LEFT - 8.0, y + 14.0), "end", lane.name());
            for span in group.spans.iter().filter(|span| span.lane == lane) {
                let (from, width) = (x(span.from_ps), x(span.to_ps) - x(span.from_ps));
                let label = escaped(span.label);
                let _ = writeln!(
                    to,
                    "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{colour}\" stroke=\"white\" stroke-width=\"0.5\"><title>{label}</title></rect>",
                    y + 2.0,
                    LANE - 4.0
                );
            }
            y += LANE;
        }
        y += 6.0;
    }
    axis(to, y, most, words);
    y + 60.0
}

/// Lines with their names. Gives the bottom.
fn curves(to: &mut String, top: f64, lines: &[Line], (x_words, y_words): (&str, &str)) -> f64 {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most_x = points().map(|point| point.0).max().unwrap_or(1).max(1) as f64;
    let most_y = points().map(|point| point.1).max().unwrap_or(1).max(1) as f64 / 1000.0;
    let bottom = top + HEIGHT;
    let logarithmic = Line::logarithmic(lines);
    let x = |value: i64| match logarithmic {
        Some(ends) => logarithmic_x(value, ends),
        None => LEFT + (WIDTH - LEFT - RIGHT) * value as f64 / most_x,
    };
    let y = |value: f64| bottom - HEIGHT * value / most_y;
    let step = tick(most_y);
    let mut at = 0.0;
    while at <= most_y {
        stroke(to, (LEFT - 4.0, y(at)), (LEFT, y(at)));
        text(to, (LEFT - 8.0, y(at) + 4.0), "end", &format!("{at}"));
        at += step;
    }
    stroke(to, (LEFT, top), (LEFT, bottom));
    text(to, (LEFT - 70.0, (top + bottom) / 2.0), "middle", y_words);
    match logarithmic {
        Some(ends) => logarithmic_axis(to, bottom, ends, x_words),
        None => axis(to, bottom, most_x, x_words),
    }
    for (number, (line, colour)) in lines.iter().zip(COLOURS.into_iter().cycle()).enumerate() {
        // The second time round, colours are dashed.
        let dashes = match number / COLOURS.len() {
            0 => String::new(),
            round => format!(" stroke-dasharray=\"{} 3\"", 9 / round + 1),
        };
        let path = line.points.iter().map(|&(at, milli)| {
            let value = milli as f64 / 1000.0;
            format!("{:.1},{:.1}", x(at), y(value))
        });
        let path = path.collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            to,
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dashes}/>"
        );
        // Below the axis, two names a row.
        let left = LEFT + (number % 2) as f64 * (WIDTH - LEFT - RIGHT) / 2.0;
        let height = bottom + 52.0 + 16.0 * (number / 2) as f64;
        let _ = writeln!(
            to,
            "<line x1=\"{left:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>",
            height - 4.0,
            left + 30.0,
            height - 4.0
        );
        text(to, (left + 36.0, height), "start", &line.name);
    }
    bottom + 66.0 + 16.0 * lines.len().div_ceil(2) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_ten_parts_or_fewer() {
        for (most, step) in [(8.0, 1.0), (27.0, 5.0), (160.0, 20.0), (41.3, 5.0), (1000.0, 100.0)] {
            assert_eq!(tick(most), step, "{most}");
        }
    }

    #[test]
    fn lines_beyond_the_colours_are_dashed_and_sizes_stand_evenly() {
        let line = |number: usize| Line {
            name: format!("line {number}"),
            points: vec![(64, 1_000), (512, 2_000), (4096, 2_000), (32_768, 3_000)],
        };
        let mut drawn = String::new();
        let lines: Vec<Line> = (0..8).map(line).collect();
        curves(&mut drawn, 0.0, &lines, ("bytes", "us"));
        assert_eq!(drawn.matches("stroke-dasharray").count(), 2 * 2);
        // Thirds of the axis.
        assert!(drawn.contains("110.0,240.0 366.7,120.0 623.3,120.0 880.0,0.0"), "{drawn}");
    }

    #[test]
    fn a_drawing_has_every_line_and_no_stray_markup() {
        let line = |name: &str| Line { name: name.to_owned(), points: vec![(1, 1_000), (2, 3_000)] };
        let figure = Figure {
            name: "Figure 9",
            caption: "a < b & c".to_owned(),
            x: "entries",
            y: "us",
            plot: Plot::Lines(vec![line("one"), line("two")]),
        };
        let drawn = draw(&[figure]);
        assert_eq!(drawn.matches("<polyline").count(), 2);
        assert!(drawn.contains("a &lt; b &amp; c") && drawn.contains("points=\"495.0,276.0 880.0,36.0\""), "{drawn}");
    }
}
