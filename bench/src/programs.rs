//! Whole parallel programs, as ranks of this host and as threads of one process.
//!
//! Each run is a process or a job of its own. Its figure is the time that the program itself reports, from a barrier before the problem is put
//! into fresh memory to the barrier after the work: with the first touches of all pages, without start and allocation. Runs of threads and
//! ranks alternate.

use serde_json::{Value, json};

use super::job::launcher;
use super::measure::{Effort, Figure, paired};
use super::placement::Placement;
use super::row::Report;
use super::{BenchError, Plan};

/// Programs with problems of a second or more for two workers, and short ones.
const PROGRAMS: [(&str, &str); 8] = [
    ("tsp --cities 20", "tsp --cities 11"),
    ("sor --iterations 300", "sor --size 258 --iterations 20"),
    ("is --keys 2^24 --iterations 20", "is --keys 300000 --values 2^7 --iterations 3"),
    ("lu --size 2048", "lu --size 192 --block 16"),
    ("lu-nc --size 1536", "lu-nc --size 96"),
    ("radix --keys 2^24", "radix --keys 10000"),
    ("tasks --roots 200000", "tasks --roots 2000"),
    ("nbody --bodies 4096 --steps 16", "nbody --bodies 200 --steps 5"),
];

pub(crate) fn programs(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    let effort = match Effort::planned(plan, 1, 5) {
        effort if effort.rough => effort,
        effort => Effort { tries: 8, ..effort },
    };
    for (long, short) in PROGRAMS {
        let line = if plan.quick { short } else { long };
        let name = line.split(' ').next().unwrap_or_default();
        for ranks in [2, 4] {
            // Its result is compared with the sequential one first.
            seconds(line, &Way::Ranks(ranks), true)?;
            let run = |way| seconds(line, &way, false);
            let figure = paired(effort, || run(Way::Threads(ranks)), || run(Way::Ranks(ranks)));
            let figure = figure.map(|figure| Figure { placement: (Placement::Unknown, None), ..figure });
            let case = [("program", json!(name)), ("ranks", json!(ranks))];
            report.settled_row(&format!("{name}, {ranks} ranks"), &case, ("s", "threads"), figure)?;
        }
    }
    Ok(())
}

/// What carries the workers of a run.
enum Way {
    Ranks(usize),
    Threads(usize),
}

/// Seconds of one run.
fn seconds(line: &str, way: &Way, checks: bool) -> Result<f64, BenchError> {
    let mut command = launcher()?;
    let (ranks, mode) = match way {
        Way::Ranks(ranks) => (*ranks, vec![]),
        Way::Threads(threads) => (1, vec!["--mode".into(), "threads".into(), "--threads".into(), threads.to_string()]),
    };
    command.args(["run", "--no-tag", "-n", &ranks.to_string(), "--"]).args(line.split(' ')).args(mode);
    command.arg("--json").args((!checks).then_some("--no-check"));
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("`{line}` on {ranks} ranks ended with {}", output.status).into());
    }
    let row: Value = serde_json::from_slice(&output.stdout)?;
    let of = |field: &str| row[field].as_f64().ok_or_else(|| format!("`{line}` reports no {field}"));
    Ok(of("prepare_seconds")? + of("value")?)
}
