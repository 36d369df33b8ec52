//! The commands beside `run`.

use crate::common::{Place, Running};

fn value_of(place: &Place, args: &[&str], variables: &[(&str, &str)], option: &str) -> (String, String) {
    let mut all = vec!["config", "--json"];
    all.extend_from_slice(args);
    let mut command = place.command(&all);
    command.envs(variables.iter().copied());
    let done = Running::of(command).wait().code(0);
    for line in done.out().lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        if row["option"] == option {
            let text = |key: &str| row[key].as_str().unwrap_or("-").to_owned();
            return (text("value"), text("source"));
        }
    }
    panic!("no {option} in {}", done.out());
}

#[test]
fn flags_beat_variables_beat_the_file_beats_defaults() {
    let place = Place::new();
    let wait = |args: &[&str], variables: &[(&str, &str)]| value_of(&place, args, variables, "wait");
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(wait(&[], &[]), pair("adaptive", "default"));
    place.write("config/mapwire/config.toml", "[run]\nwait = \"event\"\n");
    let (value, source) = wait(&[], &[]);
    assert_eq!(value, "event");
    assert!(source.ends_with("config/mapwire/config.toml"), "{source}");
    place.write("mapwire.toml", "[run]\nwait = \"poll\"\nviews = 7\ntag = false\n");
    assert_eq!(wait(&[], &[]), pair("poll", "wait in mapwire.toml"));
    assert_eq!(wait(&[], &[("MAPWIRE_WAIT", "event")]), pair("event", "MAPWIRE_WAIT"));
    assert_eq!(wait(&["--wait", "adaptive"], &[("MAPWIRE_WAIT", "event")]), pair("adaptive", "--wait"));
    let other = place.write("other.toml", "[run]\nwait = \"event\"\n");
    let named = wait(&["--config", other.to_str().unwrap()], &[]);
    assert_eq!(named.0, "event");
    let done = place.run(&["run", "-n", "1", "--", "sh", "-c", "echo $MAPWIRE_VIEWS"]).code(0);
    assert_eq!(done.out(), "7\n", "the file's tag = false holds too");
}

#[test]
fn a_wrong_configuration_names_the_place_and_the_choices() {
    let place = Place::new();
    place.write("mapwire.toml", "[run]\nwait = \"spin\"\n");
    place.run(&["config"]).code(2).says("wait in mapwire.toml: invalid way to wait \"spin\"");
    place.write("mapwire.toml", "[run]\nwhait = \"poll\"\n");
    place.run(&["run", "-n", "1", "--", "true"]).code(2).says("run.whait in mapwire.toml is not an option");
    place.write("mapwire.toml", "[run\n");
    place.run(&["config"]).code(2).says("mapwire.toml is not valid TOML");
    place.write("mapwire.toml", "");
    place.run(&["config", "--config", "gone.toml"]).code(2).says("gone.toml");
    let mut command = place.command(&["config"]);
    command.env("MAPWIRE_SHARED", "lots");
    Running::of(command)
        .wait()
        .code(2)
        .says("MAPWIRE_SHARED: invalid size `lots`: expected a number with an optional K, M, G or T");
}

#[test]
fn doctor_gives_each_check_a_state_and_each_trouble_a_mend() {
    let place = Place::new();
    let done = place.run(&["doctor", "--json"]);
    let mut worst = "ok";
    for line in done.out().lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let state = row["state"].as_str().unwrap();
        assert_eq!(row["mend"].is_null(), state == "ok", "{line}");
        if state == "fail" {
            worst = "fail";
        }
    }
    assert_eq!(done.code, i32::from(worst == "fail"), "{}", done.out());
    let text = place.run(&["doctor"]);
    for check in ["kernel", "userfaultfd", "io_uring", "locked memory", "map count", "rendezvous", "fork"] {
        assert!(text.out().contains(check), "{check}: {}", text.out());
    }
}

#[test]
fn completions_and_manual_pages_cover_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(place.run(&["completions", shell]).code(0).out().contains("stop-grace"), "{shell}");
    }
    place.run(&["man", "pages"]).code(0);
    for page in ["mapwire.1", "mapwire-run.1", "mapwire-doctor.1", "mapwire-bench.1", "mapwire-config.1"] {
        assert!(place.has(&format!("pages/{page}")), "{page}");
    }
    place.write("file", "");
    place.run(&["man", "file/pages"]).code(1).says("cannot write manual pages");
}

#[test]
fn a_filter_in_mapwire_log_shows_more_on_stderr() {
    let place = Place::new();
    let mut command = place.command(&["run", "-n", "1", "--", "true"]);
    command.env("MAPWIRE_LOG", "debug");
    let done = Running::of(command).wait().code(0);
    assert_eq!(done.out(), "");
    assert!(done.err().contains("DEBUG"), "{}", done.err());
    // Colours are for terminals.
    assert!(!done.err().contains('\x1b'), "{:?}", done.err());
}

const PRINTING: &[&[&str]] = &[
    &["--help"],
    &["--version"],
    &["doctor"],
    &["doctor", "--json"],
    &["config"],
    &["config", "--json"],
    &["completions", "bash"],
];

#[test]
fn every_command_fails_on_a_full_disk_and_ends_quietly_when_nobody_reads() {
    let place = Place::new();
    for args in PRINTING {
        place.prints_as_commands_do(args);
    }
}

#[test]
fn errors_that_cannot_be_printed_leave_the_exit_code_as_it_is() {
    let place = Place::new();
    for (args, code) in [(&["run"][..], 2), (&["run", "-n", "1", "--", "no-such-program"], 127)] {
        let mut command = place.command(args);
        let full = std::fs::File::create("/dev/full").unwrap();
        let status = command.stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
}

#[test]
fn a_job_whose_output_finds_the_disk_full_is_ended_for_that_reason() {
    let place = Place::new();
    let args = ["run", "-n", "2", "--", "sh", "-c", "echo text; sleep 1000"];
    let full = std::fs::File::create("/dev/full").unwrap();
    let (code, said) = place.run_into(&args, full.into());
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("cannot write the ranks' output: No space left on device"), "{said}");
    place.assert_empty();
}

#[test]
fn a_filter_in_mapwire_log_that_is_none_is_named_once() {
    let place = Place::new();
    let mut command = place.command(&["run", "-n", "2", "--", "true"]);
    command.env("MAPWIRE_LOG", "verbose");
    let done = Running::of(command).wait().code(0);
    assert_eq!(done.err().lines().count(), 1, "{}", done.err());
    done.says("MAPWIRE_LOG=verbose: `verbose` is not understood");
}

#[test]
fn variables_that_mean_nothing_are_named_once_with_the_nearest_that_does() {
    let place = Place::new();
    let mut command = place.command(&["run", "-n", "2", "-x", "MAPWIRE_VIEW=3", "--", "true"]);
    command.env("MAPWIRE_WIAT", "poll");
    let done = Running::of(command).wait().code(0);
    assert_eq!(done.err().lines().count(), 2, "{}", done.err());
    done.says("no variable MAPWIRE_WIAT, so it has no effect; did you mean MAPWIRE_WAIT?")
        .says("no variable MAPWIRE_VIEW, so it has no effect; did you mean MAPWIRE_VIEWS?");
}

#[test]
fn options_that_run_does_not_have_are_refused_and_np_is_taken() {
    let place = Place::new();
    for (option, says) in
        [("--machinefile", "--hostfile FILE"), ("--tag-output", "begins with its rank"), ("--no-tags", "'--no-tag'")]
    {
        place.run(&["run", "-n", "2", option, "--", "true"]).code(2).says(says);
    }
    let done = place.run(&["run", "-np", "2", "echo", "-np"]).code(0);
    assert_eq!(done.sorted(), ["[0] -np", "[1] -np"]);
}

#[test]
fn doctor_fails_where_run_does_and_names_the_reason() {
    let place = Place::new();
    let limited = |limit: &str| {
        let mapwire = env!("CARGO_BIN_EXE_mapwire");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("{limit}; exec {mapwire} doctor --json")]).current_dir(&place.folder);
        Running::of(shell).wait()
    };
    let state = |done: &crate::common::Done, check: &str| {
        let rows = crate::common::json_rows(done);
        let row = rows.iter().find(|row| row["check"] == check).unwrap();
        (row["state"].clone(), row["finding"].to_string())
    };
    let done = limited("true").code(0);
    for check in ["job", "job, shared"] {
        assert_eq!(state(&done, check).0, "ok", "{}", done.out());
    }
    // Too few addresses for the usual shared memory.
    let done = limited("ulimit -v 3000000").code(1);
    assert_eq!(state(&done, "job").0, "ok", "{}", done.out());
    let (shared, why) = state(&done, "job, shared");
    assert_eq!(shared, "fail");
    assert!(why.contains("RLIMIT_AS") || why.contains("ulimit -v"), "{why}");
}

#[test]
fn a_rank_that_is_killed_for_lack_of_memory_is_reported_so() {
    let place = Place::new();
    // Version 1 of cgroups, or version 2.
    let (root, limit) = match std::path::Path::new("/sys/fs/cgroup/memory") {
        memory if memory.is_dir() => (memory, "memory.limit_in_bytes"),
        _ => (std::path::Path::new("/sys/fs/cgroup"), "memory.max"),
    };
    let group = root.join(&place.mark);
    let limited = std::fs::create_dir(&group).and_then(|()| std::fs::write(group.join(limit), "67108864"));
    if let Err(error) = limited {
        mapwire_testing::skip!("no cgroup with a limit on memory can be made here: {error}");
        let _ = std::fs::remove_dir(&group);
        return;
    }
    let mapwire = env!("CARGO_BIN_EXE_mapwire");
    // The shell of the rank takes it all: a variable that doubles.
    let eat = "x=0123456789; while :; do x=$x$x; done";
    let text = format!("echo $$ > {}/cgroup.procs; exec {mapwire} run -n 2 -- sh -c '{eat}'", group.display());
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &text]).current_dir(&place.folder);
    let done = Running::of(shell).wait();
    let _ = std::fs::remove_dir(&group);
    done.code(137).says("was killed by SIGKILL: its cgroup or container ran out of memory");
}

#[test]
fn tables_fit_the_width_that_columns_names() {
    Place::new().fits(&["doctor"], 60);
}
