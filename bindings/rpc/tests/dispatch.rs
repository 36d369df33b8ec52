//! Servers that have no dispatch function, and servers that dispatch inside a procedure.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::common::{Linking, Programs, Server, clean, is_equipped, limited, run, says};

#[test]
fn functions_that_rpc_reg_registers_are_called_by_mapwire_whatever_network_they_name() {
    if !is_equipped() {
        return;
    }
    for network in ["mapwire", "udp"] {
        let programs = Programs::new();
        let simple = programs.compile("simple", &["calc_xdr.c"], Linking::Shared);
        let mut server = clean(&simple);
        server.args(["serve", network]).stderr(Stdio::null());
        let _server = Server::start(&mut server, programs.calc);
        // It names another network, and uses the nearer one.
        let mut client = limited(&simple);
        client.env("MAPWIRE_RPC", "prefer").args(["call", "udp"]);
        says(
            &run(&mut client),
            &[
                "by mapwire",
                "twice: status 0, 42",
                "greet: status 0, hello world",
                "nothing: status 0",
                "short: status 11",
                "null: status 0",
                "unknown: status 10",
            ],
        );
    }
}

/// A server that dispatches inside a procedure.
struct Nested {
    programs: Programs,
    server: Server,
}

impl Nested {
    fn start(wait: &str) -> Self {
        // Other users are to run it.
        let programs = Programs::for_another_user();
        let nested = programs.compile("nested", &["calc_xdr.c"], Linking::Shared);
        let mut server = clean(nested);
        server.arg("serve").env("MAPWIRE_WAIT", wait);
        let server = Server::start(server.stderr(Stdio::null()), programs.calc);
        Self { programs, server }
    }

    fn client(&self, procedure: &str, user: u32) -> Command {
        let mut client = limited(&self.programs.path("nested"));
        client.args(["call", procedure]);
        if user != rustix::process::geteuid().as_raw() {
            client.uid(user).gid(user);
        }
        client
    }

    /// A client whose call the server has in hand, while it waits for the inner one.
    fn outer(&mut self, user: u32) -> Child {
        let mut client = self.client("outer", user);
        let client = client.stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(self.server.line(), "waiting");
        client
    }
}

fn output_of(client: Child) -> String {
    let output = client.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_server_that_serves_others_inside_a_procedure_replies_to_all_of_them() {
    if !is_equipped() {
        return;
    }
    let own = rustix::process::geteuid();
    let port = if own.is_root() { 1023 } else { 65_535 };
    for wait in ["adaptive", "poll", "event"] {
        let mut nested = Nested::start(wait);
        let first = nested.outer(own.as_raw());
        // In the loop of the first.
        let second = nested.outer(own.as_raw());
        for _ in 0..2 {
            let inner = run(&mut nested.client("inner", own.as_raw()));
            assert_eq!(inner, format!("port {port}\n"));
        }
        // One call ends both loops, the inner one first.
        for client in [second, first] {
            assert_eq!(output_of(client), format!("port {port}\n"), "{wait}");
        }
    }
}

#[test]
fn only_the_superusers_calls_come_from_a_reserved_port() {
    if !is_equipped() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        mapwire_testing::skip!("only root can start a process of another user");
        return;
    }
    let mut nested = Nested::start("adaptive");
    for (outer, inner) in [(65_534, 0), (0, 65_534)] {
        let port = |user| if user == 0 { 1023 } else { 65_535 };
        let client = nested.outer(outer);
        let said = run(&mut nested.client("inner", inner));
        assert_eq!(said, format!("port {}\n", port(inner)));
        assert_eq!(output_of(client), format!("port {}\n", port(outer)));
    }
}
