//! What the scripts rely on.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// Runs a line of bash that may call what test.sh has from elsewhere; a command that does nothing for 3 s counts as hung.
fn bash(line: &str) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = format!(
        "set -euo pipefail; source scripts/toolchain.sh; source scripts/limited.sh; source scripts/skips.sh; standstill=3; {line}"
    );
    Command::new("bash").args(["-c", &script]).current_dir(root).output().unwrap()
}

#[test]
fn a_skipped_test_is_listed_once_with_its_reasons_unless_it_failed() {
    let lines = "a::x::one\\tno moon\\na::x::two\\tno sun\\na::x::one\\tno moon\\na::x::one\\tno tide\\nphase miri\\tno Miri\\n";
    let output = bash(&format!(
        "SKIPPED_TESTS=$(mktemp); failures=$(mktemp); printf '{lines}' >$SKIPPED_TESTS; echo x::two >$failures
         skipped_once $failures; rm $SKIPPED_TESTS $failures"
    ));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "a::x::one\tno moon; no tide\nphase miri\tno Miri\n", "{output:?}");
}

#[test]
fn a_skip_is_excused_only_for_a_reason_that_is_listed_and_a_lack_that_is_confirmed() {
    for (reason, excused) in [("no moon", true), ("no sun", false), ("no tshark", false)] {
        let output = bash(&format!("excuses=('moon|false' 'sun|true'); is_excused '{reason}'"));
        assert_eq!(output.status.success(), excused, "{reason}: {output:?}");
    }
    // Each of them can be looked for.
    let output = bash(
        "phase=; for excuse in \"${excuses[@]}\"; do bash -n <<<\"${excuse#*|}\" && [[ $excuse == ?*'|'?* ]]; done",
    );
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn warnings_are_errors_in_one_version_of_rust_alone() {
    for (version, strict) in [("1.95.1", true), ("1.96.0", false), ("1.9.5", false)] {
        let line = format!("rust_linted=1.95; rustc() {{ echo 'rustc {version} (abc)'; }}; warnings_are_errors");
        assert_eq!(bash(&line).status.success(), strict, "{version}");
    }
}

#[test]
fn a_phase_that_waits_for_a_processor_is_not_ended() {
    let begun = std::time::Instant::now();
    let output = bash("limited 1 sleep 2; limited 1 sh -c 'exit 7'");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(begun.elapsed() >= Duration::from_secs(2));
}

#[test]
fn a_phase_that_spins_or_hangs_is_ended_for_that_reason() {
    for (line, says) in [
        (
            // Not three seconds: a busy computer may give it less than one of them.
            "standstill=600; limited 2 sh -c 'while :; do :; done'",
            "used more than 2 s of processor time",
        ),
        ("limited 60 sleep 1000", "did nothing for 3 s"),
    ] {
        let output = bash(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{line}: {said}");
    }
}
