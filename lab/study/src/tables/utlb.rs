//! UTLB Tables 3 to 8, Figures 7 and 8.

use super::gather::{PREFETCHES, Part, four_megabytes, hierarchical, interrupt, sixteen_megabytes};
use super::{Cell, Comparison, Gathered};
use crate::config::Configuration;
use crate::cost::{CostProfile, pinning_costs};
use crate::counts::Counts;
use crate::published::{APPLICATIONS, CACHE_SIZES, Paper, PublishedTable, printed_rates, table};
use crate::study::Outcome;

/// An empty comparison with the paper's table.
fn with(name: &'static str, ours: Vec<String>) -> (Comparison, PublishedTable) {
    let published = table(Paper::Utlb, name).unwrap_or_default();
    let columns = published.columns.iter().map(|name| (*name).to_owned()).collect();
    let PublishedTable { caption, unit, keys, .. } = &published;
    let mut comparison = Comparison::new((Paper::Utlb, name), caption, unit, keys, ours, columns);
    comparison.remarks = published.remarks.iter().map(|remark| format!("Of the paper's table: {remark}")).collect();
    (comparison, published)
}

fn published_row(table: &PublishedTable, keys: &[&str]) -> Vec<Cell> {
    table.columns.iter().map(|column| Cell::published(table.cell(keys, column))).collect()
}

fn rate(outcome: Option<Outcome>, count: impl Fn(&Counts) -> u64) -> Cell {
    outcome.map_or_else(Cell::none, |outcome| {
        Cell::number(count(&outcome.counts) as f64 / outcome.counts.lookups.max(1) as f64, 2)
    })
}

/// Says what of a table under a limit is not as in the trace.
fn missing(comparison: &mut Comparison, part: &Part) {
    if let Some(cut) = part.cut() {
        comparison
            .remarks
            .push(format!("Ours: transfers of more pages than the limit are studied in pieces that fit ({cut})."));
    }
    if let Some(why) = &part.missing {
        comparison.remarks.push(format!("Of ours, some is missing: {why}"));
    }
}

/// Footprint and lookups, means over nodes.
pub(super) fn table_3(gathered: &Gathered) -> Comparison {
    let (mut comparison, published) =
        with("Table 3", vec!["footprint (4 KB pages)".to_owned(), "translation lookups".to_owned()]);
    comparison.keys = vec!["trace or application"];
    for (name, (nodes, totals)) in gathered.names.iter().zip(gathered.unlimited.totals()) {
        // As `mapwire lab info` prints it.
        let mean = |sum: u64| Cell::number(sum as f64 / nodes.max(1) as f64, 1);
        let ours = vec![mean(totals.known_pages), mean(totals.lookups)];
        comparison.row(&[name], ours, vec![Cell::none(); published.columns.len()]);
    }
    for row in &published.rows {
        comparison.row(&[row.keys[0]], vec![Cell::none(); 2], published_row(&published, &row.keys));
    }
    comparison
}

/// `fft UTLB`, `fft Intr`.
fn pairs(gathered: &Gathered) -> Vec<String> {
    gathered.names.iter().flat_map(|name| [format!("{name} UTLB"), format!("{name} Intr")]).collect()
}

fn breakdown(
    gathered: &Gathered,
    name: &'static str,
    part: &Part,
    rules: impl Fn(Configuration) -> Configuration,
) -> Comparison {
    let (mut comparison, published) = with(name, pairs(gathered));
    for (size, entries) in CACHE_SIZES {
        let of = |configuration| part.outcomes(&rules(configuration));
        let (utlb, interrupts) = (of(hierarchical(entries, 1, true, 1)), of(interrupt(entries)));
        for characteristic in ["check misses", "NI misses", "unpins"] {
            let mut ours = Vec::new();
            for (&utlb, &interrupt) in utlb.iter().zip(&interrupts) {
                match characteristic {
                    "check misses" => ours.extend([rate(utlb, |it| it.check_misses), Cell::none()]),
                    "NI misses" => ours.extend([utlb, interrupt].map(|it| rate(it, |it| it.nic_misses))),
                    _ => ours.extend([utlb, interrupt].map(|it| rate(it, |it| it.unpins))),
                }
            }
            let keys = [size, characteristic];
            comparison.row(&keys, ours, published_row(&published, &keys));
        }
    }
    missing(&mut comparison, part);
    comparison
}

pub(super) fn table_4(gathered: &Gathered) -> Comparison {
    breakdown(gathered, "Table 4", &gathered.unlimited, |configuration| configuration)
}

pub(super) fn table_5(gathered: &Gathered) -> Comparison {
    breakdown(gathered, "Table 5", &gathered.four_megabytes, four_megabytes)
}

/// Microseconds of a lookup of a configuration on each trace.
fn costs(part: &Part, configuration: Configuration, profile: &CostProfile) -> Vec<Cell> {
    let cost = |outcome: Option<Outcome>| {
        // Both designs of these tables have exact costs.
        let cost = configuration.equation().cost(profile, &outcome?.counts)?.low;
        // Halves round up, as in the paper.
        let tenths = cost.tenths_us();
        Some(Cell {
            text: match cost.us() {
                us if us < 0.1 => format!("{us:.4}"),
                _ => format!("{}.{}", tenths / 10, tenths % 10),
            },
            value: Some(cost.us()),
        })
    };
    part.outcomes(&configuration).into_iter().map(|outcome| cost(outcome).unwrap_or_else(Cell::none)).collect()
}

pub(super) fn table_6(gathered: &Gathered, profile: &CostProfile) -> Comparison {
    let (mut comparison, published) = with("Table 6", pairs(gathered));
    for (size, entries) in CACHE_SIZES {
        let utlb = costs(&gathered.unlimited, hierarchical(entries, 1, true, 1), profile);
        let interrupts = costs(&gathered.unlimited, interrupt(entries), profile);
        let ours = utlb.into_iter().zip(interrupts).flat_map(|(utlb, interrupt)| [utlb, interrupt]).collect();
        comparison.row(&[size], ours, published_row(&published, &[size]));
    }
    comparison.remarks.push(format!("Ours with the costs: {}.", profile.name));
    comparison
}

pub(super) fn table_7(gathered: &Gathered, profile: &CostProfile) -> Comparison {
    let (mut comparison, published) = with("Table 7", gathered.names.clone());
    for cost in ["pin", "unpin"] {
        for prepin in [1, 16] {
            let outcomes = gathered.sixteen_megabytes.outcomes(&sixteen_megabytes(prepin));
            let cell = |outcome: &Option<Outcome>| {
                outcome.map_or_else(Cell::none, |outcome| {
                    let (pin, unpin) = pinning_costs(profile, &outcome.counts, prepin);
                    Cell::number(if cost == "pin" { pin.us() } else { unpin.us() }, 1)
                })
            };
            let mut ours: Vec<_> = outcomes.iter().map(cell).collect();
            ours.resize(gathered.names.len(), Cell::none());
            let pages = prepin.to_string();
            let keys = [cost, pages.as_str()];
            comparison.row(&keys, ours, published_row(&published, &keys));
        }
    }
    comparison.remarks.push(format!("Ours with the costs: {}.", profile.name));
    missing(&mut comparison, &gathered.sixteen_megabytes);
    comparison
}

pub(super) fn table_8(gathered: &Gathered) -> Comparison {
    let (mut comparison, published) = with("Table 8", gathered.names.clone());
    for (size, entries) in CACHE_SIZES {
        for (associativity, ways, offset) in
            [("direct", 1, true), ("2-way", 2, true), ("4-way", 4, true), ("direct-nohash", 1, false)]
        {
            let outcomes = gathered.unlimited.outcomes(&hierarchical(entries, ways, offset, 1));
            let ours = outcomes.into_iter().map(|outcome| rate(outcome, |it| it.nic_misses)).collect();
            let keys = [size, associativity];
            comparison.row(&keys, ours, published_row(&published, &keys));
        }
    }
    comparison
}

fn not_legible() -> Cell {
    Cell::published(Some(crate::published::Cell::NotLegible))
}

/// Conflicts as a difference of sums.
const HILL_CONFLICT: &str = "conflict (Hill)";

pub(super) fn figure_7(gathered: &Gathered) -> Comparison {
    let published = APPLICATIONS.map(str::to_owned).to_vec();
    let keys = ["cache entries", "misses"];
    let figure = (Paper::Utlb, "Figure 7");
    let mut comparison = Comparison::of_figure(figure, "per lookup", &keys, gathered.names.clone(), published);
    for (size, entries) in CACHE_SIZES {
        let outcomes = gathered.unlimited.outcomes(&hierarchical(entries, 1, true, 1));
        for cause in ["compulsory", "capacity", "conflict", "capacity and conflict", HILL_CONFLICT] {
            let of = |outcome: &Option<Outcome>| {
                let Some(Outcome { counts, causes: Some(causes) }) = outcome else { return Cell::none() };
                let count = match cause {
                    "compulsory" => causes.compulsory as f64,
                    "capacity" => causes.capacity as f64,
                    "conflict" => causes.conflict as f64,
                    HILL_CONFLICT => causes.hill_conflict() as f64,
                    _ => (causes.capacity + causes.conflict) as f64,
                };
                Cell::number(count / counts.lookups.max(1) as f64, 3)
            };
            let from_table_4 = |application: &&str| {
                let rates = printed_rates("Table 4", size, application);
                match (cause, rates) {
                    ("compulsory", Some(rates)) => Cell::number(rates.check_misses as f64 / 100.0, 2),
                    ("capacity and conflict", Some(rates)) => {
                        Cell::number((rates.utlb_nic_misses - rates.check_misses) as f64 / 100.0, 2)
                    }
                    _ => not_legible(),
                }
            };
            let ours = outcomes.iter().map(of).collect();
            comparison.row(&[size, cause], ours, APPLICATIONS.iter().map(from_table_4).collect());
        }
    }
    comparison.remarks.extend(
        [
            "Ours: each miss is classified by itself, as DineroIV does it. A conflict is a miss that a fully associative LRU cache of \
             the same size would not have; all others are compulsory at the first lookup of a page, and capacity misses after it.",
            "Ours, conflict (Hill): all misses less those of the fully associative cache. Below 0 where the sets keep what a cache \
             without sets would have lost. It is no part of the sum.",
            "The paper's rows: compulsory are Table 4's check misses, the sum of the other two is the rest of its misses.",
        ]
        .map(str::to_owned),
    );
    comparison.with_claims()
}

pub(super) fn figure_8(gathered: &Gathered, profile: &CostProfile) -> Comparison {
    let ours = gathered.names.iter().flat_map(|name| [format!("{name} misses"), format!("{name} us")]).collect();
    let published = vec!["Radix misses".to_owned(), "Radix us".to_owned()];
    let keys = ["cache entries", "prefetch"];
    let mut comparison = Comparison::of_figure((Paper::Utlb, "Figure 8"), "per lookup", &keys, ours, published);
    for (size, entries) in CACHE_SIZES {
        for prefetch in PREFETCHES {
            let configuration = hierarchical(entries, 1, true, prefetch);
            let outcomes = gathered.prefetch.outcomes(&configuration);
            let misses = outcomes.into_iter().map(|outcome| rate(outcome, |it| it.nic_misses));
            let costs = costs(&gathered.prefetch, configuration, profile);
            let ours = misses.zip(costs).flat_map(|(misses, cost)| [misses, cost]).collect();
            let radix = printed_rates("Table 4", size, "Radix").filter(|_| prefetch == 1);
            let misses = radix.map_or_else(not_legible, |rates| Cell::number(rates.utlb_nic_misses as f64 / 100.0, 2));
            comparison.row(&[size, &prefetch.to_string()], ours, vec![misses, not_legible()]);
        }
    }
    comparison.remarks.push(format!("Ours with the costs: {}.", profile.name));
    comparison.with_claims()
}
