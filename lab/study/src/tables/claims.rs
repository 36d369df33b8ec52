//! What the papers state of their figures, held against ours.

use super::Comparison;
use crate::published::{Claim, FIGURE_5_LEGEND, Paper, Statement, figures};

const EPSILON: f64 = 1e-3;

/// The statements of the paper about that figure, each with its source, and whether it holds for ours where that can be told.
pub(super) fn remarks(paper: Paper, name: &str, ours: &Comparison) -> Vec<String> {
    let figure = figures().into_iter().find(|figure| figure.paper == paper && figure.name == name);
    let statements = figure.map_or(&[][..], |figure| figure.prose);
    statements.iter().map(|statement| remark(paper, statement, ours)).collect()
}

fn remark(paper: Paper, statement: &Statement, ours: &Comparison) -> String {
    let Statement { section, text, claim } = statement;
    let said = format!("{paper} {section} says of its own runs: {text}");
    let Some(claim) = claim else { return said };
    let against = against(*claim, ours);
    if against.is_empty() {
        format!("{said} It holds here.")
    } else {
        format!("{said} It does NOT hold here for {}.", against.join("; "))
    }
}

/// The rows of a column by their first and second key, in order.
fn series<'a>(ours: &'a Comparison, column: usize) -> impl Iterator<Item = (&'a str, &'a str, f64)> + 'a {
    let rows = ours.row_keys.iter().zip(&ours.ours.rows);
    rows.filter_map(move |(keys, cells)| {
        let second = keys.get(1).map_or("", String::as_str);
        Some((keys[0].as_str(), second, cells.get(column)?.value?))
    })
}

/// What of ours contradicts the claim: names of columns, and where.
fn against(claim: Claim, ours: &Comparison) -> Vec<String> {
    if matches!(claim, Claim::AtMostPercent(_) | Claim::LongLinesMissLess) {
        return against_misses(claim, ours);
    }
    let mut all = Vec::new();
    for (column, name) in ours.ours.columns.iter().enumerate() {
        let places = match claim {
            Claim::RestFallsWithSize => {
                rises(series(ours, column).filter(|it| it.1 == "capacity and conflict").map(|it| (it.0, it.2)))
            }
            Claim::MostAreCompulsory => minorities(ours, column),
            _ => {
                let mut sizes: Vec<_> = series(ours, column).map(|it| it.0).collect();
                sizes.dedup();
                let rising = |size: &&str| {
                    let of_size = series(ours, column).filter(|it| it.0 == *size);
                    !rises(of_size.map(|it| (it.1, it.2))).is_empty()
                };
                sizes.into_iter().filter(rising).collect()
            }
        };
        if !places.is_empty() {
            all.push(format!("{name} at {}", places.join(", ")));
        }
    }
    all
}

/// Places of a series where the value is above the one before.
fn rises<'a>(values: impl Iterator<Item = (&'a str, f64)>) -> Vec<&'a str> {
    let mut last = f64::INFINITY;
    let mut places = Vec::new();
    for (place, value) in values {
        if value > last + EPSILON {
            places.push(place);
        }
        last = value;
    }
    places
}

/// Sizes at which fewer than half of the misses are compulsory.
fn minorities(ours: &Comparison, column: usize) -> Vec<&str> {
    let of = |cause: &'static str| series(ours, column).filter(move |it| it.1 == cause).map(|it| (it.0, it.2));
    of("compulsory")
        .zip(of("capacity and conflict"))
        .filter(|((_, first), (_, rest))| first + EPSILON < *rest)
        .map(|((size, _), _)| size)
        .collect()
}

/// Claims about the sum of the parts of a bar.
fn against_misses(claim: Claim, ours: &Comparison) -> Vec<String> {
    let parts = FIGURE_5_LEGEND.len();
    let mut all = Vec::new();
    for first in (0..ours.ours.columns.len()).step_by(parts) {
        let name = ours.ours.columns[first].trim_end_matches(FIGURE_5_LEGEND[0]).trim();
        let sums: Vec<(&str, f64)> = ours
            .row_keys
            .iter()
            .zip(&ours.ours.rows)
            .map(|(keys, cells)| {
                let values = cells[first..first + parts].iter().filter_map(|it| it.value);
                (keys[0].as_str(), values.sum())
            })
            .collect();
        let at = |place: &str| sums.iter().find(|it| it.0 == place).map(|it| it.1);
        let places: Vec<&str> = match claim {
            Claim::AtMostPercent(most) => sums.iter().filter(|it| it.1 > most + EPSILON).map(|it| it.0).collect(),
            _ => {
                let shorter = |place: &str| at(&place.replace(".L128.", ".L8."));
                sums.iter()
                    .filter(|it| it.0.contains(".L128."))
                    .filter(|it| shorter(it.0).is_some_and(|short| it.1 > short + EPSILON))
                    .map(|it| it.0)
                    .collect()
            }
        };
        if let Some(place) = places.first() {
            let more = match places.len() {
                1 => String::new(),
                n => format!(" and {} more", n - 1),
            };
            all.push(format!("{name} at {place}{more}"));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::{Cell, Side};
    use super::*;

    fn comparison(columns: &[&str], rows: &[(&[&str], &[f64])]) -> Comparison {
        Comparison {
            paper: Paper::Utlb,
            name: "Figure 7",
            caption: String::new(),
            unit: "",
            keys: vec!["cache entries", "misses"],
            row_keys: rows.iter().map(|row| row.0.iter().map(|key| (*key).to_owned()).collect()).collect(),
            ours: Side {
                columns: columns.iter().map(|name| (*name).to_owned()).collect(),
                rows: rows.iter().map(|row| row.1.iter().map(|value| Cell::number(*value, 3)).collect()).collect(),
            },
            published: Side::default(),
            remarks: Vec::new(),
        }
    }

    #[test]
    fn a_claim_that_ours_contradict_names_the_trace_and_the_place() {
        let ours = comparison(
            &["good", "bad"],
            &[
                (&["1K", "compulsory"], &[0.5, 0.1]),
                (&["1K", "capacity and conflict"], &[0.2, 0.3]),
                (&["2K", "compulsory"], &[0.5, 0.1]),
                (&["2K", "capacity and conflict"], &[0.1, 0.4]),
            ],
        );
        assert_eq!(against(Claim::MostAreCompulsory, &ours), ["bad at 1K, 2K"]);
        assert_eq!(against(Claim::RestFallsWithSize, &ours), ["bad at 2K"]);
        let remarks = remarks(Paper::Utlb, "Figure 7", &ours).join("\n");
        assert!(remarks.contains("UTLB §6.4 says"), "{remarks}");
        assert!(remarks.contains("NOT hold here for bad at 1K, 2K"), "{remarks}");
    }

    #[test]
    fn the_parts_of_a_bar_are_judged_together() {
        let columns = FIGURE_5_LEGEND.map(|part| format!("fft {part}"));
        let columns: Vec<_> = columns.iter().map(String::as_str).collect();
        let ours = comparison(
            &columns,
            &[(&["C8.L8.A2"], &[10.0, 10.0, 5.0, 5.0]), (&["C8.L128.A2"], &[20.0, 10.0, 6.0, 5.0])],
        );
        let long = against(Claim::LongLinesMissLess, &ours);
        assert_eq!(long, ["fft at C8.L128.A2"]);
        assert_eq!(against(Claim::AtMostPercent(40.0), &ours), ["fft at C8.L128.A2"]);
        assert!(against(Claim::AtMostPercent(41.0), &ours).is_empty());
    }
}
