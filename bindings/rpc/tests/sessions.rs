//! A process's place in a server's job: one for all its clients.

mod common;

use std::process::Stdio;

use common::{Linking, Programs, Server, clean, is_equipped, limited, run};

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
    // A place takes fewer than ten, and the program has three.
    assert!(descriptors.parse::<u32>().unwrap() < 30, "{output}");
}
