//! Servers and clients that meet by rpcbind, in a network and a `/run` of their own. Needs root, rpcbind and unshare.

use std::path::Path;
use std::process::Command;

use crate::common::{Linking, Programs, clean, is_equipped, says};

/// Whether these tests can run; says so if not.
fn has_namespaces() -> bool {
    let has_rpcbind = ["/sbin/rpcbind", "/usr/sbin/rpcbind"].iter().any(|path| Path::new(path).exists());
    let unshare = clean("unshare").args(["-nm", "true"]).output();
    let may = has_rpcbind && unshare.is_ok_and(|done| done.status.success());
    if !may {
        mapwire_testing::skip!("needs root, unshare and rpcbind");
    }
    may && is_equipped()
}

/// A script beside an rpcbind of its own, with the folder of the programs as the working folder.
fn script(programs: &Programs, text: &str) -> Command {
    let begin = "set -e
        ip link set lo up
        mount -t tmpfs tmpfs /run
        mkdir /run/rpcbind
        PATH=$PATH:/usr/sbin:/sbin
        rpcbind -f &
        binder=$!
        trap 'kill $binder $server 2>/dev/null' EXIT
        until rpcinfo >/dev/null 2>&1; do sleep 0.05; done
        # Until program $1 is listed for network $2.
        await() { until rpcinfo 2>/dev/null | grep -q \"^ *$1 .* $2 \"; do sleep 0.05; done; }
        ";
    let mut command = clean("timeout");
    command.args(["60", "unshare", "-nm", "bash", "-c"]).arg(format!("{begin}\n{text}")).current_dir(programs.path(""));
    command
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    said
}

#[test]
fn an_unchanged_server_is_found_by_mapwire_tcp_and_udp_and_listed() {
    if !has_namespaces() {
        return;
    }
    let programs = Programs::new();
    programs.make("calc_server", Linking::Shared);
    programs.make("calc_client", Linking::Shared);
    let calc = programs.calc;
    let output = run(&mut script(
        &programs,
        &format!(
            "./calc_server & server=$!
            await {calc} mapwire
            await {calc} tcp
            for network in mapwire tcp udp; do ./calc_client localhost $network 85 2; done
            rpcinfo | grep '^ *{calc} '"
        ),
    ));
    assert_eq!(output.matches("sum: 87").count(), 3, "{output}");
    let socket = format!("mapwire-door-0-rpc-{calc}-1");
    says(&output, &["udp", "tcp", "mapwire", &socket, "superuser"]);
}

#[test]
fn a_server_of_another_user_is_found_by_rpcbind_alone() {
    if !has_namespaces() {
        return;
    }
    let programs = Programs::for_another_user();
    programs.make("calc_server", Linking::Shared);
    programs.make("calc_client", Linking::Shared);
    let calc = programs.calc;
    let output = run(&mut script(
        &programs,
        &format!(
            "setpriv --reuid 4711 --regid 4711 --clear-groups ./calc_server & server=$!
            await {calc} mapwire
            setpriv --reuid 4712 --regid 4712 --clear-groups ./calc_client localhost mapwire 85 2
            kill $binder; rm /run/rpcbind.sock
            setpriv --reuid 4712 --regid 4712 --clear-groups ./calc_client localhost mapwire 85 2 2>&1 || true"
        ),
    ));
    says(&output, &["sum: 87", "Program not registered"]);
}

#[test]
fn a_server_made_by_rpc_reg_is_called_by_mapwire_and_by_the_network_that_it_names() {
    if !has_namespaces() {
        return;
    }
    let programs = Programs::new();
    programs.compile("simple", &["calc_xdr.c"], Linking::Shared);
    let calc = programs.calc;
    let output = run(&mut script(
        &programs,
        &format!(
            "./simple serve udp & server=$!
            await {calc} udp
            await {calc} mapwire
            ./simple call udp
            MAPWIRE_RPC=prefer ./simple call udp"
        ),
    ));
    says(&output, &["by udp", "by mapwire", "unknown: status 10"]);
    for line in ["twice: status 0, 42", "greet: status 0, hello world", "nothing: status 0"] {
        assert_eq!(output.matches(line).count(), 2, "{output}");
    }
}

#[test]
fn a_server_that_was_killed_leaves_an_entry_that_misleads_nobody() {
    if !has_namespaces() {
        return;
    }
    let programs = Programs::new();
    programs.make("calc_server", Linking::Shared);
    programs.make("calc_client", Linking::Shared);
    let calc = programs.calc;
    let output = run(&mut script(
        &programs,
        &format!(
            "./calc_server & server=$!
            await {calc} mapwire
            kill -KILL $server; wait $server || true
            ./calc_client localhost mapwire 85 2 2>&1 || true
            ./calc_server & server=$!
            until ./calc_client localhost mapwire 85 2 2>/dev/null; do sleep 0.1; done"
        ),
    ));
    says(&output, &["Program not registered", "sum: 87"]);
}
