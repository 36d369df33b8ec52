//! The command line of the benches; that they measure is for `scripts/test.sh benches`.

#[path = "../../cli/tests/common/mod.rs"]
mod common;

use common::Place;

#[test]
fn an_unknown_bench_is_refused_and_the_list_is_printed() {
    let place = Place::new();
    place.run(&["bench", "--list"]).code(0);
    place.run(&["bench", "no-such-bench"]).code(2).says("`no-such-bench` is not a bench");
    place.run(&["bench"]).code(2);
    // Its errors cannot be printed.
    let mut command = place.command(&["bench", "no-such-bench"]);
    let full = std::fs::File::create("/dev/full").unwrap();
    assert_eq!(command.stderr(full).status().unwrap().code(), Some(2));
}

#[test]
fn options_of_the_directory_are_checked_and_are_for_no_other_bench() {
    let place = Place::new();
    place.run(&["bench", "directory", "--placement", "moon"]).code(2).says("moon").says("host, nic-hm, nic-nm");
    place.run(&["bench", "lookup", "--rate", "5"]).code(2);
    place.run(&["bench", "directory", "--seconds", "0"]).code(2);
}

#[test]
fn what_is_printed_fits_and_may_find_no_reader() {
    let place = Place::new();
    place.prints_as_commands_do(&["bench", "--list"]);
    place.fits(&["bench", "--list"], 60);
    place.fits(&["bench", "lookup", "--quick"], 100);
}
