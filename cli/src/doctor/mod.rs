//! `mapwire doctor`: what this computer allows, tried out rather than looked up where that can be
//! done, and how to mend what it does not.

mod checks;
#[allow(unsafe_code)]
mod doors;
mod trial;

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::args::DoctorArgs;
use crate::stdio;

/// Where findings begin in their lines.
const INDENT: usize = 21;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// mapwire works, but slower or smaller than it could.
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    state: Verdict,
    finding: String,
    /// What to do, as a command where there is one.
    mend: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, finding: impl Into<String>) -> Self {
        Self { check, state: Verdict::Ok, finding: finding.into(), mend: None }
    }

    fn warn(check: &'static str, finding: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { check, state: Verdict::Warn, finding: finding.into(), mend: Some(mend.into()) }
    }

    fn fail(check: &'static str, finding: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { check, state: Verdict::Fail, finding: finding.into(), mend: Some(mend.into()) }
    }
}

pub(crate) fn command(args: &DoctorArgs, config: Option<&Path>) -> ExitCode {
    if let Some(code) = trial::rank() {
        return code;
    }
    let findings = checks::all().into_iter().chain(trial::findings(config));
    let findings: Vec<_> = findings.collect();
    let columns = stdio::columns();
    for finding in &findings {
        if args.json {
            let mut row = serde_json::json!(finding);
            row["kind"] = "check".into();
            println!("{row}");
            continue;
        }
        let state = match finding.state {
            Verdict::Ok => "ok  ",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        let text = stdio::wrapped(&finding.finding, INDENT, columns);
        println!("{state}  {:<14} {text}", finding.check);
        if let Some(mend) = &finding.mend {
            let mend = stdio::wrapped(&format!("mend: {mend}"), INDENT, columns);
            println!("{:INDENT$}{mend}", "");
        }
    }
    if findings.iter().any(|f| f.state == Verdict::Fail) {
        eprintln!("mapwire: mapwire cannot work on this computer as it is; see the lines marked FAIL");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
