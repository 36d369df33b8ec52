//! A job of two ranks, started by the launcher that users run and with the options that it would find: whatever the other checks
//! say, this is what `mapwire run` does here.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use mapwire::{Node, Rights, Shared};

use super::Finding;
use crate::run::start::nothing;

/// Set in the environment of the ranks: they take part rather than check.
const ROLE: &str = "MAPWIRE_DOCTOR_RANK";
const PARTS: [&str; 2] = ["messages", "shared memory"];

type Trial = Result<(), Box<dyn std::error::Error>>;

/// Runs this process as a rank of the trial, if it is one.
pub(super) fn rank() -> Option<ExitCode> {
    let part = std::env::var(ROLE).ok()?;
    let tried = if part == PARTS[0] { messages() } else { shared_memory() };
    Some(match tried {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => mapwire_console::fail(error.as_ref(), 1),
    })
}

/// By both paths, and back.
fn messages() -> Trial {
    let node = Node::join()?;
    let other = 1 - node.rank();
    let direct = node.alloc(4096)?;
    let ring = node.alloc(4096)?;
    let direct_export = node.export_buffer(&direct).name("direct").start()?;
    let ring_export = node.export_buffer(&ring).ring_only().name("ring").start()?;
    for name in ["direct", "ring"] {
        let import = node.import(other, name).rights(Rights::ALL).start()?;
        import.put_signal(&[7; 1000], 64, 0, 1)?;
    }
    direct_export.wait_signal(0, 1)?;
    ring_export.wait_signal(0, 1)?;
    Ok(())
}

fn shared_memory() -> Trial {
    let node = Node::join()?;
    let shared = Shared::open(&node, 1)?;
    let words = (node.rank() == 0).then(|| shared.alloc::<u64>(2)).transpose()?;
    let words = shared.broadcast_slice(0, words)?;
    words.set(node.rank(), 1);
    shared.barrier()?;
    let sum = words.get(0) + words.get(1);
    shared.barrier()?;
    shared.close()?;
    if sum == 2 { Ok(()) } else { Err("a store of the other rank does not arrive".into()) }
}

/// Starts the trials; `config` is the configuration file that was named.
pub(super) fn findings(config: Option<&Path>) -> [Finding; 2] {
    PARTS.map(|part| {
        let check = if part == PARTS[0] { "job" } else { "job, shared" };
        match run(part, config) {
            Ok(took) => {
                Finding::ok(check, format!("two ranks of `mapwire run` exchange {part} ({} ms)", took.as_millis()))
            }
            Err(why) => Finding::fail(check, why, mend(part)),
        }
    })
}

fn mend(part: &str) -> &'static str {
    if part == PARTS[0] {
        "see the lines above, and the options of `mapwire config`"
    } else {
        "see the lines above; a smaller --shared or --views, or programs that only send messages"
    }
}

fn run(part: &str, config: Option<&Path>) -> Result<Duration, String> {
    let program = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    let mut command = Command::new(&program);
    if let Some(file) = config {
        command.arg("--config").arg(file);
    }
    let run = ["run", "-n", "2", "--timeout", "20", "--no-tag", "--"];
    command.args(run.map(OsString::from)).arg(&program).arg("doctor");
    command.env(ROLE, part).env_remove("MAPWIRE_WDIR").stdin(nothing());
    let begun = Instant::now();
    let output = command.output().map_err(|error| format!("cannot start a job: {error}"))?;
    if output.status.success() {
        return Ok(begun.elapsed());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().map(|line| line.trim_start_matches("mapwire: ")).collect();
    Err(format!("two ranks cannot exchange {part}: {}", lines.join("; ")))
}
