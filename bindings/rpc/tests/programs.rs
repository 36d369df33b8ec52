//! Programs made by rpcgen, over mapwire and other networks, and their failures. No rpcbind is needed, and no root.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Linking, Programs, Server, clean, is_equipped, limited, run, says, wait_for_door};

/// The calculator's server as rpcgen makes it, and the program that checks it.
struct Calculator {
    programs: Programs,
    server: Server,
}

impl Calculator {
    fn start() -> Option<Self> {
        Self::with(Programs::new)
    }

    fn with(programs: impl FnOnce() -> Programs) -> Option<Self> {
        is_equipped().then(|| {
            let programs = programs();
            let server = programs.make("calc_server", Linking::Shared);
            programs.check();
            let server = Server::start(clean(server).stderr(Stdio::null()), programs.calc);
            Self { programs, server }
        })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = limited(&self.programs.path("check"));
        command.args(arguments);
        command
    }

    #[track_caller]
    fn check(&self, arguments: &[&str]) -> String {
        run(&mut self.command(arguments))
    }
}

#[test]
fn the_calculator_adds_and_divides_with_both_ways_of_linking() {
    if !is_equipped() {
        return;
    }
    for linking in [Linking::Shared, Linking::Static] {
        let programs = Programs::new();
        let server = programs.make("calc_server", linking);
        let client = programs.make("calc_client", linking);
        let _server = Server::start(&mut clean(server), programs.calc);
        let output = run(limited(&client).args(["localhost", "mapwire", "85", "2"]));
        says(&output, &["sum: 87", "quotient: 42"]);
        let output = run(limited(&client).args(["127.0.0.1", "mapwire", "85", "0"]));
        says(&output, &["sum: 85", "quotient: division by zero"]);
    }
}

#[test]
fn blocks_of_1_mb_are_stored_and_read_back() {
    if !is_equipped() {
        return;
    }
    let programs = Programs::new();
    let server = programs.make("store_server", Linking::Shared);
    let client = programs.make("store_client", Linking::Shared);
    let _server = Server::start(&mut clean(server), programs.store);
    let output = run(limited(&client).args(["localhost", "mapwire", "20"]));
    says(&output, &["20 blocks of 1 MB"]);
}

#[test]
fn one_server_serves_mapwire_tcp_and_udp_clients_at_once() {
    if !is_equipped() {
        return;
    }
    let programs = Programs::new();
    let ports = programs.ports(Linking::Shared);
    let check = programs.check();
    let mut server = Server::start(&mut clean(ports), programs.calc);
    let line = server.line();
    let words: Vec<&str> = line.split(' ').collect();
    let ["udp", udp, "tcp", tcp] = words[..] else {
        panic!("{line}");
    };
    let ways = [&["port", "udp", udp][..], &["port", "tcp", tcp], &["again", "40"], &["threads"]];
    let clients: Vec<_> =
        ways.iter().map(|arguments| limited(&check).args(*arguments).stdout(Stdio::piped()).spawn()).collect();
    for client in clients {
        let output = client.unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    assert!(server.runs());
}

#[test]
fn a_server_that_registers_and_then_forks_serves_by_its_child() {
    if !is_equipped() {
        return;
    }
    let programs = Programs::new();
    let ports = programs.ports(Linking::Shared);
    let check = programs.check();
    let mut server = Server::start(clean(ports).arg("fork"), programs.calc);
    let line = server.line();
    let tcp = line.rsplit(' ').next().unwrap();
    assert_eq!(run(limited(&check).args(["again", "5"])), "ok\n");
    assert_eq!(run(limited(&check).args(["port", "tcp", tcp])), "ok\n");
    let pattern = programs.path("ports");
    run(clean("pkill").arg("-KILL").arg("-f").arg(pattern));
    wait_for_door(programs.calc, false);
}

#[test]
fn wrong_versions_programs_and_procedures_are_told_as_by_libtirpc() {
    let Some(calculator) = Calculator::start() else {
        return;
    };
    says(&calculator.check(&["version"]), &["status 9, versions 1 to 2: version 7: RPC: Program/version mismatch"]);
    says(
        &calculator.check(&["program"]),
        &["client (nil), status 15: create: RPC: Program not registered", "call: status 8"],
    );
    says(&calculator.check(&["procedure"]), &["status 10: procedure 99: RPC: Procedure unavailable", "sum 3"]);
}

#[test]
fn wrong_arguments_and_results_are_told_and_harm_no_later_call() {
    let Some(calculator) = Calculator::start() else {
        return;
    };
    says(
        &calculator.check(&["arguments"]),
        &["short: status 11", "false length: status 11", "other result: status 2", "sum 3"],
    );
}

#[test]
fn arguments_of_all_lengths_arrive_and_longer_ones_than_the_server_takes_are_refused() {
    let Some(calculator) = Calculator::start() else {
        return;
    };
    let output = calculator.check(&["long-arguments"]);
    says(&output, &["1048576: sum: RPC: Can't encode arguments", "sum 3"]);
    assert_eq!(output.matches(": ok").count(), 10, "{output}");
}

#[test]
fn the_kernel_says_who_calls() {
    let Some(calculator) = Calculator::start() else {
        return;
    };
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    let own = format!("own: flavour 1 uid {user} gid {group}");
    let output = calculator.check(&["credentials"]);
    says(&output, &["none: flavour 0 uid 0 gid 0", &own]);
    let lie = match user {
        // The superuser may speak for others.
        0 => "other: flavour 1 uid 4242 gid 4242",
        _ => "other: whoami: RPC: Authentication error",
    };
    says(&output, &[lie]);
}

#[test]
fn another_users_lie_about_itself_is_refused() {
    use std::os::unix::process::CommandExt;
    if rustix::process::geteuid().as_raw() != 0 {
        mapwire_testing::skip!("only root can start a process of another user");
        return;
    }
    let Some(calculator) = Calculator::with(Programs::for_another_user) else {
        return;
    };
    let output = run(calculator.command(&["credentials"]).uid(65_534).gid(65_534));
    says(&output, &["own: flavour 1 uid 65534 gid 65534", "other: whoami: RPC: Authentication error"]);
}

#[test]
fn a_call_that_takes_too_long_times_out_and_its_late_reply_is_no_others() {
    let Some(calculator) = Calculator::start() else {
        return;
    };
    says(
        &calculator.check(&["time-out"]),
        &["status 5 in time: wait: RPC: Timed out", "sum 3", "sum 7", "by control: status 5, 50000 us", "sum 11"],
    );
}

#[test]
fn a_client_that_waits_learns_that_its_server_was_killed_before_its_time_is_over() {
    let Some(mut calculator) = Calculator::start() else {
        return;
    };
    let mut command = calculator.command(&["long-call", "20000"]);
    let mut client = Server::start(&mut command, calculator.programs.calc);
    assert_eq!(client.line(), "ready");
    std::thread::sleep(Duration::from_millis(300));
    calculator.server.kill();
    let line = client.line();
    // Not 5: the call's own timeout is 20 s.
    assert!(line.starts_with("status 4 after"), "{line}");
    let line = client.line();
    assert!(line.starts_with("next: add: RPC: Unable to"), "{line}");
}

#[test]
fn clients_that_are_killed_mid_call_cost_the_others_nothing() {
    let Some(mut calculator) = Calculator::start() else {
        return;
    };
    for _ in 0..5 {
        let mut command = calculator.command(&["long-call", "100"]);
        let mut client = Server::start(&mut command, calculator.programs.calc);
        assert_eq!(client.line(), "ready");
        client.kill();
    }
    assert_eq!(calculator.check(&["again", "20"]), "ok\n");
    assert!(calculator.server.runs());
}

#[test]
fn a_server_that_begins_anew_is_found_by_new_clients() {
    let Some(mut calculator) = Calculator::start() else {
        return;
    };
    assert_eq!(calculator.check(&["again", "1"]), "ok\n");
    calculator.server.kill();
    wait_for_door(calculator.programs.calc, false);
    let server = calculator.programs.path("calc_server");
    let server = Server::start(clean(server).stderr(Stdio::null()), calculator.programs.calc);
    calculator.server = server;
    assert_eq!(calculator.check(&["again", "1"]), "ok\n");
}

#[test]
fn clients_are_controlled_and_versions_settled() {
    let Some(calculator) = Calculator::start() else {
        return;
    };
    says(
        &calculator.check(&["control"]),
        &[
            "1 version 1, 1 program ok, xid +1, 1 at 127.0.0.1, 1 of 16, unknown 0",
            "product 42",
            "version 2 of 1 to 9",
            "version 3 to 9: create: RPC: Program/version mismatch",
        ],
    );
}

#[test]
fn broadcasts_are_refused_in_words_and_single_calls_are_made() {
    let Some(calculator) = Calculator::start() else {
        return;
    };
    let mut command = calculator.command(&["broadcast"]);
    let output = command.stderr(Stdio::piped()).output().unwrap();
    says(&String::from_utf8_lossy(&output.stdout), &["status 21", "rpc_call: status 0, 42"]);
    says(&String::from_utf8_lossy(&output.stderr), &["has no broadcast"]);
}

#[test]
fn calls_that_nobody_waits_for_are_carried_out() {
    let Some(calculator) = Calculator::start() else {
        return;
    };
    assert_eq!(calculator.check(&["one-way"]), "carried out 100\n");
}

#[test]
fn threads_have_clients_of_their_own_and_children_too() {
    let Some(calculator) = Calculator::start() else {
        return;
    };
    says(&calculator.check(&["threads"]), &["8 threads, 16000 calls"]);
    says(
        &calculator.check(&["forks"]),
        &["child: add: RPC: Unable to send", "child: sum 5", "child ended with 0; sum 7"],
    );
}

#[test]
fn every_way_of_waiting_serves() {
    if !is_equipped() {
        return;
    }
    let programs = Programs::new();
    let server = programs.make("calc_server", Linking::Shared);
    let check = programs.check();
    for wait in ["poll", "event", "adaptive"] {
        let mut server = clean(&server);
        server.env("MAPWIRE_WAIT", wait).stderr(Stdio::null());
        let mut server = Server::start(&mut server, programs.calc);
        let mut client = limited(&check);
        client.env("MAPWIRE_WAIT", wait).args(["again", "10"]);
        assert_eq!(run(&mut client), "ok\n");
        server.kill();
        wait_for_door(programs.calc, false);
    }
}

#[test]
fn a_server_that_sleeps_uses_no_processor() {
    let Some(calculator) = Calculator::start() else {
        return;
    };
    assert_eq!(calculator.check(&["again", "3"]), "ok\n");
    // A guest that stays, so that there is a connection to sleep on.
    let mut command = calculator.command(&["count", "1"]);
    let mut guest = Server::start(command.stdin(Stdio::piped()), calculator.programs.calc);
    assert_eq!(guest.line(), "ready");
    let ticks = || {
        let stat = format!("/proc/{}/stat", calculator.server.id());
        let stat = std::fs::read_to_string(stat).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split(' ').collect();
        fields[12].parse::<u64>().unwrap() + fields[13].parse::<u64>().unwrap()
    };
    std::thread::sleep(Duration::from_millis(300));
    let before = ticks();
    std::thread::sleep(Duration::from_secs(2));
    // Hundredths of a second.
    assert!(ticks() - before <= 10, "{} ticks", ticks() - before);
}

#[test]
fn sixty_four_clients_get_the_same_share() {
    let Some(calculator) = Calculator::start() else {
        return;
    };
    // Enough that clients which the kernel starts late weigh little.
    let total = 64 * 400;
    let start = |_| {
        let mut command = calculator.command(&["count", &total.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = command.spawn().unwrap();
        let lines = BufReader::new(client.stdout.take().unwrap()).lines();
        (client, lines)
    };
    let mut clients: Vec<_> = (0..64).map(start).collect();
    for (_, lines) in &mut clients {
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
    }
    for (client, _) in &mut clients {
        client.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }
    let mut waits = Vec::new();
    for (mut client, mut lines) in clients {
        let line = lines.next().unwrap().unwrap();
        let (count, between) = line.split_once(' ').unwrap();
        waits.push((between.parse::<u64>().unwrap(), count.parse::<u64>().unwrap()));
        client.wait().unwrap();
    }
    waits.sort_unstable();
    let (least, most) = (waits[0].0, waits[63].0);
    println!("calls of others between two of each client: {least} to {most}");
    // The median of many: the kernel sometimes keeps a client from its processor.
    assert!(least * 2 >= most, "{waits:?}");
}

#[test]
fn a_program_of_libtirpc_alone_is_served_by_preloading() {
    if !is_equipped() {
        return;
    }
    let programs = Programs::new();
    let server = programs.make("calc_server", Linking::Without);
    let client = programs.make("calc_client", Linking::Without);
    let library = programs.path("libmapwire_rpc.so");
    let mut server = clean(server);
    server.env("LD_PRELOAD", &library).stderr(Stdio::null());
    let _server = Server::start(&mut server, programs.calc);
    let mut client = limited(&client);
    client.env("LD_PRELOAD", &library);
    client.env("MAPWIRE_RPC", "prefer");
    // It asks for tcp, and uses the nearer network.
    let output = run(client.args(["localhost", "tcp", "20", "22"]));
    says(&output, &["sum: 42"]);
}

#[test]
fn a_server_of_which_nothing_more_is_asked_opens_no_door() {
    if !is_equipped() {
        return;
    }
    let programs = Programs::new();
    let ports = programs.ports(Linking::Shared);
    let check = programs.check();
    let mut server = clean(ports);
    server.env("MAPWIRE_RPC", "asked").stdout(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(server.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    let failed = limited(&check).args(["again", "1"]).output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    says(&String::from_utf8_lossy(&failed.stderr), &["Program not registered"]);
}
