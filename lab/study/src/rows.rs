//! The outcome of a configuration as a row: names, values, and what kind of value each column has.

use std::collections::HashMap;

use mapwire_translation::{DesignConfig, PinLimit};
use serde_json::{Map, Value, json};

use crate::config::Configuration;
use crate::cost::{CostProfile, CostRange};
use crate::counts::Counts;
use crate::files::TraceFindings;
use crate::study::Outcome;

/// The name under which rows stand that are sums over all traces.
pub const ALL_TRACES: &str = "all traces";

/// What the values of a column are. Any may be missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Text,
    /// A count from 0 on.
    Count,
    /// A count that may be below 0.
    Signed,
    Switch,
    /// A number of a lookup, or microseconds of one.
    Rate,
}

type ValueOf = fn(&Row) -> Value;

/// All columns of a row, in order: name, kind, and the value of a row, null where there is none.
pub const COLUMNS: &[(&str, Kind, ValueOf)] = &[
    ("trace", Kind::Text, |row| json!(row.trace)),
    ("design", Kind::Text, |row| json!(row.configuration.design.name())),
    ("configuration", Kind::Text, |row| json!(row.configuration.to_string())),
    ("entries", Kind::Count, |row| json!(row.configuration.entries())),
    ("ways", Kind::Count, |row| json!(row.configuration.cache().map(|cache| cache.ways))),
    ("line", Kind::Count, |row| json!(row.configuration.cache().map(|cache| cache.line_entries))),
    ("offset", Kind::Switch, |row| json!(row.configuration.cache().map(|cache| cache.offset_per_process))),
    ("prefetch", Kind::Count, |row| json!(row.configuration.cache().map(|_| row.configuration.prefetch()))),
    ("limit_bytes", Kind::Count, |row| json!(row.limit_bytes())),
    ("policy", Kind::Text, |row| json!(row.configuration.has_policy().then(|| row.configuration.policy().to_string()))),
    ("prepin", Kind::Count, |row| json!(row.configuration.rules.prepin_pages)),
    ("nodes", Kind::Count, |row| json!(row.nodes)),
    ("lookups", Kind::Count, |row| json!(row.outcome.counts.lookups)),
    ("receive_lookups", Kind::Count, |row| json!(row.outcome.counts.receive_lookups)),
    ("check_misses", Kind::Count, |row| json!(row.outcome.counts.check_misses)),
    ("nic_misses", Kind::Count, |row| json!(row.outcome.counts.nic_misses)),
    ("compulsory_misses", Kind::Count, |row| json!(row.outcome.causes.map(|causes| causes.compulsory))),
    ("capacity_misses", Kind::Count, |row| json!(row.outcome.causes.map(|causes| causes.capacity))),
    ("conflict_misses", Kind::Count, |row| json!(row.outcome.causes.map(|causes| causes.conflict))),
    ("hill_conflict_misses", Kind::Signed, |row| json!(row.outcome.causes.map(|causes| causes.hill_conflict()))),
    ("send_cold_misses", Kind::Count, |row| json!(row.outcome.counts.misses.send_cold)),
    ("send_other_misses", Kind::Count, |row| json!(row.outcome.counts.misses.send_other)),
    ("receive_cold_misses", Kind::Count, |row| json!(row.outcome.counts.misses.receive_cold)),
    ("receive_other_misses", Kind::Count, |row| json!(row.outcome.counts.misses.receive_other)),
    ("pins", Kind::Count, |row| json!(row.outcome.counts.pins)),
    ("unpins", Kind::Count, |row| json!(row.outcome.counts.unpins)),
    ("interrupts", Kind::Count, |row| json!(row.outcome.counts.interrupts)),
    ("cbh_misses", Kind::Count, |row| json!(row.of_handles(row.outcome.counts.buffer_misses))),
    ("pch_misses", Kind::Count, |row| json!(row.of_handles(row.outcome.counts.process_misses))),
    ("fragmented_pages", Kind::Count, |row| json!(row.fragmented_pages())),
    ("nic_bytes", Kind::Count, |row| json!(row.nic_bytes)),
    ("check_miss_rate", Kind::Rate, |row| json!(rounded(row.rate(row.outcome.counts.check_misses)))),
    ("nic_miss_rate", Kind::Rate, |row| json!(rounded(row.rate(row.outcome.counts.nic_misses)))),
    ("unpin_rate", Kind::Rate, |row| json!(rounded(row.rate(row.outcome.counts.unpins)))),
    ("interrupt_rate", Kind::Rate, |row| json!(rounded(row.rate(row.outcome.counts.interrupts)))),
    ("cost_us", Kind::Rate, |row| json!(row.cost.map(|cost| rounded(cost.middle_us())))),
    ("cost_low_us", Kind::Rate, |row| json!(row.cost.map(|cost| rounded(cost.low.us())))),
    ("cost_high_us", Kind::Rate, |row| json!(row.cost.map(|cost| rounded(cost.high.us())))),
    ("unlimited_cost_us", Kind::Rate, |row| json!(row.unlimited_cost.map(|cost| rounded(cost.middle_us())))),
    ("cost_profile", Kind::Text, |row| json!(row.profile)),
    ("left_out_lookups", Kind::Count, |row| json!(row.left_out)),
];

/// One configuration on one trace, or on all of them.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    pub trace: String,
    pub configuration: Configuration,
    pub nodes: u64,
    pub outcome: Outcome,
    /// What it would count with unlimited NIC memory, if that is known.
    pub unlimited: Option<Counts>,
    /// Bytes of NIC memory, of the node that needs most.
    pub nic_bytes: Option<u64>,
    /// Mean cost of a lookup in microseconds, if the profile has all costs that it needs.
    pub cost: Option<CostRange>,
    /// The same of [`unlimited`](Self::unlimited).
    pub unlimited_cost: Option<CostRange>,
    pub profile: String,
    /// Lookups of operations or paths that were not asked for.
    pub left_out: u64,
}

impl Row {
    /// The outcome of a configuration, by its place, on a trace; `None` if it cannot do what the trace does.
    fn of_trace(trace: &TraceFindings, configuration: &Configuration, at: usize) -> Option<Self> {
        let (findings, totals) = (&trace.findings, trace.findings.totals());
        let outcome = findings.outcomes[at];
        let unlimited = match totals.receive_lookups + totals.exports {
            0 => configuration.with_endless_memory(&outcome.counts, totals.known_pages),
            _ => None,
        };
        findings.failure(at).is_none().then(|| Row {
            trace: trace.name(),
            configuration: *configuration,
            nodes: findings.nodes.len() as u64,
            outcome,
            unlimited,
            nic_bytes: None,
            cost: None,
            unlimited_cost: None,
            profile: String::new(),
            left_out: findings.left_out.lookups(),
        })
    }

    fn price(&mut self, profile: &CostProfile) {
        let equation = self.configuration.equation();
        self.cost = equation.cost(profile, &self.outcome.counts);
        let unlimited = self.unlimited.as_ref();
        self.unlimited_cost = unlimited.and_then(|counts| equation.cost(profile, counts));
        self.profile.clone_from(&profile.name);
    }

    /// Adds the same configuration on another trace.
    fn add(&mut self, other: &Row) {
        self.nodes += other.nodes;
        self.left_out += other.left_out;
        self.outcome += other.outcome;
        self.unlimited = self.unlimited.zip(other.unlimited).map(|(mut sum, more)| {
            sum += more;
            sum
        });
        self.nic_bytes = self.nic_bytes.max(other.nic_bytes);
    }

    /// By what part a lookup costs more than with unlimited NIC memory.
    fn excess(&self) -> Option<f64> {
        let (cost, unlimited) = (self.cost?.middle_us(), self.unlimited_cost?.middle_us());
        (unlimited > 0.0).then(|| cost / unlimited - 1.0)
    }

    pub fn rate(&self, count: u64) -> f64 {
        count as f64 / self.outcome.counts.lookups.max(1) as f64
    }

    /// Bytes that a process may have pinned, if that is limited.
    fn limit_bytes(&self) -> Option<u64> {
        match self.configuration.rules.limit {
            PinLimit::Unlimited => None,
            PinLimit::Pages(pages) => Some(pages * mapwire_translation::PAGE_BYTES as u64),
        }
    }

    /// A count that only dynamic handle lookup has.
    fn of_handles(&self, count: u64) -> Option<u64> {
        matches!(self.configuration.design, DesignConfig::DynamicHandle(_)).then_some(count)
    }

    /// What only designs with tables of slots count.
    fn fragmented_pages(&self) -> Option<u64> {
        let has_slots = matches!(self.configuration.design, DesignConfig::SharedCache(_) | DesignConfig::PerProcess(_));
        has_slots.then_some(self.outcome.counts.fragmented_pages)
    }

    /// The values of [`COLUMNS`].
    pub fn values(&self) -> Vec<Value> {
        COLUMNS.iter().map(|(_, _, value)| value(self)).collect()
    }

    /// As a JSON object; what is missing is null.
    pub fn to_json(&self) -> Value {
        let names = COLUMNS.iter().map(|column| column.0.to_owned());
        let mut object: Map<_, _> = names.zip(self.values()).collect();
        object.insert("kind".to_owned(), json!("study"));
        Value::Object(object)
    }
}

/// Six decimals: a millionth of a lookup.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// The rows of studied traces, trace by trace, in the order of the configurations. Those that cannot do what a trace does have none.
pub fn rows(traces: &[TraceFindings], configurations: &[Configuration], profile: &CostProfile) -> Vec<Row> {
    let mut rows = Vec::new();
    for trace in traces {
        let mut bytes = HashMap::new();
        for (at, configuration) in configurations.iter().enumerate() {
            if let Some(mut row) = Row::of_trace(trace, configuration, at) {
                let design = configuration.design;
                let bytes = bytes.entry(design);
                row.nic_bytes = *bytes.or_insert_with(|| trace.findings.nic_bytes(&design));
                row.price(profile);
                rows.push(row);
            }
        }
    }
    rows
}

/// The rows of all traces together, of configurations that have a row for each of so many traces. Counts are summed up; of NIC memory,
/// it is the most that a trace needs.
pub fn sums(rows: &[Row], traces: usize, profile: &CostProfile) -> Vec<Row> {
    let mut sums: Vec<(usize, Row)> = Vec::new();
    let mut places = HashMap::new();
    for row in rows {
        match places.get(&row.configuration) {
            Some(&at) => {
                let (count, sum): &mut (usize, Row) = &mut sums[at];
                *count += 1;
                sum.add(row);
            }
            None => {
                places.insert(row.configuration, sums.len());
                let trace = ALL_TRACES.to_owned();
                sums.push((1, Row { trace, ..row.clone() }));
            }
        }
    }
    let whole = sums.into_iter().filter(|(count, _)| *count == traces);
    whole
        .map(|(_, mut sum)| {
            sum.price(profile);
            sum
        })
        .collect()
}

/// Of the rows of a trace whose configurations differ in their entries only, that with the fewest with which a lookup costs at most
/// a part `within` more than with unlimited NIC memory. Where there is none, why.
pub fn smallest(rows: Vec<Row>, within: f64) -> (Vec<Row>, Vec<String>) {
    let mut families: Vec<Vec<Row>> = Vec::new();
    for row in rows {
        let is_of = |family: &&mut Vec<Row>| {
            family[0].trace == row.trace
                && family[0].configuration.without_entries() == row.configuration.without_entries()
        };
        match families.iter_mut().find(is_of) {
            Some(family) => family.push(row),
            None => families.push(vec![row]),
        }
    }
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for mut family in families {
        family.sort_by_key(|row| row.configuration.entries());
        let is_enough = |row: &Row| row.excess().is_some_and(|excess| excess <= within);
        let largest = &family[family.len() - 1];
        let named = format!("{}, {}", largest.trace, largest.configuration);
        match (family.iter().position(is_enough), largest.excess()) {
            (Some(at), _) => found.push(family.swap_remove(at)),
            (None, Some(excess)) => missing.push(format!(
                "{named}: more entries are needed; with these, a lookup costs {:.1} % more than with unlimited NIC memory",
                100.0 * excess
            )),
            (None, None) => missing.push(format!(
                "{named}: what unlimited NIC memory would cost is known without receives, limits, prefetch and pre-pinning only"
            )),
        }
    }
    (found, missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cost;
    use crate::counts::{Causes, Counts};

    #[test]
    fn a_row_has_a_value_of_its_kind_for_every_column() {
        let row = Row {
            trace: "fft".to_owned(),
            configuration: Configuration::new(mapwire_settings::parse_design("hierarchical,entries=1K").unwrap()),
            nodes: 4,
            outcome: Outcome {
                counts: Counts { lookups: 8, nic_misses: 4, ..Counts::default() },
                causes: Some(Causes { associative: 1, ..Causes::default() }),
            },
            unlimited: None,
            nic_bytes: Some(1 << 14),
            cost: Some(CostRange::exactly(Cost::new(123_456_789, 100))),
            unlimited_cost: None,
            profile: "papers".to_owned(),
            left_out: 0,
        };
        let values = row.values();
        assert_eq!(values.len(), COLUMNS.len());
        for ((name, kind, _), value) in COLUMNS.iter().zip(&values) {
            let right = match kind {
                Kind::Text => value.is_string(),
                Kind::Count => value.is_u64(),
                Kind::Signed => value.is_i64() || value.is_u64(),
                Kind::Switch => value.is_boolean(),
                Kind::Rate => value.is_f64(),
            };
            assert!(right || value.is_null(), "{name}: {value}");
        }
        let json = row.to_json();
        assert_eq!((&json["nic_miss_rate"], &json["hill_conflict_misses"]), (&json!(0.5), &json!(-1)));
        assert_eq!((&json["limit_bytes"], &json["cost_us"]), (&Value::Null, &json!(1.234568)));
    }
}
