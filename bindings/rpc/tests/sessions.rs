//! A process's membership in a server's job: one for all its clients, usable from the first call on.

use std::process::Stdio;

use crate::common::{Linking, Programs, Server, clean, is_equipped, limited, run};

#[test]
fn threads_that_make_clients_at_the_same_time_share_a_place() {
    if !is_equipped() {
        return;
    }
    let programs = Programs::new();
    let server = programs.make("calc_server", Linking::Shared);
    let check = programs.check();
    let _server = Server::start(clean(server).stderr(Stdio::null()), programs.calc);
    let output = run(limited(&check).arg("crowd"));
    let descriptors = output.strip_suffix(" descriptors\n").unwrap();
    // A membership takes fewer than ten descriptors, and the program has three.
    assert!(descriptors.parse::<u32>().unwrap() < 30, "{output}");
}

#[test]
fn the_first_call_of_a_client_may_have_a_long_result() {
    if !is_equipped() {
        return;
    }
    let programs = Programs::new();
    let first = programs.compile("first", &["calc_xdr.c"], Linking::Shared);
    let mut server = clean(&first);
    let _server = Server::start(server.args(["serve", "20000"]), programs.calc);
    // Several at once, so that the server is behind with what it imports.
    let start = |_| {
        let mut client = limited(&first);
        client.args(["call", "60", "20000"]).stdout(Stdio::piped());
        client.spawn().unwrap()
    };
    for client in (0..4).map(start).collect::<Vec<_>>() {
        let output = client.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "0 wrong\n");
    }
}
