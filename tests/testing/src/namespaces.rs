//! Hosts that are network namespaces of this computer, for tests. They need root and the commands `ip`, `unshare` and `nsenter`.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Network namespaces, each held by a process that sleeps. They end with it.
#[derive(Debug)]
pub struct Hosts(Vec<Child>);

impl Hosts {
    /// `None`, and says so, where that is not allowed.
    pub fn new(count: usize) -> Option<Self> {
        let mut hosts = Self(Vec::new());
        for _ in 0..count {
            let holder = Command::new("unshare").args(["--net", "sleep", "600"]).stderr(Stdio::null()).spawn();
            match holder {
                Ok(holder) => hosts.0.push(holder),
                Err(error) => {
                    crate::skip!("no network namespaces: {error}");
                    return None;
                }
            }
        }
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        for (host, holder) in hosts.0.iter_mut().enumerate() {
            let name = format!("/proc/{}/ns/net", holder.id());
            while std::fs::read_link(&name).is_ok_and(|name| name == own) {
                if holder.try_wait().unwrap().is_some() || Instant::now() > end {
                    crate::skip!("host {host} may have no network namespace");
                    return None;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let can_enter = (0..count).all(|host| hosts.try_run(host, "ip link set lo up"));
        if !can_enter {
            crate::skip!("cannot enter network namespaces");
        }
        can_enter.then_some(hosts)
    }

    /// Runs a command in a host; false if it fails.
    pub fn try_run(&self, host: usize, command: &str) -> bool {
        let net = format!("--net={}", self.network_of(host));
        let mut nsenter = Command::new("nsenter");
        let status = nsenter.arg(net).args(command.split(' ')).status();
        status.is_ok_and(|status| status.success())
    }

    /// The file that stands for a host's network.
    pub fn network_of(&self, host: usize) -> String {
        format!("/proc/{}/ns/net", self.0[host].id())
    }

    /// Bytes that an interface of a host has received.
    pub fn received(&self, host: usize, interface: &str) -> u64 {
        let path = format!("/proc/{}/net/dev", self.0[host].id());
        let table = std::fs::read_to_string(path).unwrap();
        let mut lines = table.lines().filter_map(|line| line.split_once(':'));
        let line = lines.find(|(name, _)| name.trim() == interface);
        let (_, figures) = line.unwrap_or_else(|| panic!("no {interface} in {table}"));
        figures.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// A command in a host.
    pub fn command(&self, host: usize, program: &str) -> Command {
        let mut nsenter = Command::new("nsenter");
        nsenter.arg(format!("--net={}", self.network_of(host))).arg(program);
        nsenter
    }

    /// The same command in a host, with its arguments, folder and variables. It has nothing to read.
    pub fn inside(&self, host: usize, inner: &Command) -> Command {
        let mut command = self.command(host, inner.get_program().to_str().unwrap());
        command.args(inner.get_args()).stdin(Stdio::null());
        if let Some(folder) = inner.get_current_dir() {
            command.current_dir(folder);
        }
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Process ids that stand for the hosts.
    pub fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }

    /// Runs a command in a host; `PID` followed by a host's number stands for its namespace.
    pub fn run(&self, host: usize, command: &str) {
        let mut command = command.to_owned();
        for (number, holder) in self.0.iter().enumerate() {
            command = command.replace(&format!("PID{number}"), &holder.id().to_string());
        }
        assert!(self.try_run(host, &command), "host {host}: {command}");
    }

    /// A line between two hosts, of the given MTU, with addresses that end in 1 for host 0, 2 for host 1 and so on.
    pub fn connect(&self, [a, b]: [usize; 2], net: u8, mtu: usize) {
        let (ours, theirs) = (format!("to{b}"), format!("to{a}"));
        self.run(a, &format!("ip link add {ours} type veth peer name {theirs} netns PID{b}"));
        for (host, line) in [(a, &ours), (b, &theirs)] {
            let number = host + 1;
            self.run(host, &format!("ip address add 10.0.{net}.{number}/24 dev {line}"));
            let ip = format!("fd00:{net}::{number}/64");
            self.run(host, &format!("ip address add {ip} dev {line} nodad"));
            self.run(host, &format!("ip link set {line} mtu {mtu} up"));
        }
    }
}

impl Hosts {
    /// Joins `hosts` by a switch in host `switch`, as network `net`: addresses end in 1 for host 0, 2 for host 1 and so on. False where
    /// the kernel has no bridges.
    pub fn join(&self, switch: usize, hosts: std::ops::Range<usize>, net: u8) -> bool {
        let bridge = format!("net{net}");
        if !self.try_run(switch, &format!("ip link add {bridge} type bridge")) {
            crate::skip!("the kernel has no bridges");
            return false;
        }
        self.run(switch, &format!("ip link set {bridge} up"));
        for host in hosts {
            let (port, line) = (format!("port{net}x{host}"), format!("eth{net}"));
            let add = format!("ip link add {port} type veth peer name {line} netns PID{host}");
            self.run(switch, &add);
            self.run(switch, &format!("ip link set {port} master {bridge} up"));
            let number = host + 1;
            self.run(host, &format!("ip address add 10.0.{net}.{number}/24 dev {line}"));
            self.run(host, &format!("ip link set {line} up"));
        }
        true
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for holder in &mut self.0 {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

/// Processes whose network this is.
pub fn processes_in(network: &str) -> Vec<u32> {
    let wanted = std::fs::read_link(network).unwrap();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_there = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|network| network == wanted);
    numbers.filter(is_there).collect()
}
