//! The programs' command lines, outside any job.

use crate::common::run;

const SMALL: [&str; 8] = [
    "tsp --cities 10",
    "sor --size 66 --iterations 20",
    "is --keys 100000 --values 2^7 --iterations 3",
    "lu --size 96 --block 16",
    "lu-nc --size 50",
    "radix --keys 10000",
    "tasks --roots 500",
    "nbody --bodies 100 --steps 3",
];

#[test]
fn help_has_examples() {
    for name in SMALL.map(|line| line.split(' ').next().unwrap()) {
        let help = run(&format!("{name} --help")).ok();
        let example = format!("mapwire run -n 4 -- {name}");
        assert!(help.contains("Examples:") && help.contains(&example), "{help}");
    }
}

#[test]
fn every_program_runs_sequentially_in_threads_and_as_a_job_of_one() {
    for line in SMALL {
        let name = line.split(' ').next().unwrap();
        let row = run(&format!("{line} --mode sequential --json")).row();
        assert_eq!((&row["bench"], &row["check"]), (&name.into(), &"ok".into()));
        assert_eq!(row["mode"], "sequential");
        let row = run(&format!("{line} --mode threads --threads 3 --json")).row();
        assert_eq!((&row["mode"], &row["check"]), (&"threads".into(), &"ok".into()));
        assert_eq!(row["threads"], 3);
        let row = run(&format!("{line} --json")).row();
        assert_eq!((&row["mode"], &row["check"]), (&"mapwire".into(), &"ok".into()));
        assert_eq!((&row["ranks"], &row["messages"]), (&1.into(), &0.into()));
    }
}

#[test]
fn a_row_has_every_field_of_a_figure() {
    let row = run("lu --size 64 --mode threads --threads 2 --json").row();
    for field in [
        "bench",
        "size",
        "block",
        "value",
        "unit",
        "baseline",
        "baseline_value",
        "ratio",
        "min",
        "max",
        "runs",
        "speed_up",
        "check",
    ] {
        assert!(!row[field].is_null(), "{field} in {row}");
    }
}

#[test]
fn without_a_check_there_is_no_speed_up() {
    let row = run("sor --size 66 --iterations 2 --mode threads --no-check --json").row();
    assert_eq!(row["check"], "skipped");
    assert!(row["speed_up"].is_null() && row["baseline_value"].is_null());
}

#[test]
fn a_tour_is_printed_by_names() {
    let out = run("tsp --cities 5 --mode sequential").ok();
    let tour = out.lines().find_map(|line| line.strip_prefix("tour: ")).unwrap();
    let cities: Vec<_> = tour.split(" - ").collect();
    assert_eq!(cities.len(), 6);
    assert_eq!(cities[0], cities[5]);
    assert!(out.contains(" km"), "{out}");
}

#[test]
fn bad_input_ends_with_code_2_and_says_what_and_why() {
    for (line, message) in [
        ("tsp --cities 0", "tsp: --cities 0: tsp solves 3 to 64 cities"),
        ("tsp --cities 65", "tsp: --cities 65: tsp solves 3 to 64 cities"),
        ("tsp --cities 60", "60 cities wanted, but the table has"),
        ("tsp --region Atlantis", "no zone named Atlantis/..."),
        ("tsp --zone-table /no/such", "tsp: /no/such: cannot be read"),
        ("sor --size 7", "sor: --size 7: the matrix needs an even side"),
        ("sor --size 1000000", "sor: --size 1000000: the largest side is"),
        ("sor --size 65536", "of memory and this machine has"),
        ("sor --size 40000", "of shared memory and the job has 4.0 GiB"),
        ("is --values 500", "is: --values 500: must be a power of two"),
        ("is --keys 2^99", "give a whole number"),
        ("is --keys 5", "is: --keys 5: 10 iterations change 20 keys"),
        ("lu --size 100 --block 32", "lu: --block 32: must divide the size, 100"),
        ("lu --size 0", "lu: --size 0: must be between"),
        ("lu --threads 0", "lu: --threads 0: must be between"),
        ("lu --mode sideways", "invalid value"),
    ] {
        let ended = run(line);
        assert_eq!(ended.code, 2, "{line}: {ended:?}");
        assert!(ended.err.contains(message), "{line}: {ended:?}");
        assert!(ended.out.is_empty(), "{line}: {ended:?}");
    }
}

#[test]
fn a_program_that_cannot_print_does_not_panic() {
    let full = || std::fs::File::create("/dev/full").unwrap();
    let mut command = std::process::Command::new(crate::common::program("is"));
    command.args("--keys 1000 --values 2^7 --iterations 1 --mode sequential".split(' '));
    let output = command.stdout(full()).stderr(std::process::Stdio::piped());
    let output = output.spawn().unwrap().wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("No space left on device") && !said.contains("panicked"), "{said}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = command.stdout(writer).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(0));
}
