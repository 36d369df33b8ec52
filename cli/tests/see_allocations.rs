//! What `mapwire run --summary` says of allocations of the shared memory. The ranks are this test program again.

use crate::common::{Place, as_rank};
use mapwire::{AllocOptions, Node, Shared, SharedSlice};
use serde_json::Value;

/// Rounds of the longest of the three.
const ROUNDS: usize = 60;

/// In turns, in rounds of which other ranks see every store: a word that two ranks store to, two words of two ranks side by side, and
/// words that rank 0 stores and all load; the first in most rounds, the last in fewest.
fn share() {
    let node = Node::join().unwrap();
    let shared = Shared::open(&node, 1).unwrap();
    let rank = node.rank();
    let alloc = |one: &dyn Fn() -> SharedSlice<u64>| {
        let slice = (rank == 0).then(one);
        shared.broadcast_slice(0, slice).unwrap()
    };
    let in_turns = alloc(&|| shared.alloc(1).unwrap());
    let side_by_side = alloc(&|| shared.alloc(2).unwrap());
    let options = AllocOptions::new().name("the table");
    let read_by_all = alloc(&|| shared.alloc_with(4, &options).unwrap());
    for round in 0..ROUNDS {
        for turn in 0..2 {
            if turn == rank {
                in_turns.set(0, in_turns.get(0) + 1);
                if round % 2 == 0 {
                    side_by_side.set(rank, round as u64);
                }
            }
            shared.barrier().unwrap();
        }
        if round % 12 == 0 {
            if rank == 0 {
                read_by_all.set(1, round as u64);
            }
            shared.barrier().unwrap();
            assert_eq!(read_by_all.get(1), round as u64);
            shared.barrier().unwrap();
        }
    }
    assert_eq!(in_turns.get(0), 2 * ROUNDS as u64);
    shared.close().unwrap();
}

#[test]
#[ignore = "a rank"]
fn rank_that_shares() {
    share();
}

/// It dies in the middle, by a signal that leaves it no time.
#[test]
#[ignore = "a rank"]
fn rank_that_dies_sharing() {
    let node = Node::join().unwrap();
    let shared = Shared::open(&node, 1).unwrap();
    let slice = (node.rank() == 0).then(|| shared.alloc::<u64>(1).unwrap());
    let slice = shared.broadcast_slice(0, slice).unwrap();
    if node.rank() == 1 {
        slice.set(0, 1);
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
    }
    let _ = shared.barrier();
}

/// The line of this file with that text.
fn line_of(text: &str) -> u64 {
    let at = include_str!("see_allocations.rs").lines().position(|line| line.contains(text));
    at.unwrap() as u64 + 1
}

fn summary(options: &[&str], body: &str) -> (i32, Value) {
    let place = Place::new();
    let program = as_rank(body);
    let words = [&["run", "--summary=end.json"], options, &["--"]].concat();
    let words: Vec<&str> = words.into_iter().chain(program.iter().map(String::as_str)).collect();
    let shown = place.run(&words);
    let summary: Value = serde_json::from_slice(&std::fs::read(place.folder.join("end.json")).unwrap()).unwrap();
    assert!(summary["exit_code"].is_u64(), "{}", shown.err());
    (summary["exit_code"].as_i64().unwrap() as i32, summary)
}

fn names_each(ranks: &str, coherence: &str) {
    let (code, summary) = summary(&["-n", ranks, "--coherence", coherence], "see_allocations::rank_that_shares");
    assert_eq!(code, 0, "{summary}");
    let rows = summary["allocations"].as_array().unwrap();
    let told: Vec<_> = rows.iter().map(|row| (row["line"].as_u64(), row["name"].as_str())).collect();
    let lines = ["shared.alloc(1)", "shared.alloc(2)"].map(|text| (Some(line_of(text)), None));
    assert_eq!(told, [lines[0], lines[1], (None, Some("the table"))], "{summary:#}");
    assert!(rows[0]["file"].as_str().unwrap().ends_with("see_allocations.rs"));
    let says = |row: &Value, words: &str| {
        let advice = row["advice"].as_str().unwrap_or_default();
        assert!(advice.contains(words), "{row:#}");
    };
    says(&rows[0], "ranks 0 and 1 store to the same bytes in turns");
    says(&rows[1], "ranks 0 and 1 store to different parts of a unit of 16 bytes");
    says(&rows[2], "rank 0 stores, rank");
    let of = |row: usize, figure: &str| rows[row][figure].as_u64().unwrap();
    assert!(of(0, "ping_pong") > 0 && of(0, "false_sharing") == 0, "{summary:#}");
    assert!(of(1, "false_sharing") > 0, "{summary:#}");
    // The same faults and bytes as ranks have counted by themselves.
    let counted = |figure: &str| {
        let ranks = summary["ranks"].as_array().unwrap();
        ranks.iter().map(|rank| rank["figures"][figure].as_u64().unwrap()).sum::<u64>()
    };
    let told = |figure: &str| (0..3).map(|row| of(row, figure)).sum::<u64>();
    assert_eq!(told("read_faults"), counted("read_faults"));
    assert_eq!(told("write_faults"), counted("write_faults"));
    assert_eq!(told("moved_bytes"), counted("minipage_bytes_sent"));
}

#[test]
fn a_summary_names_what_ping_pongs_what_shares_falsely_and_what_all_read_on_two_ranks() {
    names_each("2", "minipages");
}

#[test]
fn a_summary_names_them_on_three_ranks() {
    names_each("3", "minipages");
}

#[test]
fn a_summary_of_lazy_consistency_has_the_places_and_their_pages() {
    let (code, summary) = summary(&["-n", "2", "--coherence", "hlrc"], "see_allocations::rank_that_shares");
    assert_eq!(code, 0, "{summary}");
    let rows = summary["allocations"].as_array().unwrap();
    // All three lie on one page, which counts for the first that faulted there.
    assert_eq!(rows.len(), 1, "{summary:#}");
    for figure in ["read_faults", "write_faults"] {
        let ranks = summary["ranks"].as_array().unwrap();
        let counted: u64 = ranks.iter().map(|rank| rank["figures"][figure].as_u64().unwrap()).sum();
        assert_eq!(rows[0][figure].as_u64(), Some(counted), "{summary:#}");
    }
    assert!(rows[0]["moved_bytes"].as_u64().unwrap() >= 4096 && rows[0]["diffs"].as_u64().unwrap() > 0, "{summary:#}");
}

#[test]
fn on_one_host_nothing_faults_and_a_line_says_so() {
    let place = Place::new();
    let program = as_rank("see_allocations::rank_that_shares");
    let words = ["run", "-n", "2", "--summary", "--"].into_iter().chain(program.iter().map(String::as_str));
    let shown = place.run(&words.collect::<Vec<_>>());
    shown.code(0).says("the processor keeps it coherent, so nothing faults");
}

#[test]
fn a_rank_that_is_killed_has_the_faults_that_it_counted() {
    let options = ["-n", "2", "--coherence", "minipages"];
    let (code, summary) = summary(&options, "see_allocations::rank_that_dies_sharing");
    assert_ne!(code, 0);
    let rows = summary["allocations"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{summary:#}");
    assert_eq!((&rows[0]["write_faults"], &rows[0]["line"]), (&1.into(), &line_of("alloc::<u64>(1)").into()));
}

#[test]
fn a_timeline_of_a_trace_has_the_bytes_that_ranks_have_counted() {
    let place = Place::new();
    let program = as_rank("see_allocations::rank_that_shares");
    let words = ["run", "-n", "2", "--coherence", "minipages", "--trace", "t.mwt", "--summary=end.json", "--"];
    place.run(&words.into_iter().chain(program.iter().map(String::as_str)).collect::<Vec<_>>()).code(0);
    let summary: Value = serde_json::from_slice(&std::fs::read(place.folder.join("end.json")).unwrap()).unwrap();
    let figure = |rank: usize, name: &str| summary["ranks"][rank]["figures"][name].as_u64().unwrap();
    let words = ["lab", "timeline", "t.mwt", "--json", "-o", "t.json", "--matrix", "t.svg"];
    let shown = place.run(&words).code(0);
    let rows: Vec<Value> = shown.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for rank in 0..2 {
        let given = rows.iter().find(|row| row["kind"] == "rank" && row["rank"] == rank).unwrap();
        assert_eq!(given["given_bytes"].as_u64().unwrap(), figure(rank, "minipage_bytes_sent"), "{rows:?}");
    }
    let timeline: Value = serde_json::from_slice(&std::fs::read(place.folder.join("t.json")).unwrap()).unwrap();
    let events = timeline["traceEvents"].as_array().unwrap();
    let faults = events.iter().filter(|event| event["cat"] == "fault" && event["ph"] == "X").count() as u64;
    assert_eq!(faults, (0..2).map(|rank| figure(rank, "read_faults") + figure(rank, "write_faults")).sum::<u64>());
    let arrows = events.iter().filter(|event| event["ph"] == "f").count() as u64;
    assert_eq!(arrows, (0..2).map(|rank| figure(rank, "minipages_sent")).sum::<u64>());
    assert!(std::fs::read_to_string(place.folder.join("t.svg")).unwrap().contains("rank 0 to rank 1"));
}
