//! `mapwire sim`, as processes.

mod common;

use common::{Place, json_rows};

#[test]
fn a_seed_gives_the_same_run_again_and_says_first_what_it_drew() {
    let place = Place::new();
    let run = || place.run(&["sim", "run", "--seed", "3", "--json"]).code(0);
    let first = run();
    assert_eq!(first.out(), run().out());
    let rows = json_rows(&first);
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["seed"], 3);
    assert_eq!(rows[0]["rules"].as_array().unwrap().len(), 7);
    assert!(rows[1]["violation"].is_null() && rows[1]["packets"].as_u64() > Some(0));
    let text = place.run(&["sim", "run", "--seed", "0x3"]).code(0).out();
    assert!(text.starts_with("seed 3\n"), "{text}");
    assert!(text.ends_with("no violation\n"), "{text}");
}

#[test]
fn a_run_that_fails_is_shrunk_and_says_how_to_repeat_it() {
    let place = Place::new();
    let args = [
        "sim", "run", "--seed", "4", "--nodes", "3", "--calls", "400",
    ];
    let bug = ["--rules", "delay", "--bug", "lost-completion"];
    let done = place.run(&[&args[..], &bug].concat()).code(1);
    let text = done.out();
    assert!(
        text.contains("VIOLATION") && text.contains("waits for ever"),
        "{text}"
    );
    assert!(
        text.contains("The same check fails with 0 faults and "),
        "{text}"
    );
    let last = text.lines().last().unwrap();
    let repeats =
        "mapwire sim run --seed 4 --rules delay --nodes 3 --calls 400 --bug lost-completion";
    assert_eq!(last, format!("Repeat it: {repeats}"));
    place
        .run(&[&["sim", "vopr", "--minutes", "1"], &args[2..], &bug].concat())
        .code(1);
}

#[test]
fn new_seeds_run_for_the_time_given() {
    let place = Place::new();
    let done = place.run(&["sim", "vopr", "--minutes", "0.005"]).code(0);
    let text = done.out();
    assert!(text.starts_with("first seed "), "{text}");
    assert!(
        text.contains(" seeds/s, ") && text.ends_with("no violation\n"),
        "{text}"
    );
}

#[test]
fn what_makes_no_sense_is_named() {
    let place = Place::new();
    for (args, says) in [
        (
            ["--nodes", "0"],
            "invalid value '0' for '--nodes <N>': expected a number of nodes from 1 to 4096",
        ),
        (["--nodes", "100000"], "invalid value '100000'"),
        (["--seed", "abc"], "expected a seed: a number below 2^64"),
        (["--seed", "-1"], "expected a seed: a number below 2^64"),
        (
            ["--rules", "delay,flood"],
            "unknown rule `flood`: expected all, none or some of delay,",
        ),
        (["--rules", "drop"], "rule `drop` is not available"),
        (
            ["--bug", "none"],
            "unknown bug: expected one of lost-packet,",
        ),
        (["--calls", "0"], "0 is not in 1..=10000000"),
    ] {
        place
            .run(&[&["sim", "run"], &args[..]].concat())
            .code(2)
            .says(says);
    }
    place
        .run(&["sim", "vopr", "--minutes", "soon"])
        .code(2)
        .says("expected a number of minutes");
    place.run(&["sim", "vopr"]).code(2).says("--minutes");
}
