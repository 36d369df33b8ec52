//! What the launcher makes of what ranks write down.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::process::Command;

use mapwire::{Rights, Rows};

use crate::designs::everybody_with_everybody;
use crate::harness::{Rank, is_rank, job, launcher};

/// A path of its own for a trace.
fn target(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("mapwire-{}-{name}.mwt", std::process::id()))
}

/// The records of a trace as `mapwire lab export` writes them: (node, op, bytes) in order.
fn records(trace: &Path) -> Vec<(u32, String, u64)> {
    let csv = trace.with_extension("csv");
    let done = Command::new(launcher()).args(["lab", "export"]).arg(trace).arg("--output").arg(&csv).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let text = std::fs::read_to_string(&csv).unwrap();
    std::fs::remove_file(&csv).unwrap();
    let row = |line: &str| {
        let field: Vec<&str> = line.split(',').collect();
        (field[1].parse().unwrap(), field[3].to_owned(), field[5].parse().unwrap())
    };
    text.lines().skip(1).map(row).collect()
}

fn send_and_fetch(rank: &Rank) {
    let node = rank.node();
    if rank.number == 0 {
        let (ring, direct) = (node.alloc(8 * 4096).unwrap(), node.alloc(8 * 4096).unwrap());
        let ring = node.export_buffer(&ring).ring_only().name("ring");
        let ring = ring.rights(Rights::ALL).start().unwrap();
        let direct = node.export_buffer(&direct).name("direct").rights(Rights::ALL);
        let _direct = direct.start().unwrap();
        ring.wait_signal(0, 1).unwrap();
        rank.meet("end");
        return;
    }
    let ring = node.import(0, "ring").rights(Rights::ALL).start().unwrap();
    let direct = node.import(0, "direct").rights(Rights::ALL);
    let direct = direct.start().unwrap();
    // A page and a half from the start of a page: two lookups here, two there.
    let source = vec![7_u8; 4 * 4096];
    let skip = source.as_ptr().align_offset(4096);
    ring.send(&source[skip..skip + 6000], 4096).unwrap();
    ring.send(&source[..100], 0).unwrap();
    let mut into = vec![0; 5000];
    ring.fetch(4096, &mut into).unwrap();
    direct.send(&source[..333], 0).unwrap();
    direct.fetch(0, &mut into[..222]).unwrap();
    ring.put_signal(&[], 0, 0, 1).unwrap();
    rank.meet("end");
}

#[test]
fn sends_fetches_and_receives_are_in_the_trace_on_both_paths() {
    let trace = target("both-paths");
    job(2).option("--trace", trace.to_str().unwrap()).run(send_and_fetch).succeeds();
    let records = records(&trace);
    std::fs::remove_file(&trace).unwrap();
    let of = |node: u32, op: &str| -> Vec<u64> {
        let mine = records.iter().filter(|row| row.0 == node && row.1 == op);
        mine.map(|row| row.2).collect()
    };
    // The long send, the short one, the direct one, the signal.
    assert_eq!(of(1, "send"), [6000, 100, 333, 0]);
    assert_eq!(of(1, "fetch").iter().sum::<u64>(), 5222);
    // What was sent by the ring, what was fetched there, and the signal.
    assert_eq!(of(0, "recv").iter().sum::<u64>(), 6000 + 100 + 5000 + 8);
    assert_eq!(of(0, "export"), [8 * 4096]);
}

#[test]
fn a_rank_that_is_killed_leaves_the_good_part_of_what_it_wrote() {
    let trace = target("killed");
    let done = job(2).option("--trace", trace.to_str().unwrap()).run(|rank| {
        let node = rank.node();
        if rank.number == 0 {
            let inbox = node.alloc(4096).unwrap();
            let inbox = node.export_buffer(&inbox).ring_only().name("inbox");
            let inbox = inbox.start().unwrap();
            // The other dies: the launcher ends this rank too.
            let _ = inbox.wait_signal(0, 1 << 40);
            return;
        }
        let import = node.import(0, "inbox").start().unwrap();
        for turn in 1..=1000 {
            import.put_signal(&[0; 200], 8, 0, turn).unwrap();
        }
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
    });
    done.code(128 + 9);
    let records = records(&trace);
    std::fs::remove_file(&trace).unwrap();
    let sent = records.iter().filter(|row| row.1 == "send").count();
    assert!(sent > 500, "{sent} of 1000 sends");
}

/// What the ranks counted themselves, summed: the numbers in the notes of the trace.
fn counted(trace: &Path) -> Vec<u64> {
    let done = Command::new(launcher()).args(["lab", "info"]).arg(trace).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let mut sums = vec![0; COUNTS.len()];
    for line in String::from_utf8(done.stdout).unwrap().lines() {
        let Some((_, counts)) = line.split_once(" counted ") else {
            continue;
        };
        for count in counts.split(", ") {
            if let Some((lookups, misses)) = count.split_once(" with ") {
                let misses = misses.trim_end_matches(" misses").parse::<u64>();
                let at = if lookups.contains("process") { PCH } else { CBH };
                sums[at] += misses.unwrap();
                continue;
            }
            let (name, value) = count.rsplit_once(' ').unwrap();
            if let Some(at) = COUNTS.iter().position(|known| known.0 == name) {
                sums[at] += value.parse::<u64>().unwrap();
            }
        }
    }
    sums
}

/// Names of counts in a rank's line, and in a row of a study.
const COUNTS: [(&str, &str); 8] = [
    ("lookups", "lookups"),
    ("check misses", "check_misses"),
    ("NIC misses", "nic_misses"),
    ("interrupts", "interrupts"),
    ("pins", "pins"),
    ("unpins", "unpins"),
    ("handles of buffers", "cbh_misses"),
    ("handles of processes", "pch_misses"),
];

/// The places of misses of handles.
const CBH: usize = 6;
const PCH: usize = 7;

/// What a study of the trace comes to with the design that it was taken with.
fn studied(trace: &Path, design: &str, rules: &[(&str, &str)]) -> Vec<u64> {
    let rules = rules.iter().flat_map(|(option, value)| {
        let option = if *option == "--pin-limit" { "--limit" } else { option };
        [option, value]
    });
    let done = Command::new(launcher())
        .args(["lab", "study"])
        .arg(trace)
        .args(["--design", design, "--paths", "ring", "--format", "json"])
        .args(rules)
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let row = String::from_utf8(done.stdout).unwrap();
    let value = |name: &str| {
        let (_, rest) = row.split_once(&format!("\"{name}\":")).unwrap();
        let digits = rest.split([',', '}']).next().unwrap();
        // Designs without handles have none.
        digits.parse().unwrap_or_default()
    };
    COUNTS.iter().map(|(_, name)| value(name)).collect()
}

#[test]
fn a_study_of_a_trace_comes_to_what_the_ranks_counted_themselves() {
    for design in [
        "hierarchical,entries=16",
        "hierarchical,entries=32,ways=4",
        "shared-cache,entries=32,ways=2",
        "per-process,entries=1K",
        "interrupt,entries=16",
        "hierarchical,entries=16,prefetch=8",
        "shared-cache,entries=64,line=4,ways=2",
        "interrupt,variant=vmmc,entries=32,fill=8",
    ] {
        agrees(design, everybody_with_everybody);
    }
}

/// Runs a job of three ranks with a design, and holds a study of its trace against what the ranks counted.
fn agrees(design: &str, run: fn(&Rank)) {
    agrees_under(design, &[], run);
}

/// As [`agrees`], with rules for pinning: pairs of an option of `mapwire run` and its value.
fn agrees_under(design: &str, rules: &[(&str, &str)], run: fn(&Rank)) {
    let name: String = rules.iter().flat_map(|rule| ["-", rule.1]).collect();
    let design_and_rules = format!("{design}{name}");
    let trace = target(&format!("counted-{design_and_rules}"));
    let mut job = job(3).called(&design_and_rules);
    for (option, value) in rules {
        job = job.option(option, value);
    }
    job.option("--translation", design).option("--trace", trace.to_str().unwrap()).run(run).succeeds();
    if is_rank() {
        return;
    }
    let (counted, studied) = (counted(&trace), studied(&trace, design, rules));
    if std::env::var("KEEP").is_err() {
        std::fs::remove_file(&trace).unwrap();
    }
    assert!(counted[0] > 500, "{design}: {counted:?}");
    assert_eq!(counted, studied, "{design_and_rules}: {COUNTS:?}");
}

/// Rank 0 sends to each other and fetches from it, from other pages each time, and waits for one transfer before the next.
fn one_transfer_at_a_time(rank: &Rank) {
    let node = rank.node();
    if rank.number > 0 {
        let inbox = node.alloc(32 * 4096).unwrap();
        let inbox = node.export_buffer(&inbox).ring_only().name("inbox");
        let _inbox = inbox.rights(Rights::ALL).start().unwrap();
        rank.meet("exported");
        rank.meet("end");
        return;
    }
    rank.meet("exported");
    let inbox = |peer| node.import(peer, "inbox").rights(Rights::ALL);
    let inboxes = [1, 2].map(|peer| inbox(peer).start().unwrap());
    let mut own = vec![7_u8; 72 * 4096];
    for round in 0..80_usize {
        for inbox in &inboxes {
            // What was fetched has arrived behind what was sent before it.
            let page = round * 29 % 60;
            let there = (round * 13 % 30 * 4096) as u64;
            inbox.send(&own[page * 4096 + 100..][..4000 + 64 * round], there).unwrap();
            let into = (round * 17 + 5) % 62;
            inbox.fetch(there, &mut own[into * 4096..][..4097]).unwrap();
        }
    }
    rank.meet("end");
}

/// Rank 0 updates words of the others, and moves many parts and rows to them and back, on other pages each time.
fn words_parts_and_rows(rank: &Rank) {
    let node = rank.node();
    if rank.number > 0 {
        let inbox = node.alloc(64 * 4096).unwrap();
        let inbox = node.export_buffer(&inbox).ring_only().name("inbox");
        let _inbox = inbox.rights(Rights::ALL).start().unwrap();
        rank.meet("exported");
        rank.meet("end");
        return;
    }
    rank.meet("exported");
    let inbox = |peer| node.import(peer, "inbox").rights(Rights::ALL);
    let inboxes = [1, 2].map(|peer| inbox(peer).start().unwrap());
    let mut own = vec![7_u8; 72 * 4096];
    for round in 0..20_usize {
        for inbox in &inboxes {
            for word in 0..10 {
                let offset = ((round * 7 + word * 3) % 64 * 4096) as u64;
                inbox.fetch_add_u64(offset + 8, 1).unwrap();
                inbox.swap_u32(offset + 4, 1).unwrap();
            }
            let there = (round * 11 % 20 * 4096) as u64;
            let parts: Vec<_> =
                (0..12).map(|part| IoSlice::new(&own[(part * 23 + round) % 60 * 4096..][..3000])).collect();
            inbox.send_vectored(&parts, there + 100).unwrap();
            let rows = Rows { count: 12, bytes: 2500, local_stride: 5 * 4096, remote_stride: 3 * 4096 + 8 };
            inbox.send_strided(&own, there, &rows).unwrap();
            inbox.fetch_strided(there, &mut own, &rows).unwrap();
        }
    }
    rank.meet("end");
}

#[test]
fn a_study_comes_to_what_ranks_counted_of_atomic_operations_parts_and_rows() {
    for design in
        ["hierarchical,entries=16", "shared-cache,entries=32,ways=2", "per-process,entries=1K", "interrupt,entries=16"]
    {
        agrees(design, words_parts_and_rows);
    }
}

#[test]
fn atomic_operations_parts_and_rows_are_in_the_trace_on_both_paths() {
    let trace = target("words");
    job(2)
        .option("--trace", trace.to_str().unwrap())
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let buffers = [node.alloc(4 * 4096).unwrap(), node.alloc(4 * 4096).unwrap()];
                let ring = node.export_buffer(&buffers[0]).ring_only().name("ring");
                let _ring = ring.start().unwrap();
                let direct = node.export_buffer(&buffers[1]).name("direct");
                let _direct = direct.start().unwrap();
                rank.meet("end");
                return;
            }
            let data = [5_u8; 600];
            for name in ["ring", "direct"] {
                let import = node.import(0, name).rights(Rights::ALL).start().unwrap();
                import.fetch_add_u64(8, 1).unwrap();
                import.compare_swap_u32(4, 0, 1).unwrap();
                let parts = [IoSlice::new(&data[..200]), IoSlice::new(&data[..100])];
                import.send_vectored(&parts, 4096).unwrap();
                let rows = Rows { count: 3, bytes: 150, local_stride: 200, remote_stride: 4096 };
                import.send_strided(&data, 0, &rows).unwrap();
                import.put_signal_add(&data[..50], 100, 0, 1).unwrap();
                import.flush().unwrap();
            }
            rank.meet("end");
        })
        .succeeds();
    let records = records(&trace);
    std::fs::remove_file(&trace).unwrap();
    let of = |node: u32, op: &str| -> Vec<u64> {
        let mine = records.iter().filter(|row| row.0 == node && row.1 == op);
        mine.map(|row| row.2).collect()
    };
    // The two words of each path.
    assert_eq!(of(1, "fetch"), [8, 4, 8, 4]);
    // By the ring short parts travel together.
    let sent = of(1, "send");
    assert_eq!(sent.iter().sum::<u64>(), 2 * (300 + 450 + 50));
    assert!(sent.ends_with(&[200, 100, 150, 150, 150, 50]), "{sent:?}");
    // What came by the ring: words, parts, rows, data and its signal.
    let received = 8 + 4 + 300 + 450 + 50 + 8;
    assert_eq!(of(0, "recv").iter().sum::<u64>(), received);
}

/// Elsewhere a packet comes again after it was dropped, or goes on after it waited for a table, behind other lookups, at a time
/// that the trace does not tell.
#[test]
fn a_study_comes_to_what_ranks_counted_where_the_nic_waits_and_transfers_wait_for_one_another() {
    for design in [
        "hierarchical,entries=16,tables=1",
        "dynamic-handle,entries=64,line=4,ways=2",
        "dynamic-handle,entries=16,line=1",
        "dynamic-handle,entries=32,line=8,ways=4",
    ] {
        agrees(design, one_transfer_at_a_time);
    }
}

#[test]
fn a_study_comes_to_what_ranks_counted_under_limits_with_every_policy_and_pinning_ahead() {
    for (design, policy, prepin) in [
        ("hierarchical,entries=16", "lru", "1"),
        ("hierarchical,entries=16", "mru", "4"),
        ("shared-cache,entries=32,line=4", "lfu", "1"),
        ("per-process,entries=1K", "mfu", "8"),
        ("hierarchical,entries=64,prefetch=4", "random", "1"),
        ("interrupt,entries=16", "lru", "1"),
    ] {
        let rules = [("--pin-limit", "128K"), ("--policy", policy), ("--prepin", prepin)];
        agrees_under(design, &rules, one_transfer_at_a_time);
    }
}

#[test]
fn with_the_path_ring_the_nic_translates_what_others_would_map() {
    let trace = target("ring-path");
    job(2).option("--path", "ring").option("--trace", trace.to_str().unwrap()).run(send_and_fetch).succeeds();
    let records = records(&trace);
    std::fs::remove_file(&trace).unwrap();
    let received = records.iter().filter(|row| row.0 == 0 && row.1 == "recv");
    // As on both paths, and what was sent to and fetched from the other buffer: a NIC saw it come.
    let bytes: u64 = received.map(|row| row.2).sum();
    assert_eq!(bytes, 6000 + 100 + 5000 + 8 + 333 + 222);
    assert_eq!(records.iter().filter(|row| row.1 == "export").count(), 2);
}

#[test]
fn ranks_can_be_traced_as_processes_of_fewer_nodes() {
    let trace = target("two-a-node");
    job(4)
        .option("--procs-per-node", "2")
        .option("--trace", trace.to_str().unwrap())
        .run(everybody_with_everybody)
        .succeeds();
    let done = Command::new(launcher()).args(["lab", "info", "--json"]).arg(&trace).output().unwrap();
    std::fs::remove_file(&trace).unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(text.contains("rank r is process r % 2 of node r / 2"), "{text}");
    for (node, process) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let wanted = |line: &&str| {
            line.contains("\"kind\":\"process\"")
                && line.contains(&format!("\"node\":{node},"))
                && line.contains(&format!("\"process\":{process}"))
        };
        assert_eq!(text.lines().filter(wanted).count(), 1, "{text}");
    }
    assert_eq!(text.matches("\"kind\":\"process\"").count(), 4);
}
