//! `mapwire lab memory`: what a NIC's memory holds, structure by structure.

use clap::Args;
use mapwire_settings::DesignText;
use mapwire_study::memory::{Load, Structure, nic_memory};
use serde_json::json;

use super::output::{grouped, print, table};
use super::study::DesignOptions;
use super::{LabError, UsageError};

#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    #[command(flatten)]
    designs: DesignOptions,
    /// Nodes of the cluster
    #[arg(long, value_name = "N", default_value_t = Load::default().nodes, value_parser = clap::value_parser!(u16).range(1..))]
    nodes: u16,
    /// Processes of the node
    #[arg(long, value_name = "N", default_value_t = Load::default().processes, value_parser = clap::value_parser!(u16).range(1..=4096))]
    processes: u16,
    /// Pages that each process has pinned
    #[arg(long, value_name = "N", default_value_t = Load::default().pages, value_parser = clap::value_parser!(u64).range(..=1 << 24))]
    pages: u64,
    /// Exports of each process
    #[arg(long, value_name = "N", default_value_t = Load::default().exports, value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    exports: u32,
    /// Imports of each process
    #[arg(long, value_name = "N", default_value_t = Load::default().imports, value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    imports: u32,
    /// One JSON object a line for each structure of each design
    #[arg(long)]
    json: bool,
}

/// Most pages of all processes.
const MOST_PAGES: u64 = 1 << 26;

pub(crate) fn command(args: &MemoryArgs) -> Result<(), LabError> {
    let pinned = u64::from(args.processes) * args.pages;
    if pinned > MOST_PAGES {
        return Err(UsageError(format!(
            "--processes {} with --pages {} are {pinned} pages; at most {MOST_PAGES} are tried",
            args.processes, args.pages
        ))
        .into());
    }
    let load = Load {
        nodes: args.nodes,
        processes: args.processes,
        pages: args.pages,
        exports: args.exports,
        imports: args.imports,
    };
    let mut all = Vec::new();
    for configuration in args.designs.sweep()?.configurations(0)? {
        let design = DesignText(configuration.design).to_string();
        let structures =
            nic_memory(&configuration.design, load).map_err(|error| UsageError(format!("{design}: {error}")))?;
        all.push((design, structures));
    }
    if args.json { print(&json_lines(&all)) } else { print(&text(&all)) }
}

fn json_lines(all: &[(String, Vec<Structure>)]) -> String {
    let rows = all.iter().flat_map(|(design, structures)| {
        structures.iter().map(move |it| {
            let row = json!({ "kind": "structure", "design": design, "structure": it.name, "lookup": it.is_lookup, "bytes": it.bytes });
            format!("{row}\n")
        })
    });
    rows.collect()
}

/// A column for each design, a row for each structure, and the sums.
fn text(all: &[(String, Vec<Structure>)]) -> String {
    let mut names: Vec<&'static str> = Vec::new();
    for structure in all.iter().flat_map(|design| &design.1) {
        if !names.contains(&structure.name) {
            names.push(structure.name);
        }
    }
    let row = |name: &str, of: &dyn Fn(&Structure) -> bool| {
        let cell = |structures: &[Structure]| {
            let of_row: Vec<u64> = structures.iter().filter(|it| of(it)).map(|it| it.bytes).collect();
            if of_row.is_empty() { "-".to_owned() } else { grouped(of_row.iter().sum()) }
        };
        let cells = all.iter().map(|(_, structures)| cell(structures));
        std::iter::once(name.to_owned()).chain(cells).collect::<Vec<String>>()
    };
    let mut rows: Vec<Vec<String>> = names.iter().map(|name| row(name, &|it| it.name == *name)).collect();
    rows.push(row("lookup structures", &|it| it.is_lookup));
    rows.push(row("all", &|_| true));
    let designs = all.iter().map(|(design, _)| design.as_str());
    let headings: Vec<&str> = std::iter::once("bytes").chain(designs).collect();
    table(&headings, &rows)
}
