//! The examples, built with pkg-config from an installed mapwire, outside the tree, and run.

use crate::common::{Installed, Linking};
use mapwire_testing::namespaces::Hosts;

const LINKINGS: [Linking; 2] = [Linking::Shared, Linking::Static];

/// Asserts that the output contains every line of `wanted`.
#[track_caller]
fn says(output: &str, wanted: &[&str]) {
    for line in wanted {
        assert!(output.contains(line), "no \"{line}\" in:\n{output}");
    }
}

#[test]
fn the_first_program_hears_from_rank_1() {
    for linking in LINKINGS {
        let installed = Installed::get(linking);
        let output = installed.example("first").run(2, &[], &[]);
        says(&output, &["rank 1 says 42"]);
    }
}

#[test]
fn the_command_of_the_readme_builds_the_first_program_in_the_clone() {
    let root = crate::common::here().join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let mut commands = readme.lines().filter(|line| line.starts_with("cc "));
    let (Some(command), None) = (commands.next(), commands.next()) else {
        panic!("the README has not one command that compiles C");
    };
    let folder = crate::common::Folder::new();
    let first = folder.path().join("first");
    // Where this test run builds, and outside the tree.
    let command = command
        .replace("target/release", crate::common::built().to_str().unwrap())
        .replace("-o first", &format!("-o {}", first.display()));
    crate::common::run(crate::common::clean("sh").args(["-c", &command]).current_dir(root));
    let output = crate::common::run(crate::common::start(2, &[]).arg(first));
    says(&output, &["rank 1 says 42"]);
}

#[test]
fn the_first_program_fits_a_page() {
    let text = std::fs::read_to_string(crate::common::here().join("examples/first.c")).unwrap();
    assert!(text.lines().count() <= 40);
}

#[test]
fn the_first_program_refuses_one_rank_and_names_the_launcher_that_started_it_so() {
    let installed = Installed::get(Linking::Shared);
    let first = installed.example("first");
    for (rank, warnings) in [("0", 1), ("1", 0)] {
        let output = crate::common::clean(first.path())
            .env("LD_LIBRARY_PATH", installed.path("lib"))
            .env("OMPI_COMM_WORLD_SIZE", "2")
            .env("OMPI_COMM_WORLD_RANK", rank)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let mark = "mpirun of Open MPI started this process (OMPI_COMM_WORLD_SIZE=2)";
        assert_eq!(said.matches(mark).count(), warnings, "{said}");
        assert!(said.contains("start two: mapwire run -n 2 -- ./first"), "{said}");
    }
}

#[test]
fn stores_signals_notifications_and_fetches_pass_between_two_c_programs() {
    for linking in LINKINGS {
        let installed = Installed::get(linking);
        let output = installed.example("vmmc").run(2, &[], &[]);
        says(
            &output,
            &["table: direct path", "fetch: ok", "send_to: ok", "put_signal: ok", "send_notify: ok", "send_async: ok"],
        );
    }
}

#[test]
fn ranks_draw_a_picture_from_one_queue_of_rows() {
    let mut pictures = Vec::new();
    for linking in LINKINGS {
        let installed = Installed::get(linking);
        let queue = installed.example("work_queue");
        for path in ["direct", "ring"] {
            let output = queue.run(4, &["--path", path], &[]);
            says(&output, &["256 rows drawn; ", " of 262144 points stay"]);
            pictures.push(output);
        }
    }
    assert!(pictures.iter().all(|picture| *picture == pictures[0]));
}

#[test]
fn they_do_so_in_every_way_of_waiting() {
    let installed = Installed::get(Linking::Shared);
    let vmmc = installed.example("vmmc");
    for wait in ["poll", "event", "adaptive"] {
        let output = vmmc.run(2, &["--wait", wait], &[]);
        says(&output, &["put_signal: ok", "send_async: ok"]);
    }
}

#[test]
fn c_programs_share_a_matrix_and_a_counter() {
    for linking in LINKINGS {
        let installed = Installed::get(linking);
        let output = installed.example("dsm").run(2, &[], &[]);
        assert_eq!(output.matches("counter 400: ok").count(), 2, "{output}");
    }
}

#[test]
fn a_program_without_any_shared_library_serves_its_page_faults_too() {
    let archive = crate::common::run(crate::common::clean("cc").arg("-print-file-name=libc.a"));
    if !archive.starts_with('/') {
        mapwire_testing::skip!("this computer has no C library to link statically");
        return;
    }
    let installed = Installed::get(Linking::Static);
    let dsm = installed.example_with("dsm", &["LDFLAGS=-static"]);
    let output = dsm.run(2, &[], &[]);
    assert_eq!(output.matches("counter 400: ok").count(), 2, "{output}");
}

#[test]
fn they_do_so_whichever_way_faults_are_caught() {
    let installed = Installed::get(Linking::Shared);
    let output = installed.example("dsm").run(3, &["--faults", "sigsegv"], &[]);
    assert_eq!(output.matches("counter 600: ok").count(), 3, "{output}");
}

/// The examples with their ranks, and their output if no rank maps memory of another.
const EXAMPLES: [(&str, u32, &[&str]); 4] = [
    ("first", 2, &["rank 1 says 42"]),
    ("vmmc", 2, &["table: ring path", "fetch: ok", "send_async: ok"]),
    ("dsm", 3, &["counter 600: ok"]),
    ("work_queue", 4, &["256 rows drawn; 66714 of 262144 points stay"]),
];

#[test]
fn every_example_runs_over_hosts_that_are_namespaces_while_datagrams_are_lost() {
    let Some(hosts) = Hosts::new(5) else { return };
    if !hosts.join(4, 0..4, 1) {
        return;
    }
    let installed = Installed::get(Linking::Shared);
    for (name, ranks, lines) in EXAMPLES {
        let names = &hosts.pids()[..ranks as usize];
        let names: Vec<String> = names.iter().map(u32::to_string).collect();
        let options = [
            "--hosts",
            &names.join(","),
            "--launch-agent",
            "nsenter --net=/proc/{host}/ns/net",
            "-x",
            "MAPWIRE_LOSS=2%",
        ];
        says(&installed.example(name).run(ranks, &options, &[]), lines);
    }
}

#[test]
fn every_example_runs_on_hosts_of_its_own_sealed_and_plain() {
    let installed = Installed::get(Linking::Shared);
    let sealed: &[&str] = &["--transport", "udp"];
    let plain: &[&str] = &["--transport", "udp", "--insecure"];
    for (name, ranks, lines) in EXAMPLES {
        let example = installed.example(name);
        for options in [sealed, plain] {
            says(&example.run(ranks, options, &[]), lines);
        }
    }
}

/// Undefined values are not checked: compilers branch on a value before the check that makes it valid.
#[test]
fn valgrind_runs_the_examples_and_finds_no_wild_access() {
    if crate::common::clean("valgrind").arg("--version").output().is_err() {
        mapwire_testing::skip!("there is no valgrind");
        return;
    }
    let installed = Installed::get(Linking::Shared);
    let memcheck = ["valgrind", "--quiet", "--error-exitcode=99", "--undef-value-errors=no"];
    let programs = [
        ("first", "rank 1 says 42"),
        ("vmmc", "send_async: ok"),
        ("work_queue", "256 rows drawn"),
        // Memory that the ranks of a host share is plain memory.
        ("dsm", "counter 400: ok"),
    ];
    for (name, said) in programs {
        let output = installed.example(name).run_under(&memcheck, 2, &[], &[]);
        says(&output, &[said]);
    }
    // With minipages the faults of shared memory are wild accesses to memcheck, and after each valgrind must know all registers.
    let no_check = ["valgrind", "--quiet", "--tool=none", "--vex-iropt-register-updates=allregs-at-mem-access"];
    let faults = ["--coherence", "minipages", "--faults", "sigsegv"];
    let output = installed.example("dsm").run_under(&no_check, 2, &faults, &[]);
    assert_eq!(output.matches("counter 400: ok").count(), 2, "{output}");
}

#[test]
fn a_program_without_a_launcher_is_a_job_of_one() {
    let installed = Installed::get(Linking::Shared);
    let dsm = installed.example("dsm");
    let output = crate::common::run(crate::common::clean(dsm.path()).env("LD_LIBRARY_PATH", installed.path("lib")));
    says(&output, &["rank 0:", "counter 200: ok"]);
}
