//! What designs do under limits on the pinned memory of a process.
//!
//! UTLB Table 5 has one limit and two designs. Here all designs are under limits from none down to a small part of what the programs
//! communicate with.

use mapwire_translation::{DesignConfig, PinRules};

use super::policies::{counts_of, limit_text};
use super::row::{self, Answer, Column, Row};
use super::survey::{damaged, largest_footprint, survey};
use super::{MemoryLimit, QuestionError, Source};
use crate::config::Configuration;
use crate::cost::CostProfile;
use crate::decode::Selection;
use crate::study::Request;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which operations count.
    pub selection: Selection,
    /// The designs.
    pub designs: Vec<DesignConfig>,
    /// Limits to try.
    pub limits: Vec<MemoryLimit>,
    /// Threads to use at most.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        let shares = MemoryLimit::SHARES.into_iter().rev();
        Options {
            selection: Selection::SEND_SIDE,
            designs: designs(),
            limits: [MemoryLimit::None].into_iter().chain(shares).collect(),
            threads: 1,
        }
    }
}

/// All designs in their default shapes, and the first VMMC's.
pub fn designs() -> Vec<DesignConfig> {
    let vmmc = "interrupt,variant=vmmc".parse().ok();
    DesignConfig::all().into_iter().chain(vmmc).collect()
}

const COLUMNS: &[Column] = &[
    row::TRACE,
    row::LIMIT,
    row::LIMIT_PAGES,
    row::CONFIGURATION,
    row::LOOKUPS,
    row::CHECK_MISSES,
    row::NIC_MISSES,
    row::PINS,
    row::UNPINS,
    row::INTERRUPTS,
    row::COST,
    row::COST_LOW,
    row::COST_HIGH,
    row::BEST,
    row::FAILURE,
];

/// Answers it.
///
/// # Errors
/// [`QuestionError`].
pub fn ask(
    source: &mut impl Source,
    options: &Options,
    profile: &CostProfile,
) -> Result<Answer, QuestionError> {
    let surveys = survey(source, options.selection)?;
    let footprint = largest_footprint(&surveys);
    let asked: Vec<(MemoryLimit, Configuration)> = options
        .limits
        .iter()
        .flat_map(|limit| {
            let rules = PinRules::default().with_limit(limit.of_footprint(footprint));
            let configuration =
                move |design: &DesignConfig| Configuration::new(*design).with_rules(rules);
            options
                .designs
                .iter()
                .map(move |design| (*limit, configuration(design)))
        })
        .collect();
    let studied = source.study(Request {
        configurations: asked.iter().map(|it| it.1).collect(),
        selection: options.selection,
        causes: false,
        tolerant: true,
        threads: options.threads,
    })?;
    let mut blocks: Vec<Vec<Row>> = studied
        .iter()
        .map(|trace| {
            let row = |(at, (limit, configuration)): (usize, &(MemoryLimit, Configuration))| Row {
                limit: Some(*limit),
                ..Row::new(&trace.name(), *configuration, counts_of(trace, at), profile)
            };
            asked.iter().enumerate().map(row).collect()
        })
        .collect();
    blocks.extend(row::totals(&blocks, profile));
    for block in &mut blocks {
        for rows in block.chunks_mut(options.designs.len().max(1)) {
            row::mark_best(&mut rows.iter_mut().collect::<Vec<_>>());
        }
    }
    let rows = blocks.concat();
    Ok(Answer {
        question: "limits",
        columns: COLUMNS,
        words: words(row::summed(&rows), options.designs.len().max(1)),
        rows,
        profile: profile.name.clone(),
        damaged: damaged(&surveys),
    })
}

fn words(rows: &[Row], designs: usize) -> Vec<String> {
    let mut words: Vec<_> = rows
        .chunks(designs)
        .map(|group| {
            let limit = limit_text(&group[0]);
            let known = || group.iter().filter_map(|row| Some((row, row.cost_us?)));
            let least = known().min_by(|a, b| a.1.total_cmp(&b.1));
            let most = known().max_by(|a, b| a.1.total_cmp(&b.1));
            match least.zip(most) {
                Some(((least, low), (most, high))) if low < high => format!(
                    "{limit}: {} costs least, {low:.2} µs a lookup{}; {} most, {high:.2} µs{}",
                    least.configuration.design,
                    range_text(least),
                    most.configuration.design,
                    range_text(most)
                ),
                Some(((least, low), _)) => {
                    format!(
                        "{limit}: {} costs {low:.2} µs a lookup",
                        least.configuration.design
                    )
                }
                None => format!("{limit}: no design has a known cost"),
            }
        })
        .collect();
    if let Some(word) = steadiest(rows, designs) {
        words.push(word);
    }
    words
}

/// The range of a cost that is not known exactly.
fn range_text(row: &Row) -> String {
    row.cost_between_us.map_or_else(String::new, |(low, high)| {
        format!(" (the middle of {low:.2} to {high:.2})")
    })
}

/// The design whose cost rises least from its least to its most.
fn steadiest(rows: &[Row], designs: usize) -> Option<String> {
    if rows.len() <= designs {
        return None;
    }
    let rise = |at: usize| {
        let costs: Option<Vec<f64>> = rows
            .iter()
            .skip(at)
            .step_by(designs)
            .map(|row| row.cost_us)
            .collect();
        let costs = costs?;
        let least = costs
            .iter()
            .copied()
            .reduce(f64::min)
            .filter(|least| *least > 0.0)?;
        let most = costs.iter().copied().reduce(f64::max)?;
        Some((at, most / least))
    };
    let rises: Vec<_> = (0..designs).filter_map(rise).collect();
    let (at, factor) = rises.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!(
        "{} bears limits best: between the limits its cost changes by a factor of {factor:.2}",
        rows[at].configuration.design
    ))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Made, sends};
    use super::*;

    #[test]
    fn every_design_is_under_every_limit_and_what_does_not_fit_is_told() {
        let records: Vec<_> = (0..600_u64)
            .map(|n| (0, (n % 2) as u16, n * 7 % 64, 4))
            .collect();
        let mut made = Made::new(vec![sends(&records), sends(&records[..100])]);
        let options = Options {
            limits: vec![
                MemoryLimit::None,
                "1/4".parse().unwrap(),
                MemoryLimit::Pages(2),
            ],
            ..Options::default()
        };
        let answer = ask(&mut made, &options, &CostProfile::papers()).unwrap();
        assert_eq!(answer.rows.len(), 3 * 3 * 6);
        let all = row::summed(&answer.rows);
        assert_eq!((all.len(), all[0].trace.as_str()), (18, row::ALL_TRACES));
        assert_eq!(all[6].limit_pages(), Some(17));
        for design in 0..3 {
            let counts = |at: usize| all[at].counts.as_ref().unwrap();
            assert_eq!(counts(design).unpins, 0);
            assert!(counts(6 + design).unpins > 0 && counts(6 + design).pins > counts(design).pins);
            assert!(all[12 + design].counts.is_err());
        }
        assert!(
            answer.words[1].starts_with("1/4 of the largest footprint (17 pages): "),
            "{:?}",
            answer.words
        );
        assert_eq!(answer.to_json().count(), answer.rows.len());
    }
}
