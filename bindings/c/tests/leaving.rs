//! C programs that end without `mw_node_free`, with stores under way.

use std::process::Output;

use crate::common::{Installed, Linking, Program};

/// Output and exit code of a job whose rank 1 ends in this way.
#[track_caller]
fn ending(program: &Program<'_>, way: &str, options: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
    let note = crate::common::Folder::new();
    let Output { status, stdout, stderr } = crate::common::start(2, options)
        .arg(program.path())
        .args([way.as_ref(), note.path().as_os_str()])
        .env("LD_LIBRARY_PATH", program.library())
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (status.code().unwrap_or(-1), said.concat())
}

const UDP: [&str; 2] = ["--transport", "udp"];
const LOSSY: (&str, &str) = ("MAPWIRE_LOSS", "40%");

#[test]
fn what_was_sent_arrives_though_its_sender_returns_from_main_or_exits() {
    let installed = Installed::get(Linking::Static);
    let exits = installed.compile("exits");
    for _ in 0..12 {
        let (code, said) = ending(&exits, "return", &UDP, &[LOSSY]);
        assert!(code == 0 && said.contains("all came"), "{code}: {said}");
        assert!(said.contains("kept in a buffer until the end"), "{said}");
    }
    for way in ["exit", "waiting", "handler", "forked", "destructor"] {
        let (code, said) = ending(&exits, way, &UDP, &[LOSSY]);
        assert!(code == 0 && said.contains("all came"), "{way}: {code}: {said}");
    }
    let (code, said) = ending(&exits, "code", &UDP, &[LOSSY]);
    assert_eq!(code, 3, "the program's own code stays: {said}");
}

#[test]
fn what_was_sent_behind_a_revoked_send_arrives() {
    let installed = Installed::get(Linking::Shared);
    let exits = installed.compile("exits");
    for _ in 0..12 {
        let (code, said) = ending(&exits, "revoked", &UDP, &[]);
        assert!(code == 0 && said.contains("all came"), "{code}: {said}");
    }
}

#[test]
fn a_rank_that_cannot_deliver_says_so_and_does_not_exit_with_0() {
    let installed = Installed::get(Linking::Shared);
    let exits = installed.compile("exits");
    let fails = |way, options: &[&str], variables: &[_], lines: &[&str]| {
        let (code, said) = ending(&exits, way, options, variables);
        assert_eq!(code, 70, "{way}: {said}");
        assert!(said.contains("kept in a buffer until the end") || way == "holding", "{said}");
        for line in lines {
            assert!(said.contains(line), "{way}: no `{line}` in {said}");
        }
    };
    let lost = "mapwire: rank 1: what was sent to rank 0 last is lost: ";
    fails("gone", &UDP, &[LOSSY], &[lost, "rank 0 is gone", "let ranks wait for what others send"]);
    // The link has given up after 7/8 of the timeout.
    let short = ("MAPWIRE_TIMEOUT", "4");
    fails("silent", &UDP, &[short], &[lost, "nothing came from it at ", " for 3.5 s; is its host up"]);
    let pinned = ["--path", "ring", "--pin-limit", "256K"];
    fails("holding", &pinned, &[], &["the process exits in the middle of a call of mapwire"]);
}

#[test]
fn a_rank_that_was_told_of_a_loss_exits_as_it_likes() {
    let installed = Installed::get(Linking::Shared);
    let (code, said) = ending(&installed.compile("exits"), "told", &UDP, &[LOSSY]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_rank_of_mpirun_that_returns_from_main_leaves_its_launcher() {
    if crate::common::clean("mpirun").arg("--version").output().is_err() {
        mapwire_testing::skip!("mpirun is not installed");
        return;
    }
    let installed = Installed::get(Linking::Shared);
    let exits = installed.compile("exits");
    let folder = mapwire_testing::OpenFolder::new();
    let output = crate::common::clean("timeout")
        .env("TMPDIR", folder.path())
        .args(["-k", "5", "120", "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"])
        .arg(exits.path())
        .arg("return")
        .env("LD_LIBRARY_PATH", exits.library())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("all came"), "{said}");
    assert!(!said.contains("finalize"), "{said}");
}
