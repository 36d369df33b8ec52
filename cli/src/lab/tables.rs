//! `mapwire lab tables`: the papers' tables and figures, ours beside what the papers print.

use clap::Args;
use mapwire_study::study::Request;
use mapwire_study::tables::{Gathered, comparisons, gather};
use serde_json::json;

use super::output::print;
use super::study::TraceOptions;
use super::{DamagedError, LabError};

#[derive(Debug, Args)]
pub(crate) struct TablesArgs {
    #[command(flatten)]
    traces: TraceOptions,
    /// One JSON object a line for each cell, ours and the papers', behind one for each note on the traces
    #[arg(long)]
    json: bool,
}

/// The studies that the tables need, of the traces that were named.
pub(super) fn gathered(traces: &TraceOptions) -> Result<Gathered, LabError> {
    let mut source = |request: Request| traces.run(&request);
    let gathered = gather(&mut source, traces.sends(), traces.all(), traces.threads())?;
    Ok(gathered)
}

/// `mapwire lab tables`.
pub(crate) fn command(args: &TablesArgs) -> Result<(), LabError> {
    let profile = args.traces.profile()?;
    let gathered = gathered(&args.traces)?;
    let tables = comparisons(&gathered, &profile);
    let mut text = String::new();
    for note in &gathered.notes {
        text.push_str(&match args.json {
            true => format!("{}\n", json!({ "note": note })),
            false => format!("Note: {note}.\n\n"),
        });
    }
    for table in &tables {
        if args.json {
            for cell in table.to_json() {
                text.push_str(&format!("{cell}\n"));
            }
        } else {
            text.push_str(&table.to_text());
            text.push('\n');
        }
    }
    print(&text)?;
    DamagedError::tell(&gathered.damaged)
}
