//! `mapwire ping`, between hosts that are this one.

use crate::common::{Place, json_rows};

const AGENT: [&str; 2] = ["--launch-agent", "env HOST={host}"];

#[test]
fn a_host_that_is_there_answers_each_time() {
    let place = Place::new();
    for hosts in [&["far"][..], &["near", "far"], &["localhost"]] {
        let args = [&["ping"][..], hosts, &AGENT, &["-c", "3", "-i", "0.01"]].concat();
        let done = place.run(&args).code(0);
        let lines = done.out().lines().filter(|line| line.contains(" and back: number ")).count();
        assert_eq!(lines, 3, "{}", done.out());
        assert!(done.out().contains("round trips: 3; least "), "{}", done.out());
        // The sealed datagram that confirms a handshake goes by each path; the second of two may count as a replay.
        let is_clean = |done: &crate::common::Done| done.out().contains("; datagrams rejected: 0; ");
        assert!(
            is_clean(&done) || (0..5).any(|_| is_clean(&place.run(&args).code(0))),
            "the handshake is none of them: {}",
            done.out()
        );
    }
    place.assert_empty();
}

#[test]
fn a_host_is_reached_through_libfabric_where_that_is_installed() {
    let place = Place::new();
    let options = ["--transport", "ofi:tcp", "--addresses", "lo"];
    for hosts in [&["near", "far"][..], &["localhost"]] {
        let args = [&["ping"][..], hosts, &AGENT, &options, &["-c", "3", "-i", "0"]].concat();
        let done = place.run(&args);
        if done.err().contains("libfabric is not installed") {
            mapwire_testing::skip!("{}", done.err());
            return;
        }
        let done = done.code(0);
        assert!(done.out().contains("round trips: 3; least "), "{}", done.out());
    }
    place.assert_empty();
}

#[test]
fn programs_get_an_object_a_round_trip_and_one_of_all() {
    let place = Place::new();
    let args = [&["ping", "far", "--json", "-i", "0.001", "-s", "100000", "--insecure"][..], &AGENT].concat();
    let done = place.run(&args).code(0);
    let rows = json_rows(&done);
    assert_eq!(rows.len(), 6, "{rows:?}");
    assert_eq!((&rows[4]["number"], &rows[5]["bytes"]), (&5.into(), &100_000.into()));
    assert!(rows[5]["link_rtt_us"].as_f64() > Some(0.0), "{rows:?}");
    assert!(rows[5]["min_us"].as_f64() <= rows[5]["max_us"].as_f64());
}

#[test]
fn a_host_that_cannot_be_is_named() {
    let place = Place::new();
    let agent = ["--launch-agent", "sh -c 'echo no way to {host} >&2; exit 9' --"];
    place.run(&[&["ping", "far"][..], &agent].concat()).code(1).says("no way to far").says("host far");
    place.run(&["ping", "a,b"]).code(2).says("not the name of one host");
    place.run(&["ping", "a", "-i", "60"]).code(2).says("0 to 10 seconds");
    let done = place.command(&["ping", "a"]).env("MAPWIRE_PING_RANK", "x").output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    place.assert_empty();
}
