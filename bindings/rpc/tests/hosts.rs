//! Clients and servers of different hosts, by a store of names: hosts are network namespaces. Needs root.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Linking, Programs, clean, is_equipped, limited, mapwire, says};
use mapwire_testing::namespaces::Hosts;

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A store on host 0, a server of the calculator there, and clients on host 1.
struct Place {
    hosts: Hosts,
    programs: Programs,
    _store: Ends,
    server: Ends,
}

impl Place {
    fn new() -> Option<Self> {
        if !is_equipped() {
            return None;
        }
        let hosts = Hosts::new(2)?;
        hosts.connect([0, 1], 9, 1500);
        let programs = Programs::new();
        programs.make("calc_server", Linking::Shared);
        programs.check();
        let secret = programs.path("secret");
        let mut serve = clean(mapwire());
        serve.args(["serve", "--listen", "10.0.9.1", "--json"]);
        serve.arg("--secret-file").arg(&secret);
        let mut store = hosts.inside(0, &serve).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(store.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert!(line.contains("10.0.9.1"), "{line}");
        let store = Ends(store);
        // Without `timeout`, which would leave it running when it is killed itself.
        let mut server = clean(programs.path("calc_server"));
        server.env("MAPWIRE_SECRET_FILE", &secret);
        server.env("MAPWIRE_NAMES", "mapwire://10.0.9.1");
        server.env("MAPWIRE_ADDRESSES", "10.0.9.1");
        let server = hosts.inside(0, &server).stderr(Stdio::null()).spawn();
        Some(Self { server: Ends(server.unwrap()), hosts, programs, _store: store })
    }

    fn command(programs: &Programs, program: &str) -> Command {
        let mut command = limited(&programs.path(program));
        command.env("MAPWIRE_SECRET_FILE", programs.path("secret"));
        command
    }

    /// A check on host 1, of the server on `host`.
    fn check(&self, host: &str, what: &str) -> Output {
        let mut client = Self::command(&self.programs, "check");
        client.arg(what).env("CHECK_HOST", host);
        client.env("MAPWIRE_NAMES", "mapwire://10.0.9.1");
        client.env("MAPWIRE_ADDRESSES", "10.0.9.2");
        self.hosts.inside(1, &client).output().unwrap()
    }

    /// The same, once the server is listed.
    #[track_caller]
    fn says(&self, host: &str, what: &str, wanted: &[&str]) {
        let begun = Instant::now();
        loop {
            let output = self.check(host, what);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let errors = String::from_utf8_lossy(&output.stderr);
            let is_early = errors.contains("not registered") || text.contains("rpc_call: status 15");
            if is_early && begun.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
            assert!(output.status.success(), "{text}\n{errors}");
            return says(&text, wanted);
        }
    }
}

#[test]
fn a_client_calls_a_server_on_another_host_by_datagrams_that_are_sealed() {
    let Some(place) = Place::new() else {
        return;
    };
    place.says("10.0.9.1", "broadcast", &["rpc_call: status 0, 42"]);
    place.says("10.0.9.1", "long-arguments", &["262144: ok", "sum 3"]);
    place.says("10.0.9.1", "time-out", &["status 5 in time", "sum 3", "sum 7"]);
    place.says("10.0.9.1", "version", &["status 9, versions 1 to 2"]);
    place.says("10.0.9.1", "threads", &["8 threads, 16000 calls"]);
}

#[test]
fn a_host_without_the_server_and_one_that_nobody_knows_are_told_apart() {
    let Some(place) = Place::new() else {
        return;
    };
    place.says("10.0.9.1", "broadcast", &["rpc_call: status 0, 42"]);
    let output = place.check("10.0.9.77", "version");
    let errors = String::from_utf8_lossy(&output.stderr);
    says(&errors, &["RPC: Program not registered"]);
    let output = place.check("no-such-host", "version");
    let errors = String::from_utf8_lossy(&output.stderr);
    says(&errors, &["RPC: Unknown host"]);
}

#[test]
fn a_server_on_another_host_that_is_killed_ends_the_call() {
    let Some(mut place) = Place::new() else {
        return;
    };
    place.says("10.0.9.1", "broadcast", &["rpc_call: status 0, 42"]);
    let mut client = Place::command(&place.programs, "check");
    client.args(["long-call", "20000"]);
    client.env("CHECK_HOST", "10.0.9.1");
    client.env("MAPWIRE_NAMES", "mapwire://10.0.9.1");
    client.env("MAPWIRE_ADDRESSES", "10.0.9.2");
    let mut client = place.hosts.inside(1, &client);
    let mut client = client.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    std::thread::sleep(Duration::from_millis(300));
    place.server.0.kill().unwrap();
    place.server.0.wait().unwrap();
    let line = lines.next().unwrap().unwrap();
    // Not 5: the call's own timeout is 20 s.
    assert!(line.starts_with("status 4 after"), "{line}");
    client.wait().unwrap();
}
