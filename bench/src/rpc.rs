//! `rpc`: remote procedure calls between two ranks, beside the raw way of the same bytes: a call of nothing by ranks that poll and by ranks
//! that sleep, a call with 1 MB of arguments, a call over UDP; and how evenly a server answers 64 callers.

mod ends;
mod fair;

use std::os::fd::AsRawFd;

use mapwire::Node;
use mapwire_host::mapping::{Mapping, Rights as Access};
use serde_json::json;

use super::job::{Job, Steps, role};
use super::measure::{Effort, Step, sampled};
use super::placement::Placements;
use super::row::Report;
use super::words::Words;
use super::{BenchError, Plan};
use crate::Transport;
use ends::{Ends, LONG_BYTES, SHARED_BYTES, Way};

/// A job of its own: its ranks wait and reach each other in one way.
struct Case {
    name: &'static str,
    ranks: usize,
    options: &'static [&'static str],
    /// The raw way first.
    ways: &'static [Way],
    /// Calls of a measurement.
    times: u64,
}

const CASES: &[Case] = &[
    Case { name: "poll", ranks: 2, options: &["--wait", "poll"], ways: &[Way::Put, Way::Call], times: 2000 },
    Case {
        name: "long",
        ranks: 2,
        options: &["--wait", "poll"],
        ways: &[Way::Memcpy, Way::LongCall, Way::LentCall, Way::Bounce],
        times: 50,
    },
    Case { name: "sleep", ranks: 2, options: &["--wait", "event"], ways: &[Way::Futex, Way::Call], times: 200 },
    Case {
        name: "udp",
        ranks: 2,
        options: &["--wait", "poll", "--transport", "udp"],
        ways: &[Way::RawUdp, Way::Call],
        times: 500,
    },
    Case { name: "fair", ranks: fair::RANKS, options: &["--wait", "event"], ways: &[], times: 0 },
];

/// `mapwire bench rpc`.
pub(crate) fn rpc(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    if let Some(case) = role() {
        let (name, path) = case.split_once(' ').ok_or("a case without memory")?;
        let case = CASES.iter().find(|case| case.name == name);
        return in_rank(plan, case.ok_or("no such case")?, path, report);
    }
    for case in CASES {
        if plan.transport == Transport::Udp && case.name != "udp" {
            continue;
        }
        let memory = rustix::fs::memfd_create("mapwire-bench", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, SHARED_BYTES as u64)?;
        // Ranks of different hosts share no memory of mapwire's, and open this.
        let (pid, number) = (std::process::id(), memory.as_raw_fd());
        let mut options = case.options.to_vec();
        if plan.insecure && case.name == "udp" {
            options.push("--insecure");
        }
        let job = Job {
            bench: "rpc",
            ranks: case.ranks,
            options: &options,
            case: &format!("{} /proc/{pid}/fd/{number}", case.name),
        };
        job.run(plan, report.is_json())?;
    }
    Ok(())
}

fn in_rank(plan: Plan, case: &Case, path: &str, report: &mut Report) -> Result<(), BenchError> {
    let file = std::fs::File::options().read(true).write(true).open(path)?;
    let mapping = Mapping::foreign(&file, SHARED_BYTES, Access::ReadWrite)?;
    let shared = Words::new(mapping.at(0, SHARED_BYTES), SHARED_BYTES);
    let node = Node::join()?;
    if case.ways.is_empty() {
        return fair::measure(plan, &node, shared, report);
    }
    let ends = Ends::new(&node, case.name, shared)?;
    let mut steps = Steps::over(&node, shared);
    let idle = || {
        node.poll();
    };
    if node.rank() == 1 {
        loop {
            let order = steps.next(idle);
            let way = Way::of(order.what);
            if let Some(way) = way {
                ends.carry_out(way, order.times)?;
            }
            steps.answer();
            if way.is_none() {
                return Ok(());
            }
        }
    }
    let times = if plan.quick { case.times / 10 } else { case.times };
    let mut placements = Placements::default();
    let mut effort = Effort::planned(plan, 2, 31);
    if case.name == "sleep" {
        effort = effort.scattered();
    }
    let samples = sampled::<BenchError>(effort, &mut placements, case.ways.len(), |step| {
        let Step::Way(way) = step else {
            return Ok(steps.look(idle));
        };
        let way = case.ways[way];
        steps.together(way.order(times), || ends.carry_out(way, times), idle)
    });
    if let Some(samples) = report.settled(case.name, samples)? {
        let mut row = |number: usize, baseline: usize| {
            let way = case.ways[number];
            let mut fields = vec![("case", json!(case.name)), ("call", json!(way.name())), ("ranks", json!(2))];
            if case.name == "udp" {
                fields.push(("sealed", json!(!plan.insecure)));
            }
            if case.name == "long" {
                fields.push(("bytes", json!(LONG_BYTES)));
            }
            report.rows(
                &fields,
                case.ways[baseline].unit(),
                case.ways[baseline].name(),
                &samples.figures(number, baseline),
            );
        };
        (1..case.ways.len()).for_each(|number| row(number, 0));
        let ways = case.ways.iter().zip(0..);
        let copies = ways.filter(|(way, _)| matches!(way, Way::LongCall | Way::Bounce));
        if let [(_, decoded), (_, bounce)] = copies.collect::<Vec<_>>()[..] {
            row(decoded, bounce);
        }
    }
    steps.together(Way::END, || (), idle);
    Ok(())
}
