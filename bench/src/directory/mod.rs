//! `directory`: the page directory of global memory on the host, on the NIC with its table in host memory, and on the NIC with the table
//! there (GMS-NP §4), while the host of the directory node is idle, computes, or has cold caches. The limit beside each figure is a message
//! between the same processes, there and back, that looks nothing up.
//!
//! Three ranks: one asks, one has the directory, one stores the pages. The host of the second, its program and the thread that answers
//! for a directory there, has the first processor; its NIC and the other ranks share the last, so that what the program loses is what the
//! directory takes from it.

mod echo;
mod owner;
mod requester;
mod roles;
mod times;

use std::time::Duration;

use mapwire::global::{DirectoryPlacement, GlobalMemory};
use mapwire::{Node, services::NodeId};
use mapwire_gms::{Config, NodeSet};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};

use super::job::{Job, Leader, in_step, join, role};
use super::measure::Figure;
use super::row::Report;
use super::words::Words;
use super::{BenchError, Plan};
use owner::{Activity, Done, Program};
use requester::Requester;
use roles::{OWNER, PAGES, STORING};

const RANKS: usize = 3;

/// Bytes of the owner's directory: its rows are half full.
const DIRECTORY_BYTES: usize = 256 << 10;

/// Getpages a second beside the owner's program, if nothing else is said (GMS-NP §4.6).
const RATE: u64 = 10_000;

/// Pairs of a figure.
const RUNS: u32 = 5;

/// Options of a job's ranks besides those of all benches.
#[derive(Clone, Copy, Debug)]
struct Case {
    placement: DirectoryPlacement,
    /// Of each point.
    time: Duration,
    rate: u64,
}

impl Case {
    fn text(&self) -> String {
        let (time, rate) = (self.time.as_millis(), self.rate);
        format!("{} {time} {rate}", self.placement)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        Some(Self {
            placement: words.next()?.parse().ok()?,
            time: Duration::from_millis(words.next()?.parse().ok()?),
            rate: words.next()?.parse().ok()?,
        })
    }
}

pub(crate) fn directory(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    if let Some(case) = role() {
        let case = Case::parse(&case).ok_or("malformed case of the ranks")?;
        return measure(plan, case, report);
    }
    let seconds = plan.seconds.map(Duration::from_secs);
    let usual = Duration::from_millis(if plan.quick { 100 } else { 1000 });
    for placement in DirectoryPlacement::ALL {
        if plan.placement.is_some_and(|only| only != placement) {
            continue;
        }
        let case = Case { placement, time: seconds.unwrap_or(usual), rate: plan.rate.unwrap_or(RATE) };
        let job = Job {
            bench: "directory",
            ranks: RANKS,
            // Ranks that share a processor must leave it to each other.
            options: &["--wait", "event"],
            case: &case.text(),
        };
        job.run(plan, report)?;
    }
    if !report.is_json() {
        println!("The published figures beside those of a simulated testbed: mapwire sim paper gms-np");
    }
    Ok(())
}

/// The processors of the owner's host and of everything else; the same where there is one.
fn processors() -> Result<[CpuSet; 2], BenchError> {
    let allowed = sched_getaffinity(None)?;
    let mut numbers = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let first = numbers.next().unwrap_or(0);
    let last = numbers.next_back().unwrap_or(first);
    Ok([first, last].map(|cpu| {
        let mut set = CpuSet::new();
        set.set(cpu);
        set
    }))
}

/// A rank.
fn measure(plan: &Plan, case: Case, report: &mut Report) -> Result<(), BenchError> {
    let [host, others] = processors()?;
    // Threads that begin from here on, those of the NIC, stay there too.
    sched_setaffinity(None, &others)?;
    let (node, steps, counts) = join()?;
    let me = NodeId(node.rank() as u16);
    echo::register(&node)?;
    if me.0 == OWNER {
        sched_setaffinity(None, &host)?;
    }
    let members: NodeSet = (0..RANKS as u16).map(NodeId).collect();
    let (own, donated) = match me.0 {
        STORING => (0, 2 * PAGES),
        _ => (requester::FRAMES, 0),
    };
    let mut config = Config::new(me, members, own + donated, donated);
    config.directory_bytes = DIRECTORY_BYTES;
    let memory = GlobalMemory::start(node.clone(), config, case.placement)?;
    if me.0 == STORING {
        memory.call(|gms, now_ns| gms.donate(now_ns, donated))??;
    }
    in_step(Program::new(me.0 == OWNER, counts), steps, |leader| {
        points(plan, case, report, (&node, &memory, counts), leader)
    })
}

/// Has the owner's program pass into another state.
fn pass_into(leader: &mut Leader<Program>, state: Activity) -> Result<(), BenchError> {
    leader.lead(state as u64, 0, 0).map(drop)
}

/// What rank 0 measures.
fn points(
    plan: &Plan,
    case: Case,
    report: &mut Report,
    (node, memory, counts): (&Node, &GlobalMemory, Words),
    leader: &mut Leader<Program>,
) -> Result<(), BenchError> {
    // All have joined the memory.
    pass_into(leader, Activity::Idle)?;
    let requester = Requester::new(node, memory)?;
    requester.fill()?;
    let runs = if plan.quick { 2 } else { RUNS };
    let slice = case.time / runs;
    for state in Activity::ALL {
        pass_into(leader, state)?;
        let mut seen = [Vec::new(), Vec::new()];
        for _ in 0..runs {
            let raw = requester.run(slice, None, Requester::round_trip)?;
            let lookup = requester.run(slice, None, Requester::lookup)?;
            let get = requester.run(slice, None, Requester::get)?;
            seen[0].push((lookup, raw));
            seen[1].push((get, raw));
        }
        for (what, pairs) in ["lookup", "getpage"].into_iter().zip(&seen) {
            for (name, unit, part) in requester::Taken::PARTS {
                let pairs: Vec<_> = pairs.iter().map(|(it, raw)| (part(it), part(raw))).collect();
                let case = fields(case.placement, state.name(), &format!("{what} {name}"));
                report.rows(&case, unit, "message there and back", &[Figure::of_pairs(&pairs)]);
            }
        }
    }
    costs((runs, slice), case, report, &requester, counts, leader)
}

/// What getpages at a rate cost the owner's program and its processors. The program loses what the thread of the host takes of its processor, and what
/// it is slower by its own time. Where other jobs share that processor, its speed by the clock says more about them.
fn costs(
    (runs, slice): (u32, Duration),
    case: Case,
    report: &mut Report,
    requester: &Requester<'_>,
    counts: Words,
    leader: &mut Leader<Program>,
) -> Result<(), BenchError> {
    type What = fn(&Requester<'_>) -> Result<(), BenchError>;
    let mut rates = Vec::new();
    let mut compute = |what: Option<What>| -> Result<Done, BenchError> {
        pass_into(leader, Activity::Computing)?;
        match what {
            None => std::thread::sleep(slice),
            Some(what) => rates.push(requester.run(slice, Some(case.rate), what)?.per_second),
        }
        pass_into(leader, Activity::Idle)?;
        Ok(Done::read(counts))
    };
    compute(None)?;
    let mut runs_of = Vec::new();
    for _ in 0..runs {
        let alone = compute(None)?;
        let raw = compute(Some(|it| it.round_trip()))?;
        let gets = compute(Some(|it| it.get()))?;
        runs_of.push((alone, raw, gets));
    }
    let rate = super::measure::median(&mut rates).round();
    type Part = fn(&Done) -> f64;
    let program: [(&str, Part); 2] =
        [("program", |done| done.speed), ("program by its own time", |done| done.own_speed)];
    for (what, part) in program {
        let pairs = runs_of.iter().map(|(alone, _, gets)| (part(gets), part(alone)));
        let figure = Figure::of_pairs(&pairs.collect::<Vec<_>>());
        let case = fields(case.placement, "computing", &format!("{what}, {rate}/s"));
        report.rows(&case, "Mstep/s", "without getpages", &[figure]);
    }
    let mut busy = |what: &str, baseline, pair: fn(&(Done, Done, Done)) -> (f64, f64)| {
        let figure = Figure::of_pairs(&runs_of.iter().map(pair).collect::<Vec<_>>());
        let case = fields(case.placement, "computing", &format!("{what} busy, {rate}/s"));
        report.rows(&case, "%", baseline, &[figure]);
    };
    busy("host", "its processor", |(_, _, gets)| (gets.host, 100.0));
    busy("NIC", "as many raw messages", |(_, raw, gets)| (gets.nic, raw.nic));
    Ok(())
}

fn fields(placement: DirectoryPlacement, state: &str, what: &str) -> Vec<(&'static str, Value)> {
    vec![("directory", json!(placement.name())), ("state", json!(state)), ("what", json!(what))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_of_the_ranks_is_read_as_it_was_written() {
        let case = Case { placement: DirectoryPlacement::NicMemory, time: Duration::from_millis(250), rate: 7 };
        let read = Case::parse(&case.text()).unwrap();
        assert_eq!(read.text(), "nic-nm 250 7");
        assert!(Case::parse("nic 250 7").is_none() && Case::parse("host 250").is_none());
    }
}
