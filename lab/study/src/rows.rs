//! The outcome of a configuration as a row: names, values, and what kind of value each column has.

use mapwire_translation::{DesignConfig, PinLimit};
use serde_json::{Map, Value, json};

use crate::config::Configuration;
use crate::cost::{CostProfile, CostRange};
use crate::files::TraceFindings;
use crate::study::Outcome;

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
    ("check_miss_rate", Kind::Rate),
    ("nic_miss_rate", Kind::Rate),
    ("unpin_rate", Kind::Rate),
    ("interrupt_rate", Kind::Rate),
    ("cost_us", Kind::Rate),
    ("cost_low_us", Kind::Rate),
    ("cost_high_us", Kind::Rate),
    ("cost_profile", Kind::Text),
];

/// One configuration on one trace.
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
    /// Mean cost of a lookup in microseconds, if the profile has all costs that it needs.
    pub cost: Option<CostRange>,
    /// The profile's name.
    pub profile: String,
}

impl Row {
    /// Events per lookup.
    pub fn rate(&self, count: u64) -> f64 {
        count as f64 / self.outcome.counts.lookups.max(1) as f64
    }

    /// The values of [`COLUMNS`]; null where there is none.
    pub fn values(&self) -> Vec<Value> {
        let Row {
            configuration,
            outcome,
            ..
        } = self;
        let (counts, causes) = (outcome.counts, outcome.causes);
        let cache = configuration.cache();
        let has_handles = matches!(configuration.design, DesignConfig::DynamicHandle(_));
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
            json!(
                configuration
                    .has_policy()
                    .then(|| configuration.rules.policy.to_string())
            ),
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
            json!(rounded(self.rate(counts.check_misses))),
            json!(rounded(self.rate(counts.nic_misses))),
            json!(rounded(self.rate(counts.unpins))),
            json!(rounded(self.rate(counts.interrupts))),
            json!(self.cost.map(|cost| rounded(cost.middle_us()))),
            json!(self.cost.map(|cost| rounded(cost.low.us()))),
            json!(self.cost.map(|cost| rounded(cost.high.us()))),
            json!(self.profile),
        ]
    }

    /// As a JSON object; what is missing is null.
    pub fn to_json(&self) -> Value {
        let names = COLUMNS.iter().map(|column| column.0.to_owned());
        Value::Object(names.zip(self.values()).collect::<Map<_, _>>())
    }
}

/// Six decimals: a millionth of a lookup.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// The rows of studied traces, trace by trace, in the order of the configurations.
pub fn rows(
    traces: &[TraceFindings],
    configurations: &[Configuration],
    profile: &CostProfile,
) -> Vec<Row> {
    let row = |trace: &TraceFindings, configuration: &Configuration, outcome: &Outcome| Row {
        trace: trace.name(),
        configuration: *configuration,
        nodes: trace.findings.nodes.len() as u64,
        outcome: *outcome,
        cost: configuration.equation().cost(profile, &outcome.counts),
        profile: profile.name.clone(),
    };
    let of_trace = |trace| {
        let findings: &TraceFindings = trace;
        configurations
            .iter()
            .zip(&findings.findings.outcomes)
            .map(move |(configuration, outcome)| row(findings, configuration, outcome))
    };
    traces.iter().flat_map(of_trace).collect()
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
            configuration: Configuration::new("hierarchical,entries=1K".parse().unwrap()),
            nodes: 4,
            outcome: Outcome {
                counts: Counts {
                    lookups: 8,
                    nic_misses: 4,
                    ..Counts::default()
                },
                causes: Some(Causes {
                    associative: 1,
                    ..Causes::default()
                }),
            },
            cost: Some(CostRange::exactly(Cost::new(123_456_789, 100))),
            profile: "papers".to_owned(),
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
        assert_eq!(
            (&json["nic_miss_rate"], &json["hill_conflict_misses"]),
            (&json!(0.5), &json!(-1))
        );
        assert_eq!(
            (&json["limit_bytes"], &json["cost_us"]),
            (&Value::Null, &json!(1.234568))
        );
    }
}
