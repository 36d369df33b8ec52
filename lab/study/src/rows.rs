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
    /// Text.
    Text,
    /// A count from 0 on.
    Count,
    /// A count that may be below 0.
    Signed,
    /// A switch.
    Switch,
    /// A number of a lookup, or microseconds of one.
    Rate,
}

/// All columns of a row, in order.
pub const COLUMNS: &[(&str, Kind)] = &[
    ("trace", Kind::Text),
    ("design", Kind::Text),
    ("configuration", Kind::Text),
    ("entries", Kind::Count),
    ("ways", Kind::Count),
    ("line", Kind::Count),
    ("offset", Kind::Switch),
    ("prefetch", Kind::Count),
    ("limit_bytes", Kind::Count),
    ("policy", Kind::Text),
    ("prepin", Kind::Count),
    ("nodes", Kind::Count),
    ("lookups", Kind::Count),
    ("receive_lookups", Kind::Count),
    ("check_misses", Kind::Count),
    ("nic_misses", Kind::Count),
    ("compulsory_misses", Kind::Count),
    ("capacity_misses", Kind::Count),
    ("conflict_misses", Kind::Count),
    ("hill_conflict_misses", Kind::Signed),
    ("send_cold_misses", Kind::Count),
    ("send_other_misses", Kind::Count),
    ("receive_cold_misses", Kind::Count),
    ("receive_other_misses", Kind::Count),
    ("pins", Kind::Count),
    ("unpins", Kind::Count),
    ("interrupts", Kind::Count),
    ("cbh_misses", Kind::Count),
    ("pch_misses", Kind::Count),
    ("fragmented_pages", Kind::Count),
    ("nic_bytes", Kind::Count),
    ("check_miss_rate", Kind::Rate),
    ("nic_miss_rate", Kind::Rate),
    ("unpin_rate", Kind::Rate),
    ("interrupt_rate", Kind::Rate),
    ("cost_us", Kind::Rate),
    ("cost_low_us", Kind::Rate),
    ("cost_high_us", Kind::Rate),
    ("unlimited_cost_us", Kind::Rate),
    ("cost_profile", Kind::Text),
    ("left_out_lookups", Kind::Count),
];

/// One configuration on one trace, or on all of them.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The trace's name.
    pub trace: String,
    /// The configuration.
    pub configuration: Configuration,
    /// Nodes of the trace.
    pub nodes: u64,
    /// What it counted.
    pub outcome: Outcome,
    /// What it would count with unlimited NIC memory, if that is known.
    pub unlimited: Option<Counts>,
    /// Bytes of NIC memory, of the node that needs most.
    pub nic_bytes: Option<u64>,
    /// Mean cost of a lookup in microseconds, if the profile has all costs that it needs.
    pub cost: Option<CostRange>,
    /// The same of [`unlimited`](Self::unlimited).
    pub unlimited_cost: Option<CostRange>,
    /// The profile's name.
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

    /// Events per lookup.
    pub fn rate(&self, count: u64) -> f64 {
        count as f64 / self.outcome.counts.lookups.max(1) as f64
    }

    /// The values of [`COLUMNS`]; null where there is none.
    pub fn values(&self) -> Vec<Value> {
        let Row { configuration, outcome, .. } = self;
        let (counts, causes) = (outcome.counts, outcome.causes);
        let cache = configuration.cache();
        let has_handles = matches!(configuration.design, DesignConfig::DynamicHandle(_));
        let has_slots = matches!(configuration.design, DesignConfig::SharedCache(_) | DesignConfig::PerProcess(_));
        let of_handles = |count: u64| has_handles.then_some(count);
        let limit = match configuration.rules.limit {
            PinLimit::Unlimited => None,
            PinLimit::Pages(pages) => Some(pages * mapwire_translation::PAGE_BYTES as u64),
        };
        vec![
            json!(self.trace),
            json!(configuration.design.name()),
            json!(configuration.to_string()),
            json!(configuration.entries()),
            json!(cache.map(|cache| cache.ways)),
            json!(cache.map(|cache| cache.line_entries)),
            json!(cache.map(|cache| cache.offset_per_process)),
            json!(cache.map(|_| configuration.prefetch())),
            json!(limit),
            json!(configuration.has_policy().then(|| configuration.policy().to_string())),
            json!(configuration.rules.prepin_pages),
            json!(self.nodes),
            json!(counts.lookups),
            json!(counts.receive_lookups),
            json!(counts.check_misses),
            json!(counts.nic_misses),
            json!(causes.map(|causes| causes.compulsory)),
            json!(causes.map(|causes| causes.capacity)),
            json!(causes.map(|causes| causes.conflict)),
            json!(causes.map(|causes| causes.hill_conflict())),
            json!(counts.misses.send_cold),
            json!(counts.misses.send_other),
            json!(counts.misses.receive_cold),
            json!(counts.misses.receive_other),
            json!(counts.pins),
            json!(counts.unpins),
            json!(counts.interrupts),
            json!(of_handles(counts.buffer_misses)),
            json!(of_handles(counts.process_misses)),
            json!(has_slots.then_some(counts.fragmented_pages)),
            json!(self.nic_bytes),
            json!(rounded(self.rate(counts.check_misses))),
            json!(rounded(self.rate(counts.nic_misses))),
            json!(rounded(self.rate(counts.unpins))),
            json!(rounded(self.rate(counts.interrupts))),
            json!(self.cost.map(|cost| rounded(cost.middle_us()))),
            json!(self.cost.map(|cost| rounded(cost.low.us()))),
            json!(self.cost.map(|cost| rounded(cost.high.us()))),
            json!(self.unlimited_cost.map(|cost| rounded(cost.middle_us()))),
            json!(self.profile),
            json!(self.left_out),
        ]
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
        for ((name, kind), value) in COLUMNS.iter().zip(&values) {
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
