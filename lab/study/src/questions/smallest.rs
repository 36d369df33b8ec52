//! How little NIC memory is enough: the fewest entries with which a design costs hardly more than with unlimited NIC memory.

use mapwire_translation::{AnyDesign, DesignConfig, Pinning, TranslationDesign};

use super::policies::counts_of;
use super::row::{self, Answer, Column, Row, bytes_text, entries_text};
use super::survey::{damaged, survey};
use super::{QuestionError, Source};
use crate::config::Configuration;
use crate::cost::CostProfile;
use crate::counts::{Counts, PathMisses};
use crate::decode::Selection;
use crate::study::Request;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which operations count; receives do not.
    pub selection: Selection,
    /// The designs, without prefetch; entries and ways are tried.
    pub designs: Vec<DesignConfig>,
    /// Ways to try, of designs that have them.
    pub ways: Vec<usize>,
    /// Fewest entries to try, a power of two.
    pub least_entries: usize,
    /// Most entries to try, a power of two.
    pub most_entries: usize,
    /// By what part a lookup may cost more than with unlimited NIC memory: 0.03 is 3 %.
    pub within: f64,
    /// Threads to use at most.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            selection: Selection::SEND_SIDE,
            designs: DesignConfig::all().into(),
            ways: vec![1, 2, 4],
            least_entries: 64,
            most_entries: 64 << 10,
            within: 0.03,
            threads: 1,
        }
    }
}

const COLUMNS: &[Column] = &[
    row::TRACE,
    row::DESIGN,
    row::WAYS,
    row::FOUND_ENTRIES,
    row::NIC_BYTES,
    row::COST,
    row::COST_LOW,
    row::COST_HIGH,
    row::UNLIMITED_COST,
    row::UNLIMITED_RATIO,
    row::LOOKUPS,
    row::NIC_MISSES,
    row::PINS,
    row::UNPINS,
    row::INTERRUPTS,
    row::CONFIGURATION,
    row::FAILURE,
];

/// A design with some number of ways, in all sizes that can be built, smallest first.
struct Family {
    sizes: Vec<DesignConfig>,
}

fn families(options: &Options) -> Vec<Family> {
    let mut families = Vec::new();
    for design in &options.designs {
        let has_ways = !matches!(design, DesignConfig::PerProcess(_));
        let ways = if has_ways {
            options.ways.as_slice()
        } else {
            &[1]
        };
        for ways in ways {
            let sized = |shift: u32| {
                let ways = if has_ways {
                    format!(",ways={ways}")
                } else {
                    String::new()
                };
                format!("{design},entries={}{ways}", 1_usize << shift)
                    .parse()
                    .ok()
            };
            let shifts = options.least_entries.max(1).ilog2()..=options.most_entries.max(1).ilog2();
            let sizes: Vec<DesignConfig> = shifts.filter_map(sized).collect();
            if !sizes.is_empty() {
                families.push(Family { sizes });
            }
        }
    }
    families
}

/// What the configuration would count with NIC memory without end, from what it counted with some: lines and table entries stay
/// from their first use on. For designs without prefetch, without a limit on pinned pages, and for sends and fetches.
fn unlimited(configuration: &Configuration, counts: &Counts, known_pages: u64) -> Counts {
    let first = PathMisses {
        send_other: 0,
        receive_other: 0,
        ..counts.misses
    };
    let cached = Counts {
        misses: first,
        nic_misses: first.sum(),
        ..*counts
    };
    match configuration.design {
        DesignConfig::PerProcess(_) => Counts {
            check_misses: known_pages,
            pins: known_pages,
            unpins: 0,
            ..*counts
        },
        DesignConfig::Interrupt(_) => Counts {
            interrupts: cached.nic_misses,
            pins: cached.nic_misses,
            unpins: 0,
            ..cached
        },
        DesignConfig::DynamicHandle(_) => Counts {
            interrupts: cached.nic_misses,
            ..cached
        },
        _ => cached,
    }
}

fn check(options: &Options) -> Result<(), QuestionError> {
    if options.selection.receive {
        return Err(QuestionError::Receives {
            why: "exports take NIC memory and are pinned in ways that differ by design; count send and fetch",
        });
    }
    for design in &options.designs {
        let wrong = |why| {
            Err(QuestionError::Design {
                design: design.to_string(),
                why,
            })
        };
        let configuration = Configuration::new(*design);
        if configuration.prefetch() > 1 {
            return wrong(
                "it fetches ahead, and what it would cost with unlimited NIC memory is not known; leave out prefetch and fill",
            );
        }
        let limited = match design {
            DesignConfig::Hierarchical(config) => config.tables_in_memory.is_some(),
            DesignConfig::DynamicHandle(config) => config.high_water_bytes.is_some(),
            _ => false,
        };
        let lines = configuration
            .cache()
            .is_some_and(|cache| cache.line_entries > 1);
        let checks =
            AnyDesign::new(design).is_ok_and(|nic| nic.pinning() == Pinning::BeforeTransfer);
        if limited || lines && checks {
            return wrong(
                "only lines of one entry and tables without limits of their own are compared with unlimited NIC memory",
            );
        }
    }
    Ok(())
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
    check(options)?;
    let surveys = survey(source, options.selection)?;
    let families = families(options);
    let configurations: Vec<_> = families
        .iter()
        .flat_map(|family| family.sizes.iter().copied().map(Configuration::new))
        .collect();
    let studied = source.study(Request {
        configurations: configurations.clone(),
        selection: options.selection,
        causes: false,
        tolerant: true,
        threads: options.threads,
    })?;
    let mut blocks = Vec::new();
    for (trace, survey) in studied.iter().zip(&surveys) {
        let known_pages = trace.findings.totals().known_pages;
        let row = |(at, configuration): (usize, &Configuration)| {
            let counts = counts_of(trace, at);
            let against = counts
                .as_ref()
                .ok()
                .map(|counts| unlimited(configuration, counts, known_pages));
            Row {
                nic_bytes: survey.nic_bytes(&configuration.design).ok(),
                against,
                ..Row::new(&survey.name, *configuration, counts, profile)
            }
        };
        blocks.push(
            configurations
                .iter()
                .enumerate()
                .map(row)
                .collect::<Vec<_>>(),
        );
    }
    if let Some(mut total) = row::totals(&blocks, profile) {
        for (at, row) in total.iter_mut().enumerate() {
            row.against = blocks.iter().try_fold(Counts::default(), |mut sum, block| {
                sum += block[at].against?;
                Some(sum)
            });
        }
        blocks.push(total);
    }
    let mut rows = Vec::new();
    for mut block in blocks {
        let mut rest = block.as_mut_slice();
        for family in &families {
            let (sizes, others) = std::mem::take(&mut rest).split_at_mut(family.sizes.len());
            rest = others;
            for row in &mut *sizes {
                row.compare(row.against, profile);
            }
            rows.extend(smallest(sizes, options));
        }
    }
    Ok(Answer {
        question: "smallest",
        columns: COLUMNS,
        words: words(row::summed(&rows), options),
        rows,
        profile: profile.name.clone(),
        damaged: damaged(&surveys),
    })
}

/// The row of the fewest entries that are enough, of the sizes of a family in rising order; or one that says why there is none.
fn smallest(sizes: &[Row], options: &Options) -> Option<Row> {
    let enough = |row: &&Row| {
        row.cost_ratio()
            .is_some_and(|ratio| ratio <= 1.0 + options.within)
    };
    if let Some(row) = sizes.iter().find(enough) {
        return Some(row.clone());
    }
    let mut row = sizes.last()?.clone();
    let entries = |row: Option<&Row>| {
        entries_text(row.and_then(|row| row.configuration.entries()).unwrap_or(0) as u64)
    };
    let range = format!(
        "{} to {} entries",
        entries(sizes.first()),
        entries(sizes.last())
    );
    row.counts = Err(match (&row.counts, row.cost_us, row.cost_ratio()) {
        (Err(why), ..) => why.clone(),
        (_, None, _) => "the profile of costs does not have all that the design costs".to_owned(),
        (_, Some(cost), ratio) => format!(
            "none of {range} is enough: with the most, a lookup costs {cost:.2} µs, {:.1} % more than with unlimited NIC memory",
            100.0 * (ratio.unwrap_or(1.0) - 1.0)
        ),
    });
    (row.cost_us, row.cost_between_us, row.nic_bytes) = (None, None, None);
    Some(row)
}

fn words(rows: &[Row], options: &Options) -> Vec<String> {
    let percent = 100.0 * options.within;
    let mut words = Vec::new();
    // Designs that are apart in more than entries and ways are words apart.
    for design in &options.designs {
        let of_design = |row: &&Row| same_but_size(&row.configuration.design, design);
        let found = rows
            .iter()
            .filter(of_design)
            .filter(|row| row.counts.is_ok());
        let name = design.name();
        let Some(row) = found.min_by_key(|row| {
            (
                row.nic_bytes,
                row.configuration.cache().map(|cache| cache.ways),
            )
        }) else {
            let why = rows
                .iter()
                .find(of_design)
                .and_then(|row| row.counts.as_ref().err());
            words.push(format!(
                "{name}: {}",
                why.map_or("it was not tried in any size", String::as_str)
            ));
            continue;
        };
        let ways = row
            .configuration
            .cache()
            .map_or_else(String::new, |cache| match cache.ways {
                1 => ", direct-mapped,".to_owned(),
                ways => format!(", {ways}-way,"),
            });
        let each = if row.configuration.cache().is_none() {
            " for each process"
        } else {
            ""
        };
        words.push(format!(
            "{name} needs {} entries{each}{ways} ({}) to be within {percent} % of its {} with unlimited NIC memory: {}",
            entries_text(row.configuration.entries().unwrap_or(0) as u64),
            row.nic_bytes.map_or_else(|| "?".to_owned(), bytes_text),
            row::us(row.against_us),
            row::us(row.cost_us)
        ));
    }
    let least = rows
        .iter()
        .filter(|row| row.counts.is_ok())
        .min_by_key(|row| row.nic_bytes);
    if let (Some(row), true) = (least, options.designs.len() > 1) {
        words.push(format!(
            "{} is within {percent} % of itself with the least NIC memory, {}",
            row.configuration.design.name(),
            row.nic_bytes.map_or_else(|| "?".to_owned(), bytes_text)
        ));
    }
    words
}

/// Whether the designs differ in nothing but entries and ways.
fn same_but_size(one: &DesignConfig, other: &DesignConfig) -> bool {
    let shape = |design: &DesignConfig| {
        Configuration::new(*design)
            .cache()
            .map(|cache| (cache.entries, cache.ways))
    };
    let resized = match shape(other) {
        Some((entries, ways)) => format!("{one},entries={entries},ways={ways}").parse().ok(),
        None => Configuration::new(*other)
            .entries()
            .and_then(|entries| format!("{one},entries={entries}").parse().ok()),
    };
    one.name() == other.name() && resized == Some(*other)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Made, Record, sends};
    use super::*;
    use proptest::prelude::*;

    fn options(within: f64) -> Options {
        Options {
            least_entries: 4,
            most_entries: 256,
            ways: vec![1, 4],
            within,
            ..Options::default()
        }
    }

    /// Counts of one configuration, by a study of its own.
    fn counted(made: &mut Made, design: DesignConfig) -> Result<Counts, String> {
        let request = Request {
            configurations: vec![Configuration::new(design)],
            selection: Selection::SEND_SIDE,
            causes: false,
            tolerant: true,
            threads: 1,
        };
        counts_of(&made.study(request).unwrap()[0], 0)
    }

    /// With so many entries, and sets so large, that nothing is ever evicted.
    fn huge(design: &DesignConfig) -> DesignConfig {
        let ways = if design.name() == "per-process" {
            ""
        } else {
            ",ways=8"
        };
        format!("{design},entries=64K{ways}").parse().unwrap()
    }

    fn records() -> impl Strategy<Value = Vec<Record>> {
        let record = (0_u16..2, 0_u16..3, 0_u64..90, 1_u64..4);
        prop::collection::vec(record, 1..250).prop_map(|records| sends(&records))
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn what_is_found_is_what_trying_every_size_finds(records in records(), within in 0.0_f64..0.6) {
            let mut made = Made::new(vec![records]);
            let options = options(within);
            let profile = CostProfile::papers();
            let answer = ask(&mut made, &options, &profile).unwrap();
            prop_assert_eq!(answer.rows.len(), 4 * 2 + 1);
            for row in &answer.rows {
                let design = row.configuration.design;
                let ways = row.configuration.cache().map(|cache| cache.ways);
                let whole = counted(&mut made, huge(&design)).unwrap();
                let cost = |counts: &Counts| row.configuration.equation().cost(&profile, counts).unwrap().middle_us();
                let mut found = None;
                for shift in (2..=8).rev() {
                    let ways = ways.map_or_else(String::new, |ways| format!(",ways={ways}"));
                    let Ok(sized) = format!("{},entries={}{ways}", design.name(), 1 << shift).parse::<DesignConfig>() else {
                        continue;
                    };
                    if counted(&mut made, sized).is_ok_and(|counts| cost(&counts) / cost(&whole) <= 1.0 + within) {
                        found = Some(1 << shift);
                    }
                }
                let told = row.counts.is_ok().then(|| row.configuration.entries().unwrap());
                prop_assert_eq!(told, found, "{} {:?}", design, ways);
            }
        }
    }

    #[test]
    fn two_traces_are_judged_by_the_cost_of_all_their_lookups() {
        let sweep = |pages: u64| -> Vec<_> { (0..2000).map(|n| (0, 0, n % pages, 1)).collect() };
        let mut made = Made::new(vec![sends(&sweep(10)), sends(&sweep(100))]);
        let options = Options {
            designs: vec!["hierarchical,offset=off".parse().unwrap()],
            ways: vec![1],
            ..options(0.01)
        };
        let answer = ask(&mut made, &options, &CostProfile::papers()).unwrap();
        let entries: Vec<_> = answer
            .rows
            .iter()
            .map(|row| row.configuration.entries().unwrap())
            .collect();
        assert_eq!(entries, [16, 128, 128]);
        assert!(
            answer.words[0].starts_with("hierarchical needs 128 entries, direct-mapped, (3.0 KiB)"),
            "{:?}",
            answer.words
        );
    }

    #[test]
    fn where_no_size_is_enough_that_is_said() {
        let sweep: Vec<_> = (0..5000_u64).map(|n| (0, 0, n % 1000, 1)).collect();
        let mut made = Made::new(vec![sends(&sweep)]);
        let answer = ask(&mut made, &options(0.03), &CostProfile::papers()).unwrap();
        let failure = answer.rows[0].counts.as_ref().unwrap_err();
        assert!(
            failure.starts_with("none of 4 to 256 entries is enough"),
            "{failure}"
        );
        assert!(
            answer.words[0].starts_with("hierarchical: none of"),
            "{:?}",
            answer.words
        );
        let designs = vec!["hierarchical,prefetch=8".parse().unwrap()];
        let error = ask(
            &mut made,
            &Options {
                designs,
                ..options(0.03)
            },
            &CostProfile::papers(),
        )
        .unwrap_err();
        assert!(
            error.to_string().contains("prefetch=8: it fetches ahead"),
            "{error}"
        );
    }
}
