//! Two hosts of a bench: network namespaces of this computer, joined by a line.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::BenchError;

/// How long a namespace may take to come.
const PATIENCE: Duration = Duration::from_secs(10);

/// Two namespaces, which end with this and with the processes in them.
pub(super) struct Hosts {
    networks: [File; 2],
}

/// A process that keeps a namespace until it has a file that does.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Holder {
    /// Ends when this process does, since nobody holds its input then.
    fn start() -> Result<Self, BenchError> {
        let child = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot run unshare, of util-linux: {error}"))?;
        let mut holder = Self(child);
        let ours = std::fs::read_link("/proc/self/ns/net")?;
        let begun = Instant::now();
        while std::fs::read_link(holder.network()).is_ok_and(|its| its == ours) {
            if holder.0.try_wait()?.is_some() || begun.elapsed() > PATIENCE {
                return Err("cannot make a network namespace for the donor's host: run the bench as root".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(holder)
    }

    fn network(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }
}

impl Hosts {
    /// Two hosts with a line of this MTU between them.
    ///
    /// # Errors
    /// Namespaces are not allowed, or a command is missing.
    pub(super) fn new(mtu: usize) -> Result<Self, BenchError> {
        let holders = [Holder::start()?, Holder::start()?];
        let hosts = Self { networks: [File::open(holders[0].network())?, File::open(holders[1].network())?] };
        let line = format!("ip link add line type veth peer name line netns {}", holders[1].0.id());
        hosts.run(0, &line)?;
        for host in 0..2 {
            let address = Self::address(host);
            hosts.run(host, "ip link set lo up")?;
            hosts.run(host, &format!("ip address add {address}/24 dev line"))?;
            hosts.run(host, &format!("ip link set line mtu {mtu} up"))?;
        }
        Ok(hosts)
    }

    /// The address of host 0 or 1.
    pub(super) fn address(host: usize) -> String {
        format!("10.0.0.{}", host + 1)
    }

    fn run(&self, host: usize, command: &str) -> Result<(), BenchError> {
        let mut words = command.split(' ');
        let mut process = Command::new(words.next().unwrap_or_default());
        process.args(words).stdin(Stdio::null());
        let done = self.at(host, || process.output())?;
        let done = done.map_err(|error| format!("cannot run ip, of iproute2: {error}"))?;
        match done.status.success() {
            true => Ok(()),
            false => {
                let why = String::from_utf8_lossy(&done.stderr);
                Err(format!("`{command}` failed: {}", why.trim()).into())
            }
        }
    }

    /// Calls `work` on a thread of a host: sockets that it makes and processes that it starts are of that host.
    ///
    /// # Errors
    /// The thread may not enter the host.
    pub(super) fn at<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let network = &self.networks[host];
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                enter(network)?;
                Ok(work())
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread, and those that it starts from here on, to a host.
    ///
    /// # Errors
    /// That is not allowed.
    pub(super) fn enter(&self, host: usize) -> io::Result<()> {
        enter(&self.networks[host])
    }
}

fn enter(network: &File) -> io::Result<()> {
    Ok(move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?)
}
