//! `mapwire lab info`: what a trace is made of.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use mapwire_trace::info::{Info, OpCount, info};
use mapwire_trace::{TraceReader, format};
use mapwire_wire::TraceOp;
use serde_json::{Value, json};

use super::LabError;
use super::formats::{length, open_trace, page_size};
use super::output::{date, grouped, print, span, table};
use crate::progress::Progress;

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// The trace file
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Count pages of this size (default: what the trace says, mostly 4K)
    #[arg(long, value_name = "SIZE", value_parser = page_size)]
    page: Option<u64>,
    /// One JSON object a line: one for the trace, one for each op, node and process
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &InfoArgs) -> Result<(), LabError> {
    let name = args.trace.display().to_string();
    let file = open_trace(&args.trace)?;
    let progress = Progress::bytes("reading", length(&file));
    let reader = TraceReader::new(progress.watch(file), name.clone())?;
    let said = reader.metadata().page_bytes;
    let page_bytes = match args.page {
        Some(page) => page,
        None if said.is_power_of_two() => said,
        None => {
            return Err(format!(
                "{name} says that its pages have {said} bytes, which is not a power of two; choose a size with --page"
            )
            .into());
        }
    };
    let info = info(reader, page_bytes)?;
    drop(progress);
    print(&if args.json { json_lines(&name, &info) } else { text(&name, &info) })?;
    if let Some(damage) = &info.damage {
        eprintln!("mapwire: warning: {damage}");
    }
    Ok(())
}

fn json_lines(name: &str, info: &Info) -> String {
    let counts = info.counts();
    let (transfers, per_node) = (counts.transfers(), info.per_node());
    let mut rows = vec![json!({
        "kind": "trace",
        "file": name,
        "version": format::VERSION,
        "complete": info.damage.is_none(),
        "damage": info.damage.as_ref().map(|d| json!({"at_byte": d.at, "records": d.records, "why": d.kind.to_string()})),
        "file_bytes": info.file_bytes,
        "metadata": info.metadata,
        "records": info.summary.records,
        "first_ns": info.summary.first_ns,
        "last_ns": info.summary.last_ns,
        "page_bytes": info.page_bytes,
        "nodes": info.nodes().len(),
        "processes": info.processes.len(),
        "operations": transfers.records,
        "direct": transfers.direct,
        "direct_share": counts.direct_share(),
        "lookups": transfers.pages,
        "bytes": transfers.bytes,
        "footprint_pages": info.footprint_pages(),
        "computed_ns": info.computed_ns(),
        "footprint_pages_per_node": per_node.map(|(footprint, _)| footprint),
        "lookups_per_node": per_node.map(|(_, lookups)| lookups),
    })];
    for op in TraceOp::ALL {
        let of = counts.of(op);
        rows.push(json!({
            "kind": "op", "op": op.name(),
            "records": of.records, "direct": of.direct, "pages": of.pages, "bytes": of.bytes,
        }));
    }
    let of = |counts: &mapwire_trace::info::Counts| -> [(&str, Value); 5] {
        let transfers = counts.transfers();
        [
            ("operations", json!(transfers.records)),
            ("direct", json!(transfers.direct)),
            ("direct_share", json!(counts.direct_share())),
            ("lookups", json!(transfers.pages)),
            ("bytes", json!(transfers.bytes)),
        ]
    };
    let with = |mut row: Value, more: [(&str, Value); 5]| {
        for (key, value) in more {
            row[key] = value;
        }
        row
    };
    for node in info.nodes() {
        let row = json!({
            "kind": "node", "node": node.node, "processes": node.processes,
            "footprint_pages": node.footprint_pages,
        });
        rows.push(with(row, of(&node.counts)));
    }
    for process in &info.processes {
        let row = json!({
            "kind": "process", "node": process.node, "process": process.process,
            "footprint_pages": process.footprint_pages, "computed_ns": process.computed_ns,
        });
        rows.push(with(row, of(&process.counts)));
    }
    rows.iter().fold(String::new(), |text, row| text + &row.to_string() + "\n")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn text(name: &str, info: &Info) -> String {
    let (metadata, summary, counts) = (&info.metadata, info.summary, info.counts());
    let mut text = String::new();
    let mut line = |what: &str, value: String| {
        // Writing to a string never fails.
        let _ = writeln!(text, "{what:<11} {value}");
    };
    line("trace", format!("{name}, version {}", format::VERSION));
    let each = info.file_bytes as f64 / summary.records.max(1) as f64;
    line("size", format!("{} bytes, {each:.2} a record", grouped(info.file_bytes)));
    match &info.damage {
        None => line("complete", "yes".to_owned()),
        Some(damage) => {
            line("complete", format!("NO: good for {} records, up to byte {}", grouped(damage.records), damage.at))
        }
    }
    if metadata.synthetic {
        line("synthetic", "yes: the records were made up by the command below".to_owned());
    }
    if let Some(format) = &metadata.imported_from {
        line("imported", format!("from {format}"));
    }
    line("command", metadata.command.join(" "));
    line("made by", metadata.made_by.clone());
    if let Some(taken) = metadata.taken_unix_s {
        line("taken", date(taken));
    }
    if let Some(hosts) = metadata.hosts {
        line("hosts", hosts.to_string());
    }
    for note in &metadata.notes {
        line("note", note.clone());
    }
    line("records", grouped(summary.records));
    line(
        "time",
        format!(
            "{}, from {} to {} ns",
            span(summary.last_ns - summary.first_ns),
            grouped(summary.first_ns),
            grouped(summary.last_ns)
        ),
    );
    line(
        "nodes",
        match metadata.nodes {
            Some(all) => format!("{} of {all} in the trace", info.nodes().len()),
            None => info.nodes().len().to_string(),
        },
    );
    line("processes", info.processes.len().to_string());
    if info.computed_ns() > 0 {
        let computed = format!("{} of processor time", span(info.computed_ns()));
        line("computed", computed);
    }
    line("page", format!("{} bytes", info.page_bytes));
    if let Some((footprint, lookups)) = info.per_node() {
        line(
            "per node",
            format!("{footprint:.1} pages footprint, {lookups:.1} lookups of sends and fetches (UTLB Table 3)"),
        );
    }
    line("direct", format!("{} of {} operations", percent(counts.direct_share()), grouped(counts.transfers().records)));
    text.push('\n');
    let cells = |of: &OpCount| [of.records, of.direct, of.pages, of.bytes].map(grouped);
    let ops: Vec<Vec<String>> = TraceOp::ALL
        .iter()
        .filter(|op| counts.of(**op).records > 0)
        .map(|op| [vec![op.to_string()], cells(counts.of(*op)).to_vec()].concat())
        .collect();
    text += &table(&["op", "records", "direct", "pages", "bytes"], &ops);
    text.push('\n');
    let mut rows = Vec::new();
    let row = |name: String, of: &mapwire_trace::info::Counts, footprint: u64| {
        let all = of.transfers();
        vec![
            name,
            grouped(footprint),
            grouped(all.pages),
            grouped(all.records),
            percent(of.direct_share()),
            grouped(all.bytes),
        ]
    };
    for node in info.nodes() {
        rows.push(row(format!("node {}", node.node), &node.counts, node.footprint_pages));
        for process in info.processes.iter().filter(|p| p.node == node.node) {
            rows.push(row(format!("  process {}", process.process), &process.counts, process.footprint_pages));
        }
    }
    text += &table(&["", "footprint pages", "lookups", "operations", "direct", "bytes"], &rows);
    text
}
