//! Donors of a bench: `mapwire serve --donate`, which poll.

use std::fs::DirBuilder;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use mapwire::global::{DirectoryPlacement, DonorStore, Lenders};
use mapwire_host::page::PAGE_BYTES;
use mapwire_host::paging::DiskStore;
use rustix::process::{Pid, Signal, kill_process};

use super::hosts::Hosts;
use crate::BenchError;
use crate::job::launcher;

/// MiB of each donor on this host, which takes no more of them than it uses.
const MIB: usize = 1 << 10;

/// Where donors are.
#[derive(Clone, Copy)]
pub(super) enum Site<'a> {
    /// On this host.
    Here,
    /// On one of these, which has this address.
    At(&'a Hosts, usize),
}

impl Site<'_> {
    /// MiB of a donor that is to have so many pages: one of another host pins all that it lends.
    fn mib(self, pages: usize) -> usize {
        match self {
            Self::Here => MIB,
            Self::At(..) => pages * PAGE_BYTES / (1 << 20) + 64,
        }
    }
}

/// As many donors as there are copies of a page. They end when this is dropped.
pub(super) struct Donors {
    processes: Vec<Child>,
    /// The processes that lend.
    lending: Arc<Mutex<Vec<Pid>>>,
    lenders: Lenders,
    folder: PathBuf,
    /// How much each donates.
    size: String,
}

impl Donors {
    pub(super) fn start(copies: u8, place: Site<'_>, pages: usize) -> Result<Self, BenchError> {
        let folder = std::env::temp_dir().join(format!("mapwire-bench-{}", std::process::id()));
        // One that is there may be another user's.
        DirBuilder::new().mode(0o700).create(&folder)?;
        let mut donors = Self {
            processes: Vec::new(),
            lending: Arc::default(),
            lenders: Lenders {
                store: "mapwire://127.0.0.1".parse()?,
                secret_file: folder.join("secret"),
                copies,
                directory: DirectoryPlacement::default(),
            },
            folder,
            size: format!("{}M", place.mib(pages)),
        };
        let address = match place {
            Site::Here => "127.0.0.1:0".to_owned(),
            Site::At(_, host) => format!("{}:0", Hosts::address(host)),
        };
        let store = donors.start_one(place, ["--listen", &address])?;
        donors.lenders.store = store.parse()?;
        for _ in 1..copies {
            donors.start_one(place, ["--names", &store])?;
        }
        Ok(donors)
    }

    /// Starts a donor; where it is found.
    fn start_one(&mut self, place: Site<'_>, names: [&str; 2]) -> Result<String, BenchError> {
        let mut command = launcher()?;
        command
            .args(["serve", "--json", "--donate", &self.size, "--secret-file"])
            .arg(&self.lenders.secret_file)
            .args(names)
            .env("MAPWIRE_WAIT", "poll")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = match place {
            Site::Here => command.spawn()?,
            Site::At(hosts, host) => hosts.at(host, || command.spawn())??,
        };
        let stdout = process.stdout.take();
        self.processes.push(process);
        let lines = stdout.map(BufReader::new).into_iter().flat_map(BufRead::lines);
        let mut said = lines
            .map_while(Result::ok)
            .map(|line| serde_json::from_str::<serde_json::Value>(&line).unwrap_or_default());
        let begun = said.find(|said| said["event"] == "donating");
        let begun = begun.ok_or("a donor did not begin: is there memory for it, 1 GiB on this host?")?;
        let lending = Arc::clone(&self.lending);
        std::thread::Builder::new().spawn(move || {
            for said in said.filter(|said| said["event"] == "lends") {
                let pid = said["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32));
                let mut lending = lending.lock().unwrap_or_else(PoisonError::into_inner);
                lending.extend(pid);
            }
        })?;
        Ok(begun["names"].as_str().unwrap_or_default().to_owned())
    }

    /// Has the processes that lend stand still while `work` runs, for a moment: they poll, and would take its processor.
    pub(super) fn while_still<T>(&self, work: impl FnOnce() -> T) -> T {
        let lending = self.lending.lock().unwrap_or_else(PoisonError::into_inner);
        let tell = |signal| {
            for &process in &*lending {
                // One that has ended stands still, too.
                let _ = kill_process(process, signal);
            }
        };
        tell(Signal::STOP);
        let done = work();
        tell(Signal::CONT);
        done
    }

    /// A store that has its pages at them.
    pub(super) fn store(&self) -> Result<DonorStore, BenchError> {
        let disk = DiskStore::new(std::env::temp_dir())?;
        let report = |text: &str| eprintln!("mapwire: {text}");
        Ok(DonorStore::new(disk, self.lenders.clone(), report)?)
    }
}

impl Drop for Donors {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
