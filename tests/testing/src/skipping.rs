//! Says which tests cannot run here, and why.

use std::io::Write;
use std::path::Path;

/// The variable with the name of the file that gets a line for each skipped test: `program::test`, a tab, the reason. `scripts/test.sh`
/// sets it and counts the lines. The name does not begin with `MAPWIRE_`, which jobs do not inherit.
pub const SKIPPED_TESTS: &str = "SKIPPED_TESTS";

/// What [`skip!`](crate::skip!) calls.
pub fn skip(reason: &str) {
    let line = format!("{}\t{}", this_test(), reason.replace(['\n', '\t'], " "));
    eprintln!("skipped: {line}");
    if let Some(file) = std::env::var_os(SKIPPED_TESTS) {
        let file = std::fs::OpenOptions::new().append(true).open(&file);
        let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        // A test that nobody hears of would count as passed.
        written.unwrap_or_else(|error| panic!("{SKIPPED_TESTS}: {error}; skipped: {line}"));
    }
}

/// The program without cargo's hash, and the test: libtest names its threads so, and a process that a test starts has it as an argument.
fn this_test() -> String {
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let thread = std::thread::current();
    let name = match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => exact(std::env::args()).unwrap_or_else(|| "?".to_owned()),
    };
    format!("{program}::{name}")
}

/// The test that was asked for by its name: the first argument that is no option.
fn exact(arguments: impl Iterator<Item = String>) -> Option<String> {
    let arguments: Vec<String> = arguments.skip(1).collect();
    let is_exact = arguments.iter().any(|argument| argument == "--exact");
    let mut names = arguments.into_iter().filter(|name| !name.starts_with('-'));
    names.next().filter(|_| is_exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs this test program with one test alone, which skips itself if the variable is set.
    fn run(file: &Path, options: &[&str]) -> std::process::Output {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "skipping::tests::a_skipped_test_is_named_in_the_file_with_its_reason"])
            .args(options)
            .env(SKIPPED_TESTS, file)
            .env("SKIPS_ITSELF", "yes")
            .output()
            .unwrap()
    }

    #[test]
    fn a_skipped_test_is_named_in_the_file_with_its_reason() {
        if std::env::var_os("SKIPS_ITSELF").is_some() {
            crate::skip!("there is no\n{}", "moon");
            return;
        }
        let folder = crate::OpenFolder::new();
        let file = folder.path().join("skipped");
        std::fs::write(&file, "").unwrap();
        // In a thread of its own, and in the only one.
        for options in [&[][..], &["--test-threads=1"]] {
            let output = run(&file, options);
            assert!(output.status.success(), "{output:?}");
        }
        let line =
            "mapwire_testing::skipping::tests::a_skipped_test_is_named_in_the_file_with_its_reason\tthere is no moon\n";
        assert_eq!(std::fs::read_to_string(&file).unwrap(), line.repeat(2));
        // A file that takes nothing fails the test.
        assert!(!run(&folder.path().join("missing"), &[]).status.success());
    }
}
