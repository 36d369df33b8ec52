//! `mapwire lab question`.

mod common;

use common::{Done, Place, json_rows};

const QUESTIONS: [&str; 5] = [
    "per-process",
    "policies",
    "application",
    "limits",
    "smallest",
];

/// A small trace of two nodes of two processes.
fn trace(place: &Place, name: &str, pattern: &[&str]) -> String {
    let name = format!("{name}.mwt");
    let mut args = vec!["lab", "generate", "-o", &name, "--records", "8K"];
    args.extend(["--nodes", "2", "--processes", "2", "--buffer", "512K"]);
    args.extend(pattern);
    place.run(&args).code(0);
    name
}

fn ask(place: &Place, question: &str, rest: &[&str]) -> Done {
    let mut args = vec!["lab", "question", question];
    args.extend(rest);
    place.run(&args).code(0)
}

#[test]
fn every_question_has_rows_for_each_trace_and_all_and_an_answer_in_words() {
    let place = Place::new();
    let mix = trace(&place, "mix", &["--mix", "zipf,sequential"]);
    let zipf = trace(&place, "zipf", &["zipf"]);
    for question in QUESTIONS {
        let rows = json_rows(&ask(&place, question, &[&mix, &zipf, "--json"]));
        assert!(rows.len() >= 3, "{question}");
        for name in ["mix", "zipf", "all traces"] {
            let count = rows.iter().filter(|row| row["trace"] == name).count();
            assert_eq!(count * 3, rows.len(), "{question} {name}");
        }
        for row in &rows {
            assert_eq!(row["question"], question);
            assert_eq!(row["cost_profile"], "papers");
            assert!(
                row["failure"].is_string() || row["cost_us"].as_f64().unwrap() > 0.8,
                "{row}"
            );
        }
        let text = ask(&place, question, &[&mix, &zipf]).out();
        let (table, words) = text.split_once("\n\n").unwrap_or_else(|| panic!("{text}"));
        assert!(
            table.starts_with("trace") && table.contains("costs: papers"),
            "{text}"
        );
        assert!(
            words
                .lines()
                .all(|line| line.starts_with(&format!("{question}: "))),
            "{text}"
        );
        let csv = ask(&place, question, &[&mix, "--csv", "-o", "rows.csv"]);
        assert_eq!(csv.out(), "");
        let csv = std::fs::read_to_string(place.folder.join("rows.csv")).unwrap();
        assert!(csv.starts_with("question,trace,"), "{csv}");
        assert_eq!(csv.lines().count(), rows.len() / 3 + 1, "{question}");
    }
}

#[test]
fn no_policy_is_below_the_optimum_and_limits_are_parts_of_the_footprint() {
    let place = Place::new();
    let mix = trace(&place, "mix", &["--mix", "zipf,sequential"]);
    let args = [&mix, "--limit", "1/4,64K", "--json"];
    for question in ["policies", "application"] {
        let rows = json_rows(&ask(&place, question, &args));
        assert_eq!(rows.len(), 2 * 6, "{question}");
        for row in &rows {
            assert!(row["pins_ratio"].as_f64().unwrap() >= 1.0, "{row}");
        }
        let optimum = rows.iter().find(|row| row["policy"] == "optimum").unwrap();
        assert_eq!(
            (&optimum["limit"], &optimum["pins_ratio"]),
            (&"1/4".into(), &1.0.into())
        );
        let last = rows.last().unwrap();
        assert_eq!(
            (&last["limit"], &last["limit_pages"]),
            (&"16 pages".into(), &16.into())
        );
    }
    let rows = json_rows(&ask(
        &place,
        "policies",
        &[&mix, "--limit", "1/4", "--no-optimum", "--json"],
    ));
    assert_eq!(rows.len(), 5);
    assert!(rows.iter().all(|row| row["pins_ratio"].is_null()));
}

#[test]
fn what_a_limit_is_too_small_for_is_told_in_its_rows() {
    let place = Place::new();
    let long = trace(&place, "long", &["sequential", "--bytes", "64K"]);
    let done = ask(
        &place,
        "limits",
        &[
            &long,
            "--limit",
            "none,16K",
            "--design",
            "hierarchical,interrupt",
            "--json",
        ],
    );
    let rows = json_rows(&done);
    let failures: Vec<_> = rows.iter().map(|row| row["failure"].is_string()).collect();
    assert_eq!(failures, [false, false, true, true]);
    assert!(
        rows[2]["failure"].as_str().unwrap().contains("4"),
        "{}",
        rows[2]
    );
    assert!(rows[2]["pins"].is_null());
    let text = ask(&place, "policies", &[&long, "--limit", "16K"]).out();
    assert!(text.contains("too small for what the traces do"), "{text}");
    let text = ask(&place, "per-process", &[&long, "--entries", "16"]).out();
    assert!(text.contains("per-process not possible"), "{text}");
}

#[test]
fn wrong_values_are_named_with_their_option() {
    let place = Place::new();
    let zipf = trace(&place, "zipf", &["zipf"]);
    for (args, code, texts) in [
        (&["speed", &zipf][..], 2, &["speed"][..]),
        (&["policies"], 2, &["TRACE"]),
        (&["policies", "none.mwt"], 1, &["none.mwt"]),
        (
            &["policies", &zipf, "--limit", "5/4"],
            2,
            &["--limit", "5/4", "fraction"],
        ),
        (
            &["policies", &zipf, "--limit", "none"],
            2,
            &["--limit", "nothing is unpinned"],
        ),
        (&["limits", &zipf, "--limit", "1/x"], 2, &["--limit", "1/x"]),
        (
            &["limits", &zipf, "--limit", "100"],
            2,
            &["--limit", "100 bytes"],
        ),
        (
            &["limits", &zipf, "--design", "fast"],
            2,
            &["--design fast", "per-process"],
        ),
        (
            &["application", &zipf, "--design", "interrupt"],
            2,
            &["--design interrupt", "pins on a miss"],
        ),
        (
            &["application", &zipf, "--ops", "send,recv"],
            2,
            &["--ops recv"],
        ),
        (
            &["application", &zipf, "--paths", "direct"],
            1,
            &["no lookup", "--ops or --paths"],
        ),
        (
            &["per-process", &zipf, "--entries", "1000"],
            2,
            &["--entries", "1000", "power of two"],
        ),
        (
            &["per-process", &zipf, "--entries", "8,2", "--ways", "4"],
            2,
            &["--ways 4: a cache of 2 entries", "larger --entries"],
        ),
        (
            &["per-process", &zipf, "--equal", "cost"],
            2,
            &["--equal", "cost"],
        ),
        (
            &["smallest", &zipf, "--within", "some"],
            2,
            &["--within", "some"],
        ),
        (
            &["smallest", &zipf, "--least", "1K", "--most", "64"],
            2,
            &["--least 1024"],
        ),
        (
            &["smallest", &zipf, "--design", "hierarchical,prefetch=4"],
            2,
            &["prefetch=4", "fetches ahead"],
        ),
        (
            &["smallest", &zipf, "--json", "--csv"],
            2,
            &["--json", "--csv"],
        ),
        (
            &["smallest", &zipf, "-o", "no/such/rows"],
            1,
            &["no/such/rows"],
        ),
    ] {
        let mut all = vec!["lab", "question"];
        all.extend_from_slice(args);
        let done = place.run(&all).code(code);
        for text in texts {
            assert!(
                done.err().contains(text),
                "{args:?}: `{text}` is not in {}",
                done.err()
            );
        }
    }
}

#[test]
fn a_trace_without_a_lookup_is_named_by_every_question() {
    let place = Place::new();
    place.write(
        "receives.csv",
        "time_ns,node,process,op,address,bytes\n1,0,0,recv,4096,8\n",
    );
    place
        .run(&["lab", "import", "receives.csv", "-o", "receives.mwt"])
        .code(0);
    for question in QUESTIONS {
        let done = place
            .run(&["lab", "question", question, "receives.mwt"])
            .code(1);
        assert!(
            done.err()
                .contains("receives.mwt has no lookup in its 1 records"),
            "{}",
            done.err()
        );
    }
}

#[test]
fn of_a_trace_that_is_cut_off_the_good_part_is_studied_and_the_exit_code_says_so() {
    let place = Place::new();
    let name = "long.mwt";
    place
        .run(&["lab", "generate", "zipf", "-o", name, "--records", "100K"])
        .code(0);
    let path = place.folder.join(name);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let args = [
        "lab", "question", "policies", name, "--limit", "1/2", "--json",
    ];
    let done = place.run(&args).code(3);
    assert_eq!(json_rows(&done).len(), 6);
    done.says("only that part was studied");
}
