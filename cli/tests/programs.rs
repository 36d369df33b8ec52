//! Commands that are programs of their own.

use std::process::Command;

use crate::common::{Place, Running, need_programs};

/// Runs a line of shell: programs are written by it, as a child of another test could hold a file open that this process writes.
fn shell(place: &Place, line: &str) {
    let mut shell = Command::new("sh");
    let status = shell.args(["-ec", line]).current_dir(&place.folder);
    assert!(status.status().unwrap().success(), "{line}");
}

/// A folder with a copy of `mapwire` that has no other program beside it.
fn alone() -> Place {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_mapwire");
    shell(&place, &format!("cp {program} mapwire"));
    place
}

/// A program that says what it is given and ends with `code`.
fn write_program(place: &Place, name: &str, code: i32) {
    let text = format!("#!/bin/sh\necho \"${{0##*/}} $*\"\nexit {code}\n");
    place.write(&format!("{name}.text"), &text);
    shell(place, &format!("cp {name}.text {name}; chmod 755 {name}"));
}

/// Runs that copy with `path` as `PATH`.
fn run_alone(place: &Place, path: &str, args: &[&str]) -> crate::common::Done {
    let mut command = Command::new(place.folder.join("mapwire"));
    command.args(args).env("PATH", path);
    Running::of(command).wait()
}

#[test]
fn a_command_that_is_not_here_is_named_with_how_to_get_it() {
    let place = alone();
    for (command, program) in [("bench", "mapwire-bench"), ("lab", "mapwire-lab"), ("sim", "mapwire-lab")] {
        let done = run_alone(&place, "/nowhere", &[command, "--help"]).code(127);
        assert_eq!(done.err().lines().count(), 1, "{}", done.err());
        done.says(program).says("make install");
    }
    // What needs none of them goes on.
    run_alone(&place, "/nowhere", &["completions", "bash"]).code(0);
    run_alone(&place, "/nowhere", &["--help"]).code(0);
}

#[test]
fn a_command_is_found_beside_mapwire_before_path_and_gets_all_words() {
    let place = alone();
    write_program(&place, "path/mapwire-lab", 7);
    let path = place.folder.join("path");
    let path = format!("/nowhere:{}:/bin:/usr/bin", path.display());
    for (args, gets) in [
        (&["lab", "info", "--json", "-h"][..], "lab info --json -h"),
        (&["lab", "--help"], "lab --help"),
        (&["sim", "run", "--seed", "7"], "sim run --seed 7"),
        (&["sim"], "sim"),
        (&["help", "lab", "study"], "help lab study"),
    ] {
        let done = run_alone(&place, &path, args).code(7);
        assert_eq!(done.out(), format!("mapwire-lab {gets}\n"));
    }
    place.write("mapwire-lab", "no program");
    run_alone(&place, &path, &["lab"]).code(7);
    write_program(&place, "mapwire-lab", 9);
    run_alone(&place, &path, &["lab"]).code(9);
}

#[test]
fn completions_and_manual_pages_run_no_program_that_is_only_in_path() {
    let place = alone();
    let ran = place.folder.join("ran");
    let text = format!("#!/bin/sh\ntouch {}\n", ran.display());
    place.write("path/mapwire-lab.text", &text);
    shell(&place, "cd path; cp mapwire-lab.text mapwire-lab; chmod 755 mapwire-lab");
    let path = format!("{}:/bin:/usr/bin", place.folder.join("path").display());
    for args in [&["completions", "bash"][..], &["man", "pages"]] {
        run_alone(&place, &path, args).code(0);
        assert!(!place.has("ran"), "{args:?}");
    }
    // It is there, and would say so.
    run_alone(&place, &path, &["lab"]).code(0);
    assert!(place.has("ran"));
}

#[test]
fn help_and_manual_pages_are_those_of_the_program() {
    need_programs();
    let place = Place::new();
    for args in [&["lab", "study", "--help"][..], &["help", "lab", "study"]] {
        let help = place.run(args).code(0).out();
        assert!(help.contains("Usage: mapwire lab study"), "{help}");
    }
    let help = place.run(&["bench", "--help"]).code(0).out();
    assert!(help.contains("Usage: mapwire bench"), "{help}");
    place.run(&["man", "pages"]).code(0);
    for (page, holds) in [
        ("mapwire-bench.1", "placement"),
        ("mapwire-lab.1", "generate"),
        ("mapwire-lab-study.1", "Belady"),
        ("mapwire-sim-vopr.1", "minutes"),
    ] {
        let text = std::fs::read_to_string(place.folder.join("pages").join(page)).unwrap();
        assert!(text.contains(holds), "{page}: {text}");
    }
    assert!(!place.has("pages/mapwire-describe.1"));
}

#[test]
fn completions_offer_values_programs_and_benches() {
    need_programs();
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completions", shell]).code(0).out();
        let options = ["adaptive", "dynamic-handle", "mfu", "io_uring", "oracleGeneral"];
        for word in options.into_iter().chain(["send-latency", "task-queue"]) {
            assert!(script.contains(word), "{shell}: {word}");
        }
        // In zsh the colon within `[:NS]` would end the name of the value, and what follows would be run.
        assert!(!script.contains("[:NS]:"), "{shell}");
    }
    // In bash, as a user's keys would ask.
    let text = format!(
        "{}\nCOMP_WORDS=(mapwire run --wait p) COMP_CWORD=3; _mapwire mapwire p --wait; echo ${{COMPREPLY[@]}}
         COMP_WORDS=(mapwire run -n 2 ts) COMP_CWORD=4; _mapwire mapwire ts 2; echo ${{COMPREPLY[@]}}",
        place.run(&["completions", "bash"]).out()
    );
    let file = place.write("keys", &text);
    let output = Command::new("bash").arg(file).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "poll\ntsp\n", "{output:?}");
    // In fish, where it is installed.
    let script = place.write("mapwire.fish", &place.run(&["completions", "fish"]).out());
    let asked = |keys: &str| {
        let text = format!("source {}; complete -C '{keys}'", script.display());
        let fish = Command::new("fish");
        let output = { fish }.args(["--no-config", "-c", &text]).output();
        let text = String::from_utf8(output.ok()?.stdout).unwrap();
        let words = text.lines().filter_map(|line| line.split('\t').next());
        Some(words.map(str::to_owned).collect::<Vec<_>>().join(" "))
    };
    for (keys, words) in [
        ("mapwire bench send", "send-bandwidth send-latency"),
        ("mapwire run --wait p", "poll"),
        ("mapwire run --path ", "direct ring"),
        ("mapwire run -n 2 ts", "tsp"),
        ("mapwire lab generate z", "zipf"),
        ("mapwire lab import --from d", "din"),
        ("mapwire completions z", "zsh"),
    ] {
        match asked(keys) {
            Some(offered) => assert_eq!(offered, words, "{keys}"),
            None => return mapwire_testing::skip!("no fish here"),
        }
    }
}
