//! Jobs over several hosts, which are all this one: an agent each, started by a command that only gives it a name.

use std::time::Duration;

use crate::common::{Done, Place, Running, eventually};
use rustix::process::Signal;

/// Starts an agent as a child, with the host's name in its environment.
const AGENT: &str = "env HOST={host}";

fn start(place: &Place, hosts: &str, options: &[&str], text: &str) -> Running {
    let run = ["run", "--hosts", hosts, "--launch-agent", AGENT];
    place.start(&[&run, options, &["--", "sh", "-c", text]].concat())
}

fn run(place: &Place, hosts: &str, options: &[&str], text: &str) -> Done {
    let done = start(place, hosts, options, text).wait();
    place.assert_empty();
    done
}

#[test]
fn ranks_of_a_host_have_numbers_in_a_row_and_know_their_place() {
    let place = Place::new();
    let text = "echo $HOST $RANK/$WORLD_SIZE $LOCAL_RANK $MAPWIRE_ADDRESSES";
    let done = run(&place, "a:2,b", &[], text).code(0);
    let expected = ["[0] a 0/3 0 auto", "[1] a 1/3 1 auto", "[2] b 2/3 0 auto"];
    assert_eq!(done.sorted(), expected);
    let addresses = ["--addresses", "lo", "-n", "2"];
    let done = run(&place, "a,b", &addresses, text).code(0);
    assert_eq!(done.sorted(), ["[0] a 0/2 0 lo", "[1] b 1/2 0 lo"]);
}

#[test]
fn this_host_needs_no_command_and_listens_nowhere_else() {
    let place = Place::new();
    let text = "echo $RANK ${MAPWIRE_ADDRESSES-none}";
    let args = ["run", "--hosts", "localhost:2", "--no-tag", "--", "sh", "-c", text];
    let done = place.run(&args).code(0);
    assert_eq!(done.sorted(), ["0 none", "1 none"]);
}

#[test]
fn a_hostfile_says_the_same_as_the_option() {
    let place = Place::new();
    place.write("hosts", "# two\na slots=2\nb:1\n");
    let args = ["run", "--hostfile", "hosts", "--launch-agent", AGENT, "sh", "-c", "echo $HOST"];
    let done = place.run(&args).code(0);
    assert_eq!(done.sorted(), ["[0] a", "[1] a", "[2] b"]);
}

#[test]
fn options_variables_and_the_folder_reach_ranks_of_all_hosts() {
    let place = Place::new();
    std::fs::create_dir(place.folder.join("sub")).unwrap();
    let text = "echo $X $MAPWIRE_SHARED $(basename $PWD)";
    let options = ["-x", "X=one two", "--shared", "1M", "--wdir", "sub"];
    let done = run(&place, "a,b", &options, text).code(0);
    assert_eq!(done.sorted(), ["[0] one two 1048576 sub", "[1] one two 1048576 sub"]);
}

#[test]
fn rank_0_reads_the_standard_input_however_long_and_the_others_nothing() {
    let place = Place::new();
    let long: String = (0..200_000).map(|line| format!("{line}\n")).collect();
    let input = place.write("input", &long);
    let args = ["run", "--hosts", "a,b", "--launch-agent", AGENT, "--no-tag", "--", "cat"];
    let mut command = place.command(&args);
    command.stdin(std::fs::File::open(input).unwrap());
    let done = Running::of(command).wait().code(0);
    assert!(done.out() == long, "{} bytes", done.out().len());
}

#[test]
fn output_of_all_hosts_comes_whole() {
    let place = Place::new();
    let done = run(&place, "a,b,c", &[], "seq 20000").code(0);
    assert_eq!(done.out().lines().count(), 60_000);
    for rank in 0..3 {
        let lines = done.out();
        let lines = lines.lines().filter_map(|line| line.strip_prefix(&format!("[{rank}] ")));
        assert!(lines.eq((1..=20_000).map(|n| n.to_string())), "rank {rank}");
    }
}

#[test]
fn a_rank_that_fails_ends_the_ranks_of_all_hosts_with_its_code() {
    let place = Place::new();
    let text = "if [ $RANK = 2 ]; then exit 7; fi; sleep 60";
    let done = run(&place, "a,b", &["-n", "4"], text).code(7);
    done.says("mapwire: host b: rank 2 (process ").says("exited with code 7; ending the job");
}

#[test]
fn ctrl_c_ends_the_ranks_of_all_hosts() {
    let place = Place::new();
    let running = start(&place, "a,b", &[], "touch $HOST; sleep 60");
    eventually("both run", || place.has("a") && place.has("b"));
    running.signal(Signal::INT);
    let done = running.wait().code(130);
    place.assert_empty();
    done.says("SIGINT: ending the ranks on 2 hosts");
}

#[test]
fn ranks_that_ignore_the_end_are_killed() {
    let place = Place::new();
    let text = "trap '' TERM; touch $HOST; while :; do sleep 0.1; done";
    let running = start(&place, "a,b", &[], text);
    eventually("both run", || place.has("a") && place.has("b"));
    running.signal(Signal::TERM);
    let done = running.wait().code(143);
    place.assert_empty();
    done.says("did not end within 3 s of SIGTERM; killing");
}

/// The processes of `mapwire agent` of a host.
fn agents(place: &Place, host: &str) -> Vec<i32> {
    let wanted = format!("HOST={host}");
    let holds = |pid: &i32| {
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let is_agent = read("cmdline").ends_with(b"\0agent\0");
        is_agent && read("environ").split(|b| *b == 0).any(|v| v == wanted.as_bytes())
    };
    place.processes().into_iter().filter(holds).collect()
}

#[test]
fn a_host_whose_agent_is_killed_ends_the_job_by_name() {
    let place = Place::new();
    let running = start(&place, "a,b", &[], "touch $HOST; sleep 60");
    eventually("both run", || place.has("a") && place.has("b"));
    for pid in agents(&place, "b") {
        crate::common::signal(pid, Signal::KILL);
    }
    let done = running.wait();
    assert!(done.took < Duration::from_secs(20));
    // Its keeper may have died last, and said so.
    assert!(done.err().contains("host b"), "{}", done.err());
    assert_ne!(done.code, 0);
    eventually("nothing is left", || place.processes().is_empty());
}

#[test]
fn a_host_that_falls_silent_is_given_up_after_four_seconds() {
    let place = Place::new();
    let running = start(&place, "a,b", &[], "touch $HOST; sleep 60");
    eventually("both run", || place.has("a") && place.has("b"));
    let pids = agents(&place, "b");
    for pid in &pids {
        crate::common::signal(*pid, Signal::STOP);
    }
    let done = running.wait().code(1);
    done.says("host b is lost: nothing was heard of it for 4 s");
    eventually("nothing is left", || place.processes().is_empty());
}

#[test]
fn whichever_process_of_the_head_is_killed_nothing_is_left() {
    for which in ["keeper", "launcher", "both"] {
        let place = Place::new();
        let running = start(&place, "a,b", &[], "touch $HOST; sleep 60");
        eventually("both run", || place.has("a") && place.has("b"));
        let (keeper, launcher) = (running.pid(), running.launcher());
        if which != "launcher" {
            crate::common::signal(keeper, Signal::KILL);
        }
        if which != "keeper" {
            crate::common::signal(launcher, Signal::KILL);
        }
        eventually(which, || place.processes().is_empty());
        running.wait();
    }
}

#[test]
fn a_host_that_cannot_be_reached_is_named_with_what_its_command_says() {
    let place = Place::new();
    let agent = "sh -c 'echo no route to {host} >&2; exit 255'";
    let args = ["run", "--hosts", "far", "--launch-agent", agent, "--", "true"];
    let done = place.run(&args).code(1);
    done.says("host far: no route to far").says("host far: no agent of mapwire came");
}

#[test]
fn a_host_that_ssh_does_not_know_is_named() {
    // Without a network, so that nobody is asked for the name.
    let can = std::process::Command::new("unshare").args(["--net", "ssh", "-V"]).status();
    if !can.is_ok_and(|status| status.success()) {
        mapwire_testing::skip!("no ssh here, or no network namespaces");
        return;
    }
    let place = Place::new();
    let agent = "unshare --net ssh -o BatchMode=yes {host}";
    let options = ["--hosts", "far.invalid", "--launch-agent", agent];
    let done = place.run(&[&["run"], &options[..], &["--", "true"]].concat());
    done.code(1)
        .says("host far.invalid: ssh: Could not resolve hostname far.invalid")
        .says("host far.invalid: no agent of mapwire came; the command that starts it exited with code 255");
    place.assert_empty();
}

#[test]
fn a_host_without_mapwire_is_told_from_one_of_another_version() {
    let place = Place::new();
    let args = |agent| ["run", "--hosts", "far", "--launch-agent", agent, "--", "true"];
    let done = place.run(&args("sh -c 'exec no-such-mapwire' {host}")).code(1);
    done.says("host far: mapwire is not there; install it, or say where");
    let other = "sh -c 'echo welcome; echo mapwire agent 5 9.8.7; sleep 60' {host}";
    let done = place.run(&args(other)).code(1);
    let both = format!("host far has mapwire 9.8.7, this is {}", env!("CARGO_PKG_VERSION"));
    done.says(&both);
    place.assert_empty();
}

#[test]
fn an_agent_that_talks_nonsense_is_given_up() {
    let place = Place::new();
    let greeting = format!("echo mapwire agent 5 {}", env!("CARGO_PKG_VERSION"));
    for (nonsense, says) in [
        ("printf \"\\\\377\\\\377\\\\377\\\\377\"; sleep 60", "closed its output"),
        ("printf \"\\\\003\\\\000\\\\000\\\\000\\\\000{}\"; sleep 60", "a malformed message"),
        ("printf \"\\\\001\\\\000\\\\000\\\\000\\\\011\"; sleep 60", "unknown kind 9"),
    ] {
        let agent = format!("sh -c '{greeting}; {nonsense}' {{host}}");
        let done = place.run(&["run", "--hosts", "far", "--launch-agent", &agent, "--", "true"]);
        done.code(1).says("host far is lost").says(says);
        place.assert_empty();
    }
}

#[test]
fn mistakes_are_told_before_anything_starts() {
    let place = Place::new();
    place.write("hosts", "a\nb slots=x\n");
    let many: String = (0..16).map(|host| format!("h{host} slots=4096\n")).collect();
    place.write("many", &many);
    for (options, says) in [
        (vec!["--hosts", "a,,b"], "--hosts: a host's name is missing"),
        (vec!["--hosts", "a:2", "-n", "3"], "3 ranks do not fit on hosts with 2 slots"),
        (vec!["--hosts", "a", "-n", "65536"], "65536 ranks are too many; a job has at most 4096"),
        (vec!["--hosts", "a:4096,b:4096"], "8192 ranks are too many"),
        (vec!["--hostfile", "many"], "65536 ranks are too many; a job has at most 4096"),
        (vec!["--hosts", "a,b", "-n", "0"], "at least one rank"),
        (vec!["--hosts", "a:0"], "--hosts: a host has at least one slot, not 0"),
        (vec!["--hostfile", "hosts"], "hosts, line 2: `x` is not a number of slots"),
        (vec!["--hostfile", "none"], "cannot read the hostfile none"),
        (vec!["--hosts", "a", "--launch-agent", "ssh me"], "{host} must stand"),
        (vec!["--hosts", "a", "--addresses", "10.0.0.0/99"], "10.0.0.0/99"),
    ] {
        let done = place.run(&[&["run"], &options[..], &["--", "touch", "ran"]].concat());
        done.code(2).says(says);
    }
    let args = ["run", "--hosts", "a", "--launch-agent", "no-such {host}", "--", "touch", "ran"];
    place.run(&args).code(127).says("no-such: program not found");
    let args = ["run", "--hosts", "a,b", "--launch-agent", AGENT, "--", "no-such-program"];
    place.run(&args).code(127).says("host a: no-such-program: program not found");
    assert!(!place.has("ran"));
    place.assert_empty();
}

#[test]
fn an_agent_is_not_for_terminals_and_leaves_when_nobody_wants_it() {
    let place = Place::new();
    let done = place.run(&["agent"]).code(0);
    assert!(done.out().starts_with("mapwire agent 5 "), "{}", done.out());
}

#[test]
fn ranks_of_all_hosts_are_in_the_trace() {
    let place = Place::new();
    let program = crate::common::as_rank("run_hosts::body_that_joins");
    let program: Vec<&str> = program.iter().map(String::as_str).collect();
    let run = ["run", "--hosts", "a,b", "--launch-agent", AGENT, "--trace", "t.mwt", "--no-tag", "--"];
    let done = place.run(&[&run[..], &program].concat()).code(0);
    done.says("trace of ");
    crate::common::need_programs();
    let info = place.run(&["lab", "info", "t.mwt", "--json"]).code(0);
    assert!(info.out().contains("\"hosts\":2"), "{}", info.out());
}

#[test]
#[ignore = "the body of a rank"]
fn body_that_joins() {
    let node = mapwire::Node::join().unwrap();
    let buffer = node.alloc(4096).unwrap();
    let export = node.export_buffer(&buffer).name("page").start().unwrap();
    let import = node.import(1 - node.rank(), "page").start().unwrap();
    import.put_signal(b"hello", 64, 0, 1).unwrap();
    export.wait_signal(0, 1).unwrap();
}
