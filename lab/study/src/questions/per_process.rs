//! A table of fixed size for each process, or one shared cache, in the same NIC memory?
//!
//! UTLB §8: "we have not compared the per-process UTLB with Shared UTLB-Cache approach because we lack multiple program traces". The
//! tables of a node's processes have as many entries together as the shared cache: what one process does not need, no other can use.

use std::collections::BTreeSet;
use std::sync::Arc;

use mapwire_translation::{
    CacheConfig, DesignConfig, HierarchicalConfig, IndexedConfig, PerProcessConfig,
};

use super::knowledge::Knowledge;
use super::policies::counts_of;
use super::replays::{Member, replays};
use super::row::{self, Answer, Column, Row, bytes_text, entries_text, us};
use super::survey::{Survey, damaged, survey};
use super::{QuestionError, Source};
use crate::config::Configuration;
use crate::cost::CostProfile;
use crate::decode::Selection;
use crate::published::CACHE_SIZES;
use crate::study::Request;

/// Bytes that an entry of a shared cache takes, tag and frame.
const CACHE_ENTRY_BYTES: u64 = 16;
/// Bytes that an entry of a table takes, a frame.
const TABLE_ENTRY_BYTES: u64 = 8;

/// What is equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Equal {
    /// Entries. An entry of a cache has a tag besides and takes twice the bytes.
    #[default]
    Entries,
    /// Bytes of entries.
    Bytes,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which operations count.
    pub selection: Selection,
    /// Entries of the shared cache, each a power of two.
    pub entries: Vec<usize>,
    /// Lines of a set of the shared cache.
    pub ways: usize,
    /// What the tables have as much of as the cache.
    pub equal: Equal,
    /// Threads to use at most.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            selection: Selection::SEND_SIDE,
            entries: CACHE_SIZES.iter().map(|(_, entries)| *entries).collect(),
            ways: 1,
            equal: Equal::Entries,
            threads: 1,
        }
    }
}

/// Entries of each process's table, where tables of so many processes have together what a cache has; at least one each.
pub fn table_entries(cache_entries: usize, processes: u64, equal: Equal) -> usize {
    let all = match equal {
        Equal::Entries => cache_entries as u64,
        Equal::Bytes => cache_entries as u64 * (CACHE_ENTRY_BYTES / TABLE_ENTRY_BYTES),
    };
    (all / processes.max(1)).max(1) as usize
}

const COLUMNS: &[Column] = &[
    row::TRACE,
    row::NIC_ENTRIES,
    row::CONFIGURATION,
    row::ENTRIES,
    row::NIC_BYTES,
    row::LOOKUPS,
    row::CHECK_MISSES,
    row::NIC_MISSES,
    row::PINS,
    row::UNPINS,
    row::FRAGMENTED,
    row::COST,
    row::BEST,
    row::FAILURE,
];

/// Designs that are compared at a size.
const DESIGNS: usize = 3;

/// The three designs with that cache, and tables that are as large for a node of so many processes.
fn at_size(options: &Options, entries: usize, processes: u64) -> [DesignConfig; DESIGNS] {
    let cache = CacheConfig::default()
        .with_entries(entries)
        .with_ways(options.ways);
    let tables = table_entries(entries, processes, options.equal);
    [
        DesignConfig::PerProcess(PerProcessConfig::default().with_entries(tables)),
        DesignConfig::SharedCache(IndexedConfig::from(cache)),
        DesignConfig::Hierarchical(HierarchicalConfig::from(cache)),
    ]
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
    for design in options
        .entries
        .iter()
        .flat_map(|entries| at_size(options, *entries, 1))
    {
        if design.checked().is_err() {
            return Err(QuestionError::Design {
                design: design.to_string(),
                why: "entries and ways must be powers of two, ways no more than entries",
            });
        }
    }
    let surveys = survey(source, options.selection)?;
    // Fast engines know the hierarchical design; the others, whose tables can be fragmented, are replayed.
    let configurations: Vec<_> = options
        .entries
        .iter()
        .map(|entries| Configuration::new(at_size(options, *entries, 1)[DESIGNS - 1]))
        .collect();
    let studied = source.study(Request {
        configurations,
        selection: options.selection,
        causes: false,
        tolerant: true,
        threads: options.threads,
    })?;
    let mut blocks = Vec::new();
    for (trace, survey) in surveys.iter().enumerate() {
        let designs: Vec<_> = options
            .entries
            .iter()
            .map(|entries| at_size(options, *entries, survey.processes()))
            .collect();
        let members: Vec<_> = designs
            .iter()
            .flat_map(|of_size| {
                of_size[..DESIGNS - 1]
                    .iter()
                    .map(|design| Member::new(Configuration::new(*design)))
            })
            .collect();
        let nobody = Arc::new(Knowledge::default());
        let replayed = replays(
            source,
            trace,
            options.selection,
            &members,
            &nobody,
            options.threads,
        )?;
        let mut rows = Vec::new();
        for (at, (entries, of_size)) in options.entries.iter().zip(&designs).enumerate() {
            for (number, design) in of_size.iter().enumerate() {
                let (counts, fragmented_pages) = match replayed.get(at * (DESIGNS - 1) + number) {
                    Some(replayed) if number < DESIGNS - 1 => (
                        replayed.as_ref().map(|it| it.counts).map_err(Clone::clone),
                        replayed.as_ref().ok().map(|it| it.fragmented_pages),
                    ),
                    _ => (counts_of(&studied[trace], at), None),
                };
                rows.push(Row {
                    nic_entries: Some(*entries as u64),
                    nic_bytes: survey.nic_bytes(design).ok(),
                    fragmented_pages,
                    ..Row::new(&survey.name, Configuration::new(*design), counts, profile)
                });
            }
        }
        blocks.push(rows);
    }
    blocks.extend(row::totals(&blocks, profile));
    for block in &mut blocks {
        for rows in block.chunks_mut(DESIGNS) {
            row::mark_best(&mut rows.iter_mut().collect::<Vec<_>>());
        }
    }
    let rows = blocks.concat();
    Ok(Answer {
        question: "per-process",
        columns: COLUMNS,
        words: words(row::summed(&rows), &surveys),
        rows,
        profile: profile.name.clone(),
        damaged: damaged(&surveys),
    })
}

fn words(rows: &[Row], surveys: &[Survey]) -> Vec<String> {
    let processes: BTreeSet<u64> = surveys.iter().map(Survey::processes).collect();
    let mut words = Vec::new();
    if processes.iter().all(|processes| *processes == 1) {
        words.push(
            "no node has more than one process, so its table is as large as the cache".to_owned(),
        );
    }
    for group in rows.chunks(DESIGNS) {
        let size = entries_text(group[0].nic_entries.unwrap_or(0));
        let table = &group[0];
        let winner = group
            .iter()
            .filter(|row| row.cost_us.is_some())
            .min_by(|a, b| {
                a.cost_us
                    .unwrap_or(f64::MAX)
                    .total_cmp(&b.cost_us.unwrap_or(f64::MAX))
            });
        let Some(winner) = winner else {
            words.push(format!(
                "{size} entries: no design can do what the traces do"
            ));
            continue;
        };
        let others: Vec<_> = group
            .iter()
            .filter(|row| row.configuration != winner.configuration)
            .map(|row| {
                let cost = if row.counts.is_ok() {
                    us(row.cost_us)
                } else {
                    "not possible".to_owned()
                };
                format!("{} {cost}", row.configuration.design.name())
            })
            .collect();
        let tied = group
            .iter()
            .filter(|row| row.best && row.configuration != winner.configuration);
        let tied: String = tied
            .map(|row| format!(" (and {})", row.configuration.design.name()))
            .collect();
        words.push(format!(
            "{size} entries ({} of tables): {}{tied} costs least, {} a lookup; {}",
            table.nic_bytes.map_or_else(|| "?".to_owned(), bytes_text),
            winner.configuration.design.name(),
            us(winner.cost_us),
            others.join(", ")
        ));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Made, sends};
    use super::*;

    #[test]
    fn tables_of_all_processes_have_as_many_entries_or_bytes_as_the_cache() {
        assert_eq!(table_entries(1024, 4, Equal::Entries), 256);
        assert_eq!(table_entries(1024, 3, Equal::Entries), 341);
        assert_eq!(table_entries(1024, 4, Equal::Bytes), 512);
        assert_eq!(
            (
                table_entries(2, 8, Equal::Entries),
                table_entries(8, 0, Equal::Entries)
            ),
            (1, 8)
        );
        // What the designs charge a memory budget, without the list of processes, is equal when bytes are.
        let mut made = Made::new(vec![sends(&[(0, 0, 0, 1), (0, 1, 0, 1)])]);
        let survey = &survey(&mut made, Selection::SEND_SIDE).unwrap()[0];
        let options = Options {
            equal: Equal::Bytes,
            ..Options::default()
        };
        let [table, cache, _] = at_size(&options, 256, survey.processes());
        assert_eq!(survey.nic_bytes(&table), survey.nic_bytes(&cache));
    }

    #[test]
    fn unequal_programs_want_a_shared_cache_and_small_ones_do_with_tables() {
        // Process 0 goes over 100 pages again and again, process 1 uses 2.
        let unequal: Vec<_> = (0..4000_u64)
            .map(|n| {
                if n % 2 == 0 {
                    (0, 0, n / 2 % 100, 1)
                } else {
                    (0, 1, n / 2 % 2, 1)
                }
            })
            .collect();
        let small: Vec<_> = (0..4000_u64)
            .map(|n| (0, (n % 2) as u16, n / 2 % 20, 1))
            .collect();
        let mut made = Made::new(vec![sends(&unequal), sends(&small)]);
        let options = Options {
            entries: vec![128],
            ways: 4,
            ..Options::default()
        };
        let answer = ask(&mut made, &options, &CostProfile::papers()).unwrap();
        assert_eq!(answer.rows.len(), 9);
        let best = |at: usize| {
            let rows = &answer.rows[at..at + 3];
            rows.iter()
                .filter(|row| row.best)
                .map(|row| row.configuration.design.name())
                .collect::<Vec<_>>()
        };
        assert!(answer.rows.iter().all(|row| !row.varies));
        assert!(!best(0).contains(&"per-process"), "{:?}", best(0));
        assert_eq!(best(3), ["per-process"]);
        let table = answer.rows[0].counts.as_ref().unwrap();
        // Process 0 finds nothing in its 64 entries.
        assert_eq!((table.pins, table.nic_misses), (2002, 0));
        assert!(
            answer.rows[0].fragmented_pages.is_some() && answer.rows[2].fragmented_pages.is_none()
        );
    }

    #[test]
    fn of_traces_with_unlike_numbers_of_processes_the_sum_names_no_size_of_a_table() {
        let three: Vec<_> = (0..30).map(|n| (0, n % 3, u64::from(n), 1)).collect();
        let mut made = Made::new(vec![sends(&three), sends(&three[..2])]);
        let options = Options {
            entries: vec![64],
            ..Options::default()
        };
        let answer = ask(&mut made, &options, &CostProfile::papers()).unwrap();
        let sizes: Vec<_> = [0, 3, 6]
            .map(|at| answer.rows[at].configuration.entries().unwrap())
            .into();
        assert_eq!(sizes[..2], [21, 32]);
        let total = answer.to_json().nth(6).unwrap();
        assert_eq!(
            (&total["configuration"], &total["entries"]),
            (&"per-process".into(), &serde_json::Value::Null)
        );
        assert_eq!(total["nic_entries"], 64);
    }

    #[test]
    fn a_table_smaller_than_a_transfer_is_told_and_a_wrong_size_is_refused() {
        let mut made = Made::new(vec![sends(&[(0, 0, 0, 40), (0, 1, 0, 1)])]);
        let mut options = Options {
            entries: vec![64],
            ..Options::default()
        };
        let answer = ask(&mut made, &options, &CostProfile::papers()).unwrap();
        assert!(
            answer.rows[0]
                .counts
                .as_ref()
                .unwrap_err()
                .contains("40 pages")
        );
        assert!(
            answer.words[0].contains("per-process not possible"),
            "{:?}",
            answer.words
        );
        options.entries = vec![100];
        let error = ask(&mut made, &options, &CostProfile::papers())
            .unwrap_err()
            .to_string();
        assert!(error.contains("entries=100"), "{error}");
    }
}
