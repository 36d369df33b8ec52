//! The programs as jobs of several ranks: each checks its result against its sequential run.

use crate::common::{run, run_job};

const SMALL: [&str; 8] = [
    "tsp --cities 11",
    "sor --size 258 --iterations 20",
    "is --keys 300000 --values 2^7 --iterations 3",
    "lu --size 192 --block 16",
    "lu-nc --size 40",
    "radix --keys 1000",
    "tasks --roots 2000",
    "nbody --bodies 200 --steps 5",
];

#[test]
fn ranks_of_one_host_need_no_message_and_give_the_sequential_result() {
    for line in SMALL {
        for ranks in 2..=4 {
            let row = run_job(&format!("-n {ranks}"), &format!("{line} --json")).row();
            assert_eq!((&row["check"], &row["ranks"]), (&"ok".into(), &ranks.into()), "{row}");
            assert_eq!((&row["messages"], &row["bytes"]), (&0.into(), &0.into()), "{row}");
            assert!(row["must_move_bytes"].as_u64() > Some(0), "{row}");
        }
    }
}

#[test]
fn every_program_gives_its_sequential_result_over_two_three_and_four_ranks() {
    for line in SMALL {
        for ranks in 2..=4 {
            let row = run_job(&format!("-n {ranks} --coherence minipages"), &format!("{line} --json")).row();
            assert_eq!(row["check"], "ok", "{row}");
            assert_eq!((&row["mode"], &row["ranks"]), (&"mapwire".into(), &ranks.into()));
            let by_rank = row["by_rank"].as_array().unwrap();
            assert_eq!(by_rank.len(), ranks);
            for field in ["read_faults", "write_faults", "messages", "bytes", "must_move_bytes"] {
                let sum: u64 = by_rank.iter().map(|rank| rank[field].as_u64().unwrap()).sum();
                assert_eq!(row[field], sum, "{field} in {row}");
            }
            assert!(row["messages"].as_u64() > Some(0), "{row}");
        }
    }
}

#[test]
fn several_threads_of_a_rank_share_its_memory() {
    for line in SMALL {
        let row = run_job("-n 2", &format!("{line} --threads 2 --json")).row();
        assert_eq!((&row["check"], &row["threads"]), (&"ok".into(), &2.into()));
    }
}

#[test]
fn every_way_to_catch_faults_and_to_wait_gives_the_same() {
    for options in ["--faults sigsegv", "--wait poll", "--wait event", "--faults sigsegv --wait event"] {
        for line in SMALL {
            let row = run_job(&format!("-n 2 --coherence minipages {options}"), &format!("{line} --json")).row();
            assert_eq!(row["check"], "ok", "{options}: {row}");
        }
    }
}

#[test]
fn ranks_as_if_on_hosts_of_their_own_give_the_sequential_result() {
    for options in [
        "-n 2 --transport udp",
        "-n 3 --transport udp --wait event",
        "-n 2 --transport udp --faults sigsegv",
        "-n 2 --transport udp --insecure",
    ] {
        for line in SMALL {
            let row = run_job(options, &format!("{line} --json")).row();
            assert_eq!(row["check"], "ok", "{options}: {row}");
            assert!(row["messages"].as_u64() > Some(0), "{row}");
        }
    }
}

#[test]
fn sor_moves_edge_rows_only() {
    let row = run_job("-n 2 --coherence minipages", "sor --size 258 --iterations 50 --json").row();
    // Each half-sweep, each rank fetches the neighbour's edge row, and regains its own.
    let (expected, half_row_bytes) = (2 * 2 * 50, 129 * 8);
    let moved = row["bytes"].as_u64().unwrap() / half_row_bytes;
    assert!((expected - 4..=expected).contains(&moved), "{row}");
    // What each reads of the other; a row that is written in the same half-sweep comes back without need.
    assert_eq!(row["must_move_bytes"], expected * half_row_bytes, "{row}");
    let asked = row["by_rank"].as_array().unwrap().iter();
    let asked: u64 = asked.map(|rank| rank["prefetches"].as_u64().unwrap()).sum();
    assert!(asked >= expected && asked <= 2 * expected, "{row}");
    for field in ["read_faults", "write_faults"] {
        let faults = row[field].as_u64().unwrap();
        assert!(faults <= expected, "{field} in {row}");
    }
}

#[test]
fn plain_threads_are_run_in_turn_with_the_job() {
    let line = "lu --size 128 --block 16 --against-threads --rounds 2 --json";
    let row = run_job("-n 2", line).row();
    assert_eq!((&row["baseline"], &row["check"]), (&"threads".into(), &"ok".into()));
    assert_eq!((&row["unit"], &row["ranks"]), (&"speed-up".into(), &2.into()));
    let ratio = row["value"].as_f64().unwrap() / row["baseline_value"].as_f64().unwrap();
    assert!((row["ratio"].as_f64().unwrap() - ratio).abs() < 1e-12, "{row}");
    let rounds = row["runs"].as_u64().unwrap() + row["rounds_dropped"].as_u64().unwrap();
    assert_eq!(rounds, 2);
    let row = run_job("-n 2 --wait event", line).row();
    assert_eq!(row["baseline"], "threads with a futex barrier");
}

#[test]
fn bad_input_is_said_once_by_rank_0() {
    for (line, message) in [
        ("lu --size 100", "lu: --block 32: must divide the size, 100"),
        ("sor --colour red", "unexpected argument"),
        ("tsp --zone-table /no/such", "/no/such: cannot be read"),
    ] {
        let ended = run_job("-n 3", line);
        assert_eq!(ended.code, 2, "{ended:?}");
        assert_eq!(ended.err.matches(message).count(), 1, "{ended:?}");
        assert!(ended.out.is_empty(), "{ended:?}");
    }
    let ended = run_job("-n 2 --shared 1M", "sor --size 1024");
    assert_eq!(ended.code, 2, "{ended:?}");
    let message = "takes 8.0 MiB of shared memory and the job has 1.0 MiB";
    assert_eq!(ended.err.matches(message).count(), 1, "{ended:?}");
}

#[test]
fn help_in_a_job_is_printed_once() {
    let help = run_job("-n 3", "is --help").ok();
    assert_eq!(help.matches("Examples:").count(), 1, "{help}");
}

#[test]
fn modes_without_mapwire_run_in_rank_0_alone() {
    let row = run_job("-n 3", "lu --size 64 --mode threads --threads 2 --json").row();
    assert_eq!((&row["mode"], &row["check"]), (&"threads".into(), &"ok".into()));
    assert_eq!(run("lu --size 64 --mode sequential --json").row()["check"], "ok");
}
