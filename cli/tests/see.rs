//! What a job shows of itself: `mapwire top`, `run --summary`, `run --metrics`. The ranks are this test program again.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use crate::common::{Place, as_rank, eventually, json_rows};
use mapwire::Node;
use rustix::process::Signal;
use serde_json::Value;

/// Bytes that rank 1 sends to rank 0.
const BYTES: usize = 5_000;

/// Rank 1 sends to rank 0; then both stay until the file `go` is there, or not at all.
fn talk(stays: bool) {
    let node = Node::join().unwrap();
    let buffer = node.alloc(BYTES).unwrap();
    let _export = node.export_buffer(&buffer).name("inbox").start().unwrap();
    let peer = 1 - node.rank();
    let import = node.import(peer, "inbox").start().unwrap();
    if node.rank() == 1 {
        import.send(&[7; BYTES], 0).unwrap();
    }
    node.barrier().unwrap();
    while stays && !std::path::Path::new("go").exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
#[ignore = "a rank"]
fn rank_that_talks() {
    talk(false);
}

#[test]
#[ignore = "a rank"]
fn rank_that_talks_and_stays() {
    talk(true);
}

fn job(options: &[&str], body: &str) -> Vec<String> {
    let run = ["run"].iter().chain(options).map(|word| (*word).to_owned());
    run.chain(["--".to_owned()]).chain(as_rank(body)).collect()
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// A figure of rank 1 in rows of ranks.
fn of_rank_1(rows: &[Value], figure: &str) -> u64 {
    let row = rows.iter().find(|row| row["rank"] == 1).unwrap();
    row["figures"][figure].as_u64().unwrap()
}

fn sent_by_1(rows: &[Value]) -> u64 {
    of_rank_1(rows, "bytes_sent")
}

#[test]
fn a_summary_has_what_was_stored_past_the_packets() {
    let place = Place::new();
    let shown = place.run(&words(&job(&["-n", "2", "--summary"], "see::rank_that_talks")));
    let line = shown.err().lines().find(|line| line.contains("  in place  ")).map(str::to_owned);
    assert!(line.is_some(), "{}", shown.err());
    let written = ["-n", "2", "--summary=end.json"];
    place.run(&words(&job(&written, "see::rank_that_talks"))).code(0);
    let summary = std::fs::read(place.folder.join("end.json")).unwrap();
    let summary: Value = serde_json::from_slice(&summary).unwrap();
    let stored = of_rank_1(summary["ranks"].as_array().unwrap(), "bytes_stored_in_place");
    assert!(stored >= BYTES as u64, "{summary}");
}

#[test]
fn a_summary_has_what_each_rank_counted_on_one_host_and_on_two() {
    for options in [&["-n", "2", "--path", "ring"][..], &["--hosts", "a,b", "--launch-agent", "env HOST={host}"]] {
        let place = Place::new();
        let text = place.run(&words(&job(&[options, &["--summary"]].concat(), "see::rank_that_talks"))).code(0);
        let text = text.says("the job ended after").says("\nmapwire:  all ");
        assert!(text.err().lines().filter(|line| line.contains("  left  ")).count() == 2, "{}", text.err());

        let written = [options, &["--summary=end.json"]].concat();
        place.run(&words(&job(&written, "see::rank_that_talks"))).code(0);
        let summary = std::fs::read(place.folder.join("end.json")).unwrap();
        let summary: Value = serde_json::from_slice(&summary).unwrap();
        assert_eq!(summary["exit_code"], 0);
        let rows = summary["ranks"].as_array().unwrap();
        assert!(sent_by_1(rows) >= BYTES as u64, "{summary}");
        assert_eq!(rows[1]["host"], u32::from(options[0] == "--hosts"));
    }
}

#[test]
fn a_summary_of_a_job_that_fails_says_so_and_one_that_cannot_be_written_is_refused_before() {
    let place = Place::new();
    let run = |option: &str, text: &str| place.run(&["run", "-n", "2", option, "--", "sh", "-c", text]);
    run("--summary", "exit 3").code(3).says("exit code 3 after").says("dead");
    run("--summary=none/end.json", "touch ran").code(2).says("its folder does not exist");
    run("--summary=.", "touch ran").code(2).says("name a file");
    assert!(!place.has("ran"));
}

/// What the endpoint of a port answers; nothing while there is none.
fn get(port: u16) -> String {
    let mut text = String::new();
    if let Ok(mut client) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
        let _ = client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
        let _ = client.read_to_string(&mut text);
    }
    text
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn collectors_of_metrics_and_top_see_a_job_that_runs_and_nothing_after_it() {
    for options in [&["-n", "2", "--transport", "udp"][..], &["--hosts", "a,b", "--launch-agent", "env HOST={host}"]] {
        let place = Place::new();
        let port = free_port();
        let number = port.to_string();
        let options = [options, &["--metrics", &number]].concat();
        let job = place.start(&words(&job(&options, "see::rank_that_talks_and_stays")));
        let count = |text: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix("mapwire_bytes_sent_total{rank=\"1\","))?;
            line.split(' ').next_back()?.parse::<u64>().ok()
        };
        eventually("the endpoint shows what rank 1 sent", || count(&get(port)) >= Some(BYTES as u64));
        // Other tests have jobs too.
        let top = |pid: i32| place.run(&["top", "--json", &pid.to_string()]);
        let seen = json_rows(&top(job.launcher()));
        let rows = if seen.is_empty() {
            // Of several hosts, each has a job of its own; the ranks name it.
            let ranks = place.processes().into_iter().flat_map(|pid| json_rows(&top(pid)));
            ranks.collect()
        } else {
            seen
        };
        assert!(sent_by_1(&rows) >= BYTES as u64, "{rows:?}");
        place.write("go", "");
        job.wait().code(0);
        place.assert_empty();
        assert_eq!(get(port), "");
    }
}

#[test]
fn top_says_when_there_is_nothing_to_see() {
    let place = Place::new();
    place.run(&["top", "--json", "4194305"]).code(1).says("is of no job on this host");
}

#[test]
fn an_endpoint_that_cannot_be_is_refused_before_anything_starts() {
    let place = Place::new();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = taken.local_addr().unwrap().port().to_string();
    for (text, code, why) in [("0.0.0.0:9464", 2, "loopback"), ("metrics", 2, "9464"), (&taken, 1, "in use")] {
        let args = ["run", "-n", "1", "--metrics", text, "--", "touch", "ran"];
        place.run(&args).code(code).says("--metrics").says(why);
    }
    assert!(!place.has("ran"));
}

#[test]
fn ctrl_c_ends_a_job_with_an_endpoint_and_says_what_it_counted() {
    let place = Place::new();
    let port = free_port().to_string();
    let options = ["-n", "2", "--metrics", &port, "--summary"];
    let job = place.start(&words(&job(&options, "see::rank_that_talks_and_stays")));
    eventually("the ranks run", || place.processes().len() >= 4);
    job.signal(Signal::INT);
    job.wait().code(130).says("exit code 130 after");
    place.assert_empty();
}
