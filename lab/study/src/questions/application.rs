//! What an application can win that chooses the pages to unpin itself.
//!
//! UTLB §3.4 lets it; §8: "we have not explored other choices". Three policies that a program could bring
//! ([`choosers`](super::choosers)) stand beside LRU, the best of the five, and the optimum.

use mapwire_translation::Policy;

use super::choosers::Chooser;
use super::policies::{Options, Tried, limit_text, tried};
use super::row::{self, Answer, Column, Row};
use super::survey::damaged;
use super::{QuestionError, Source};
use crate::cost::CostProfile;

const COLUMNS: &[Column] = &[
    row::TRACE,
    row::LIMIT,
    row::LIMIT_PAGES,
    row::POLICY,
    row::ROLE,
    row::CONFIGURATION,
    row::LOOKUPS,
    row::CHECK_MISSES,
    row::NIC_MISSES,
    row::PINS,
    row::UNPINS,
    row::COST,
    row::OPTIMUM_PINS,
    row::PINS_RATIO,
    row::COST_RATIO,
    row::BEST,
    row::FAILURE,
];

/// Answers it, with the options of [`policies`](super::policies).
///
/// # Errors
/// [`QuestionError`].
pub fn ask(
    source: &mut impl Source,
    options: &Options,
    profile: &CostProfile,
) -> Result<Answer, QuestionError> {
    let Tried { rows, surveys } = tried(source, options, &Chooser::APPLICATION, profile)?;
    let group =
        Policy::PREDEFINED.len() + Chooser::APPLICATION.len() + usize::from(options.optimum);
    let rows: Vec<Row> = rows.chunks(group).flat_map(shown).collect();
    Ok(Answer {
        question: "application",
        columns: COLUMNS,
        words: words(row::summed(&rows)),
        rows,
        profile: profile.name.clone(),
        damaged: damaged(&surveys),
    })
}

/// Of the rows of a limit: LRU, the one of the five that pins least, the application's, and the optimum.
fn shown(group: &[Row]) -> Vec<Row> {
    let five = || group.iter().filter(|row| row.chooser.is_none());
    let lru = five().find(|row| row.configuration.rules.policy == Policy::Lru);
    let best = five().min_by_key(|row| pins(row).unwrap_or(u64::MAX));
    let others = group.iter().filter(|row| row.chooser.is_some());
    let mut rows: Vec<Row> = lru
        .map(|row| Row {
            role: "LRU",
            ..row.clone()
        })
        .into_iter()
        .chain(best.map(|row| Row {
            role: "best of five",
            ..row.clone()
        }))
        .chain(others.map(|row| Row {
            role: if row.chooser == Chooser::Optimum.name() {
                "optimum"
            } else {
                "application"
            },
            ..row.clone()
        }))
        .collect();
    let mut compared: Vec<_> = rows
        .iter_mut()
        .filter(|row| row.role != "optimum")
        .collect();
    row::mark_best(&mut compared);
    rows
}

fn pins(row: &Row) -> Option<u64> {
    row.counts.as_ref().ok().map(|counts| counts.pins)
}

fn words(rows: &[Row]) -> Vec<String> {
    let mut words = Vec::new();
    for group in rows.chunk_by(|a, b| a.limit == b.limit && a.limit_pages() == b.limit_pages()) {
        let limit = limit_text(&group[0]);
        let role = |role| {
            group
                .iter()
                .find(|row| row.role == role && row.counts.is_ok())
        };
        let applications = group
            .iter()
            .filter(|row| row.role == "application" && row.counts.is_ok());
        let (Some(lru), Some(five), Some(own)) = (
            role("LRU"),
            role("best of five"),
            applications.min_by_key(|row| pins(row)),
        ) else {
            words.push(format!("{limit}: too small for what the traces do"));
            continue;
        };
        if lru.counts.as_ref().is_ok_and(|counts| counts.unpins == 0) {
            words.push(format!("{limit}: nothing is unpinned, whoever chooses"));
            continue;
        }
        let lru_pins = pins(lru).unwrap_or(0).max(1);
        let against_lru = |row: &Row| {
            let change = 100.0 * (1.0 - pins(row).unwrap_or(0) as f64 / lru_pins as f64);
            if change < 0.0 {
                format!("{:.1} % more", -change)
            } else {
                format!("{change:.1} % less")
            }
        };
        let optimum = role("optimum").map_or_else(String::new, |row| {
            format!("; the optimum {}", against_lru(row))
        });
        words.push(format!(
            "{limit}: of an application's policies `{}` is best and pins {} than LRU; {}, the best of the five, {}{optimum}",
            own.policy(),
            against_lru(own),
            five.policy(),
            against_lru(five)
        ));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::MemoryLimit;
    use super::super::testing::{Made, sends};
    use super::*;

    #[test]
    fn on_a_cyclic_sweep_an_application_wins_what_lru_cannot() {
        let sweep: Vec<_> = (0..20)
            .flat_map(|_| (0..100).map(|page| (0, 0, page, 1)))
            .collect();
        let mut made = Made::new(vec![sends(&sweep)]);
        let options = Options {
            limits: vec![MemoryLimit::Pages(75), MemoryLimit::Pages(100)],
            ..Options::default()
        };
        let answer = ask(&mut made, &options, &CostProfile::papers()).unwrap();
        let roles: Vec<_> = answer.rows[..6].iter().map(|row| row.role).collect();
        assert_eq!(
            roles,
            [
                "LRU",
                "best of five",
                "application",
                "application",
                "application",
                "optimum"
            ]
        );
        let pins: Vec<_> = answer.rows[..6]
            .iter()
            .map(|row| pins(row).unwrap())
            .collect();
        assert_eq!((pins[0], answer.rows[1].policy().as_str()), (2000, "mru"));
        assert!(pins[2] < 800 && pins[5] <= pins[1].min(pins[2]), "{pins:?}");
        assert!(
            answer.words[0].contains("`sweep` is best and pins "),
            "{:?}",
            answer.words
        );
        assert!(
            answer.words[1].contains("nothing is unpinned"),
            "{:?}",
            answer.words
        );
    }

    #[test]
    fn buffers_that_the_program_is_done_with_go_first() {
        // A table of 4 pages is used between buffers that are used once.
        let records: Vec<_> = (0..200_u64)
            .flat_map(|n| [(0, 0, n % 4, 1), (0, 0, 1000 + 2 * n, 1)])
            .collect();
        let mut made = Made::new(vec![sends(&records)]);
        let options = Options {
            limits: vec![MemoryLimit::Pages(5)],
            optimum: false,
            ..Options::default()
        };
        let answer = ask(&mut made, &options, &CostProfile::papers()).unwrap();
        let released = answer
            .rows
            .iter()
            .find(|row| row.chooser == Some("released"))
            .unwrap();
        assert_eq!(pins(released), Some(204));
        assert_eq!(pins(&answer.rows[0]), Some(400));
        assert!(
            answer
                .rows
                .iter()
                .all(|row| row.role != "optimum" && row.pins_ratio().is_none())
        );
    }
}
