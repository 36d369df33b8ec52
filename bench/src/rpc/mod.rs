//! `rpc`: remote procedure calls between two ranks, beside the raw way of the same bytes: a call of nothing by ranks that poll and by ranks
//! that sleep, a call with 1 MB of arguments, a call over UDP; and how evenly a server answers 64 callers.

mod exchange;
mod fair;

use serde_json::json;

use super::job::{Job, Leader, in_step, join, role};
use super::measure::Effort;
use super::row::Report;
use super::{BenchError, Plan, Transport};
use exchange::{Exchange, LONG_BYTES, Rank};

/// A job of its own: its ranks wait and reach each other in one way.
struct Case {
    name: &'static str,
    options: &'static [&'static str],
    /// The raw way first.
    ways: &'static [Exchange],
    /// Calls of a measurement.
    times: u64,
}

const CASES: &[Case] = &[
    Case { name: "poll", options: &["--wait", "poll"], ways: &[Exchange::Put, Exchange::Call], times: 2000 },
    Case {
        name: "long",
        options: &["--wait", "poll"],
        ways: &[Exchange::Memcpy, Exchange::LongCall, Exchange::LentCall, Exchange::Bounce],
        times: 50,
    },
    Case { name: "sleep", options: &["--wait", "event"], ways: &[Exchange::Futex, Exchange::Call], times: 200 },
    Case {
        name: "udp",
        options: &["--wait", "poll", "--transport", "udp"],
        ways: &[Exchange::RawUdp, Exchange::Call],
        times: 500,
    },
    Case { name: "fair", options: &["--wait", "event"], ways: &[], times: 0 },
];

pub(crate) fn rpc(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    if let Some(name) = role() {
        let case = CASES.iter().find(|case| case.name == name);
        return in_rank(plan, case.ok_or("unknown case")?, report);
    }
    for case in CASES.iter().filter(|case| plan.transport() == Transport::Shm || case.name == "udp") {
        let ranks = if case.ways.is_empty() { fair::RANKS } else { 2 };
        Job { bench: "rpc", ranks, options: case.options, case: case.name }.run(plan, report)?;
    }
    Ok(())
}

fn in_rank(plan: &Plan, case: &Case, report: &mut Report) -> Result<(), BenchError> {
    let (node, steps, shared) = join()?;
    if case.ways.is_empty() {
        return fair::measure(plan, &node, shared, report);
    }
    let ends = Rank::new(&node, case.name, shared)?;
    in_step(ends, steps, |leader| {
        let times = if plan.quick { case.times / 10 } else { case.times };
        let mut effort = Effort::planned(plan, 2, 31);
        if case.name == "sleep" {
            effort = effort.scattered();
        }
        let run = |leader: &mut Leader<Rank>, way: usize| leader.lead(case.ways[way] as u64, 0, times);
        let Some(samples) = leader.sample(effort, case.ways.len(), case.name, report, run)? else {
            return Ok(());
        };
        let mut row = |number: usize, baseline: usize| {
            let way = case.ways[number];
            let mut fields = vec![("case", json!(case.name)), ("call", json!(way.name())), ("ranks", json!(2))];
            match case.name {
                "udp" => fields.push(("sealed", json!(!plan.insecure))),
                "long" => fields.push(("bytes", json!(LONG_BYTES))),
                _ => {}
            }
            report.rows(&fields, way.unit(), case.ways[baseline].name(), &samples.figures(number, baseline));
        };
        (1..case.ways.len()).for_each(|number| row(number, 0));
        let number = |wanted| case.ways.iter().position(|&way| way == wanted);
        if let (Some(decoded), Some(bounce)) = (number(Exchange::LongCall), number(Exchange::Bounce)) {
            row(decoded, bounce);
        }
        Ok(())
    })
}
