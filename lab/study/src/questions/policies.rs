//! What the five policies for unpinning do under limits on pinned memory, and how far each is from the optimum.
//!
//! UTLB §8: "we only used LRU policy in this study; we have not explored other choices". Here all five (UTLB §3.4) are, beside
//! what no policy can beat.

use std::sync::Arc;

use mapwire_translation::{DesignConfig, PinRules, Pinning, Policy};

use super::choosers::Chooser;
use super::knowledge::{Knowledge, knowledge};
use super::replays::{Member, replays};
use super::row::{self, Answer, Column, Row};
use super::survey::{Survey, damaged, largest_footprint, survey};
use super::{MemoryLimit, QuestionError, Source};
use crate::config::Configuration;
use crate::cost::CostProfile;
use crate::counts::Counts;
use crate::decode::Selection;
use crate::files::TraceFindings;
use crate::study::Request;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which operations count; receives do not.
    pub selection: Selection,
    /// The NIC's side: a design that pins before a transfer.
    pub design: DesignConfig,
    /// Limits to try, those without are left out.
    pub limits: Vec<MemoryLimit>,
    /// Whether to find the optimum, which takes 4 bytes of memory for each use of a page.
    pub optimum: bool,
    /// Threads to use at most.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            selection: Selection::SEND_SIDE,
            design: DesignConfig::default(),
            limits: MemoryLimit::SHARES.to_vec(),
            optimum: true,
            threads: 1,
        }
    }
}

const COLUMNS: &[Column] = &[
    row::TRACE,
    row::LIMIT,
    row::LIMIT_PAGES,
    row::POLICY,
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

/// Rows for each trace, and for all together: for each limit the choosers of the question, the optimum last.
pub(super) struct Tried {
    /// Rows, those of a limit next to each other.
    pub(super) rows: Vec<Row>,
    pub(super) surveys: Vec<Survey>,
}

/// Tries predefined policies and choosers under all limits, on all traces.
pub(super) fn tried(
    source: &mut impl Source,
    options: &Options,
    choosers: &[Chooser],
    profile: &CostProfile,
) -> Result<Tried, QuestionError> {
    check(options)?;
    let surveys = survey(source, options.selection)?;
    let footprint = largest_footprint(&surveys);
    let limits: Vec<_> = options
        .limits
        .iter()
        .filter(|limit| **limit != MemoryLimit::None)
        .collect();
    let under = |limit: &MemoryLimit, policy| {
        let rules = PinRules::default()
            .with_limit(limit.of_footprint(footprint))
            .with_policy(policy);
        Configuration::new(options.design).with_rules(rules)
    };
    let configurations: Vec<_> = limits
        .iter()
        .flat_map(|limit| Policy::PREDEFINED.map(|policy| under(limit, policy)))
        .collect();
    let studied = source.study(Request {
        configurations: configurations.clone(),
        selection: options.selection,
        causes: false,
        tolerant: true,
        threads: options.threads,
    })?;
    let all: Vec<Chooser> = choosers
        .iter()
        .copied()
        .chain(options.optimum.then_some(Chooser::Optimum))
        .collect();
    let members: Vec<_> = limits
        .iter()
        .flat_map(|limit| {
            let configuration = under(limit, Policy::Application);
            all.iter().map(move |chooser| Member {
                configuration,
                chooser: *chooser,
            })
        })
        .collect();
    let mut blocks = Vec::new();
    for (trace, survey) in surveys.iter().enumerate() {
        let known = match members.is_empty() {
            true => Knowledge::default(),
            false => knowledge(source, trace, options.selection, options.optimum)?,
        };
        let replayed = match members.is_empty() {
            true => Vec::new(),
            false => replays(
                source,
                trace,
                options.selection,
                &members,
                &Arc::new(known),
                options.threads,
            )?,
        };
        let mut rows = Vec::new();
        for (at, limit) in limits.iter().enumerate() {
            let five = at * Policy::PREDEFINED.len()..(at + 1) * Policy::PREDEFINED.len();
            let predefined =
                five.map(|at| (configurations[at], None, counts_of(&studied[trace], at)));
            let others = (at * all.len()..(at + 1) * all.len()).map(|at| {
                let Member {
                    configuration,
                    chooser,
                } = members[at];
                (
                    configuration,
                    chooser.name(),
                    replayed[at].clone().map(|it| it.counts),
                )
            });
            rows.extend(
                predefined
                    .chain(others)
                    .map(|(configuration, chooser, counts)| Row {
                        limit: Some(**limit),
                        chooser,
                        ..Row::new(&survey.name, configuration, counts, profile)
                    }),
            );
        }
        blocks.push(rows);
    }
    blocks.extend(row::totals(&blocks, profile));
    let group = Policy::PREDEFINED.len() + all.len();
    for block in &mut blocks {
        for rows in block.chunks_mut(group) {
            compare(rows, profile);
        }
    }
    Ok(Tried {
        rows: blocks.concat(),
        surveys,
    })
}

/// Compares the rows of a limit with its optimum.
fn compare(rows: &mut [Row], profile: &CostProfile) {
    let optimum = rows
        .iter()
        .find(|row| row.chooser == Chooser::Optimum.name());
    let optimum = optimum.and_then(|row| row.counts.as_ref().ok().copied());
    for row in &mut *rows {
        if row.counts.is_ok() {
            row.compare(optimum, profile);
        }
    }
    let mut policies: Vec<_> = rows
        .iter_mut()
        .filter(|row| row.chooser != Chooser::Optimum.name())
        .collect();
    row::mark_best(&mut policies);
}

/// What a configuration counted on a trace, by its place in the request; why it did not.
pub(super) fn counts_of(trace: &TraceFindings, at: usize) -> Result<Counts, String> {
    let failure = trace
        .findings
        .failures
        .iter()
        .find(|failure| failure.0 == at);
    match failure {
        Some((_, why)) => Err(why.clone()),
        None => Ok(trace.findings.outcomes[at].counts),
    }
}

fn check(options: &Options) -> Result<(), QuestionError> {
    if options.selection.receive {
        return Err(QuestionError::Receives {
            why: "what is exported stays pinned, and no policy can choose it; count send and fetch",
        });
    }
    let wrong = |why| {
        Err(QuestionError::Design {
            design: options.design.to_string(),
            why,
        })
    };
    match super::replays::pinning(&options.design) {
        None => wrong("it cannot be built"),
        Some(Pinning::OnMiss) => wrong(
            "it pins on a miss, and its host does not see the uses that policies go by; choose hierarchical, shared-cache or per-process",
        ),
        Some(Pinning::BeforeTransfer) => Ok(()),
    }
}

/// The limit of a row in words.
pub(super) fn limit_text(row: &Row) -> String {
    let pages = row
        .limit_pages()
        .map_or_else(|| "no limit".to_owned(), |pages| format!("{pages} pages"));
    match row.limit {
        Some(limit @ MemoryLimit::Share { .. }) => {
            format!("{limit} of the largest footprint ({pages})")
        }
        _ => pages,
    }
}

/// Answers it.
///
/// # Errors
/// [`QuestionError`].
pub fn ask(
    source: &mut impl Source,
    options: &Options,
    profile: &CostProfile,
) -> Result<Answer, QuestionError> {
    let Tried { rows, surveys } = tried(source, options, &[], profile)?;
    Ok(Answer {
        question: "policies",
        columns: COLUMNS,
        words: words(row::summed(&rows)),
        rows,
        profile: profile.name.clone(),
        damaged: damaged(&surveys),
    })
}

fn words(rows: &[Row]) -> Vec<String> {
    let mut words = Vec::new();
    for group in rows.chunk_by(|a, b| {
        a.limit == b.limit && a.configuration.rules.limit == b.configuration.rules.limit
    }) {
        let limit = limit_text(&group[0]);
        let five: Vec<_> = group
            .iter()
            .filter(|row| row.chooser.is_none() && row.counts.is_ok())
            .collect();
        let pins = |row: &Row| row.counts.as_ref().map_or(u64::MAX, |counts| counts.pins);
        let Some(least) = five.iter().map(|row| pins(row)).min() else {
            words.push(format!("{limit}: too small for what the traces do"));
            continue;
        };
        if five
            .iter()
            .all(|row| row.counts.as_ref().is_ok_and(|counts| counts.unpins == 0))
        {
            words.push(format!("{limit}: nothing is unpinned, by whatever policy"));
            continue;
        }
        let best: Vec<_> = five
            .iter()
            .filter(|row| pins(row) == least)
            .map(|row| row.policy())
            .collect();
        let ratio = five
            .iter()
            .find(|row| pins(row) == least)
            .and_then(|row| row.pins_ratio());
        let ratio = ratio.map_or_else(String::new, |ratio| {
            format!(", {ratio:.2} times the optimum")
        });
        let most = five
            .iter()
            .max_by_key(|row| pins(row))
            .map_or_else(String::new, |row| {
                format!("; {} most: {}", row.policy(), pins(row))
            });
        words.push(format!(
            "{limit}: {} pins least: {least} pages{ratio}{most}",
            best.join(", ")
        ));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Made, sends};
    use super::*;
    use mapwire_translation::PinLimit;
    use mapwire_wire::TraceOp;
    use proptest::prelude::*;

    #[test]
    fn a_limit_that_is_too_small_is_told_in_its_rows_and_the_others_stand() {
        let mut made = Made::new(vec![sends(&[(0, 0, 0, 8), (0, 0, 8, 8), (0, 0, 0, 8)])]);
        let options = Options {
            limits: vec![MemoryLimit::Pages(4), MemoryLimit::Pages(8)],
            ..Options::default()
        };
        let answer = ask(&mut made, &options, &CostProfile::papers()).unwrap();
        assert_eq!(answer.rows.len(), 2 * 6);
        let (small, enough) = answer.rows.split_at(6);
        assert!(small.iter().all(
            |row| row.counts.as_ref().unwrap_err().contains("8 pages") && row.cost_us.is_none()
        ));
        assert!(
            enough
                .iter()
                .all(|row| row.counts.as_ref().unwrap().unpins == 16)
        );
        assert_eq!(answer.words.len(), 2);
        assert!(answer.words[0].contains("too small"), "{:?}", answer.words);
    }

    #[test]
    fn a_design_that_pins_on_a_miss_and_receives_are_refused() {
        let mut made = Made::new(vec![sends(&[(0, 0, 0, 1)])]);
        let mut options = Options {
            design: "interrupt".parse().unwrap(),
            ..Options::default()
        };
        let error = ask(&mut made, &options, &CostProfile::papers())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("--design interrupt: it pins on a miss"),
            "{error}"
        );
        options = Options {
            selection: Selection::ALL,
            ..Options::default()
        };
        let error = ask(&mut made, &options, &CostProfile::papers())
            .unwrap_err()
            .to_string();
        assert!(error.contains("--ops recv"), "{error}");
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn no_policy_pins_less_than_the_optimum(
            records in prop::collection::vec((0_u16..2, 0_u16..2, 0_u64..30, 1_u64..5, 0_u8..8), 1..200),
            limit in 8_u64..20,
        ) {
            // Some transfers begin before their lookups, and go on while another is done.
            let trace = records.iter().flat_map(|(node, process, page, count, kind)| {
                let ops: &[(TraceOp, u64)] = match kind {
                    0 => &[(TraceOp::Hold, 0), (TraceOp::Send, 9), (TraceOp::Send, 0), (TraceOp::Release, 0)],
                    _ => &[(TraceOp::Send, 0)],
                };
                ops.iter().map(move |(op, further)| (*node, *process, *op, page + further, *count))
            });
            let mut made = Made::new(vec![trace.collect()]);
            let options = Options { limits: vec![MemoryLimit::Pages(limit)], threads: 2, ..Options::default() };
            let rows = tried(&mut made, &options, &Chooser::APPLICATION, &CostProfile::papers()).unwrap().rows;
            let optimum = *rows.last().unwrap().counts.as_ref().unwrap();
            prop_assert_eq!(rows.len(), 9);
            prop_assert_eq!(rows[0].configuration.rules.limit, PinLimit::Pages(limit));
            for row in &rows {
                let counts = row.counts.as_ref().unwrap();
                prop_assert!(counts.pins >= optimum.pins && counts.unpins >= optimum.unpins, "{}", row.policy());
                prop_assert_eq!(counts.lookups, optimum.lookups);
                prop_assert!(row.pins_ratio().unwrap() >= 1.0);
            }
        }
    }
}
