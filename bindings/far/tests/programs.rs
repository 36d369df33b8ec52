//! Programs under the library: their use of memory, and their forks.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Upper bound on a program's time.
const LIMIT: Duration = Duration::from_secs(60);

/// The library, which cargo puts beside the folder of the test's program.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.ancestors().nth(2).unwrap();
    let library = folder.join("libmapwire_far.so");
    assert!(library.is_file(), "{} is missing", library.display());
    library
}

/// Runs a program under the library with 512 pages in RAM, for a minute at most; returns its output.
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
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    match status.success() {
        true => Ok(text),
        false => Err(format!("{status}: {text}{errors}")),
    }
}

/// A program of this folder, in a folder of its own that is removed on drop.
struct Built {
    folder: PathBuf,
    program: PathBuf,
}

impl Built {
    /// `purpose` distinguishes those of one program.
    fn new(name: &str, purpose: &str) -> Self {
        let folder = format!("mapwire-far-{name}-{purpose}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join(name);
        let built = Self { folder, program };
        built.compile(name, &built.program, &["-Wl,-rpath,$ORIGIN"]);
        built
    }

    fn compile(&self, name: &str, output: &Path, options: &[&str]) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.c"));
        let built = Command::new("cc")
            .args(["-O1", "-fno-builtin", "-pthread", "-w"])
            .args(options)
            .arg("-o")
            .args([output, &source])
            .status()
            .unwrap();
        assert!(built.success());
    }

    /// Runs it with these arguments and the name of a file that it may make. At its end it must say that all is well.
    fn assert_well(&self, arguments: &[&str]) {
        let data = self.folder.join("data");
        let arguments = [arguments, &[data.to_str().unwrap()]].concat();
        let text = run(&self.program, &arguments);
        if text.starts_with("skipped") {
            println!("{text}");
        } else {
            assert_eq!(text, "all is well\n");
        }
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn assert_well(name: &str) {
    Built::new(name, "").assert_well(&[]);
}

/// Memory is held in a way of `references.c` while the program touches other memory.
fn assert_kept(way: &str) {
    Built::new("references", way).assert_well(&[way]);
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

#[test]
fn reserved_address_space_takes_code_and_shared_memory_as_without_the_library() {
    assert_well("reservations");
}

#[test]
fn libraries_that_bind_deeply_and_the_program_free_what_the_other_allocated() {
    let built = Built::new("libraries", "");
    let library = built.folder.join("data.so");
    built.compile("libraries", &library, &["-DLIBRARY", "-shared", "-fPIC"]);
    built.assert_well(&[]);
}

#[test]
fn a_pipe_keeps_what_vmsplice_gave_it() {
    assert_kept("vmsplice");
}

#[test]
fn pages_that_are_spliced_on_keep_what_was_given() {
    assert_kept("splice");
}

#[test]
fn a_socket_keeps_what_msg_zerocopy_gave_it() {
    assert_kept("zero-copy");
}

#[test]
fn a_socket_keeps_what_an_io_uring_sent_without_a_copy() {
    assert_kept("ring-zero-copy");
}

#[test]
fn pages_that_an_io_uring_splices_keep_what_was_given() {
    assert_kept("ring-splice");
}

#[test]
fn buffers_that_an_io_uring_has_pinned_stay_where_they_are() {
    assert_kept("ring-buffers");
}

#[test]
fn reads_and_writes_past_the_page_cache_arrive_while_pages_come_and_go() {
    assert_kept("direct");
}

#[test]
fn another_process_stores_and_loads_while_pages_come_and_go() {
    assert_kept("another-process");
}

#[test]
fn memory_of_a_packet_socket_stays_where_it_is() {
    assert_kept("packets");
}
