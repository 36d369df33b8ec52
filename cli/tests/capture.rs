//! `mapwire run --capture`: one file of the datagrams of all ranks, which Wireshark opens.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::common::{Done, Place, Running, eventually};
use rustix::process::Signal;

/// Starts an agent as a child, with the host's name in its environment.
const AGENT: &str = "env HOST={host}";

fn start(place: &Place, options: &[&str], body: &str) -> Running {
    let program = crate::common::as_rank(body);
    let program: Vec<&str> = program.iter().map(String::as_str).collect();
    let run = ["run", "--capture", "all.pcapng", "--no-tag"];
    place.start(&[&run[..], options, &["--"], &program].concat())
}

#[test]
#[ignore = "the body of a rank"]
fn body_that_talks() {
    talk();
}

#[test]
#[ignore = "the body of a rank"]
fn body_of_which_rank_1_fails() {
    talk();
    if std::env::var("MAPWIRE_RANK").unwrap() == "1" {
        std::process::exit(7);
    }
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
#[ignore = "the body of a rank"]
fn body_that_stays() {
    talk();
    std::fs::write(format!("up{}", std::env::var("MAPWIRE_RANK").unwrap()), "").unwrap();
    std::thread::sleep(std::time::Duration::from_secs(60));
}

/// Each of two ranks stores something into the memory of the other.
fn talk() {
    let node = mapwire::Node::join().unwrap();
    let buffer = node.alloc(8192).unwrap();
    let export = node.export_buffer(&buffer).name("page").start().unwrap();
    let import = node.import(1 - node.rank(), "page").start().unwrap();
    import.put_signal(b"hello", 64, 0, 1).unwrap();
    export.wait_signal(0, 1).unwrap();
}

/// The capture of a job is whole and in order of time, has both ranks, and nothing else is left of it.
#[track_caller]
fn is_good(place: &Place, done: &Done) {
    let said = done.err();
    assert!(said.contains("mapwire: capture of "), "{said}");
    let names = std::fs::read_dir(&place.folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let captures: Vec<String> = names.filter(|name| name.contains("pcapng")).collect();
    assert_eq!(captures, ["all.pcapng"]);
    let mode = std::fs::metadata(place.folder.join("all.pcapng")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600, "it holds keys");
    if Command::new("tshark").arg("--version").output().is_err() {
        mapwire_testing::skip!("no tshark here");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/wireshark/mapwire.lua");
    let mut tshark = Command::new("tshark");
    tshark.args(["-X", &format!("lua_script:{}", script.display())]);
    tshark.args(["-n", "-T", "fields", "-E", "separator=|", "-r"]);
    tshark.arg(place.folder.join("all.pcapng"));
    for field in ["frame.time_epoch", "frame.interface_name", "_ws.col.Protocol", "mapwire.malformed"] {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !told.contains("cut short"), "{told}");
    let shown = String::from_utf8(output.stdout).unwrap();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    // None is older than the longest of these tests.
    let (mut last, mut interfaces, mut lines) = (now - 300.0, BTreeSet::new(), 0);
    for line in shown.lines() {
        let [time, interface, protocol, malformed] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let time: f64 = time.parse().unwrap();
        assert!(time >= last, "time goes back: {line}");
        assert_eq!((protocol, malformed), ("mapwire", ""), "{line}");
        interfaces.insert(interface.to_owned());
        (last, lines) = (time, lines + 1);
    }
    assert!(interfaces.iter().eq(["rank 0", "rank 1"]), "{interfaces:?}");
    assert!(said.contains(&format!("capture of {lines} datagrams")), "{said}");
    assert!(last <= now, "{last} is to come");
}

#[test]
fn a_capture_has_the_datagrams_of_all_ranks_in_order_of_time() {
    let place = Place::new();
    let udp = ["-n", "2", "--transport", "udp"];
    let done = start(&place, &udp, "capture::body_that_talks").wait().code(0);
    is_good(&place, &done);
    // Once more, and with a trace: a file of the name is replaced, as one of a trace is.
    let both = [&udp[..], &["--trace", "t.mwt", "--insecure"]].concat();
    let done = start(&place, &both, "capture::body_that_talks").wait().code(0);
    is_good(&place, &done);
    done.says("mapwire: trace of ");
    place.assert_empty();
}

#[test]
fn ranks_of_other_hosts_are_in_the_capture() {
    let place = Place::new();
    let hosts = ["--hosts", "a,b", "--launch-agent", AGENT];
    let done = start(&place, &hosts, "capture::body_that_talks").wait().code(0);
    is_good(&place, &done);
    place.assert_empty();
}

#[test]
fn hosts_whose_clocks_are_hours_apart_are_in_one_order() {
    let can = ["--time", "--monotonic", "1", "--fork", "true"];
    let can = Command::new("unshare").args(can).status();
    if !can.is_ok_and(|status| status.success()) {
        mapwire_testing::skip!("no namespaces of time (root, unshare)");
        return;
    }
    let place = Place::new();
    let agent =
        "sh -c 'if [ $0 = a ]; then exec \"$@\"; fi; exec unshare --time --monotonic 36000 --fork \"$@\"' {host}";
    let hosts = ["--hosts", "a,b", "--launch-agent", agent, "--trace", "t.mwt"];
    let done = start(&place, &hosts, "capture::body_that_talks").wait().code(0);
    is_good(&place, &done);
    crate::common::need_programs();
    let info = place.run(&["lab", "info", "t.mwt", "--json"]).code(0);
    let info = &crate::common::json_rows(&info)[0];
    let time = |name: &str| info[name].as_u64().unwrap();
    let took_ns = time("last_ns") - time("first_ns");
    assert!(took_ns < 300_000_000_000, "{took_ns} ns of trace");
    place.assert_empty();
}

#[test]
fn a_job_that_fails_or_is_ended_leaves_its_capture() {
    let place = Place::new();
    let udp = ["-n", "2", "--transport", "udp"];
    let hosts = ["--hosts", "a,b", "--launch-agent", AGENT];
    for options in [&udp[..], &hosts] {
        let job = start(&place, options, "capture::body_of_which_rank_1_fails");
        is_good(&place, &job.wait().code(7));
        let job = start(&place, options, "capture::body_that_stays");
        eventually("both ranks are up", || place.has("up0") && place.has("up1"));
        job.signal(Signal::INT);
        is_good(&place, &job.wait().code(130));
        for rank in ["up0", "up1"] {
            std::fs::remove_file(place.folder.join(rank)).unwrap();
        }
    }
    place.assert_empty();
}

#[test]
fn a_capture_of_nothing_is_refused_before_anything_starts() {
    let place = Place::new();
    std::fs::create_dir(place.folder.join("folder")).unwrap();
    for (options, says) in [
        (
            &["-n", "2", "--capture", "c.pcapng"][..],
            "ranks of one host send each other no datagrams; give --transport udp",
        ),
        (&["--hosts", "localhost:2", "--capture", "c.pcapng"], "ranks of one host send each other no datagrams"),
        (&["-n", "2", "--transport", "udp", "--capture", "folder"], "--capture folder: this is a folder; name a file"),
        (&["-n", "2", "--transport", "udp", "--capture", "no/c"], "--capture no/c: no file can be written there"),
        (
            &["-n", "2", "--transport", "udp", "--capture", "c", "--trace", "c"],
            "--trace and --capture name the same file",
        ),
    ] {
        let done = place.run(&[&["run"], options, &["--", "touch", "ran"]].concat());
        done.code(2).says(says);
    }
    assert!(!place.has("ran"));
}
