//! Jobs whose ranks several commands start, which meet by `mapwire serve` or by etcd.

#[path = "../../tests/etcd.rs"]
mod etcd;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{Done, Place, Running, as_rank, children, eventually, json_rows, signal};
use etcd::Etcd;
use mapwire_names::protocol::{Release, Verdict, Welcome};
use mapwire_testing::namespaces::Hosts;
use rustix::process::Signal;

/// A `mapwire serve`, until it is dropped.
struct Served {
    process: Child,
    address: String,
}

impl Served {
    fn of(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let stdout = process.stdout.take().unwrap();
        let mut stdout = BufReader::new(stdout);
        stdout.read_line(&mut line).unwrap();
        let said: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = said["address"].as_str().unwrap().to_owned();
        process.stdout = Some(stdout.into_inner());
        Self { process, address }
    }

    fn start(place: &Place) -> Self {
        Self::of(place.command(&["serve", "--listen", "127.0.0.1:0", "--json"]))
    }

    /// Ends it in order, and gives what it has counted.
    fn end(mut self) -> serde_json::Value {
        signal(self.process.id() as i32, Signal::TERM);
        let mut line = String::new();
        let stdout = self.process.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(self.process.wait().unwrap().code(), Some(0));
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Arguments of `mapwire run` for `ranks` of a job of `of`.
fn run_args<'a>(store: &'a str, job: &'a str, ranks: &'a str, of: &'a str) -> Vec<&'a str> {
    vec!["run", "--names", store, "--job", job, "-n", ranks, "--of", of]
}

fn start(place: &Place, store: &str, ranks: &str, of: &str, text: &str) -> Running {
    let args = run_args(store, "sor", ranks, of);
    place.start(&[&args[..], &["--timeout", "100", "--", "sh", "-c", text]].concat())
}

/// What stands in the store, as `mapwire names` lists it.
fn listed(place: &Place, store: &str) -> Vec<serde_json::Value> {
    json_rows(&place.run(&["names", "--names", store, "--json"]).code(0))
}

fn assert_nothing_is_left(place: &Place, store: &str) {
    assert_eq!(listed(place, store), [] as [serde_json::Value; 0]);
    place.assert_empty_but_for("serve");
}

/// Kills a command, its launcher and all that they started, at once.
fn kill_all(running: &Running) {
    let launcher = running.launcher();
    let ranks = children(launcher);
    // The launcher first: it tells the others of the end of the command.
    for pid in [&[launcher, running.pid()][..], &ranks].concat() {
        signal(pid, Signal::KILL);
    }
}

fn two_commands_are_one_job_twice(place: &Place, store: &str) {
    let text = "echo $RANK/$WORLD_SIZE $LOCAL_RANK";
    for _ in 0..2 {
        let one = start(place, store, "1", "3", text);
        eventually("the first has its rank", || listed(place, store).len() == 1);
        let two = start(place, store, "2", "3", text).wait().code(0);
        let one = one.wait().code(0);
        assert_eq!(one.sorted(), ["[0] 0/3 0"]);
        assert_eq!(two.sorted(), ["[1] 1/3 0", "[2] 2/3 1"]);
        assert_nothing_is_left(place, store);
    }
}

#[test]
fn two_commands_are_one_job_and_its_name_is_free_again_at_once() {
    let place = Place::new();
    let served = Served::start(&place);
    two_commands_are_one_job_twice(&place, &served.address);
    let counted = served.end();
    assert!(counted["requests"].as_u64() > Some(20), "{counted}");
    assert_eq!(counted["malformed"], 0);
    place.assert_empty();
}

/// What a rank does: it tells its number to all, and adds up theirs.
#[test]
#[ignore = "a rank of the tests below"]
fn body_adds_up() {
    let node = mapwire::Node::join().unwrap();
    let mine = (node.rank() as u64 + 1).to_le_bytes();
    let all = node.all_gather(&mine).unwrap();
    let sum: u64 = all.iter().map(|it| u64::from_le_bytes(it[..].try_into().unwrap())).sum();
    println!("rank {} of {}: {sum}", node.rank(), node.size());
}

fn adds_up(store: &str, job: &str, ranks: &str, of: &str) -> Vec<String> {
    let args = run_args(store, job, ranks, of).into_iter().map(str::to_owned);
    args.chain(["--".to_owned()]).chain(as_rank("names::body_adds_up")).collect()
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

fn ranks_in(done: &[Done], size: usize, sum: u64) -> usize {
    let out: String = done.iter().map(Done::out).collect();
    let is_one = |line: &&str| line.contains(&format!(" of {size}: {sum}"));
    out.lines().filter(is_one).count()
}

#[test]
fn ranks_of_two_hosts_reach_each_other_and_none_of_a_job_is_left() {
    let Some(hosts) = Hosts::new(2) else { return };
    hosts.connect([0, 1], 7, 1500);
    let place = Place::new();
    let in_host = |host: usize, args: &[&str]| hosts.inside(host, &place.command(args));
    let served = Served::of(in_host(0, &["serve", "--listen", "10.0.7.1", "--json"]));
    assert_eq!(served.address, "mapwire://10.0.7.1:6277");
    let args = adds_up(&served.address, "far", "2", "4");
    let one = Running::of(in_host(0, &words(&args)));
    let two = Running::of(in_host(1, &words(&args)));
    let done = [one.wait().code(0), two.wait().code(0)];
    assert_eq!(ranks_in(&done, 4, 10), 4);
    let left = Running::of(in_host(1, &["names", "--names", &served.address, "--json"]));
    assert_eq!(left.wait().code(0).out(), "");
    drop(served);
    place.assert_empty();
}

#[test]
fn processes_that_nothing_started_join_by_variables_also_beside_a_command() {
    let place = Place::new();
    let served = Served::start(&place);
    let rank = |number: Option<&str>| {
        let args = as_rank("names::body_adds_up");
        let mut command = Command::new(&args[0]);
        command
            .args(&args[1..])
            .env("XDG_CONFIG_HOME", place.folder.join("config"))
            .env("MAPWIRE_NAMES", &served.address)
            .env("MAPWIRE_JOB_NAME", "loose")
            .env("MAPWIRE_SIZE", "4");
        if let Some(number) = number {
            command.env("MAPWIRE_RANK", number);
        }
        Running::of(command)
    };
    let last = rank(Some("3"));
    let (any, some) = (rank(None), adds_up(&served.address, "loose", "2", "4"));
    let command = place.start(&words(&some));
    let done = [last.wait().code(0), any.wait().code(0), command.wait().code(0)];
    assert!(done[0].out().contains("rank 3 of 4"), "{}", done[0].out());
    assert_eq!(ranks_in(&done, 4, 10), 4);
    assert_nothing_is_left(&place, &served.address);
}

#[test]
fn a_rank_that_fails_or_ctrl_c_ends_the_job_everywhere_with_the_reason() {
    let place = Place::new();
    let served = Served::start(&place);
    let store = &served.address;
    let text = "touch r$RANK; if [ $RANK = 2 ]; then exit 7; fi; sleep 60";
    let one = start(&place, store, "2", "3", text);
    let two = start(&place, store, "1", "3", text);
    let (one, two) = (one.wait().code(7), two.wait().code(7));
    assert!(one.took < Duration::from_secs(30), "{:?}", one.took);
    for done in [one, two] {
        done.says("rank 2 (process ").says("exited with code 7");
    }
    assert_nothing_is_left(&place, store);

    let text = "touch c$RANK; sleep 60";
    let one = start(&place, store, "1", "2", text);
    let two = start(&place, store, "1", "2", text);
    eventually("both run", || place.has("c0") && place.has("c1"));
    one.signal(Signal::INT);
    one.wait().code(130).says("SIGINT: ending rank");
    two.wait().code(130).says("mapwire: host ").says("SIGINT: ending rank");
    assert_nothing_is_left(&place, store);

    let text = "touch k$RANK; exec sleep 60";
    let one = start(&place, store, "1", "2", text);
    let two = start(&place, store, "1", "2", text);
    eventually("both run", || place.has("k0") && place.has("k1"));
    one.signal(Signal::KILL);
    two.wait().code(137).says("the command was killed");
    one.wait();
    assert_nothing_is_left(&place, store);
}

#[test]
fn a_command_that_is_killed_with_all_it_started_is_named_and_its_job_starts_again_by_the_same_name() {
    let place = Place::new();
    let served = Served::start(&place);
    let store = &served.address;
    let text = "touch a$RANK; exec sleep 60";
    let one = start(&place, store, "1", "2", text);
    let two = start(&place, store, "1", "2", text);
    eventually("both run", || place.has("a0") && place.has("a1"));
    kill_all(&one);
    let two = two.wait().code(137).says(" is gone: its command or its host has died");
    two.says("ending the ranks here");
    one.wait();

    // All of it, then again while what it left is still there.
    let text = "touch b$RANK; exec sleep 60";
    let dead = [start(&place, store, "1", "2", text), start(&place, store, "1", "2", text)];
    eventually("both run", || place.has("b0") && place.has("b1"));
    dead.iter().for_each(kill_all);
    two_commands_are_one_job_twice(&place, store);

    // One that waits, so that the others find half of a dead job.
    let waits = start(&place, store, "1", "2", "true");
    eventually("it waits", || listed(&place, store).len() == 1);
    kill_all(&waits);
    let one = start(&place, store, "1", "2", "true");
    let two = start(&place, store, "1", "2", "true");
    one.wait().code(0);
    two.wait().code(0);
    assert_nothing_is_left(&place, store);
    dead.into_iter().for_each(|it| drop(it.wait()));
    waits.wait();
}

#[test]
fn a_wait_in_vain_names_the_missing_ranks_and_leaves_nothing() {
    let place = Place::new();
    let served = Served::start(&place);
    let store = &served.address;
    let args = run_args(store, "sor", "1", "4");
    let args = [&args[..], &["--timeout", "2", "true"]].concat();
    let done = place.run(&args).code(1);
    let done = done.says("waiting for these ranks of job sor").says("1-3");
    done.says("3 of the 4 ranks of job sor did not come within 2 s: 1-3");
    assert_nothing_is_left(&place, store);
    let running = start(&place, store, "1", "2", "true");
    eventually("it waits", || listed(&place, store).len() == 1);
    running.signal(Signal::INT);
    running.wait().code(130).says("SIGINT: no rank was started");
    assert_nothing_is_left(&place, store);
}

#[test]
fn what_does_not_fit_is_refused_with_the_mend() {
    let place = Place::new();
    let served = Served::start(&place);
    let store = &served.address;
    let running = start(&place, store, "2", "2", "touch runs; sleep 60");
    eventually("it runs", || place.has("runs"));
    let full = start(&place, store, "1", "2", "true");
    let other_size = start(&place, store, "1", "3", "true");
    full.wait().code(1).says("job sor runs and has no room for 1 more: ranks 0-1 on ");
    other_size.wait().code(1).says("job sor has 2 ranks, and this process wants it to have 3");

    let stranger = Place::new();
    stranger.run(&["serve", "--new-secret"]).code(0);
    let file = stranger.folder.join("config/mapwire/secret");
    start(&stranger, store, "1", "2", "true").wait().code(1).says("has another secret; copy its file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    start(&stranger, store, "1", "2", "true").wait().code(1).says("chmod 600");
    std::fs::remove_file(&file).unwrap();
    start(&stranger, store, "1", "2", "true").wait().code(1).says("mapwire serve --new-secret");

    let args = run_args(store, "a/b", "1", "2");
    place.run(&[&args[..], &["true"]].concat()).code(2).says("not the name of a job");
    start(&place, "http://x", "1", "2", "true").wait().code(2).says("mapwire://HOST:PORT");
    start(&place, store, "3", "2", "true").wait().code(2).says("at most that of --of");
    place.run(&["run", "--names", store, "-n", "2", "true"]).code(2).says("--job");

    let port = served.address.rsplit(':').next().unwrap();
    place.run(&["serve", "--listen", port]).code(1).says("is a server running there already");
    place.run(&["serve", "--listen", "203.0.113.1"]).code(1).says("an address of this host");

    running.signal(Signal::TERM);
    running.wait().code(143);
    let gone = store.clone();
    drop(served);
    start(&place, &gone, "1", "2", "true").wait().code(1).says("nothing answers at mapwire://");
}

#[test]
fn a_server_of_another_version_is_named_with_both_versions() {
    let place = Place::new();
    place.run(&["serve", "--new-secret"]).code(0);
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = format!("mapwire://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; mapwire_names::protocol::HELLO_BYTES]).unwrap();
        let release = Release::of("7.8.9").unwrap();
        let verdict = Verdict::Version;
        stream.write_all(&Welcome { release, verdict }.emit()).unwrap();
    });
    let done = start(&place, &address, "1", "2", "true").wait().code(1);
    done.says("is of mapwire 7.8.9").says(env!("CARGO_PKG_VERSION"));
    server.join().unwrap();
}

#[test]
fn jobs_meet_by_etcd_as_by_the_server_and_another_secret_is_noticed() {
    let Some(etcd) = Etcd::start() else { return };
    let place = Place::new();
    place.run(&["serve", "--new-secret"]).code(0);
    two_commands_are_one_job_twice(&place, &etcd.url);
    let args = adds_up(&etcd.url, "sum", "2", "4");
    let (one, two) = (place.start(&words(&args)), place.start(&words(&args)));
    let done = [one.wait().code(0), two.wait().code(0)];
    assert_eq!(ranks_in(&done, 4, 10), 4);

    let waits = start(&place, &etcd.url, "1", "2", "true");
    eventually("it waits", || listed(&place, &etcd.url).len() == 1);
    let stranger = Place::new();
    stranger.run(&["serve", "--new-secret"]).code(0);
    let done = start(&stranger, &etcd.url, "1", "2", "true").wait().code(1);
    done.says("was begun with another secret");
    assert_eq!(listed(&stranger, &etcd.url)[0]["secret"], "another");
    kill_all(&waits);
    waits.wait();
    eventually("nothing is left", || listed(&place, &etcd.url).is_empty());
    eventually("no key is left", || etcd.count("") == 0);
}
