//! Dynamic handle lookup Figure 5.

use super::gather::dynamic_handle;
use super::{Cell, Comparison, Gathered, Side};
use crate::published::{FIGURE_5_LEGEND, FIGURE_5_PANELS, Paper, figure_5_configurations, figures};

pub(super) fn figure_5(gathered: &Gathered) -> Comparison {
    let source = figures()
        .into_iter()
        .find(|figure| figure.paper == Paper::DynamicHandleLookup);
    let mut remarks: Vec<String> = source.map_or_else(Vec::new, |figure| {
        figure.prose.iter().map(|text| (*text).to_owned()).collect()
    });
    let tops: Vec<_> = FIGURE_5_PANELS
        .iter()
        .map(|panel| format!("{} {} %", panel.application, panel.top_percent))
        .collect();
    remarks.push(format!(
        "Highest labels of the paper's axes: {}.",
        tops.join(", ")
    ));
    remarks
        .push("Ours: of all lookups of both paths; cold is the first miss of a line.".to_owned());
    let columns = gathered
        .names
        .iter()
        .flat_map(|name| FIGURE_5_LEGEND.map(|part| format!("{name} {part}")))
        .collect();
    let mut comparison = Comparison {
        paper: Paper::DynamicHandleLookup,
        name: "Figure 5",
        caption: source.map_or_else(String::new, |figure| figure.caption.to_owned()),
        unit: "% of lookups",
        keys: vec!["configuration"],
        row_keys: Vec::new(),
        ours: Side {
            columns,
            rows: Vec::new(),
        },
        published: Side::default(),
        remarks,
    };
    for shape in figure_5_configurations() {
        let configuration = dynamic_handle(shape.entries, shape.line_entries, shape.ways);
        let outcomes = configuration.map_or_else(Vec::new, |it| gathered.handles.outcomes(&it));
        let mut ours: Vec<Cell> = Vec::new();
        for outcome in outcomes {
            let Some(outcome) = outcome else {
                ours.extend(FIGURE_5_LEGEND.map(|_| Cell::none()));
                continue;
            };
            let misses = outcome.counts.misses;
            let percent = |count: u64| {
                Cell::number(
                    100.0 * count as f64 / outcome.counts.lookups.max(1) as f64,
                    3,
                )
            };
            // In the order of the legend.
            ours.extend(
                [
                    misses.receive_other,
                    misses.send_other,
                    misses.receive_cold,
                    misses.send_cold,
                ]
                .map(percent),
            );
        }
        ours.resize(comparison.ours.columns.len(), Cell::none());
        comparison.row(&[&shape.to_string()], ours, Vec::new());
    }
    comparison
}
