//! Programs under the library: what they may ask of their memory, and how they fork.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer no program takes.
const LIMIT: Duration = Duration::from_secs(60);

/// The library, which cargo puts beside the folder of the test's program.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.ancestors().nth(2).unwrap();
    let library = folder.join("libmapwire_far.so");
    assert!(library.is_file(), "{} is missing", library.display());
    library
}

/// Runs a program under the library with 512 pages in RAM; what it prints. It is killed after a minute.
fn run(program: &Path, arguments: &[&str]) -> String {
    run_with(program, arguments, "/var/tmp").unwrap()
}

fn run_with(program: &Path, arguments: &[&str], disk: &str) -> Result<String, String> {
    let mut child = Command::new(program)
        .args(arguments)
        .env("LD_PRELOAD", library())
        .env("MAPWIRE_FAR_LOCAL_PAGES", "512")
        .env("MAPWIRE_FAR_DISK", disk)
        .env("MAPWIRE_FAR_FILES", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{} hangs", program.display());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    let mut errors = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut errors)
        .unwrap();
    match status.success() {
        true => Ok(text),
        false => Err(format!("{status}: {text}{errors}")),
    }
}

/// Builds a program of this folder, which is given the name of a file that it may make, and says at its end that all is well.
fn assert_well(name: &str) {
    let folder = std::env::temp_dir().join(format!("mapwire-far-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.c"));
    let built = Command::new("cc")
        .args(["-O1", "-fno-builtin", "-pthread", "-w", "-o"])
        .args([&program, &source])
        .status()
        .unwrap();
    assert!(built.success());
    let found =
        std::panic::catch_unwind(|| run(&program, &[folder.join("data").to_str().unwrap()]));
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(found.unwrap(), "all is well\n");
}

#[test]
fn children_and_their_children_have_the_memory_and_leave_that_of_others_alone() {
    assert_well("fork");
}

#[test]
fn memory_does_what_its_calls_promise_and_mistakes_are_caught() {
    assert_well("memory");
}

#[test]
fn private_mappings_of_files_are_what_the_kernels_are() {
    assert_well("files");
}

#[test]
fn memory_is_locked_within_the_limit_and_no_further() {
    assert_well("locks");
}

#[test]
fn programs_that_close_or_replace_all_descriptors_keep_their_memory() {
    assert_well("descriptors");
}

#[test]
fn a_shell_forks_as_ever() {
    let script = "for i in 1 2 3 4 5; do echo $(echo $i); done";
    let text = run(Path::new("/bin/sh"), &["-c", script]);
    assert_eq!(text, "1\n2\n3\n4\n5\n");
}
