//! Ranks under the real launchers, where these are installed (Debian: openmpi-bin; slurmctld, slurmd, slurm-client, munge; mpich).
//! The ranks are the example `card`, which puts a value, fences, and reads everybody's.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};

const MPIRUN: [&str; 2] = ["--oversubscribe", "--allow-run-as-root"];

fn card() -> String {
    let tests = std::env::current_exe().unwrap();
    let card = tests.ancestors().nth(2).unwrap().join("examples/card");
    assert!(card.exists(), "{card:?} is missing: cargo build -p mapwire-launch --example card");
    card.to_str().unwrap().into()
}

fn script(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("scripts").join(name).to_str().unwrap().into()
}

fn has(program: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .chain(["/usr/sbin".into()])
        .any(|folder| folder.join(program).exists());
    if !found {
        mapwire_testing::skip!("there is no {program}");
    }
    found
}

/// Runs a command without what a launcher around these tests may have set, for 50 s at most.
fn run(program: &str, arguments: &[&str]) -> Output {
    run_for("50", program, arguments)
}

/// As [`run`], for so many seconds at most. One that does not end then is killed 5 s later, and `timeout` with it.
fn run_for(limit: &str, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["PMI_", "PMIX_", "SLURM_", "OMPI_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&*name);
        }
    }
    // Two that make their folder in the same at once are in each other's way.
    let folder = tempfile::tempdir().unwrap();
    command.env("TMPDIR", folder.path());
    command.args(["-k", "5", limit, program]).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    format!("{}\n{}", output.status, String::from_utf8_lossy(&both))
}

/// Each of four ranks has read four cards, by this protocol.
fn assert_four(said: &str, protocol: &str) {
    for rank in 0..4 {
        let begin = format!("rank {rank} of 4 by {protocol}: ");
        let line = said.lines().find(|line| line.starts_with(&begin));
        assert!(line.is_some_and(|line| line.ends_with(": 4 cards")), "rank {rank}: {said}");
    }
}

#[test]
fn ranks_of_mpirun_exchange_short_and_long_values() {
    if !has("mpirun") {
        return;
    }
    for bytes in ["0", "448", "60000"] {
        let output = run("mpirun", &[&MPIRUN[..], &["-n", "4", &card(), bytes]].concat());
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        assert_four(&said, "PMIx");
    }
}

#[test]
fn a_rank_of_mpirun_that_fails_or_aborts_ends_the_job_with_its_code() {
    if !has("mpirun") {
        return;
    }
    for (what, code) in [("fail", 7), ("abort", 23)] {
        let card = card();
        let line = [&MPIRUN[..], &["-n", "4", &card, what, "2"]].concat();
        // When all ranks are dead, one abort in ten leaves the server in mpirun (PMIx 4.2) waiting in PMIx_server_finalize for a
        // lock that its own thread holds, often deaf to SIGTERM; or it crashes there. Then it is tried again. Ranks that nobody
        // ended say so after 5 s.
        let tries = (0..4).map(|_| run_for("15", "mpirun", &line));
        let has_failed_itself = |output: &Output| match (output.status.code(), output.status.signal()) {
            (Some(124), _) | (_, Some(9)) => !text(output).contains("hears nothing"),
            (_, Some(11)) => text(output).contains("(PMIx_server_finalize+"),
            _ => false,
        };
        let mut ended = tries.skip_while(has_failed_itself);
        let output = ended.next().expect("mpirun ended in one of four tries");
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
    }
}

#[test]
fn a_rank_of_mpirun_that_misses_the_fence_is_not_waited_for_longer_than_asked() {
    if !has("mpirun") {
        return;
    }
    let output = run("mpirun", &[&MPIRUN[..], &["-n", "4", &card(), "missing", "2"]].concat());
    let said = text(&output);
    assert!(said.contains("a fence of all ranks took longer than 1 s"), "{said}");
}

/// Two network namespaces, joined by a pair of interfaces; removed when dropped.
struct Hosts([String; 2]);

impl Hosts {
    fn make() -> Option<Self> {
        let ip = |line: &str| {
            let done = Command::new("ip").args(line.split(' ')).output();
            done.is_ok_and(|done| done.status.success())
        };
        let names = [0, 1].map(|at| format!("mwlaunch{}x{at}", std::process::id()));
        let hosts = Self(names);
        let [a, b] = &hosts.0;
        let lines = [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add v0 netns {a} type veth peer name v1 netns {b}"),
            format!("-n {a} addr add 10.97.31.1/24 dev v0"),
            format!("-n {b} addr add 10.97.31.2/24 dev v1"),
            format!("-n {a} link set lo up"),
            format!("-n {b} link set lo up"),
            format!("-n {a} link set v0 up"),
            format!("-n {b} link set v1 up"),
        ];
        let refused = lines.iter().find(|line| !ip(line));
        if let Some(line) = refused {
            mapwire_testing::skip!("ip {line} is refused here");
            return None;
        }
        Some(hosts)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

#[test]
fn ranks_of_mpirun_on_two_hosts_read_each_others_cards() {
    if !has("mpirun") || !has("ip") {
        return;
    }
    let Some(hosts) = Hosts::make() else {
        return;
    };
    let [a, b] = &hosts.0;
    // Open MPI appends the command to this; a shell puts its words together.
    let agent = std::env::temp_dir().join(format!("{a}-agent"));
    std::fs::write(&agent, "#!/bin/sh\nhost=$1; shift\nexec ip netns exec \"$host\" sh -c \"$*\"\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&agent, mode).unwrap();
    let (host_list, agent_path) = (format!("{a}:2,{b}:2"), agent.to_str().unwrap());
    let card = card();
    let arguments = [
        "netns",
        "exec",
        a,
        "mpirun",
        "--allow-run-as-root",
        "--host",
        &host_list,
        "-n",
        "4",
        "--mca",
        "plm_rsh_agent",
        agent_path,
        "--mca",
        "plm_rsh_no_tree_spawn",
        "1",
        "--mca",
        "oob_tcp_if_include",
        "10.97.31.0/24",
        &card,
        "448",
    ];
    // One start in five does not end on a machine of two processors, for a reason that is not known. Then it is tried again.
    let mut tries = (0..4).map(|_| run_for("15", "ip", &arguments));
    let output = tries.find(|output| !matches!(output.status.code(), Some(124 | 137) | None));
    let output = output.expect("mpirun ended in one of four tries");
    let _ = std::fs::remove_file(&agent);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert_four(&said, "PMIx");
}

#[test]
fn ranks_of_mpiexec_exchange_short_and_long_values() {
    if !has("mpiexec.hydra") {
        return;
    }
    for bytes in ["0", "60000"] {
        let output = run("mpiexec.hydra", &["-launcher", "fork", "-n", "4", &card(), bytes]);
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        assert_four(&said, "PMI-2");
    }
}

/// One Slurm for all of its cases: it takes longest to start.
#[test]
fn ranks_of_srun_exchange_values_by_pmi2_across_nodes_and_by_pmix_within_one() {
    if !["slurmctld", "slurmd", "srun", "munged"].into_iter().all(has) {
        return;
    }
    let card = card();
    let cases = format!(
        "echo case pmi2; srun -N4 -n4 --mpi=pmi2 {card} 0; echo code $?
         echo case long; srun -N2 -n4 --mpi=pmi2 {card} 5000; echo code $?
         echo case pmix; srun -N1 -n4 --mpi=pmix {card} 5000; echo code $?
         echo case abort; srun -N1 -n4 --mpi=pmix {card} abort 1; echo code $?
         echo case missing; srun -N1 -n4 --mpi=pmi2 {card} missing 1; echo code $?
         echo case none; srun -N1 -n4 --mpi=none {card}; echo code $?
         echo case one; srun -N1 -n1 --mpi=none {card}; echo code $?"
    );
    let script = script("slurm.sh");
    let output = run(&script, &["run", "bash", "-c", &format!("exec 2>&1\n{cases}")]);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let part = |name: &str| {
        let parts = said.split("case ").find(|part| part.starts_with(name));
        parts.unwrap_or_else(|| panic!("no {name}: {said}")).to_owned()
    };
    if part("pmix").contains("plugin") {
        mapwire_testing::skip!("this Slurm has no PMIx");
    } else {
        assert_four(&part("pmix"), "PMIx");
        assert!(part("abort").contains("code 23"), "{said}");
    }
    assert_four(&part("pmi2"), "PMI-2");
    assert_four(&part("long"), "PMI-2");
    assert!(part("pmi2").contains("code 0") && part("long").contains("code 0"), "{said}");
    assert!(part("missing").contains("took longer than 1 s"), "{said}");
    assert!(part("none").contains("srun started 4 ranks that cannot exchange addresses"), "{said}");
    assert!(part("one").contains("no launcher"), "{said}");
}
