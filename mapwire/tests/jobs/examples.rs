//! The examples, run as jobs.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{is_rank, job};

/// An example, built like this program: with it by `cargo test`, else now.
fn example(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    // target/<profile>/deps/<this program>
    let profile = program.ancestors().nth(2).unwrap();
    let path = profile.join("examples").join(name);
    if !is_rank() && (std::env::var_os("MAPWIRE_LAUNCHER").is_none() || !path.exists()) {
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "-p", "mapwire", "--example", name]);
        if profile.ends_with("release") {
            command.arg("--release");
        }
        command.arg("--target-dir").arg(profile.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(command.status().unwrap().success());
    }
    path
}

/// Makes this rank the example.
fn become_example(path: &Path) {
    panic!("{}: {}", path.display(), Command::new(path).exec());
}

#[test]
fn every_rank_is_greeted_by_the_one_before() {
    let messages = example("messages");
    let done = job(3).run(|_| become_example(&messages)).succeeds();
    (0..3).fold(done, |done, rank| done.prints(&format!("greetings from rank {rank}\n"), 1));
}

#[test]
fn all_ranks_count_in_one_word() {
    let shared_memory = example("shared_memory");
    job(3).run(|_| become_example(&shared_memory)).succeeds().prints("all ranks have counted to 3000\n", 1);
}

#[test]
fn they_do_so_as_if_on_hosts_of_their_own() {
    let shared_memory = example("shared_memory");
    job(3)
        .option("--transport", "udp")
        .run(|_| become_example(&shared_memory))
        .succeeds()
        .prints("all ranks have counted to 3000\n", 1);
}

#[test]
fn ranks_draw_a_picture_from_one_queue_of_rows() {
    let work_queue = example("work_queue");
    for path in ["direct", "ring"] {
        job(4)
            .called(path)
            .option("--path", path)
            .run(|_| become_example(&work_queue))
            .succeeds()
            .prints("256 rows drawn; 66714 of 262144 points stay\n", 1);
    }
}

#[test]
fn first_programs_refuse_one_rank_and_say_how_to_start_more() {
    for name in ["messages", "shared_memory", "work_queue"] {
        let program = example(name);
        job(1).called(name).run(|_| become_example(&program)).code(2).says("start several: mapwire run -n 4");
    }
}
