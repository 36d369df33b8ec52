//! Jobs over hosts that are network namespaces, sealed: the programs, while packets are lost and a line goes down; lines of other MTUs,
//! of IPv6 only, and behind a firewall. Needs root and the commands `ip`, `unshare` and `nsenter`, for a firewall `nft`; is skipped
//! without.

use std::time::{Duration, Instant};

use crate::common::{Job, start_job};
use mapwire_testing::namespaces::{Hosts, processes_in};

const RANKED: usize = 4;

/// Four hosts on two networks, and one that has the switches.
fn four() -> Option<Hosts> {
    let hosts = Hosts::new(RANKED + 1)?;
    (hosts.join(RANKED, 0..RANKED, 1) && hosts.join(RANKED, 0..RANKED, 2)).then_some(hosts)
}

/// Drops incoming datagrams of a host that match `which`, in nft's language. False if that is impossible.
fn drop_some(hosts: &Hosts, host: usize, which: &str) -> bool {
    // Of the host, which other tests do not have.
    let name = format!("mapwire-{}.nft", hosts.pids()[host]);
    let rules = std::env::temp_dir().join(name);
    let text = format!(
        "table inet loss {{\n chain in {{\n type filter hook input priority 0;\n \
         meta l4proto udp {which} drop;\n }}\n}}\n"
    );
    std::fs::write(&rules, text).unwrap();
    let is_set = hosts.try_run(host, &format!("nft -f {}", rules.display()));
    std::fs::remove_file(&rules).unwrap();
    is_set
}

/// Loses one in 50 incoming datagrams of a host; returns options for the job, which loses them itself if the hosts cannot, and prints a
/// line then.
fn lose_some(hosts: &Hosts) -> Vec<&'static str> {
    let one_in_50 = "numgen random mod 50 0";
    match (0..RANKED).all(|host| drop_some(hosts, host, one_in_50)) {
        true => Vec::new(),
        false => {
            mapwire_testing::skip!("there is no nft with numgen: the job loses datagrams itself");
            vec!["-x", "MAPWIRE_LOSS=2%"]
        }
    }
}

fn start(hosts: &Hosts, ranks: u32, line: &str) -> Job {
    start_with(hosts, ranks, &[], line)
}

fn start_with(hosts: &Hosts, ranks: u32, more: &[&str], line: &str) -> Job {
    start_on(hosts, RANKED, ranks, more, line)
}

/// Starts a job on the first `count` hosts.
fn start_on(hosts: &Hosts, count: usize, ranks: u32, more: &[&str], line: &str) -> Job {
    let names: Vec<String> = hosts.pids()[..count].iter().map(u32::to_string).collect();
    let names = names.join(",");
    let agent = "nsenter --net=/proc/{host}/ns/net";
    let ranks = ranks.to_string();
    let options = ["-n", &ranks, "--hosts", &names, "--launch-agent", agent];
    let options = options.iter().chain(more).map(|word| (*word).to_owned());
    let options: Vec<String> = options.collect();
    start_job(&options, line)
}

#[test]
fn the_programs_give_their_sequential_results_over_four_hosts_that_lose_packets() {
    let Some(hosts) = four() else { return };
    let losses = lose_some(&hosts);
    for line in [
        "tsp --cities 11",
        "sor --size 258 --iterations 20",
        "is --keys 300000 --values 2^7 --iterations 3",
        "lu --size 192 --block 16",
    ] {
        // Some hosts have two ranks, which share memory.
        for ranks in [4, 6] {
            let job = start_with(&hosts, ranks, &losses, &format!("{line} --json"));
            let row = job.wait().row();
            assert_eq!((&row["check"], &row["ranks"]), (&"ok".into(), &ranks.into()));
        }
    }
}

/// Waits until a host has received more on its first line than ranks send before they compute.
fn wait_until_under_way(hosts: &Hosts, host: usize) {
    let end = Instant::now() + Duration::from_secs(60);
    while hosts.received(host, "eth1") < 200_000 {
        assert!(Instant::now() < end, "host {host} receives nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_host_that_loses_one_of_its_lines_goes_on_by_the_other() {
    let Some(hosts) = four() else { return };
    let job = start(&hosts, 4, "sor --size 514 --iterations 60 --json");
    wait_until_under_way(&hosts, 2);
    hosts.run(2, "ip link set eth1 down");
    let row = job.wait().row();
    assert_eq!(row["check"], "ok", "{row}");
}

#[test]
fn when_a_host_is_gone_the_job_ends_with_a_word_of_it_and_leaves_nothing() {
    let Some(hosts) = four() else { return };
    let job = start(&hosts, 4, "sor --size 1026 --iterations 100000");
    wait_until_under_way(&hosts, 3);
    let all = processes_in(&hosts.network_of(3)).into_iter();
    let all = all.filter(|pid| *pid != hosts.pids()[3]);
    let mut kill = std::process::Command::new("kill");
    kill.arg("-9").args(all.map(|pid| pid.to_string()));
    // Some may have gone with those that were killed before them.
    kill.status().unwrap();
    let ended = job.wait();
    let name = hosts.pids()[3].to_string();
    // Its command may say that the agent was killed before it is killed itself.
    let says = [format!("host {name} is lost"), format!("host {name}: the agent was killed")];
    assert!(ended.code != 0, "{ended:?}");
    assert!(says.iter().any(|text| ended.err.contains(text)), "{ended:?}");
    for host in 0..RANKED {
        let left = processes_in(&hosts.network_of(host));
        assert_eq!(left, [hosts.pids()[host]], "host {host}");
    }
}

#[test]
fn hosts_that_a_firewall_keeps_apart_are_named_with_their_addresses_in_time() {
    let Some(hosts) = four() else { return };
    if !drop_some(&hosts, 1, "") {
        mapwire_testing::skip!("there is no nft: the lines are down instead");
        hosts.run(1, "ip link set eth1 down");
        hosts.run(1, "ip link set eth2 down");
    }
    let line = "is --keys 30000 --values 2^7 --iterations 1";
    let job = start_with(&hosts, 4, &["--timeout", "3"], line);
    let ended = job.wait();
    assert_eq!(ended.code, 1, "{ended:?}");
    // Rank 1 says so of another, or another of rank 1.
    let text = "nothing came from it at 10.0.1.";
    assert!(ended.err.contains(text), "{}", ended.err);
}

#[test]
fn jobs_run_over_short_and_long_packets_and_over_ipv6_alone() {
    for mtu in [576, 1500, 9000] {
        let Some(hosts) = Hosts::new(2) else { return };
        hosts.connect([0, 1], 1, mtu);
        if mtu == 1500 {
            hosts.run(0, "ip -4 address flush dev to1");
            hosts.run(1, "ip -4 address flush dev to0");
        }
        let row = start_on(&hosts, 2, 4, &[], "sor --size 258 --iterations 10 --json");
        let row = row.wait().row();
        assert_eq!((&row["check"], &row["ranks"]), (&"ok".into(), &4.into()), "{mtu}");
    }
}
