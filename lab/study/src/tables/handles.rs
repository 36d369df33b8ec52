//! Dynamic handle lookup Figures 3 and 5.

use super::gather::dynamic_handle;
use super::{Cell, Comparison, Gathered};
use crate::memory::{Load, Structure, nic_memory};
use crate::published::{FIGURE_3_KB, FIGURE_5_LEGEND, FIGURE_5_PANELS, Paper, figure_5_configurations};

/// Ours: a table on the NIC for each process, of as many entries as the cache that takes their place.
const FIGURE_3_DESIGNS: [&str; 2] = ["per-process,entries=32K", "dynamic-handle,entries=16K,line=64,ways=4"];

/// Two bars: tables on the NIC, and dynamic handle lookup with the paper's best cache. No trace matters.
pub(super) fn figure_3() -> Comparison {
    let load = Load::default();
    let mut remarks = Vec::new();
    remarks.push(format!(
        "Ours: the paper's cluster of {} nodes (§V); {} processes of {} pages, {} exports and {} imports each. `mapwire lab memory` shows any other.",
        load.nodes, load.processes, load.pages, load.exports, load.imports
    ));
    remarks.extend(
        [
            "The paper's totals include 50 to 150 KB of firmware code (§II); ours have none. A cached translation takes 4 bytes there \
             (§IV.B), 8 here. How many buffers its runs had it does not say.",
            "Our transmit queues differ by design: a link to a NIC that drops what misses keeps each packet until it is acked, the \
             other needs no copy. The paper's link keeps packets in both systems.",
        ]
        .map(str::to_owned),
    );
    let columns = FIGURE_3_DESIGNS.map(str::to_owned).to_vec();
    let published = ["tables", "dynamic handles"].map(str::to_owned).to_vec();
    let figure = (Paper::DynamicHandleLookup, "Figure 3");
    let mut comparison = Comparison::of_figure(figure, "KB", &["structure"], columns, published);
    comparison.remarks = remarks;
    let structures = FIGURE_3_DESIGNS.map(|text| {
        let design = mapwire_settings::parse_design(text).ok();
        design.and_then(|design| nic_memory(&design, load).ok()).unwrap_or_default()
    });
    let mut row = |name: &str, of: &dyn Fn(&Structure) -> bool, paper: [Cell; 2]| {
        let sum = |all: &Vec<Structure>| {
            let mut some = all.iter().filter(|it| of(it)).peekable();
            some.peek()?;
            Some(some.map(|it| it.bytes).sum::<u64>())
        };
        let cell = |all| sum(all).map_or_else(Cell::none, |bytes| Cell::number(bytes as f64 / 1024.0, 1));
        comparison.row(&[name], structures.iter().map(cell).collect(), paper.into());
    };
    let mut names: Vec<&'static str> = Vec::new();
    for structure in structures.iter().flatten() {
        if !names.contains(&structure.name) {
            names.push(structure.name);
        }
    }
    for name in names {
        row(name, &|it| it.name == name, [Cell::none(), Cell::none()]);
    }
    for (name, tables, handles) in FIGURE_3_KB {
        let paper = [tables, handles].map(|kb| Cell::number(kb, 0));
        row(name, &|it| name == "all" || it.is_lookup, paper);
    }
    comparison.with_claims()
}

pub(super) fn figure_5(gathered: &Gathered) -> Comparison {
    let mut remarks = Vec::new();
    let tops: Vec<_> =
        FIGURE_5_PANELS.iter().map(|panel| format!("{} {} %", panel.application, panel.top_percent)).collect();
    remarks.push(format!("The highest labels of the paper's axes: {}.", tops.join(", ")));
    remarks.push("Ours: of all lookups of both paths; cold is the first miss of a line.".to_owned());
    let columns = gathered.names.iter().flat_map(|name| FIGURE_5_LEGEND.map(|part| format!("{name} {part}"))).collect();
    let figure = (Paper::DynamicHandleLookup, "Figure 5");
    let mut comparison = Comparison::of_figure(figure, "% of lookups", &["configuration"], columns, Vec::new());
    comparison.remarks = remarks;
    for shape in figure_5_configurations() {
        let outcomes = gathered.handles.outcomes(&dynamic_handle(shape));
        let mut ours: Vec<Cell> = Vec::new();
        for outcome in outcomes {
            let Some(outcome) = outcome else {
                ours.extend(FIGURE_5_LEGEND.map(|_| Cell::none()));
                continue;
            };
            let misses = outcome.counts.misses;
            let percent = |count: u64| Cell::number(100.0 * count as f64 / outcome.counts.lookups.max(1) as f64, 3);
            // In the order of the legend.
            ours.extend([misses.receive_other, misses.send_other, misses.receive_cold, misses.send_cold].map(percent));
        }
        ours.resize(comparison.ours.columns.len(), Cell::none());
        comparison.row(&[&shape.to_string()], ours, Vec::new());
    }
    comparison.with_claims()
}
