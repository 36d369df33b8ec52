//! Forked children of servers: their use of the inherited handle reaches no client of the parent's.

use std::process::Stdio;

use crate::common::{Linking, Programs, Server, clean, is_equipped, limited, run, wait_for_door};

#[test]
fn a_servers_child_neither_answers_nor_ends_what_is_its_parents() {
    if !is_equipped() {
        return;
    }
    let programs = Programs::new();
    let server = programs.compile("children", &["calc_xdr.c"], Linking::Shared);
    let check = programs.check();
    let _server = Server::start(clean(server).stderr(Stdio::null()), programs.calc);
    let output = run(limited(&check).arg("children"));
    let what = ["replies", "reads", "destroys", "unregisters", "serves"];
    let wanted: String =
        what.iter().map(|what| format!("{what}: status 0, child ended with 0; sum 3; version 2: 4\n")).collect();
    assert_eq!(output, wanted);
    // Neither side has lost count of messages.
    assert_eq!(run(limited(&check).args(["again", "20"])), "ok\n");
}

#[test]
fn a_child_that_outlives_its_server_keeps_no_door_open() {
    if !is_equipped() {
        return;
    }
    let programs = Programs::new();
    let server = programs.compile("children", &["calc_xdr.c"], Linking::Shared);
    let check = programs.check();
    let mut server = Server::start(clean(server).stderr(Stdio::null()), programs.calc);
    let output = run(limited(&check).arg("stays"));
    let child = output.strip_prefix("status 0\n").unwrap().trim();
    server.kill();
    wait_for_door(programs.calc, false);
    // The child is still there, or this fails.
    run(clean("kill").args(["-KILL", child]));
}
