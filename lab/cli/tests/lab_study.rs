//! `mapwire lab study`.

use crate::common::{Place, json_rows};

/// A small trace: 4 nodes of 2 processes.
fn trace(place: &Place, pattern: &str) -> String {
    let name = format!("{pattern}.mwt");
    let args = ["lab", "generate", pattern, "-o", &name, "--records", "20K", "--processes", "2", "--buffer", "1M"];
    place.run(&args).code(0);
    name
}

#[test]
fn every_combination_is_a_row_and_counts_add_up() {
    let place = Place::new();
    let (zipf, strided) = (trace(&place, "zipf"), trace(&place, "strided"));
    let args = [
        "lab",
        "study",
        &zipf,
        &strided,
        "--design",
        "hierarchical,interrupt",
        "--entries",
        "64,1K",
        "--ways",
        "1,4",
        "--offset",
        "on,off",
        "--format",
        "json",
    ];
    let rows = json_rows(&place.run(&args).code(0));
    assert_eq!(rows.len(), 2 * 2 * 2 * 2 * 2);
    for row in &rows {
        let count = |name: &str| row[name].as_i64().unwrap_or_else(|| panic!("{name} in {row}"));
        let paths = ["send_cold_misses", "send_other_misses", "receive_cold_misses", "receive_other_misses"];
        assert_eq!(paths.map(count).iter().sum::<i64>(), count("nic_misses"));
        let causes = ["compulsory_misses", "capacity_misses", "conflict_misses"].map(count);
        assert_eq!(causes.iter().sum::<i64>(), count("nic_misses"));
        assert!(row["cost_us"].as_f64().unwrap() > 0.8);
        if row["design"] == "interrupt" {
            assert_eq!((count("interrupts"), count("check_misses")), (count("nic_misses"), 0));
        } else {
            assert_eq!((count("interrupts"), count("unpins")), (0, 0));
        }
    }
    // A larger cache with the same ways never misses more often under LRU when its sets refine those of the smaller one.
    let misses = |trace: &str, text: &str| {
        let row = rows.iter().find(|row| row["trace"] == trace && row["configuration"] == text);
        row.unwrap_or_else(|| panic!("{text}"))["nic_misses"].as_u64().unwrap()
    };
    for trace in ["zipf", "strided"] {
        assert!(misses(trace, "hierarchical,entries=1K,ways=4") <= misses(trace, "hierarchical,entries=64,ways=4"));
        assert!(misses(trace, "hierarchical,entries=1K") <= misses(trace, "hierarchical,entries=64"));
    }
}

#[test]
fn limits_policies_and_all_designs_are_studied() {
    let place = Place::new();
    let zipf = trace(&place, "zipf");
    let args = [
        "lab",
        "study",
        &zipf,
        "--ops",
        "send,fetch",
        "--limit",
        "none,256K",
        "--policy",
        "lru,mru,lfu,mfu,random:3",
        "--prepin",
        "1,4",
        "--format",
        "json",
    ];
    let rows = json_rows(&place.run(&args).code(0));
    assert_eq!(rows.len(), 2 + 5 * 2);
    let limited: Vec<_> = rows.iter().filter(|row| row["limit_bytes"] == 262_144).collect();
    assert_eq!(limited.len(), 10);
    assert!(limited.iter().all(|row| row["unpins"].as_u64().unwrap() > 0));
    let designs = "hierarchical,shared-cache,per-process,interrupt,dynamic-handle,interrupt,variant=vmmc";
    let rows = json_rows(&place.run(&["lab", "study", &zipf, "--design", designs, "--format", "json"]).code(0));
    let names: Vec<_> = rows.iter().map(|row| row["design"].as_str().unwrap()).collect();
    assert_eq!(names, ["hierarchical", "shared-cache", "per-process", "interrupt", "dynamic-handle", "interrupt"]);
    let lookups: Vec<_> = rows.iter().map(|row| row["lookups"].as_u64().unwrap()).collect();
    assert!(lookups[0] > 15_000 && lookups.iter().all(|count| *count == lookups[0]), "{lookups:?}");
}

#[test]
fn rows_come_as_table_csv_and_parquet_and_files_appear_whole() {
    let place = Place::new();
    let zipf = trace(&place, "zipf");
    let table = place.run(&["lab", "study", &zipf, "--entries", "1K,2K"]).code(0).out();
    // Two parts of at most 100 columns, each with a heading and a row for each size.
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    assert_eq!(table.matches("hierarchical,entries=1K").count(), 2);
    assert!(table.contains("hierarchical,entries=2K") && table.contains("costs: papers"), "{table}");
    place.run(&["lab", "study", &zipf, "--format", "csv", "-o", "rows.csv"]).code(0);
    let csv = std::fs::read_to_string(place.folder.join("rows.csv")).unwrap();
    assert!(csv.starts_with("trace,design,") && csv.lines().count() == 2, "{csv}");
    place.run(&["lab", "study", &zipf, "--format", "parquet", "-o", "rows.parquet"]).code(0);
    let parquet = std::fs::read(place.folder.join("rows.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    let json = place.run(&["lab", "study", &zipf, "--json"]).code(0);
    assert_eq!(json_rows(&json)[0]["design"], "hierarchical");
    let format = ["lab", "study", &zipf, "--format", "json"];
    assert_eq!(json.out(), place.run(&format).code(0).out());
    place.run(&["lab", "study", &zipf, "--json", "--format", "csv"]).code(2).says("--json");
    place.run(&["lab", "study", &zipf, "--format", "parquet"]).code(2).says("-o");
}

#[test]
fn where_nothing_can_be_written_no_trace_is_read() {
    let place = Place::new();
    let trace = "none.mwt";
    for (args, code, text) in [
        (&["study", trace, "--format", "parquet"][..], 2, "--format parquet needs a file"),
        (&["study", trace, "-o", "no/rows"], 1, "cannot write no/rows"),
        (&["report", trace, "-o", "no/page"], 1, "cannot write no/page"),
    ] {
        let done = place.run(&[&["lab"], args].concat()).code(code);
        assert!(!done.err().contains(trace), "{args:?}: {}", done.err());
        done.says(text);
    }
    // What was begun leaves nothing when there is no trace.
    place.run(&["lab", "study", trace, "-o", "rows"]).code(1).says(trace);
    assert_eq!(std::fs::read_dir(&place.folder).unwrap().count(), 0);
}

#[test]
fn a_profile_of_this_machine_is_read_from_the_rows_of_benches() {
    let place = Place::new();
    let zipf = trace(&place, "zipf");
    let rows = r#"{"bench":"lookup","case":"user-level check","pages":1,"value":4,"unit":"ns"}
{"bench":"lookup","case":"NIC cache hit","pages":1,"value":4,"unit":"ns"}
{"bench":"lookup","case":"NIC cache miss","pages":1,"value":9,"unit":"ns"}
{"bench":"pin","case":"pin","pinner":"mlock","pages":1,"value":2,"unit":"us"}
"#;
    place.write("bench.jsonl", rows);
    let args = ["lab", "study", &zipf, "--format", "json", "--cost", "bench.jsonl"];
    place.run(&args).code(2).says("--cost bench.jsonl: no row tells what unpinning");
    let more =
        format!("{rows}{}\n", r#"{"bench":"pin","case":"unpin","pinner":"mlock","pages":1,"value":1,"unit":"us"}"#);
    place.write("bench.jsonl", &more);
    let cost = json_rows(&place.run(&args).code(0))[0]["cost_us"].as_f64().unwrap();
    assert!(cost > 0.008 && cost < 2.1, "{cost}");
    place.run(&["lab", "study", &zipf, "--cost", "none.jsonl"]).code(2).says("--cost none.jsonl");
}

#[test]
fn wrong_values_are_named_with_their_option_and_leave_no_file() {
    let place = Place::new();
    let zipf = trace(&place, "zipf");
    for (args, code, texts) in [
        (&["--entries", "3000"][..], 2, &["3000 entries", "power of two"][..]),
        (&["--entries", "many"], 2, &["--entries many"]),
        (&["--entries", "64", "--ways", "128"], 2, &["128 ways do not divide"]),
        (&["--design", "hierarchic"], 2, &["--design hierarchic", "per-process"]),
        (&["--design", "per-process", "--ways", "2"], 2, &["--ways", "per-process"]),
        (&["--limit", "100"], 2, &["--limit", "100 bytes"]),
        (&["--limit", "5/4"], 2, &["--limit", "5/4", "fraction"]),
        (&["--within", "some"], 2, &["--within", "some"]),
        (&["--policy", "optimum", "--limit", "1/4"], 2, &["--policy optimum", "add --ops send,fetch"]),
        (
            &["--policy", "sweep", "--limit", "1/4", "--design", "interrupt"],
            2,
            &["--policy sweep, for interrupt", "pins on a miss"],
        ),
        (&["--limit", "4K"], 1, &["zipf.mwt", "limit=1", "256 pages", "larger --limit", "--ops send,fetch"]),
        (&["--policy", "best"], 2, &["--policy", "best", "lru, mru"]),
        (&["--prepin", "0"], 2, &["--prepin", "1 to 512"]),
        (&["--ops", "put"], 2, &["--ops", "put"]),
        (&["--paths", "direct"], 1, &["no lookup", "--ops or --paths"]),
        (&["--format", "xml"], 2, &["--format", "xml"]),
        (&["-o", "no/such/rows"], 1, &["no/such/rows"]),
    ] {
        let mut all = vec!["lab", "study", &zipf, "-o", "rows"];
        if args[0] == "-o" {
            all.truncate(3);
        }
        all.extend_from_slice(args);
        let done = place.run(&all).code(code);
        for text in texts {
            assert!(done.err().contains(text), "{args:?}: `{text}` is not in {}", done.err());
        }
        assert!(!place.has("rows"), "{args:?}");
    }
    place.run(&["lab", "study", "none.mwt"]).code(1).says("none.mwt");
    place.write("text.mwt", "time_ns,node\n");
    place.run(&["lab", "study", "text.mwt"]).code(1).says("text.mwt is not a trace file");
}

#[test]
fn of_a_trace_that_is_cut_off_the_good_part_is_studied_and_the_exit_code_says_so() {
    let place = Place::new();
    let name = "long.mwt";
    place.run(&["lab", "generate", "zipf", "-o", name, "--records", "100K"]).code(0);
    let path = place.folder.join(name);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let done = place.run(&["lab", "study", name, "--format", "json"]).code(3);
    let lookups = json_rows(&done)[0]["lookups"].as_u64().unwrap();
    assert!(lookups > 10_000 && lookups < 90_000, "{lookups}");
    done.says("only that part was used");
    let help = place.run(&["lab", "study", "--help"]).code(0).out();
    assert!(help.contains("the exit code is 3"), "{help}");
    let tables = place.run(&["lab", "tables", name]).code(3);
    assert!(tables.out().contains("Table 4"));
    place.run(&["lab", "report", name, "-o", "part.html", "--machines", "none"]).code(3);
    assert!(place.has("part.html"));
}

#[test]
fn of_a_trace_without_a_good_part_the_damage_is_told() {
    let place = Place::new();
    let zipf = trace(&place, "zipf");
    let path = place.folder.join(&zipf);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..2000]).unwrap();
    let optimum = ["study", "--policy", "optimum", "--limit", "1/4"];
    let optimum = [&optimum[..], &["--ops", "send"]].concat();
    for command in [&["study"][..], &["tables"], &optimum] {
        let args = [&["lab"], command, &[&zipf]].concat();
        let error = place.run(&args).code(1).err();
        assert!(
            error.contains("zipf.mwt is good for 0 records")
                && error.contains("is cut off")
                && !error.contains("--ops"),
            "{command:?}: {error}"
        );
    }
}

#[test]
fn a_full_table_has_a_row_for_each_policy_and_each_unpins_other_pages() {
    let place = Place::new();
    let zipf = trace(&place, "zipf");
    let design = "per-process,entries=64";
    let args = ["lab", "study", &zipf, "--design", design, "--json"];
    let policies = ["--policy", "lru,mru,lfu,mfu", "--ops", "send,fetch"];
    let rows = json_rows(&place.run(&[&args[..], &policies].concat()).code(0));
    let checks: Vec<_> = rows.iter().map(|row| row["check_misses"].as_u64().unwrap()).collect();
    let named: Vec<_> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(named, ["lru", "mru", "lfu", "mfu"]);
    let distinct: std::collections::HashSet<_> = checks.iter().collect();
    assert_eq!(distinct.len(), 4, "{checks:?}");
}

#[test]
fn no_policy_is_below_the_optimum_under_parts_of_the_footprint_and_traces_sum_up() {
    let place = Place::new();
    let (zipf, strided) = (trace(&place, "zipf"), trace(&place, "strided"));
    let policies = "lru,mru,lfu,mfu,random,sweep,released,optimum";
    let args = ["lab", "study", &zipf, &strided, "--ops", "send,fetch"];
    let more = ["--policy", policies, "--limit", "1/4,512K", "--sum", "--json"];
    let rows = json_rows(&place.run(&[&args[..], &more].concat()).code(0));
    assert_eq!(rows.len(), 3 * 2 * 8);
    let pins = |row: &serde_json::Value| row["pins"].as_u64().unwrap();
    for group in rows.chunks(8) {
        assert_eq!(group[7]["policy"], "optimum");
        assert!(group.iter().all(|row| pins(row) >= pins(&group[7])));
    }
    // The largest footprint of a process is its buffer and what it sends from beside it, by both traces the same.
    let limits: std::collections::BTreeSet<_> =
        rows.iter().map(|row| &row["limit_bytes"]).map(ToString::to_string).collect();
    assert_eq!(limits.len(), 2, "{limits:?}");
    for at in 0..16 {
        assert_eq!(rows[32 + at]["trace"], "all traces");
        assert_eq!(pins(&rows[32 + at]), pins(&rows[at]) + pins(&rows[16 + at]));
    }
}

#[test]
fn the_fewest_entries_within_a_part_of_the_cost_of_unlimited_nic_memory_are_found() {
    let place = Place::new();
    let zipf = trace(&place, "zipf");
    let designs = "hierarchical,per-process,interrupt,hierarchical,prefetch=4";
    let args = ["lab", "study", &zipf, "--ops", "send,fetch", "--design", designs, "--json"];
    let sizes = ["--entries", "64,128,256,512,1K,2K,4K"];
    let all = json_rows(&place.run(&[&args[..], &sizes].concat()).code(0));
    let within = |part: &str| place.run(&[&args[..], &sizes, &["--within", part]].concat()).code(0);
    let found = within("3%");
    assert!(found.err().contains("prefetch=4: what unlimited NIC memory would cost is known without"));
    let found = json_rows(&found);
    let names: Vec<_> = found.iter().map(|row| row["design"].as_str().unwrap()).collect();
    assert_eq!(names, ["hierarchical", "per-process", "interrupt"]);
    for row in &found {
        let value = |row: &serde_json::Value, name: &str| row[name].as_f64().unwrap();
        let enough = |row: &serde_json::Value| value(row, "cost_us") <= 1.03 * value(row, "unlimited_cost_us");
        assert!(enough(row) && value(row, "nic_bytes") > 0.0, "{row}");
        let fewer = all.iter().filter(|it| it["design"] == row["design"] && it["prefetch"] == row["prefetch"]);
        let fewer = fewer.filter(|it| value(it, "entries") < value(row, "entries"));
        assert!(fewer.clone().count() > 0 && !fewer.clone().any(enough), "{row}");
    }
    let small = [&args[..], &["--entries", "64", "--within", "3%"]].concat();
    place.run(&small).code(0).says("hierarchical,entries=64: more entries are needed");
}

#[test]
fn rows_of_what_cannot_be_done_are_missing_and_the_exit_code_says_so() {
    let place = Place::new();
    let sizes = ["--records", "8K", "--buffer", "512K", "--bytes", "64K"];
    let args = ["lab", "generate", "sequential", "-o", "long.mwt"];
    place.run(&[&args[..], &sizes].concat()).code(0);
    let args = ["lab", "study", "long.mwt", "--ops", "send", "--json"];
    let more = ["--limit", "none,16K,1/2", "-o", "rows"];
    place
        .run(&[&args[..], &more].concat())
        .code(1)
        .says("long.mwt: hierarchical limit=4 policy=lru cannot be studied on node");
    let rows = std::fs::read_to_string(place.folder.join("rows")).unwrap();
    assert_eq!(rows.lines().count(), 2, "{rows}");
}

#[test]
fn dynamic_handles_cost_a_range() {
    let place = Place::new();
    let zipf = trace(&place, "zipf");
    let args = ["lab", "study", &zipf, "--design", "dynamic-handle,pch=1", "--json"];
    let row = &json_rows(&place.run(&args).code(0))[0];
    let value = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{row}"));
    let asked = value("nic_misses") + value("cbh_misses") + value("pch_misses");
    assert_eq!(value("interrupts"), asked);
    // Two processes take turns in a cache of one.
    assert!(value("pch_misses") > 100.0, "{row}");
    let each = value("interrupts") / value("lookups");
    assert!((value("cost_low_us") - (0.8 + 5.0 * each)).abs() < 1e-3, "{row}");
    assert!((value("cost_high_us") - (0.8 + 606.4 * each)).abs() < 1e-3, "{row}");
    let middle = (value("cost_low_us") + value("cost_high_us")) / 2.0;
    assert!((value("cost_us") - middle).abs() < 1e-5, "{row}");
}

#[test]
fn no_command_writes_over_the_file_that_it_reads() {
    let place = Place::new();
    let zipf = trace(&place, "zipf");
    let path = place.folder.join(&zipf);
    let whole = std::fs::read(&path).unwrap();
    std::fs::hard_link(&path, place.folder.join("other-name.csv")).unwrap();
    for args in [
        &["import", "other-name.csv", "-o", &zipf][..],
        &["export", &zipf, "-o", "other-name.csv"],
        &["study", &zipf, "-o", &zipf],
        &["report", &zipf, "-o", &zipf],
        &["study", &zipf, "--limit", "1/2", "-o", "other-name.csv"],
    ] {
        let error = place.run(&[&["lab"], args].concat()).code(2).err();
        assert!(error.contains("that is read; name another"), "{args:?}: {error}");
        assert_eq!(std::fs::read(&path).unwrap(), whole, "{args:?}");
    }
}

#[test]
fn what_no_study_can_take_is_refused_by_import_with_its_line() {
    let place = Place::new();
    let header = "time_ns,node,process,op,address,bytes\n1,0,0,send,0x1000,8\n";
    for (line, says) in [
        (
            "2,0,0,send,0xffffffffffff0000,8",
            "it is of 8 bytes from address 0xffffffffffff0000, which end outside the 48-bit address space",
        ),
        ("2,0,0,recv,0x1000,8589934592", "2097152 pages"),
    ] {
        place.write("bad.csv", &format!("{header}{line}\n"));
        for sort in [&["--sort"][..], &[]] {
            let args = [&["lab", "import", "bad.csv", "-o", "bad.mwt"], sort].concat();
            let error = place.run(&args).code(1).err();
            assert!(error.contains("bad.csv, line 3") && error.contains(says), "{error}");
            assert!(!place.has("bad.mwt"));
        }
    }
}

#[test]
fn lookups_that_no_nic_translated_are_told() {
    let place = Place::new();
    let csv = "time_ns,node,process,op,address,bytes,direct\n1,0,0,send,0x1000,8,1\n2,0,0,send,0x2000,8,0\n";
    place.write("mixed.csv", csv);
    place.run(&["lab", "import", "mixed.csv", "-o", "mixed.mwt"]).code(0);
    let says = "mixed: 50.0 % of the lookups are of transfers by mapped memory";
    place.run(&["lab", "study", "mixed.mwt"]).code(0).says(says);
    place.run(&["lab", "tables", "mixed.mwt"]).code(0).says(says);
    let ring = ["lab", "tables", "mixed.mwt", "--paths", "ring"];
    assert!(!place.run(&ring).code(0).err().contains("mapped memory"));
}

#[test]
fn info_and_tables_print_one_table_3() {
    let place = Place::new();
    let csv = "time_ns,node,process,op,address,bytes\n1,0,0,export,0x100000,8192\n2,0,0,send,0x1000,8192\n\
               3,1,0,recv,0x5000,4096\n4,0,1,fetch,0x1000,1\n5,2,0,send,0x9000,4096\n";
    place.write("t.csv", csv);
    place.run(&["lab", "import", "t.csv", "-o", "t.mwt"]).code(0);
    // Nodes 0 and 2 send: 4 pages and 4 lookups by two nodes; node 1 only receives.
    let info = place.run(&["lab", "info", "t.mwt"]).code(0).out();
    assert!(info.contains("2.0 pages footprint, 2.0 lookups"), "{info}");
    let cells = json_rows(&place.run(&["lab", "tables", "t.mwt", "--json"]).code(0));
    let ours: Vec<_> = cells
        .iter()
        .filter(|cell| cell["table"] == "UTLB Table 3" && cell["source"] == "ours")
        .filter_map(|cell| cell["text"].as_str().filter(|text| *text != "-"))
        .collect();
    assert_eq!(ours, ["2.0", "2.0"]);
}

#[test]
fn a_transfer_and_an_export_beyond_the_limits_leave_no_table_empty() {
    let place = Place::new();
    // 65,563 pages each, of which a process may have 1,024 or 4,096 pinned.
    let csv = "time_ns,node,process,op,address,bytes,direct\n1,0,0,export,0x10000000,268546048,0\n\
               2,0,0,send,0x10000000,268546048,1\n3,0,0,recv,0x10000000,4096,1\n";
    place.write("large.csv", csv);
    place.run(&["lab", "import", "large.csv", "-o", "large.mwt"]).code(0);
    for more in [&[][..], &["--paths", "direct"]] {
        let args = [&["lab", "tables", "large.mwt", "--json"], more].concat();
        let cells = json_rows(&place.run(&args).code(0));
        for table in ["UTLB Table 5", "UTLB Table 7"] {
            let numbers = cells
                .iter()
                .filter(|cell| cell["table"] == table && cell["source"] == "ours")
                .filter(|cell| cell["value"].is_number());
            assert!(numbers.count() >= 4, "{table} {more:?}");
        }
    }
    let text = place.run(&["lab", "tables", "large.mwt"]).code(0).out();
    assert!(text.contains("in pieces that fit (1 of large)"), "{text}");
}
