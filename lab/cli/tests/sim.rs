//! `mapwire sim`, as processes.

use crate::common::{Place, json_rows};

#[test]
fn a_seed_gives_the_same_run_again_and_says_first_what_it_drew() {
    let place = Place::new();
    let run = || place.run(&["sim", "run", "--seed", "3", "--json"]).code(0);
    let first = run();
    assert_eq!(first.out(), run().out());
    let rows = json_rows(&first);
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["seed"], 3);
    assert_eq!(rows[0]["rules"].as_array().unwrap().len(), 13);
    assert!(rows[1]["violation"].is_null() && rows[1]["packets"].as_u64() > Some(0));
    let text = place.run(&["sim", "run", "--seed", "0x3"]).code(0).out();
    assert!(text.starts_with("seed 3\n"), "{text}");
    assert!(text.ends_with("no violation\n"), "{text}");
}

#[test]
fn a_run_that_fails_is_shrunk_and_says_how_to_repeat_it() {
    let place = Place::new();
    let args = ["sim", "run", "--seed", "4", "--nodes", "3", "--calls", "400"];
    let bug = ["--rules", "delay", "--bug", "lost-completion"];
    let done = place.run(&[&args[..], &bug].concat()).code(1);
    let text = done.out();
    assert!(text.contains("VIOLATION") && text.contains("waits for ever"), "{text}");
    assert!(text.contains("The same check fails with 0 faults and "), "{text}");
    let last = text.lines().last().unwrap();
    let repeats = "mapwire sim run --seed 4 --rules delay --nodes 3 --calls 400 --bug lost-completion";
    assert_eq!(last, format!("Repeat it: {repeats}"));
    place.run(&[&["sim", "vopr", "--minutes", "1"], &args[2..], &bug].concat()).code(1);
}

#[test]
fn a_shared_memory_runs_too_and_its_bugs_are_found() {
    let place = Place::new();
    for workload in ["shared", "litmus"] {
        let args = ["sim", "run", "--workload", workload, "--rules", "delay"];
        let run = |more: &[&str]| place.run(&[&args[..], more].concat());
        let text = run(&["--seed", "3", "--nodes", "5"]).code(0).out();
        assert!(text.starts_with("seed 3\n  nodes 5, "), "{text}");
        assert!(text.ends_with("no violation\n"), "{text}");
        let rows = json_rows(&run(&["--seed", "3", "--json"]).code(0));
        assert_eq!(rows[0]["litmus"], workload == "litmus");
        let tests = rows[1]["litmus_tests"].as_u64();
        assert_eq!(tests > Some(0), workload == "litmus", "{rows:?}");
        let bug = ["sim", "vopr", "--minutes", "1", "--seed", "0", "--bug", "lost-store"];
        let failed = place.run(&[&bug[..], &args[2..]].concat()).code(1).out();
        let repeats = failed.lines().last().unwrap();
        assert!(failed.contains("VIOLATION"), "{failed}");
        let command = repeats.strip_prefix("Repeat it: mapwire ").unwrap();
        let again: Vec<&str> = command.split(' ').collect();
        assert!(failed.contains(&place.run(&again).code(1).out()), "{failed}");
    }
}

#[test]
fn global_memory_runs_too_and_its_bugs_are_found() {
    let place = Place::new();
    let args = ["sim", "run", "--workload", "global", "--rules", "delay,crash"];
    let run = |more: &[&str]| place.run(&[&args[..], more].concat());
    let text = run(&["--seed", "3", "--nodes", "5"]).code(0).out();
    assert!(text.starts_with("seed 3\n  nodes 5, "), "{text}");
    assert!(text.ends_with("no violation\n"), "{text}");
    let rows = json_rows(&run(&["--seed", "3", "--nodes", "5", "--json"]).code(0));
    assert_eq!(rows[0]["nodes"], 5);
    assert!(rows[1]["stored"].as_u64() > Some(0), "{rows:?}");
    let bug = ["--bug", "lost-store", "--minutes", "1", "--seed", "0"];
    let vopr = [&["sim", "vopr"], &args[2..], &bug].concat();
    let failed = place.run(&vopr).code(1).out();
    assert!(failed.contains("VIOLATION"), "{failed}");
    let repeats = failed.lines().last().unwrap();
    let command = repeats.strip_prefix("Repeat it: mapwire ").unwrap();
    let again: Vec<&str> = command.split(' ').collect();
    let again = place.run(&again).code(1).out();
    assert!(failed.contains(&again), "{failed}");
}

#[test]
fn a_trace_is_replayed_and_one_that_is_damaged_is_named() {
    let place = Place::new();
    for (file, records) in [("z.mwt", "2K"), ("short.mwt", "200")] {
        let made = ["lab", "generate", "zipf", "-o", file, "--records", records];
        place.run(&[&made[..], &["--seed", "3"]].concat()).code(0);
    }
    let run = |file: &str, more: &[&str]| {
        let args = ["sim", "run", "--seed", "4", "--rules", "delay", "--trace", file];
        place.run(&[&args[..], more].concat())
    };
    let text = run("z.mwt", &[]).code(0).out();
    assert!(text.contains("which replay 2000 records of a trace"), "{text}");
    assert!(text.ends_with("no violation\n"), "{text}");
    let rows = json_rows(&run("z.mwt", &["--json", "--calls", "100"]).code(0));
    let records = rows[0]["trace_records"].as_u64();
    assert!(records >= Some(100) && records < Some(2_000), "{rows:?}");
    let bug = ["--bug", "lost-completion"];
    let failed = run("short.mwt", &bug).code(1).out();
    assert!(failed.contains("Repeat it: mapwire sim run --seed 4 --rules delay --trace short.mwt"), "{failed}");
    let whole = std::fs::read(place.folder.join("z.mwt")).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    for (bytes, says) in [
        (&whole[..whole.len() - 100], "is good for "),
        (&changed, "was changed: its checksum is "),
        (&b"time,node\n"[..], "cut.mwt is not a trace file of mapwire: it begins with time,nod"),
    ] {
        std::fs::write(place.folder.join("cut.mwt"), bytes).unwrap();
        run("cut.mwt", &[]).code(1).says(says);
    }
    run("none.mwt", &[]).code(1).says("cannot read none.mwt");
    run("z.mwt", &["--nodes", "2"]).code(1).says("the trace has 4 nodes, more than the 2");
    run("z.mwt", &["--workload", "shared"]).code(2).says("cannot be used with");
}

#[test]
fn new_seeds_run_for_the_time_given() {
    let place = Place::new();
    let done = place.run(&["sim", "vopr", "--minutes", "0.005"]).code(0);
    let text = done.out();
    assert!(text.starts_with("first seed "), "{text}");
    assert!(text.contains(" seeds/s, ") && text.ends_with("no violation\n"), "{text}");
}

#[test]
fn what_happened_is_counted_and_a_seed_is_ended_when_the_time_is_over() {
    let place = Place::new();
    let vopr = ["sim", "vopr", "--seed", "1", "--minutes", "0.01"];
    let done = place.run(&[&vopr[..], &["--json"]].concat()).code(0);
    let rows = json_rows(&done);
    assert_eq!(rows[0]["kind"], "vopr");
    assert!(rows[0]["violation"].is_null() && rows[0]["never"].is_array());
    let of = |kind: &str| rows.iter().filter(|row| row["kind"] == kind).count();
    assert_eq!(of("rule"), 13);
    let checks: Vec<_> = rows.iter().filter_map(|row| row["check"].as_str()).collect();
    for check in ["delivery", "forgery", "locks", "litmus", "pages", "calls"] {
        assert!(checks.contains(&check), "{checks:?}");
    }
    let text = place.run(&vopr).code(0).out();
    assert!(text.contains("\nrule delay: ") && text.contains("\ncheck locks: a thread gets a lock: "), "{text}");
    // A seed that takes very long.
    let long = ["--workload", "calls", "--calls", "10000000", "--minutes", "0"];
    let done = place.run(&[&["sim", "vopr", "--seed", "1"], &long[..]].concat());
    let text = done.code(0).out();
    assert!(text.contains("seed 1 was ended on its way"), "{text}");
}

#[test]
fn what_makes_no_sense_is_named() {
    let place = Place::new();
    for (args, says) in [
        (["--nodes", "0"], "invalid value '0' for '--nodes <N>': expected a number of nodes from 1 to 4096"),
        (["--nodes", "100000"], "invalid value '100000'"),
        (["--seed", "abc"], "expected a seed: a number below 2^64"),
        (["--seed", "-1"], "expected a seed: a number below 2^64"),
        (["--rules", "delay,flood"], "unknown rule `flood`: expected all, none or some of delay,"),
        (["--bug", "none"], "unknown bug: expected one of lost-packet,"),
        (["--calls", "0"], "0 is not in 1..=10000000"),
    ] {
        place.run(&[&["sim", "run"], &args[..]].concat()).code(2).says(says);
    }
    place.run(&["sim", "vopr", "--minutes", "soon"]).code(2).says("expected a number of minutes");
    place.run(&["sim", "vopr"]).code(2).says("--minutes");
    place
        .run(&["sim", "run", "--rules", "drop", "--delivery", "lossless"])
        .code(1)
        .says("rule `drop` needs a transport that may lose packets");
    let shared = ["sim", "run", "--workload", "shared"];
    let run = |more: &[&str]| place.run(&[&shared[..], more].concat());
    run(&["--bug", "lost-signal"])
        .code(1)
        .says("bug `lost-signal` is not one of this workload: expected one of late-invalidation,");
    run(&["--nodes", "3000"]).code(1).says("invalid number of ranks `3000`: expected 2 to 1024");
}

/// A trace of two ranks, of which the second computes for 3 ms and then stores where the first has allocated.
const SHARED_TRACE: &str = "time_ns,node,process,op,address,bytes
1,0,0,compute,0x0,0
1,0,0,open-shared,0x400000000000,262144
1,0,0,shape-shared,0x4,1
1,1,0,compute,0x0,0
1,1,0,open-shared,0x400000000000,262144
1,1,0,shape-shared,0x4,1
10,0,0,allocate,0x400000002040,64
20,0,0,barrier,0x0,0
21,1,0,barrier,0x0,0
30,1,0,compute,0x0,3000000
3000500,1,0,write-fault,0x400000002048,64
3001000,0,0,barrier,0x0,0
3001100,1,0,barrier,0x0,0
";

/// Rows of the bench, as far as they are read.
const MEASURED: &str = r#"{"bench":"fault","transport":"shm","ranks":2,"access":"read","owner":"polling","bytes":128,"value":6.0,"baseline_value":4.8,"flag_ns":110.0}
{"bench":"fault","transport":"shm","ranks":2,"access":"read","owner":"polling","bytes":4096,"value":6.4,"baseline_value":5.0,"flag_ns":110.0}
{"bench":"fault","transport":"shm","ranks":2,"access":"read","owner":"computing","bytes":128,"value":19.0,"baseline_value":4.8,"flag_ns":110.0}
{"bench":"lock","transport":"shm","ranks":2,"case":"lock + unlock, uncontended","value":0.05}
"#;

#[test]
fn a_traced_program_is_replayed_on_other_machines() {
    let place = Place::new();
    let write = |name: &str, text: &str| std::fs::write(place.folder.join(name), text).unwrap();
    write("shared.csv", SHARED_TRACE);
    write("here.jsonl", MEASURED);
    let import = ["lab", "import", "shared.csv", "-o", "shared.mwt"];
    place.run(&import).code(0);
    let replay = |machine: &[&str]| {
        let args = [&["sim", "replay", "shared.mwt", "--json", "--machine"], machine].concat();
        let rows = json_rows(&place.run(&args).code(0));
        assert_eq!(rows.len(), 1);
        assert_eq!((&rows[0]["ranks"], &rows[0]["faults"]), (&2.into(), &1.into()));
        rows[0]["work_s"].as_f64().unwrap()
    };
    let here = replay(&["here", "--measured", "here.jsonl"]);
    assert!((0.003..0.0032).contains(&here), "{here} s");
    assert!((0.003..0.0032).contains(&replay(&["today"])));
    // 20 times 3 ms, and a fault of 200 us.
    let then = replay(&["1997"]);
    assert!((0.0601..0.0606).contains(&then), "{then} s");
    assert!((0.0061..0.0066).contains(&replay(&["1997", "--speed", "2"])));
    let text = place.run(&["sim", "replay", "shared.mwt", "--machine", "today"]);
    assert!(text.code(0).out().contains("from first to last barrier"));
    let refused = |more: &[&str], says: &str| {
        let args = [&["sim", "replay", "shared.mwt", "--machine", "today"], more].concat();
        let said = place.run(&args).code(1).err();
        assert!(said.contains(says), "{said}");
    };
    refused(&["--nodes", "3"], "give --nodes 1, 2");
    refused(&["--measured", "here.jsonl"], "--machine here");
    let whole = std::fs::read(place.folder.join("shared.mwt")).unwrap();
    std::fs::write(place.folder.join("shared.mwt"), &whole[..whole.len() - 10]).unwrap();
    refused(&[], "trace the program again");
}

#[test]
fn a_trace_that_cannot_be_replayed_is_refused_with_the_record_at_fault() {
    let place = Place::new();
    let write = |name: &str, text: &str| std::fs::write(place.folder.join(name), text).unwrap();
    let cases = [
        (SHARED_TRACE.replace("2048,64", "9000,64"), "allocates no minipage"),
        (SHARED_TRACE.replace("3001100,1,0,barrier,0x0,0\n", ""), "hangs"),
        (SHARED_TRACE.replace("allocate", "unlock"), "beyond"),
        ("time_ns,node,process,op,address,bytes\n1,0,0,send,0x0,5\n".to_owned(), "no shared memory is opened"),
    ];
    for (text, says) in cases {
        write("bad.csv", &text);
        let _ = std::fs::remove_file(place.folder.join("bad.mwt"));
        let import = ["lab", "import", "bad.csv", "-o", "bad.mwt"];
        place.run(&import).code(0);
        let args = ["sim", "replay", "bad.mwt", "--machine", "today"];
        let said = place.run(&args).code(1).err();
        assert!(said.contains(says), "{said}");
    }
    let args = ["sim", "replay", "bad.mwt", "--machine", "here"];
    assert!(place.run(&args).code(2).err().contains("--measured"));
    write("here.jsonl", "{}");
    let args = ["sim", "replay", "bad.mwt", "--machine", "here", "--measured", "here.jsonl"];
    let said = place.run(&args).code(1).err();
    assert!(said.contains("no shared memory is opened") || said.contains("bench"), "{said}");
}
