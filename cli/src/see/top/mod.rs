//! `mapwire top`: what the jobs on this host do, live.

#[cfg(feature = "top")]
mod screen;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use serde_json::json;

use super::jobs::{self, Job};
use super::table;
use crate::args::TopArgs;

pub(crate) fn command(args: &TopArgs) -> Result<ExitCode, crate::Failure> {
    let mut found = jobs::find();
    if let Some(pid) = args.pid {
        found.retain(|job| job.has(pid));
        if found.is_empty() {
            let why = "on this host that you may look at; `mapwire top --once` lists those that are";
            return Err((1, format!("process {pid} is of no job {why}")));
        }
    }
    if args.once || args.json || !io::stdout().is_terminal() {
        print(&found, args.json);
        return Ok(ExitCode::SUCCESS);
    }
    watch(args.pid, found)
}

#[cfg(feature = "top")]
fn watch(only: Option<u32>, jobs: Vec<Job>) -> Result<ExitCode, crate::Failure> {
    screen::watch(only, jobs).map(|()| ExitCode::SUCCESS).map_err(crate::failing(1))
}

#[cfg(not(feature = "top"))]
fn watch(_: Option<u32>, jobs: Vec<Job>) -> Result<ExitCode, crate::Failure> {
    eprintln!("mapwire: this build shows nothing live (cargo's feature `top`): what was counted so far");
    print(&jobs, false);
    Ok(ExitCode::SUCCESS)
}

fn title(job: &Job, here: usize) -> String {
    let size = job.size();
    let elsewhere = match size as usize - here {
        0 => String::new(),
        others => format!(", {others} not here"),
    };
    format!("job {}: {} ({size} ranks{elsewhere})", job.broker, job.command)
}

/// Prints what was counted so far.
fn print(jobs: &[Job], is_json: bool) {
    if jobs.is_empty() && !is_json {
        println!("no job runs on this host");
    }
    for job in jobs {
        let samples = job.samples();
        if is_json {
            for sample in samples {
                let mut line = sample.json();
                line["job"] = json!(job.broker);
                line["command"] = json!(job.command);
                line["size"] = json!(job.size());
                println!("{line}");
            }
            continue;
        }
        println!("{}", title(job, samples.len()));
        for line in table::lines(&samples) {
            println!("{line}");
        }
    }
}
