//! The programs under the launchers of clusters: on one host, and over four that are network namespaces, sealed. Skipped where
//! a launcher is missing, or namespaces are not allowed.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::{Ended, program};
use mapwire_testing::namespaces::Hosts;

const LINE: &str = "is --keys 30000 --values 2^7 --iterations 2 --json";
const HOSTS: usize = 4;

fn has(name: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .chain(["/usr/sbin".into()])
        .any(|folder| folder.join(name).exists());
    if !found {
        mapwire_testing::skip!("there is no {name}");
    }
    found
}

/// Four hosts on a network, and one that has the switch.
fn four() -> Option<Hosts> {
    let hosts = Hosts::new(HOSTS + 1)?;
    hosts.join(HOSTS, 0..HOSTS, 1).then_some(hosts)
}

/// A program and its arguments.
fn words(line: &str) -> Vec<String> {
    let mut words = line.split(' ').map(str::to_owned);
    let name = words.next().unwrap();
    [program(&name).to_owned()].into_iter().chain(words).collect()
}

/// Runs a command for 60 s at most, without what a launcher around these tests may have set.
fn run(command: Command) -> Ended {
    let mut limited = crate::common::clean("timeout");
    limited.args(["-k", "5", "60"]).arg(command.get_program());
    limited.args(command.get_args());
    for (name, value) in command.get_envs() {
        limited.env(name, value.unwrap_or_default());
    }
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["PMI_", "PMIX_", "SLURM_", "OMPI_"].iter().any(|prefix| text.starts_with(prefix)) {
            limited.env_remove(&name);
        }
    }
    Ended::of(limited.output().unwrap())
}

fn mpirun(command: &mut Command) -> &mut Command {
    command.args(["--allow-run-as-root", "--oversubscribe"])
}

/// One row of figures, of a job of `ranks` ranks with the right result.
fn assert_right(ended: Ended, ranks: u32) {
    let row = ended.row();
    assert_eq!((&row["check"], &row["ranks"]), (&"ok".into(), &ranks.into()));
}

#[test]
fn ranks_of_mpirun_on_one_host_are_a_job() {
    if !has("mpirun") {
        return;
    }
    let folder = mapwire_testing::OpenFolder::new();
    let mut command = Command::new("mpirun");
    mpirun(&mut command).args(["-n", "3"]).args(words(LINE));
    // Two that make their folders at the same time interfere with each other.
    command.env("TMPDIR", folder.path());
    assert_right(run(command), 3);
}

#[test]
fn ranks_of_mpiexec_are_a_job() {
    if !has("mpiexec.hydra") {
        return;
    }
    let mut command = Command::new("mpiexec.hydra");
    command.args(["-launcher", "fork", "-n", "3"]).args(words(LINE));
    assert_right(run(command), 3);
}

#[test]
fn ranks_of_mpirun_over_four_hosts_are_a_job_whichever_way_they_are_numbered() {
    if !has("mpirun") {
        return;
    }
    let Some(hosts) = four() else { return };
    let pids = hosts.pids().into_iter().take(HOSTS);
    let names = pids.map(|pid| format!("{pid}:2"));
    let names = names.collect::<Vec<_>>().join(",");
    // Open MPI appends the command to this; a shell puts its words together. These hosts have one /tmp: daemons that make their
    // folders in it at once may fail, and mpirun then waits for them forever. Each gets a /tmp of its own.
    let agent = std::env::temp_dir().join(format!("mapwire-agent-{}", std::process::id()));
    let script = "#!/bin/sh\nhost=$1; shift\nexport TMPDIR=$0.tmp/$host; mkdir -p $TMPDIR\nexec nsenter --net=/proc/$host/ns/net sh -c \"$*\"\n";
    std::fs::write(&agent, script).unwrap();
    std::fs::set_permissions(&agent, PermissionsExt::from_mode(0o755)).unwrap();
    for by in ["slot", "node"] {
        let mut command = hosts.command(0, "mpirun");
        mpirun(&mut command)
            .args(["--host", &names, "-n", "6", "--map-by", by])
            .args(["--mca", "plm_rsh_agent", agent.to_str().unwrap()])
            .args(["--mca", "plm_rsh_no_tree_spawn", "1"])
            .args(["--mca", "oob_tcp_if_include", "10.0.1.0/24"])
            .args(words(LINE));
        assert_right(run(command), 6);
    }
    std::fs::remove_file(&agent).unwrap();
    std::fs::remove_dir_all(agent.with_extension("tmp")).unwrap();
}

/// One Slurm for both tests: it takes longest to start.
#[test]
fn ranks_of_srun_over_four_hosts_and_on_one_are_a_job() {
    if !["slurmctld", "slurmd", "srun", "munged"].into_iter().all(has) {
        return;
    }
    let Some(hosts) = four() else { return };
    let networks = hosts.pids().into_iter().zip(1..);
    let networks = networks.map(|(pid, number)| format!("{pid}@10.0.1.{number}"));
    let networks: Vec<String> = networks.take(HOSTS).collect();
    let line = words(LINE).join(" ");
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/slurm.sh");
    let mut command = Command::new(root);
    let cases =
        format!("srun -N4 -n6 --mpi=pmi2 {line}\nsrun -N1 -n3 --mpi=pmix {line}\nsrun -N2 -n2 --mpi=none {line}");
    command.args(["run", "bash", "-c", &cases]).env("NETWORKS", networks.join(" "));
    let ended = run(command);
    let rows: Vec<serde_json::Value> = ended.out.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let mut wanted = vec![6];
    if ended.err.contains("plugin") {
        mapwire_testing::skip!("this Slurm has no PMIx");
    } else {
        wanted.push(3);
    }
    let ranks = |row: &serde_json::Value| row["ranks"].clone();
    assert_eq!(rows.iter().map(ranks).collect::<Vec<_>>(), wanted, "{ended:?}");
    assert!(rows.iter().all(|row| row["check"] == "ok"), "{ended:?}");
    assert!(ended.err.contains("srun started 2 ranks that cannot exchange addresses"), "{ended:?}");
}

#[test]
fn when_a_rank_of_mpirun_is_killed_the_others_end_and_leave_nothing() {
    if !has("mpirun") {
        return;
    }
    let Some(hosts) = four() else { return };
    let mut command = hosts.command(0, "timeout");
    // Some wait for ever when they are told to end.
    command.args(["-k", "5", "60", "mpirun"]);
    let folder = mapwire_testing::OpenFolder::new();
    command.env("TMPDIR", folder.path());
    mpirun(&mut command).args(["-n", "3"]).args(words("sor --size 1026 --iterations 100000"));
    command.stdout(std::process::Stdio::null());
    command.stderr(std::process::Stdio::null());
    let mut job = command.spawn().unwrap();
    let sor = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/comm"));
        command.is_ok_and(|name| name == b"sor\n")
    };
    let network = hosts.network_of(0);
    let find = || -> Vec<u32> {
        let all = mapwire_testing::namespaces::processes_in(&network);
        all.into_iter().filter(sor).collect()
    };
    // A rank that has joined has threads that serve it.
    let has_joined =
        |pid: &u32| std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1);
    let started = std::time::Instant::now();
    while find().iter().filter(|pid| has_joined(pid)).count() < 3 {
        assert!(started.elapsed().as_secs() < 60, "no ranks");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let victim = find()[1].to_string();
    assert!(Command::new("kill").args(["-9", &victim]).status().unwrap().success());
    assert!(!job.wait().unwrap().success());
    assert_eq!(find(), [] as [u32; 0]);
}
