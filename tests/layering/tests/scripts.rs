//! What the scripts rely on.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// Runs a line of bash that may call `limited`; a command that does nothing for 3 s counts as hung.
fn bash(line: &str) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = format!("set -euo pipefail; source scripts/limited.sh; standstill=3; {line}");
    Command::new("bash")
        .args(["-c", &script])
        .current_dir(root)
        .output()
        .unwrap()
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
            "limited 2 sh -c 'while :; do :; done'",
            "used more than 2 s of processor time",
        ),
        ("limited 60 sleep 1000", "did nothing for 3 s"),
    ] {
        let output = bash(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(says),
            "{line}: {said}"
        );
    }
}
