//! `mapwire ping`: whether ranks of two hosts reach each other, and how fast. It is a job of two ranks, started as users start theirs.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use mapwire::{Node, Rights};
use serde_json::json;

use crate::args::PingArgs;
use crate::{Failure, failing};

/// Set in the environment of the ranks: what they do, as [`Work::to_text`] writes it.
const ROLE: &str = "MAPWIRE_PING_RANK";
/// Where the bytes stand behind the signal.
const DATA: u64 = 64;

#[derive(Clone, Debug, PartialEq)]
struct Work {
    count: u64,
    interval: Duration,
    bytes: usize,
    is_json: bool,
    /// The host of rank 1, as the user calls it.
    host: String,
}

impl Work {
    fn to_text(&self) -> String {
        let (count, ns, bytes) = (self.count, self.interval.as_nanos(), self.bytes);
        format!("{count} {ns} {bytes} {} {}", u8::from(self.is_json), self.host)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(5, ' ');
        Some(Self {
            count: words.next()?.parse().ok()?,
            interval: Duration::from_nanos(words.next()?.parse().ok()?),
            bytes: words.next()?.parse().ok()?,
            is_json: words.next()? == "1",
            host: words.next()?.to_owned(),
        })
    }
}

pub(crate) fn command(args: &PingArgs) -> Result<ExitCode, Failure> {
    if let Ok(text) = std::env::var(ROLE) {
        let work = Work::parse(&text).ok_or_else(|| {
            (2, format!("{ROLE}=`{text}` is for `mapwire ping` alone; remove it from the environment"))
        })?;
        return rank(&work).map(|()| ExitCode::SUCCESS).map_err(failing(1));
    }
    let mut command = job(args).map_err(|why| (2, why))?;
    // This process becomes the job.
    let error = command.exec();
    Err((126, format!("cannot start the job: {error}")))
}

fn job(args: &PingArgs) -> Result<Command, String> {
    let (from, to) = match &args.hosts[..] {
        [to] => ("localhost", to),
        [from, to, ..] => (from.as_str(), to),
        [] => return Err("name a host".into()),
    };
    if let Some(bad) = args.hosts.iter().find(|host| host.contains([',', ':'])) {
        return Err(format!("`{bad}` is not the name of one host"));
    }
    if !(0.0..=10.0).contains(&args.interval) {
        return Err(format!("--interval {}: give 0 to 10 seconds", args.interval));
    }
    let work = Work {
        count: args.count.max(1),
        interval: Duration::from_secs_f64(args.interval),
        bytes: args.bytes as usize,
        is_json: args.json,
        host: to.clone(),
    };
    let program = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    let mut command = Command::new(&program);
    command.arg("run");
    if from == to {
        command.args(["-n", "2"]);
    } else {
        command.args(["-n", "2", "--hosts"]).arg(format!("{from}:1,{to}:1"));
    }
    if args.options.get("transport").is_none() {
        command.args(["--transport", "udp"]);
    }
    command.args(args.options.words());
    if let Some(template) = &args.launch_agent {
        command.arg("--launch-agent").arg(template);
    }
    let role: OsString = format!("{ROLE}={}", work.to_text()).into();
    command.args(["--no-tag", "-x"]).arg(role).arg("--").arg(&program).args(["ping", to]);
    Ok(command)
}

fn rank(work: &Work) -> Result<(), mapwire::Error> {
    let began = Instant::now();
    let node = Node::join()?;
    let buffer = node.alloc(DATA as usize + work.bytes)?;
    let export = node.export_buffer(&buffer).name("ping").start()?;
    let peer = node.import(1 - node.rank(), "ping").rights(Rights::ALL).start()?;
    let data = vec![7; work.bytes];
    if node.rank() == 1 {
        for number in 1..=work.count {
            export.wait_signal(0, number)?;
            peer.put_signal(&data, DATA, 0, number)?;
        }
        return Ok(());
    }
    let mut times = Vec::new();
    for number in 1..=work.count {
        if number > 1 {
            thread::sleep(work.interval);
        }
        let sent = Instant::now();
        peer.put_signal(&data, DATA, 0, number)?;
        export.wait_signal(0, number)?;
        let took = sent.elapsed();
        if number == 1 {
            report_first(work, began.elapsed());
        }
        // Lines of thousands a second would be what is measured.
        if !work.interval.is_zero() {
            report(work, number, took);
        }
        times.push(took);
    }
    summarise(&node, work, times);
    Ok(())
}

fn us(time: Duration) -> f64 {
    (time.as_nanos() as f64 / 100.0).round() / 10.0
}

fn report_first(work: &Work, took: Duration) {
    if !work.is_json {
        println!(
            "{} is there: joined, exported, imported and answered within {:.0} ms",
            work.host,
            took.as_secs_f64() * 1e3
        );
    }
}

fn report(work: &Work, number: u64, took: Duration) {
    match work.is_json {
        true => println!("{}", json!({ "kind": "round_trip", "number": number, "round_trip_us": us(took) })),
        false => println!("{} bytes to {} and back: number {number}, {:.1} us", work.bytes, work.host, us(took)),
    }
}

fn summarise(node: &Node, work: &Work, mut times: Vec<Duration>) {
    times.sort_unstable();
    let of = |percent: f64| us(times[((times.len() - 1) as f64 * percent / 100.0) as usize]);
    let mean = us(times.iter().sum::<Duration>() / times.len() as u32);
    let links = node.links();
    let link = links.iter().find(|(rank, _)| *rank == 1);
    let link = link.map(|(_, link)| link);
    let resent = link.map_or(0, |link| link.counters.resent);
    let rejected = node.rejections().map_or(0, |rejections| rejections.rejections());
    if work.is_json {
        let row = json!({
            "kind": "summary",
            "host": work.host,
            "count": times.len(),
            "bytes": work.bytes,
            "min_us": of(0.0),
            "p50_us": of(50.0),
            "mean_us": mean,
            "p99_us": of(99.0),
            "p99_9_us": of(99.9),
            "max_us": of(100.0),
            "link_rtt_us": link.and_then(|link| link.rtt_ns).map(|ns| us(Duration::from_nanos(ns))),
            "link_timeout_us": link.map(|link| us(Duration::from_nanos(link.timeout_ns))),
            "path": link.map(|link| link.path),
            "packets_resent": resent,
            "datagrams_rejected": rejected,
        });
        println!("{row}");
        return;
    }
    println!(
        "round trips: {}; least {:.1}, median {:.1}, mean {mean:.1}, p99 {:.1}, most {:.1} us",
        times.len(),
        of(0.0),
        of(50.0),
        of(99.0),
        of(100.0)
    );
    if let Some(link) = link {
        println!("packets sent again: {resent}; datagrams rejected: {rejected}; path {}", link.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_do_reads_back_as_it_was_written() {
        let work =
            Work { count: 3, interval: Duration::from_millis(200), bytes: 56, is_json: true, host: "a b".into() };
        assert_eq!(Work::parse(&work.to_text()), Some(work));
        for text in ["", "1", "1 2 3 1", "x 2 3 1 a"] {
            assert_eq!(Work::parse(text), None, "{text}");
        }
    }
}
